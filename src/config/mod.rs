//! `storage-conf.xml` to typed settings.

pub mod xml;
