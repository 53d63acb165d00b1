//! Replay of logs that are not as they were written.

use super::*;

/// A log of several segments, everything synced, not closed: killed right after the sync.
fn synced_log() -> (SimFileSystem, Records) {
    let disk = disk::disk();
    let log = open(&disk, ON_DEMAND, 400);
    let records = fill(&log, 1, 20);
    log.sync_now().unwrap();
    // A segment may just be being made ahead of need, or not.
    (disk.after_kill(), records)
}

fn damage_of(disk: &SimFileSystem) -> Damage {
    match try_read_back(disk, false) {
        Err(ReplayError::Damaged(damage)) => damage,
        other => panic!("not damaged but {other:?}"),
    }
}

/// Records that came back, all of them known to be right, as their numbers in `all`.
fn survivors(all: &Records, found: &Records) -> Vec<usize> {
    let number = |record| all.iter().position(|known| known == record);
    found.iter().map(|record| number(record).expect("a record that was never written")).collect()
}

#[test]
fn the_last_record_may_be_torn_at_every_byte() {
    let disk = disk::disk();
    let log = open(&disk, ON_DEMAND, 2000);
    let records = fill(&log, 1, 5);
    let disk = disk.after_kill();
    let path = path_of(5000);
    let content = disk.content(&path);
    let (last, before) = (records[4].0.offset as usize, records[3].0.offset as usize);
    for torn_at in before..last {
        let disk = disk.after_kill();
        let mut torn = content.clone();
        torn[torn_at..last].fill(0);
        disk.put(&path, &torn);
        let (replayed, found) = read_back(&disk);
        assert_eq!(found, records[..4], "at {torn_at}");
        let begun = torn_at > before;
        assert_eq!(replayed.torn.len(), usize::from(begun), "at {torn_at}: {replayed:?}");

        // The runs after it do not take it for damage.
        let log = open_behind(&disk, ON_DEMAND, 2000, replayed);
        let more = fill(&log, 2, 2);
        log.sync_now().unwrap();
        let (_, again) = read_back(&disk.after_kill());
        assert_eq!(again, [found, more].concat());
    }
}

#[test]
fn the_only_segment_may_not_be_truncated_at_any_byte() {
    let disk = disk::disk();
    let log = open(&disk, BATCH, 1000);
    let records = fill(&log, 1, 5);
    log.wait_synced(log.position()).unwrap();
    let disk = disk.after_kill();
    let path = path_of(5000);
    let content = disk.content(&path);
    assert_eq!((disk.files(), content.len()), (vec![path.clone()], 1000));
    for size in 0..content.len() {
        disk.put(&path, &content[..size]);
        let damage = damage_of(&disk);
        assert_eq!((&damage.file, damage.reason), (&path, Reason::Truncated), "at {size}");
        assert!(damage.offset <= size as u64, "at {size}: {damage}");
        let (replayed, found) = try_read_back(&disk, true).unwrap();
        let kept = records.iter().filter(|record| record.0.offset <= size as u64);
        assert_eq!(found, kept.cloned().collect::<Records>(), "at {size}");
        assert_eq!(replayed.lost, vec![damage]);
    }
}

#[test]
fn a_sealed_segment_may_be_as_short_as_its_content() {
    let disk = disk::disk();
    let log = open(&disk, BATCH, 1000);
    let records = fill(&log, 1, 5);
    log.close().unwrap();
    let content = disk.content(&path_of(5000));
    assert!(content.len() < 1000, "what it does not use was given back");
    let (replayed, found) = read_back(&disk);
    assert_eq!((replayed.torn, found), (vec![], records));
    disk.put(&path_of(5000), &content[..content.len() - 1]);
    assert_eq!(damage_of(&disk).reason, Reason::Truncated, "the seal is not whole");
}

