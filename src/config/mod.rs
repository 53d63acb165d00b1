//! `storage-conf.xml` to typed settings.

pub mod classes;
pub mod hosts;
pub mod java_properties;
pub mod properties;
pub mod xml;
