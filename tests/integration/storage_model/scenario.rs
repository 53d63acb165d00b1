//! A fixed scenario with everything in it: writes to several families, deletions, flushes,
//! compactions that purge, segments and files that become obsolete, and a restart. It knows at
//! each moment what a reader may see.

use crate::storage_model::rig::{FLUSHABLE, KEYSPACE, Outcome, Rig, Setup, insertion};
use alexandra::base::fs::FileSystem;
use alexandra::model::schema::FamilyId;
use alexandra::storage::CompactionStrategy;
use alexandra::storage::database::StorageError;
use alexandra::storage::family::OpenError;
use alexandra::storage::files::FileName;
use std::collections::BTreeMap;
use std::time::Duration;

/// Every column has this name, which suits all comparators.
const NAME: &str = "12345678";

/// Commit log segments that may exist after a restart: one replayed, the active one and a spare,
/// and one that a power loss brought back.
const MAX_SEGMENTS: usize = 4;

/// How far a run came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Complete,
    /// Something did not work, and what follows was left out.
    CutOff,
}

/// A rig and what has been written to it.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) rig: Rig,
    /// The values that a reader may find in a row, by family and key. More than one if a write was
    /// not acknowledged.
    allowed: BTreeMap<(u32, String), Vec<Option<Vec<u8>>>>,
    timestamp: i64,
    /// Whether the scenario goes on when something fails.
    pub(crate) goes_on: bool,
    /// Whether files that do not count may be left after a start.
    pub(crate) may_leave_files: bool,
}

impl Scenario {
    /// The scenario on an empty disk, not begun.
    pub(crate) fn new(setup: Setup, seed: u64) -> Self {
        let rig = Rig::unopened(setup, seed);
        Self { rig, allowed: BTreeMap::new(), timestamp: 0, goes_on: false, may_leave_files: false }
    }

    /// Runs it. If it does not go on after failures, all that was tried before one counts.
    pub(crate) fn run(&mut self) -> Ended {
        if self.try_run().is_none() { Ended::CutOff } else { Ended::Complete }
    }

    fn try_run(&mut self) -> Option<()> {
        self.open()?;
        for key in ["ada", "bob", "cyd", "dan", "eve"] {
            self.step(|s| s.insert(0, key, b"first"))?;
            self.step(|s| s.insert(2, key, &[b'x'; 700]))?;
        }
        self.step(|s| s.write_both("fay", b"both"))?;
        self.step(|s| s.flush(0))?;
        self.step(|s| s.delete(0, "bob"))?;
        self.step(|s| s.insert(0, "cyd", b"second"))?;
        self.step(|s| s.flush(0))?;
        self.rig.clock.advance(Duration::from_secs(100));
        self.step(|s| s.compact(0))?;
        self.step(|s| s.write_both("gus", b"both"))?;
        for key in ["ada", "bob", "cyd", "dan", "eve"] {
            self.step(|s| s.insert(0, &format!("{key} again"), &[b'x'; 700]))?;
        }
        self.step(|s| s.flush(0))?;
        self.step(|s| s.delete(2, "dan"))?;
        self.step(|s| s.flush(2))?;
        self.rig.close();
        self.open()?;
        self.step(|s| s.insert(0, "eve", b"third"))?;
        self.step(|s| s.compact(2))?;
        self.rig.clock.advance(Duration::from_secs(100));
        self.step(|s| s.flush(0))?;
        self.step(|s| s.compact(0))?;
        self.step(|s| s.compact(2))
    }

    fn open(&mut self) -> Option<()> {
        match self.rig.open() {
            Ok(()) => Some(()),
            // A fault that was planned once is over. Who starts a server on new directories after
            // a sync of them has failed starts on a sound disk.
            Err(_) if self.goes_on => {
                if self.allowed.is_empty() {
                    self.rig.disk.sync_everything();
                }
                self.rig.open().ok()
            }
            Err(_) => None,
        }
    }

