//! The names of hint files. Nothing else builds or reads one.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::storage::files::temporary;
use crate::storage::log::parse_number;

const SUFFIX: &str = ".hints";
const PROGRESS: &str = "delivered";
const OWNER: &str = "heir";

/// What a file in the folder of a target is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileName {
    /// The segment of this number.
    Segment(u64),
    /// How far the log was delivered.
    Progress,
    /// The owner of the hints, if that is not their target.
    Owner,
    /// One of these two, not finished.
    Unfinished,
    /// Not one of ours.
    Other,
}

impl FileName {
    /// What the file of this name is.
    pub(super) fn parse(name: &str) -> Self {
        if name == PROGRESS {
            return Self::Progress;
        }
        if name == OWNER {
            return Self::Owner;
        }
        if [PROGRESS, OWNER].iter().any(|it| Path::new(name) == temporary(Path::new(it))) {
            return Self::Unfinished;
        }
        let number = name.strip_suffix(SUFFIX).and_then(parse_number);
        number.map_or(Self::Other, Self::Segment)
    }
}

/// The folder of the hints for this target.
pub(super) fn target_folder(directory: &Path, target: IpAddr) -> PathBuf {
    directory.join(target.to_string())
}

/// Whose folder has this name; none for every name that [`target_folder`] would not give.
pub(super) fn target_of(name: &str) -> Option<IpAddr> {
    let target: IpAddr = name.parse().ok()?;
    (target.to_canonical() == target && target.to_string() == name).then_some(target)
}

/// The segment of this number in the folder of its target.
pub(super) fn segment(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number}{SUFFIX}"))
}

/// What says how far the hints in this folder were delivered.
pub(super) fn progress(folder: &Path) -> PathBuf {
    folder.join(PROGRESS)
}

/// The file with the owner of the hints in this folder.
pub(super) fn owner(folder: &Path) -> PathBuf {
    folder.join(OWNER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_as_they_are_built() {
        let folder = Path::new("/hints");
        for target in ["10.0.0.7", "::1", "2001:db8::7"] {
            let path = target_folder(folder, target.parse().unwrap());
            assert_eq!(path, folder.join(target));
            assert_eq!(target_of(target), Some(target.parse().unwrap()));
        }
        let parse = |path: &Path| FileName::parse(path.file_name().unwrap().to_str().unwrap());
        assert_eq!(parse(&segment(folder, 17)), FileName::Segment(17));
        assert_eq!(parse(&progress(folder)), FileName::Progress);
        assert_eq!(parse(&owner(folder)), FileName::Owner);
        for path in [progress(folder), owner(folder)] {
            assert_eq!(parse(&temporary(&path)), FileName::Unfinished);
        }
    }

    #[test]
    fn only_names_that_we_would_give_are_ours() {
        for other in ["0.hints", "01.hints", "+1.hints", ".hints", "1.hint", "1.hints.bak"] {
            assert_eq!(FileName::parse(other), FileName::Other, "{other}");
        }
        assert_eq!(FileName::parse("9223372036854775808.hints"), FileName::Other);
        for other in ["localhost", "10.0.0.07", "::ffff:10.0.0.7", "0:0:0:0:0:0:0:1", "10.0.0.7 "] {
            assert_eq!(target_of(other), None, "{other}");
        }
    }
}
