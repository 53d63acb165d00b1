//! `storage-conf.xml` to typed settings.
//!
//! A file of 0.4, 0.5 or 0.6 is read as it is. Text becomes a tree of elements ([`xml`]), the
//! tree becomes [`Settings`] or all of its errors ([`ConfigErrors`]), and elements that are
//! unknown, outdated or without effect become [`Note`]s. Settings are read once and shared; no code
//! parses configuration text later.

mod addresses;
pub mod classes;
pub mod datacenters;
mod declared;
mod describe;
mod directories;
mod document;
mod elements;
pub mod error;
pub mod java_properties;
mod keyspaces;
mod load;
pub mod machine;
mod memory;
pub mod placements;
pub mod properties;
pub mod rack_file;
mod reload;
pub mod settings;
pub mod xml;

#[cfg(test)]
mod tests;

pub use describe::{describe, family_text};
pub use document::Source;
pub use error::{ConfigError, ConfigErrors, FailureClass, Note, NoteLevel};
pub use load::{FILE_NAME, Loaded, Loader, read};
pub use placements::Placements;
pub use properties::Properties;
pub use reload::{Difference, Overlay};
pub use settings::{LogFile, Settings};