    /// Does one thing; afterwards all that was acknowledged can be read.
    fn step(&mut self, act: impl FnOnce(&mut Self) -> bool) -> Option<()> {
        let worked = act(self);
        if self.goes_on {
            self.check("during the scenario");
            return Some(());
        }
        worked.then_some(())
    }

    pub(crate) fn insert(&mut self, family: u32, key: &str, value: &[u8]) -> bool {
        self.write(key, &[family], Some(value))
    }

    fn delete(&mut self, family: u32, key: &str) -> bool {
        self.write(key, &[family], None)
    }

    fn write_both(&mut self, key: &str, value: &[u8]) -> bool {
        self.write(key, &FLUSHABLE, Some(value))
    }

    fn write(&mut self, key: &str, families: &[u32], value: Option<&[u8]>) -> bool {
        self.timestamp += 1;
        let mut write = insertion(NAME, self.timestamp, value.unwrap_or_default());
        write.value = value.map(<[u8]>::to_vec);
        write.deleted_at = self.rig.now();
        let parts: Vec<_> = families.iter().map(|f| (*f, vec![write.clone()])).collect();
        let outcome = self.rig.write(key.as_bytes(), &parts);
        for family in families {
            let allowed = self.allowed.entry((*family, key.to_owned())).or_insert(vec![None]);
            match outcome {
                Outcome::Done => *allowed = vec![write.value.clone()],
                Outcome::Unknown(_) => allowed.push(write.value.clone()),
                Outcome::Refused(_) => {}
            }
        }
        matches!(outcome, Outcome::Done)
    }

    fn flush(&mut self, family: u32) -> bool {
        self.rig.storage().flush(FamilyId(family)).is_ok()
    }

    fn compact(&mut self, family: u32) -> bool {
        self.rig.storage().compact(FamilyId(family)).is_ok()
    }

    /// Whether a reader sees what it should.
    pub(crate) fn check(&self, when: &str) {
        for ((family, key), allowed) in &self.allowed {
            let found = self.rig.get(*family, key, NAME);
            assert!(
                allowed.contains(&found),
                "{when}: {family} {key} is {found:?} instead of {allowed:?}"
            );
        }
    }

    /// Opens it after a crash or fault: it must open by itself, with all that was acknowledged and
    /// nothing that was deleted, and leave no files behind.
    pub(crate) fn check_recovered(&mut self, case: u64) {
        for round in 0..3 {
            let when = format!("case {case}, start {round}");
            while let Err(error) = self.rig.open() {
                let StorageError::Open(OpenError::OldManifest { file, .. }) = &error else {
                    panic!("{when}: {error}");
                };
                assert!(self.may_leave_files, "{when}: {error}");
                // An operator does what the error says.
                self.rig.disk.remove_file(file).unwrap();
            }
            self.check(&when);
            if round == 1 {
                for family in 0..3 {
                    self.rig.storage().flush(FamilyId(family)).unwrap();
                    self.rig.storage().compact(FamilyId(family)).unwrap();
                }
                self.check(&when);
            }
            self.rig.close();
        }
        if !self.may_leave_files {
            self.check_files(case);
        }
    }

    fn check_files(&self, case: u64) {
        let mut tables = BTreeMap::new();
        for directory in 0..self.rig.setup.data_directories {
            let folder = format!("/var/data{directory}/{KEYSPACE}");
            for entry in self.rig.disk.list(folder.as_ref()).unwrap() {
                match FileName::parse(&entry.name) {
                    FileName::SsTable(family, _) => *tables.entry(family).or_insert(0) += 1,
                    FileName::Manifest(_) => {}
                    other => panic!("case {case}: {other:?} is left"),
                }
            }
        }
        if self.rig.setup.strategy == CompactionStrategy::SizeTiered {
            assert!(tables.values().all(|count| *count <= 1), "case {case}: {tables:?}");
        }
        let log = self.rig.disk.list("/var/commitlog".as_ref()).unwrap();
        assert!(log.len() <= MAX_SEGMENTS + 1, "case {case}: {log:?}");
    }
}
