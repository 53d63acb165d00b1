//! What lies between two positions, for who wants to tell of it.

use super::super::Position;
use super::super::files;
use super::super::replay::deliver;
use super::super::survey::{Survey, Surveyed};
use super::segment_ids;
use crate::base::fs::FileSystem;
use std::convert::Infallible;
use std::io;
use std::path::Path;

/// Hands the records behind `start` up to `end` to `look`, each with the last time that the log
/// notes before it, in milliseconds since the Unix epoch. What is missing or cannot be read is
/// left out.
pub fn records_between(
    fs: &dyn FileSystem,
    archive: &Path,
    (start, end): (Position, Position),
    look: &mut dyn FnMut(Option<u64>, &[u8]),
) -> io::Result<()> {
    let ids = segment_ids(fs, archive)?.into_iter();
    for id in ids.filter(|id| (start.segment..=end.segment).contains(id)) {
        let path = files::segment_path(archive, id);
        let mut times = Vec::new();
        let found = Survey::of(fs, &path, id, &mut |offset, millis| times.push((offset, millis)));
        let Ok(Surveyed::Segment(segment)) = found else { continue };
        let mut times = times.into_iter().peekable();
        let mut time = None;
        let delivered = deliver::<Infallible>(&segment, &path, fs, &mut |position, body| {
            while let Some((_, noted)) = times.next_if(|(offset, _)| *offset < position.offset) {
                time = noted;
            }
            if start < position && position <= end {
                look(time, body);
            }
            Ok(())
        });
        if let Err(error) = delivered {
            log::warn!("{error}");
        }
    }
    Ok(())
}
