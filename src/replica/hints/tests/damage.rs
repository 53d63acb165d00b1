use super::*;
use crate::kit::seeds;
use proptest::prelude::*;

const HINTS: u64 = 8;

/// A log of a few segments that was ended in order, and in part delivered.
fn closed_log() -> Rig {
    let rig = Rig::new();
    let store = rig.open();
    store_all(&store, ada(), 0..HINTS);
    store.acknowledge(store.read_batch(ada(), 1).unwrap().unwrap().end);
    store.close().unwrap();
    rig
}

/// Records of a log after it was damaged, and whether that was told.
fn survivors(rig: &Rig) -> (Vec<u64>, HintStats) {
    let store = rig.open();
    let numbers = drain(&store, ada());
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    assert!(numbers.iter().all(|number| *number < HINTS), "{numbers:?}");
    assert_eq!(store.targets(), []);
    store.sync().unwrap();
    (numbers, store.stats())
}

#[test]
fn no_flipped_bit_passes_and_every_loss_is_told() {
    let rig = closed_log();
    assert_eq!(survivors(&rig.fork()).0, range(1..HINTS));
    for path in rig.files(ada()) {
        for at in 0..rig.fs.read(&path).unwrap().len() as u64 {
            let rig = rig.fork();
            rig.fs.corrupt(&path, at, 1 << (at % 8)).unwrap();
            let (numbers, stats) = survivors(&rig);
            let lost = (1..HINTS).filter(|number| !numbers.contains(number)).count();
            let place = format!("{} at {at}: {numbers:?}", path.display());
            assert!(lost == 0 || stats.damaged_bytes > 0, "{place}");
            assert!(lost <= 1 || at < 32, "a record costs itself: {place}");
        }
    }
}

#[test]
fn a_cut_file_gives_what_is_left() {
    let rig = closed_log();
    for path in rig.files(ada()) {
        let content = rig.fs.read(&path).unwrap();
        for length in 0..content.len() {
            let rig = rig.fork();
            rig.put(&path, &content[..length]);
            survivors(&rig);
            let mut zeroed = content.clone();
            zeroed[length..].fill(0);
            rig.put(&path, &zeroed);
            survivors(&rig);
        }
    }
}

#[test]
fn a_hole_costs_what_was_in_it() {
    let rig = Rig::new();
    let mut ends = Vec::new();
    let store = rig.open();
    for number in 0..4 {
        ends.push(store.store(ada(), &mutation(number)).unwrap().offset);
    }
    drop(store);
    let rig = rig.fork();
    let path = rig.files(ada())[0].clone();
    let mut content = rig.fs.read(&path).unwrap();
    content[ends[0] as usize + 3..ends[2] as usize - 5].fill(0);
    rig.put(&path, &content);
    let (numbers, stats) = survivors(&rig);
    assert_eq!((numbers, stats.damaged_bytes), (vec![0, 3], ends[2] - ends[0]));
}

/// A file that gets shorter, or goes, while it is in use.
#[test]
fn files_that_vanish_are_told() {
    for gone in [false, true] {
        let rig = Rig::new();
        let store = rig.open();
        store_all(&store, ada(), 0..HINTS);
        let path = rig.files(ada())[0].clone();
        if gone {
            rig.fs.remove_file(&path).unwrap();
        } else {
            rig.fs.open(&path).unwrap().set_size(150).unwrap();
        }
        let numbers = drain(&store, ada());
        assert!(numbers.ends_with(&[HINTS - 1]) && numbers.len() < HINTS as usize, "{numbers:?}");
        assert!(store.stats().damaged_bytes > 0);
        assert_eq!(store.targets(), []);
    }
}

