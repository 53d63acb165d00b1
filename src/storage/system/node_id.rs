//! The number of a node, by which it knows its manifests from those of other nodes.
//!
//! A node draws it once. All manifests that it writes carry it, and no other file does.

use crate::base::fs::FileSystem;
use crate::storage::error::{FileContext, ReadError};
use crate::storage::files::{FileName, keyspace_folders};
use crate::storage::manifest::Manifest;
use std::path::{Path, PathBuf};

/// The number of the node that the data directories belong to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeId {
    /// The number.
    pub number: u64,
    /// The manifests that carry a number, by path.
    manifests: Vec<(PathBuf, u64)>,
}

impl NodeId {
    /// Returns the number that most manifests in the data directories carry; draws one if there
    /// is none yet.
    pub fn find(fs: &dyn FileSystem, dirs: &[PathBuf], seed: u64) -> Result<Self, ReadError> {
        let mut manifests = Vec::new();
        for directory in dirs {
            if !fs.try_exists(directory).context("look for", directory)? {
                continue;
            }
            for folder in keyspace_folders(fs, directory).context("list", directory)? {
                for entry in folder.entries {
                    let FileName::Manifest(_) = FileName::parse(&entry.name) else { continue };
                    let path = folder.path.join(&entry.name);
                    match Manifest::load(fs, &path) {
                        Ok(manifest) => {
                            let node = manifest.and_then(|manifest| manifest.node);
                            manifests.extend(node.map(|node| (path, node)));
                        }
                        // It stops the start when its column family is opened.
                        Err(ReadError::Corrupt(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        manifests.sort_unstable();
        let mut found = Self { number: 0, manifests };
        let numbers = found.manifests.iter().map(|(_, number)| *number);
        let most = numbers.max_by_key(|number| found.count(*number));
        found.number = most.unwrap_or_else(|| fastrand::Rng::with_seed(seed).u64(..));
        Ok(found)
    }

    /// Returns what a reader has that takes the manifest of any node.
    pub fn any() -> Self {
        Self::default()
    }

    /// Returns a manifest that says that a manifest of this number is another node's: there are at
    /// least as many of its kind.
    pub fn contradicting(&self, node: u64) -> Option<&Path> {
        let mut others = self.manifests.iter().filter(|(_, number)| *number != node);
        let found = others.find(|(_, number)| self.count(*number) >= self.count(node));
        found.map(|(path, _)| path.as_path())
    }

    fn count(&self, node: u64) -> usize {
        self.manifests.iter().filter(|(_, number)| *number == node).count()
    }
}
