//! `storage-conf.xml` to typed settings.
//!
//! A file of 0.4, 0.5 or 0.6 is read as it is. Text becomes a tree of elements ([`xml`]), the
//! tree becomes [`Settings`] or the first error that the original would have reported
//! ([`ConfigError`]), and what is unknown, outdated or without effect becomes [`Note`]s. Settings
//! are read once and shared; nobody parses configuration text later.

pub mod classes;
pub mod datacenters;
mod describe;
mod directories;
mod document;
pub mod error;
pub mod hosts;
pub mod java_properties;
mod keyspaces;
mod known;
mod load;
mod memory;
pub mod notes;
mod ours;
pub mod placements;
pub mod properties;
pub mod rack_file;
pub mod settings;
pub mod xml;
mod xml_text;

#[cfg(test)]
mod tests;

pub use describe::describe;
pub use document::Source;
pub use error::{ConfigError, FailureClass};
pub use load::{FILE_NAME, Loaded, Loader};
pub use notes::{Note, NoteLevel};
pub use placements::Placements;
pub use properties::Properties;
pub use settings::Settings;
