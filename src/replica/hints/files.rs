//! The names of hint files. Nothing else builds or reads one.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::storage::files::temporary;

const SUFFIX: &str = ".hints";
const PROGRESS: &str = "delivered";
const HEIR: &str = "heir";

/// Largest number of a segment; counting up from any file cannot overflow.
const MAX_NUMBER: u64 = i64::MAX as u64;

/// What a file in the folder of a target is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileName {
    /// The segment of this number.
    Segment(u64),
    /// How far the log was delivered.
    Progress,
    /// Who gets the hints instead of their target.
    Heir,
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
        if name == HEIR {
            return Self::Heir;
        }
        if [PROGRESS, HEIR].iter().any(|it| Path::new(name) == temporary(Path::new(it))) {
            return Self::Unfinished;
        }
        segment_number(name).map_or(Self::Other, Self::Segment)
    }
}

fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX)?;
    let number: u64 = digits.parse().ok()?;
    ((1..=MAX_NUMBER).contains(&number) && number.to_string() == digits).then_some(number)
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

/// What says who gets the hints in this folder instead of their target.
pub(super) fn heir(folder: &Path) -> PathBuf {
    folder.join(HEIR)
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
        assert_eq!(parse(&segment(folder, MAX_NUMBER)), FileName::Segment(MAX_NUMBER));
        assert_eq!(parse(&progress(folder)), FileName::Progress);
        assert_eq!(parse(&heir(folder)), FileName::Heir);
        for path in [progress(folder), heir(folder)] {
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
