//! Real files, changed at random, with checksums made right again, so that what stands behind the
//! checksums is met with nonsense. Nothing may panic, hang or take memory that the file does not
//! justify; wrong data are no fault here, since nobody could tell.
//!
//! `ALEXANDRA_SEED=n` repeats a case, `ALEXANDRA_CASES=n` asks for more than the default.

use crate::storage_model::bits::{self, KEYS};
use crate::storage_model::model::{Filter, Query};
use crate::storage_model::rig::{Rig, schema};
use alexandra::base::context::RequestContext;
use alexandra::base::fs::FileSystem;
use alexandra::model::mutation::{MutationBuilder, RowMutation};
use alexandra::model::schema::FamilyId;
use alexandra::ring::RowRange;
use alexandra::storage::files::{self, FileName};
use alexandra::storage::manifest::{Manifest, TableIdentity};
use alexandra::storage::sstable::Access;
use alexandra::storage::sstable::block::{BlockHead, HEAD_LENGTH};
use alexandra::storage::sstable::filter::Filter as BloomFilter;
use alexandra::storage::sstable::properties::Properties;
use alexandra::storage::sstable::scan::{BlockScan, Frame, Piece};
use fastrand::Rng;
use std::ops::Bound;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};

const CASES: u64 = 400;

/// Bytes before the blocks of an SSTable, and behind them.
const HEADER: usize = 8;
const FOOTER: usize = 48;

fn for_each_case(case: impl Fn(&mut Rng)) {
    let env = |name: &str| -> Option<u64> {
        std::env::var(name).ok().map(|text| text.parse().expect("a number"))
    };
    let seeds = match env("ALEXANDRA_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..env("ALEXANDRA_CASES").unwrap_or(CASES),
    };
    for seed in seeds {
        let run = AssertUnwindSafe(|| case(&mut Rng::with_seed(seed)));
        let result = std::panic::catch_unwind(run);
        if let Err(panic) = result {
            eprintln!("ALEXANDRA_SEED={seed} repeats it");
            std::panic::resume_unwind(panic);
        }
    }
}

/// Changes some bytes, and none of their number.
fn overwrite(bytes: &mut [u8], rng: &mut Rng) {
    if bytes.is_empty() {
        return;
    }
    for _ in 0..rng.usize(1..4) {
        let at = rng.usize(..bytes.len());
        match rng.u8(..5) {
            0 => bytes[at] ^= 1 << rng.u8(..8),
            1 => bytes[at] = *rng.choice(&[0, 1, 0x7f, 0x80, 0xff]).unwrap(),
            2 => {
                let number = *rng.choice(&[0, 1, u32::MAX, 1 << 31, 0x7fff_ffff]).unwrap();
                for (byte, new) in bytes[at..].iter_mut().zip(number.to_be_bytes()) {
                    *byte = new;
                }
            }
            3 => {
                let length = rng.usize(..=(bytes.len() - at).min(64));
                let from = rng.usize(..=bytes.len() - length);
                bytes.copy_within(from..from + length, at);
            }
            _ => bytes[at..].iter_mut().take(8).for_each(|byte| *byte = rng.u8(..)),
        }
    }
}

/// Changes some bytes and their number.
fn change(bytes: &mut Vec<u8>, rng: &mut Rng) {
    overwrite(bytes, rng);
    let at = rng.usize(..=bytes.len());
    match rng.u8(..4) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(at..bytes.len().min(at + rng.usize(..20)))),
        2 => drop(bytes.splice(at..at, (0..rng.u8(..20)).map(|_| rng.u8(..)))),
        _ => {}
    }
}

/// Makes the checksums of all blocks and of the footer of an SSTable right.
fn seal_sstable(bytes: &mut [u8]) {
    let mut at = HEADER;
    while at + FOOTER < bytes.len() {
        let Some(head) = BlockHead::decode(&bytes[at..]) else { break };
        let end = at + head.block_length() as usize;
        if end + FOOTER > bytes.len() {
            break;
        }
        let mut crc = crc32fast::Hasher::new();
        crc.update(&(at as u64).to_be_bytes());
        crc.update(&bytes[at..end - 4]);
        bytes[end - 4..end].copy_from_slice(&crc.finalize().to_be_bytes());
        at = end;
    }
    if let Some(footer) = bytes.len().checked_sub(FOOTER).map(|start| &mut bytes[start..]) {
        let crc = crc32fast::hash(&footer[..36]);
        footer[36..40].copy_from_slice(&crc.to_be_bytes());
    }
}

fn seal_manifest(bytes: &mut Vec<u8>) {
    if let Some(body) = bytes.windows(4).rposition(|part| part == b"crc ") {
        bytes.truncate(body);
        let crc = crc32fast::hash(bytes);
        bytes.extend_from_slice(format!("crc {crc:08x}\n").as_bytes());
    }
}

