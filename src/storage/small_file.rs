//! Small files that are written whole: manifests, marks, histories.

use super::error::{FileContext, FileError};
use super::files;
use crate::base::fs::FileSystem;
use std::path::Path;

/// Writes a small file anew under its temporary name, and gives it its own: it is there as it was,
/// or as it is now. Its content is durable then, its name after a sync of its folder.
pub fn rewrite(fs: &dyn FileSystem, path: &Path, content: &[u8]) -> Result<(), FileError> {
    let temporary = files::temporary(path);
    if fs.exists(&temporary) {
        fs.remove_file(&temporary).context("remove", &temporary)?;
    }
    let file = fs.create(&temporary).context("create", &temporary)?;
    file.write_all_at(content, 0).context("write", &temporary)?;
    file.sync().context("sync", &temporary)?;
    fs.rename(&temporary, path).context("rename", &temporary)
}

/// [`rewrite`], and makes the name durable as well.
pub fn replace(fs: &dyn FileSystem, path: &Path, content: &[u8]) -> Result<(), FileError> {
    rewrite(fs, path, content)?;
    let directory = path.parent().unwrap_or(path);
    fs.sync_dir(directory).context("sync", directory)
}
