//! Small files that are written whole: manifests, guards, progress.
//!
//! ```text
//! alexandra <kind> <version>
//! ...                        the state, in lines
//! crc <CRC32 of all lines before, in hexadecimal>
//! ```

use super::error::{Corrupt, FileContext, FileError, ReadError};
use super::files;
use crate::base::fs::FileSystem;
use std::path::{Path, PathBuf};

/// Longest file that is read: a longer one is none of ours.
const MAX_BYTES: u64 = 64 << 20;

/// Content of a checked file.
pub trait CheckedState: Sized {
    /// Name of the kind of file in its first line.
    const KIND: &'static str;
    /// Version that is written. Earlier ones are read.
    const VERSION: u32;

    /// Returns the lines of the state, each with its end.
    fn encode(&self) -> String;

    /// Reads what [`CheckedState::encode`] of this version has written.
    fn decode(version: u32, lines: &str) -> Option<Self>;
}

/// Reads a file; `None` if it is not there.
pub fn load<S: CheckedState>(fs: &dyn FileSystem, path: &Path) -> Result<Option<S>, ReadError> {
    if !fs.try_exists(path).context("look for", path)? {
        return Ok(None);
    }
    let size = fs.open(path).and_then(|file| file.size()).context("open", path)?;
    if size > MAX_BYTES {
        return Err(Corrupt::new(path, MAX_BYTES, "it is too long").into());
    }
    let state = parse(&fs.read(path).context("read", path)?);
    Ok(Some(state.map_err(|(offset, reason)| Corrupt::new(path, offset as u64, reason))?))
}

/// Writes a file under its temporary name and renames it: it is there as it was, or as it is now.
/// Its content is durable then, its name after a sync of its folder.
pub fn store<S: CheckedState>(
    fs: &dyn FileSystem,
    path: &Path,
    state: &S,
) -> Result<(), FileError> {
    rewrite(fs, path, render(state).as_bytes())
}

/// Reads the state that one of a node's data directories holds. A damaged file counts as none.
pub fn load_first<S: CheckedState>(
    fs: &dyn FileSystem,
    dirs: &[PathBuf],
    name: &str,
) -> Result<Option<S>, FileError> {
    for path in dirs.iter().map(|directory| directory.join(name)) {
        match load(fs, &path) {
            Ok(None) => {}
            Ok(found) => return Ok(found),
            Err(ReadError::Io(error)) => return Err(error),
            Err(error) => log::warn!("{error}. It counts as missing"),
        }
    }
    Ok(None)
}

/// Stores a state durably in the first data directory, and removes it from the others: they may
/// have changed places.
pub fn store_first<S: CheckedState>(
    fs: &dyn FileSystem,
    dirs: &[PathBuf],
    name: &str,
    state: &S,
) -> Result<(), FileError> {
    let (first, others) = dirs.split_first().expect("a server has a data directory");
    replace(fs, &first.join(name), render(state).as_bytes())?;
    remove(fs, others, name)
}

/// Removes a file durably from all data directories.
pub fn remove(fs: &dyn FileSystem, dirs: &[PathBuf], name: &str) -> Result<(), FileError> {
    for directory in dirs {
        let path = directory.join(name);
        if fs.try_exists(&path).context("look for", &path)? {
            fs.remove_file(&path).context("remove", &path)?;
            fs.sync_dir(directory).context("sync", directory)?;
        }
    }
    Ok(())
}

/// Writes any small file durably, name included, in place of the one that is there.
pub fn replace(fs: &dyn FileSystem, path: &Path, content: &[u8]) -> Result<(), FileError> {
    rewrite(fs, path, content)?;
    let directory = path.parent().unwrap_or(path);
    fs.sync_dir(directory).context("sync", directory)
}

/// Returns the text without characters that would break a line.
pub fn on_one_line(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// Returns the rest of the line that begins with this word.
pub fn field<'a>(lines: &'a str, name: &str) -> Option<&'a str> {
    lines.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
}

fn rewrite(fs: &dyn FileSystem, path: &Path, content: &[u8]) -> Result<(), FileError> {
    let temporary = files::temporary(path);
    let file = files::create_anew(fs, &temporary)?;
    file.write_all_at(content, 0).context("write", &temporary)?;
    file.sync().context("sync", &temporary)?;
    fs.rename(&temporary, path).context("rename", &temporary)
}