/// Lets the manifest of a changed SSTable name it as it is, so that a start does not refuse it.
fn name_in_manifest(rig: &Rig, path: &Path) {
    let name = path.file_name().unwrap().to_str().unwrap();
    let FileName::SsTable(family, generation) = FileName::parse(name) else { return };
    let file = rig.disk.open(path).unwrap();
    let Ok(frame) = Frame::read(&*file) else { return };
    let Some(properties_crc) = frame.properties_crc(&*file) else { return };
    let at = files::manifest(path.parent().unwrap(), &family);
    let mut manifest = Manifest::load(&rig.disk, &at).unwrap().unwrap();
    let identity = TableIdentity { bytes: file.size().unwrap(), properties_crc, is_legacy: false };
    manifest.sstables.insert(generation, identity);
    manifest.store(&rig.disk, &at).unwrap();
}

/// Does everything that a server does with its files.
fn use_everything(rig: &mut Rig) {
    if rig.open().is_err() {
        return;
    }
    let all = Filter::Range { start: Vec::new(), finish: Vec::new(), reversed: false, limit: 100 };
    let query = Query { super_name: None, filter: all };
    for family in 0..3 {
        let slice = rig.slice(family, &query);
        for key in KEYS {
            let _ = rig.read(family, key.as_bytes(), &slice);
        }
        let range = RowRange { start: Bound::Unbounded, end: Bound::Unbounded };
        let _ = rig.storage().family(FamilyId(family)).scan(
            &range,
            &slice,
            100,
            &RequestContext::default(),
            Access::Cached,
        );
        let _ = rig.storage().compact(FamilyId(family));
    }
    for store in (0..3).map(|family| rig.storage().family(FamilyId(family))) {
        let failure = store.failure().unwrap_or_default();
        assert!(!failure.contains("panicked"), "{failure}");
    }
    rig.close();
}

#[test]
fn changed_files_do_no_harm() {
    let mut base = bits::store_without_compression();
    base.kill();
    let mut files = Vec::new();
    for folder in [bits::folder(), PathBuf::from("/var/commitlog")] {
        let entries = base.disk.list(&folder).unwrap();
        files.extend(entries.iter().filter(|e| e.size > 0).map(|e| folder.join(&e.name)));
    }
    files.sort();
    let disk = base.disk.clone();
    for_each_case(move |rng| {
        let mut rig = bits::unopened();
        rig.disk = disk.fork();
        let file = rng.choice(&files).unwrap();
        let mut bytes = rig.disk.read(file).unwrap();
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("sst") => {
                // The frames stay, so that the checksums can be made right.
                let mut at = HEADER;
                let target = rng.usize(..bytes.len());
                while let Some(head) = BlockHead::decode(&bytes[at..]) {
                    let end = at + head.block_length() as usize;
                    if end > target || end + FOOTER >= bytes.len() {
                        overwrite(&mut bytes[at + HEAD_LENGTH..end - 4], rng);
                        break;
                    }
                    at = end;
                }
                if rng.u8(..8) == 0 {
                    let footer = bytes.len() - FOOTER;
                    overwrite(&mut bytes[footer..footer + 36], rng);
                }
                seal_sstable(&mut bytes);
            }
            Some("manifest") => {
                change(&mut bytes, rng);
                seal_manifest(&mut bytes);
            }
            _ => change(&mut bytes, rng),
        }
        rig.disk.remove_file(file).unwrap();
        rig.disk.create(file).unwrap().write_all_at(&bytes, 0).unwrap();
        name_in_manifest(&rig, file);
        use_everything(&mut rig);
    });
}

#[test]
fn changed_records_and_blocks_do_no_harm() {
    let schema = schema(0);
    let mut builder = MutationBuilder::new(&schema, crate::storage_model::rig::KEYSPACE, b"key");
    builder.family(FamilyId(0)).insert((b"", b"name"), b"value", 7);
    builder.family(FamilyId(1)).insert((&[0; 8], b"name"), b"value", 8);
    let record = builder.finish().record().to_vec();
    let (mut properties, mut filter) = (Vec::new(), Vec::new());
    let mut base = bits::store_without_compression();
    base.kill();
    let path = bits::folder().join("Authors-1.sst");
    let file = base.disk.open(&path).unwrap();
    for piece in BlockScan::within(&*file, &Frame::read(&*file).unwrap()) {
        use alexandra::storage::sstable::block::BlockKind::{Filter, Properties};
        if let Piece::Block { kind, block, .. } = piece {
            match kind {
                Properties => properties = block.bytes().to_vec(),
                Filter => filter = block.bytes().to_vec(),
                _ => {}
            }
        }
    }
    assert!(Properties::decode(&properties).is_ok() && BloomFilter::decode(&filter).is_ok());
    for_each_case(move |rng| {
        for _ in 0..20 {
            let changed = |bytes: &[u8], rng: &mut Rng| {
                let mut bytes = bytes.to_vec();
                change(&mut bytes, rng);
                bytes
            };
            let _ = RowMutation::decode(&changed(&record, rng), &schema);
            let _ = Properties::decode(&changed(&properties, rng));
            if let Ok(filter) = BloomFilter::decode(&changed(&filter, rng)) {
                let _ = filter.may_contain(rng.u64(..));
            }
        }
    });
}
