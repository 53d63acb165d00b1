//! Directories that survive a power loss.

use crate::base::fs::FileSystem;
use std::io;
use std::path::Path;

/// Creates a directory with its parents, durably: each level that was missing is synced in the
/// level above it. What is written into a directory whose own name is lost is lost with it.
pub fn create(fs: &dyn FileSystem, directory: &Path) -> io::Result<()> {
    let missing: Vec<_> = directory
        .ancestors()
        .take_while(|level| !level.as_os_str().is_empty() && !fs.exists(level))
        .collect();
    fs.create_dir_all(directory)?;
    for level in missing {
        let parent = level.parent().filter(|parent| !parent.as_os_str().is_empty());
        fs.sync_dir(parent.unwrap_or(Path::new(".")))?;
    }
    Ok(())
}