fn render<S: CheckedState>(state: &S) -> String {
    let text = format!("alexandra {} {}\n{}", S::KIND, S::VERSION, state.encode());
    format!("{text}crc {:08x}\n", crc32fast::hash(text.as_bytes()))
}

/// Reads a state; else tells at which byte it shows that the content is not what was written.
fn parse<S: CheckedState>(content: &[u8]) -> Result<S, (usize, &'static str)> {
    let text = std::str::from_utf8(content).map_err(|e| (e.valid_up_to(), "it is not text"))?;
    let (body, crc) = text
        .strip_suffix('\n')
        .and_then(|text| text.rsplit_once("crc "))
        .ok_or((text.len(), "its last line is missing"))?;
    if crc != format!("{:08x}", crc32fast::hash(body.as_bytes())) {
        return Err((body.len(), "its checksum does not match"));
    }
    let (head, lines) = body.split_once('\n').unwrap_or((body, ""));
    let version = head
        .strip_prefix("alexandra ")
        .and_then(|head| head.strip_prefix(S::KIND)?.strip_prefix(' ')?.parse().ok())
        .filter(|version| (1..=S::VERSION).contains(version))
        .ok_or((0, "its version is not known"))?;
    S::decode(version, lines).ok_or((head.len() + 1, "its lines are not known"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::kit::disk::SimFileSystem;
    use std::fmt::Debug;

    /// Stores a state, and checks that it comes back and that no changed bit or cut passes.
    pub(crate) fn check_codec<S: CheckedState + PartialEq + Debug>(state: &S) {
        let (fs, path) = (SimFileSystem::new(1), Path::new("/data/state"));
        fs.create_dir_all(Path::new("/data")).unwrap();
        assert_eq!(load::<S>(&fs, path).unwrap(), None);
        store(&fs, path, state).unwrap();
        assert_eq!(load::<S>(&fs, path).unwrap().as_ref(), Some(state));
        let whole = render(state).into_bytes();
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                assert!(parse::<S>(&damaged).is_err(), "bit {bit} of byte {at}");
            }
            assert!(parse::<S>(&whole[..at]).is_err(), "cut at {at}");
        }
    }

    /// Reads a state from these lines in a sound file of any version.
    pub(crate) fn read_lines<S: CheckedState>(text: &str) -> Result<S, &'static str> {
        let sealed = format!("{text}crc {:08x}\n", crc32fast::hash(text.as_bytes()));
        parse(sealed.as_bytes()).map_err(|(_, reason)| reason)
    }

    #[derive(Debug, PartialEq, Eq)]
    struct Number(u64);

    impl CheckedState for Number {
        const KIND: &'static str = "number";
        const VERSION: u32 = 2;

        fn encode(&self) -> String {
            format!("is {}\n", self.0)
        }

        fn decode(_version: u32, lines: &str) -> Option<Self> {
            Some(Self(field(lines, "is")?.parse().ok()?))
        }
    }

    #[test]
    fn a_file_of_another_kind_or_a_later_version_says_so() {
        assert_eq!(read_lines("alexandra number 1\nis 7\n"), Ok(Number(7)));
        for head in ["alexandra number 3", "alexandra number 0", "alexandra numbers 1", "number"] {
            let read = read_lines::<Number>(&format!("{head}\nis 7\n"));
            assert_eq!(read, Err("its version is not known"), "{head}");
        }
        let read = read_lines::<Number>("alexandra number 1\nis x\n");
        assert_eq!(read, Err("its lines are not known"));
    }

    #[test]
    fn the_first_directory_gets_the_state_and_the_others_lose_it() {
        let fs = SimFileSystem::new(1);
        let mut directories: Vec<PathBuf> = vec!["/a".into(), "/b".into()];
        for directory in &directories {
            fs.create_dir_all(directory).unwrap();
        }
        let find = |directories: &[PathBuf]| load_first::<Number>(&fs, directories, "it").unwrap();
        assert_eq!(find(&directories), None);
        for number in [5, 3] {
            store_first(&fs, &directories, "it", &Number(number)).unwrap();
            directories.reverse();
            assert_eq!(find(&directories), Some(Number(number)));
        }
        fs.corrupt(Path::new("/b/it"), 20, 1).unwrap();
        assert_eq!(find(&directories), None, "it is damaged");
        remove(&fs, &directories, "it").unwrap();
        assert!(!fs.exists(Path::new("/b/it")));
    }
}