#[test]
fn a_record_behind_a_hole_that_was_never_synced_is_kept() {
    let disk = disk::disk();
    let log = open(&disk, ON_DEMAND, 2000);
    let records = fill(&log, 1, 5);
    let disk = disk.after_kill();
    let mut content = disk.content(&path_of(5000));
    content[records[1].0.offset as usize..records[2].0.offset as usize].fill(0);
    disk.put(&path_of(5000), &content);
    let (replayed, found) = read_back(&disk);
    assert_eq!(survivors(&records, &found), vec![0, 1, 3, 4]);
    let [torn] = replayed.torn.as_slice() else { panic!("{:?}", replayed.torn) };
    assert_eq!((torn.offset, torn.reason), (records[1].0.offset, Reason::Zeroes));
    assert_eq!(torn.bytes, records[2].0.offset - records[1].0.offset);
}

#[test]
fn every_flipped_bit_is_found_or_harmless() {
    let (disk, records) = synced_log();
    let paths = disk.files();
    assert!(paths.len() >= 3);
    let mut damaged = 0;
    for path in &paths {
        let content = disk.content(path);
        for bit in (0..content.len() * 8).step_by(3) {
            let mut flipped = content.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            disk.put(path, &flipped);
            match try_read_back(&disk, false) {
                Ok((replayed, found)) => {
                    assert_eq!(found, records, "bit {bit} of {}", path.display());
                    assert_eq!(replayed.lost, vec![]);
                }
                Err(ReplayError::Damaged(damage)) => {
                    damaged += 1;
                    assert_eq!(damage.file, *path);
                    assert!(damage.offset <= bit as u64 / 8);
                    let (replayed, found) = try_read_back(&disk, true).unwrap();
                    let survivors = survivors(&records, &found);
                    assert!(survivors.is_sorted());
                    assert!(damage.reason == Reason::Header || survivors.len() >= 19);
                    assert!(!replayed.lost.is_empty());
                }
                Err(other) => panic!("{other}"),
            }
        }
        disk.put(path, &content);
    }
    let record_bits: usize = records.iter().map(|record| 8 * (12 + record.1.len())).sum();
    assert!(damaged >= record_bits / 3, "{damaged} of {record_bits} bits in records");
}

#[test]
fn a_segment_of_a_later_version_stops_the_start_in_any_case() {
    let (disk, _) = synced_log();
    let mut content = disk.content(&path_of(5001));
    content[8] += 1;
    let crc = crc32fast::hash(&content[..52]);
    content[52..56].copy_from_slice(&crc.to_le_bytes());
    disk.put(&path_of(5001), &content);
    for accept_loss in [false, true] {
        let result = try_read_back(&disk, accept_loss);
        assert!(matches!(result, Err(ReplayError::Version { version: 4, .. })), "{result:?}");
    }
}

#[test]
fn a_record_image_inside_a_value_is_never_replayed() {
    let disk = disk::disk();
    let log = open(&disk, ON_DEMAND, 4000);
    let first = log.append(b"drop everything", &[1]).unwrap();
    let image = disk.content(&path_of(5000));
    let image = &image[first.offset as usize - 12 - 15..first.offset as usize];
    let carrier = log.append(&image.repeat(20), &[1]).unwrap();
    let last = log.append(b"last", &[1]).unwrap();
    let disk = disk.after_kill();
    let mut content = disk.content(&path_of(5000));
    content[first.offset as usize] ^= 3;
    disk.put(&path_of(5000), &content);
    let positions: Vec<_> = read_back(&disk).1.into_iter().map(|record| record.0).collect();
    assert_eq!(positions, vec![first, last], "without {carrier}");
}

#[test]
fn an_error_of_the_caller_ends_replay() {
    let (disk, records) = synced_log();
    let mut left = 3;
    let result = replay(dir(), &disk, false, KnownLog::default(), &mut |_, _| {
        left -= 1;
        if left == 0 { Err("no such keyspace") } else { Ok(()) }
    });
    match result {
        Err(ReplayError::Apply { position, source: "no such keyspace" }) => {
            assert_eq!(position, records[2].0);
        }
        other => panic!("{other:?}"),
    }
}