#[test]
fn what_is_none_of_ours_is_left_alone() {
    let rig = closed_log();
    let directory = Path::new(DIRECTORY);
    let mut foreign = vec![
        directory.join("notes.txt"),
        directory.join("somewhere/1.hints"),
        directory.join("10.0.0.1/1.hints.bak"),
        directory.join("10.0.0.9/notes.txt"),
    ];
    for path in &foreign {
        rig.put(path, b"something else");
    }
    // A segment of a later version, and one with the name of another.
    let first = rig.fs.read(&rig.files(ada())[0]).unwrap();
    let mut later = first.clone();
    later[8] = 3;
    let crc = crc32fast::hash(&later[..28]);
    later[28..32].copy_from_slice(&crc.to_le_bytes());
    for (number, content) in [(70, later), (80, first)] {
        let path = directory.join(format!("10.0.0.1/{number}.hints"));
        rig.put(&path, &content);
        foreign.push(path);
    }
    let (numbers, _) = survivors(&rig);
    assert_eq!(numbers, range(1..HINTS));
    let store = rig.open();
    let position = store.store(ada(), &mutation(5)).unwrap();
    assert_eq!(position.segment, 81, "no number is given twice");
    assert_eq!(drain(&store, ada()), [5]);
    assert!(foreign.iter().all(|path| rig.fs.exists(path)));
}

/// The layout is frozen: hints that this version has written are read by all later ones.
#[test]
fn hints_of_version_1_are_read() {
    let rig = Rig::new();
    let bytes = |hex: &str| -> Vec<u8> {
        let digits = hex.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).unwrap());
        digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
    };
    let path = Path::new(DIRECTORY).join("10.0.0.1/7.hints");
    rig.put(&path, &bytes(SEGMENT_1));
    let store = rig.open();
    assert_eq!(store.targets()[0].hints, 2);
    let batch = store.read_batch(ada(), 1000).unwrap().unwrap();
    assert_eq!(batch.hints.iter().map(number_of).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(batch.hints[0].created_ms, 1_290_000_000_000);
    assert_eq!(store.stats(), HintStats { read: 2, ..HintStats::default() });
    for at in 32..bytes(SEGMENT_1).len() as u64 {
        let rig = rig.fork();
        rig.fs.corrupt(&path, at, 1 << (at % 8)).unwrap();
        let (numbers, stats) = survivors(&rig);
        assert!(numbers.len() + usize::from(stats.damaged_bytes > 0) >= 2, "{at}: {numbers:?}");
    }
}

/// Two hints and a seal.
const SEGMENT_1: &str = "\
    416c657848696e74010000000700000000000000efcdab8967452301553c4eca6b00000048020ca7a2eccd3000\
    e4fd592c0100000004426c6f670008000000000000000100010007417574686f72738000000000000000800000\
    0000000002000000000000000001000000040000000a6e616d6501010101010101010101010000000000000001\
    0000000400000004676f6e65000000016b00000023b27aa7953542d700e4fd592c0100000004426c6f67000800\
    0000000000000200010007417574686f7273800000000000000080000000000000020000000000000000020000\
    00040000000a6e616d65020202020202020202020100000000000000020000000400000004676f6e6500000001\
    10000080d37104c68f08affd020000000000000000e4fd592c010000";

/// Overwrites parts of files with zeroes, with other bytes, and with parts of the log itself.
fn live_with_damage(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let rig = Rig::new();
    let store = rig.open();
    store_all(&store, ada(), 0..HINTS);
    if rng.bool() {
        store.close().unwrap();
    }
    drop(store);
    let rig = rig.fork();
    let files = rig.files(ada());
    for _ in 0..rng.usize(1..4) {
        let [from, to] = [(); 2].map(|()| rng.choice(files.iter()).unwrap());
        let (source, mut content) = (rig.fs.read(from).unwrap(), rig.fs.read(to).unwrap());
        let length = rng.usize(..=source.len().min(content.len()).min(150));
        let (start, at) =
            (rng.usize(..=source.len() - length), rng.usize(..=content.len() - length));
        let part = &mut content[at..at + length];
        match rng.u8(..4) {
            0 => part.fill(0),
            1 => part.fill_with(|| rng.u8(..)),
            2 => part.copy_from_slice(&source[start..start + length]),
            _ => {
                content.splice(at..at, source[start..start + length].iter().copied());
            }
        }
        rig.put(to, &content);
    }
    survivors(&rig);
}

proptest! {
    #![proptest_config(seeds(300))]

    #[test]
    fn damage_never_gives_wrong_data(seed: u64) {
        live_with_damage(seed);
    }
}
