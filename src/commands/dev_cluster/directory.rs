//! Directory of a cluster for development.

use crate::commands::output::Failure;
use crate::config::FILE_NAME;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The directory with those of all nodes. A temporary one is removed when this is
/// dropped.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) path: PathBuf,
    pub(super) is_temporary: bool,
}

fn unusable(path: &Path, source: &io::Error) -> Failure {
    Failure::new(format_args!("cannot use {}: {source}", path.display()))
}

impl Directory {
    /// Opens the named directory, for this number of nodes, or makes a temporary one.
    pub(super) fn open(named: Option<PathBuf>, nodes: usize) -> Result<Self, Failure> {
        let Some(path) = named else {
            let name = format!("alexandra-dev-cluster-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            // Not one that another user has put there.
            let made = DirBuilder::new().mode(0o700).create(&path);
            made.map_err(|source| unusable(&path, &source))?;
            return Ok(Self { path, is_temporary: true });
        };
        let unusable = |source| unusable(&path, &source);
        fs::create_dir_all(&path).map_err(unusable)?;
        let path = path.canonicalize().map_err(unusable)?;
        let found = count_nodes(&path).map_err(unusable)?;
        // The nodes there have their places on the ring already.
        if found != 0 && found != nodes {
            let path = path.display();
            return Err(Failure::new(format_args!(
                "{path} has the data of {found} nodes, not of {nodes}: say --nodes {found}, or \
                 name another directory"
            )));
        }
        Ok(Self { path, is_temporary: false })
    }
}

/// Writes the configuration of a node into its directory.
pub(super) fn write_configuration(node: &Path, text: &str) -> Result<(), Failure> {
    let file = node.join(FILE_NAME);
    let write = |()| {
        // It may have a token.
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&file);
        file?.write_all(text.as_bytes())
    };
    let written = fs::create_dir_all(node).and_then(write);
    written.map_err(|source| unusable(&file, &source))
}

/// Number of nodes that have their data here.
fn count_nodes(path: &Path) -> io::Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("node"));
        count += usize::from(number.is_some_and(|number| number.parse::<usize>().is_ok()));
    }
    Ok(count)
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.is_temporary
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            complain!("cannot remove {}: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_that_of_one_number_of_nodes() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/cluster");
        let directory = Directory::open(Some(path.clone()), 2).unwrap();
        for node in ["node1", "node2"] {
            write_configuration(&directory.path.join(node), "<Storage/>").unwrap();
        }
        fs::write(path.join("nodes.txt"), "not one").unwrap();
        drop(directory);
        Directory::open(Some(path.clone()), 2).unwrap();
        let refused = Directory::open(Some(path), 3).unwrap_err();
        assert!(refused.text.contains(" has the data of 2 nodes, not of 3: "), "{refused:?}");
    }
}
