//! Small files that are written whole: manifests, marks, histories. Those that are text end with a
//! checksum of their lines.

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

/// The text with a last line that holds the CRC32 of all lines before, in hexadecimal.
pub fn seal(text: &str) -> String {
    format!("{text}crc {:08x}\n", crc32fast::hash(text.as_bytes()))
}

/// The text without characters that would break a line.
pub fn on_one_line(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// Reads a small file of [sealed](seal) lines and makes of them what `parse` does. The inner error
/// says how it shows that the file is not what was written; one of more than `max_bytes` is none of
/// ours.
pub fn read_sealed<T>(
    fs: &dyn FileSystem,
    path: &Path,
    max_bytes: u64,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Result<T, &'static str>, FileError> {
    let size = fs.open(path).and_then(|file| file.size()).context("open", path)?;
    if size > max_bytes {
        return Ok(Err("it is too long"));
    }
    let content = fs.read(path).context("read", path)?;
    Ok(unseal(&content)
        .map_err(|(_, reason)| reason)
        .and_then(|text| parse(text).ok_or("its lines are not known")))
}

/// The lines that were [sealed](seal); else at which byte it shows that they are not what they
/// were, and how.
pub fn unseal(content: &[u8]) -> Result<&str, (usize, &'static str)> {
    let text = std::str::from_utf8(content).map_err(|e| (e.valid_up_to(), "it is not text"))?;
    let (body, crc) = text
        .strip_suffix('\n')
        .and_then(|text| text.rsplit_once("crc "))
        .ok_or((text.len(), "its last line is missing"))?;
    if crc != format!("{:08x}", crc32fast::hash(body.as_bytes())) {
        return Err((body.len(), "its checksum does not match"));
    }
    Ok(body)
}
