//! The number of a node, by which it knows its manifests from those of other nodes.
//!
//! A node draws it once. All manifests that it writes carry it, and no other file does.

use super::error::ReadError;
use super::files;
use super::manifest::Manifest;
use super::options::Options;
use crate::base::fs::FileSystem;
use crate::model::schema::Schema;
use std::path::PathBuf;

/// The number of the node that the data directories belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeId {
    /// The number.
    pub number: u64,
    /// A manifest that carries it; `None` if there is none yet.
    pub manifest: Option<PathBuf>,
}

impl NodeId {
    /// Returns the number that a manifest in the data directories carries, or else draws one.
    pub fn find(
        fs: &dyn FileSystem,
        options: &Options,
        schema: &Schema,
    ) -> Result<Self, ReadError> {
        for (_, family) in schema.families() {
            for directory in &options.data_directories {
                let folder = files::keyspace_folder(directory, &family.keyspace);
                let path = files::manifest(&folder, &family.name);
                let manifest = match Manifest::load(fs, &path) {
                    // It stops the start when its column family is opened.
                    Err(ReadError::Corrupt(_)) => continue,
                    loaded => loaded?.unwrap_or_default(),
                };
                if let Some(number) = manifest.node {
                    return Ok(Self { number, manifest: Some(path) });
                }
            }
        }
        let drawn = fastrand::Rng::with_seed(options.seed).u64(..);
        Ok(Self { number: drawn, manifest: None })
    }

    /// Returns what a reader has that takes the manifest of any node.
    pub fn any() -> Self {
        Self { number: 0, manifest: None }
    }
}
