//! `storage-conf.xml` to typed settings.
