//! Which operations fail, and when the power goes.

use std::io;
use std::path::Path;

use rustix::io::Errno;

/// The kinds of operations, for planning faults and for counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Operation {
    /// `FileSystem::create`.
    Create,
    /// `FileSystem::open`.
    Open,
    /// `FileSystem::try_exists`.
    Exists,
    /// `FileSystem::list`.
    List,
    /// `FileSystem::create_dir_all`.
    CreateDir,
    /// `FileSystem::rename`; faults look at the new name.
    Rename,
    /// `FileSystem::hard_link`; faults look at the new name.
    HardLink,
    /// `FileSystem::remove_file`.
    Remove,
    /// `FileSystem::remove_dir`.
    RemoveDir,
    /// `FileSystem::sync_dir`.
    SyncDir,
    /// `FileSystem::lock`.
    Lock,
    /// `File::read_at`.
    Read,
    /// `File::write_all_at`.
    Write,
    /// `File::sync`.
    Sync,
    /// `File::size`.
    Size,
    /// `File::allocate`.
    Allocate,
    /// `File::set_size`.
    SetSize,
}

impl Operation {
    const KINDS: usize = Self::SetSize as usize + 1;

    /// Whether a crash before and after the operation can leave different disks.
    pub(crate) fn is_change(self) -> bool {
        !matches!(self, Self::Open | Self::Exists | Self::List | Self::Read | Self::Size)
    }
}

/// A planned failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The operation that fails.
    pub operation: Operation,
    /// Only where the path contains this text; empty for everywhere. A file goes by the path by
    /// which it was opened, also after a rename.
    pub path_contains: String,
    /// So many matching operations succeed first.
    pub skip: u64,
    /// So many fail then.
    pub times: u64,
    /// The error that they get.
    pub errno: Errno,
}

impl Fault {
    /// The next operation of that kind fails, once.
    pub(crate) fn next(operation: Operation, errno: Errno) -> Self {
        Self::nth(operation, 0, errno)
    }

    /// After `skip` more operations of that kind, one fails.
    pub(crate) fn nth(operation: Operation, skip: u64, errno: Errno) -> Self {
        Self { operation, path_contains: String::new(), skip, times: 1, errno }
    }

    /// The same fault, only for paths that contain this text.
    #[must_use]
    pub(crate) fn on(self, path_contains: &str) -> Self {
        Self { path_contains: path_contains.into(), ..self }
    }

    fn matches(&self, operation: Operation, path: &Path) -> bool {
        self.operation == operation && path.to_string_lossy().contains(&self.path_contains)
    }
}

/// Why an operation is not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// A planned fault: writes and syncs leave a part behind.
    Fault(Errno),
    /// No power, or a stale handle: nothing changes at all.
    Unchanged(Errno),
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Fault(errno) | Refusal::Unchanged(errno) => errno.into(),
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Power {
    #[default]
    On,
    /// It fails when so many further changes have happened.
    OnFor(u64),
    Off,
}

/// Gate that every operation passes on its way to the disk.
#[derive(Debug, Clone, Default)]
pub(super) struct Gate {
    counts: [u64; Operation::KINDS],
    changes: u64,
    power: Power,
    faults: Vec<Fault>,
}

impl Gate {
    pub(super) fn pass(&mut self, operation: Operation, path: &Path) -> Result<(), Refusal> {
        self.draw_power(operation).map_err(Refusal::Unchanged)?;
        self.counts[operation as usize] += 1;
        self.changes += u64::from(operation.is_change());
        // Every matching fault counts down, the first that is due decides.
        let mut refused = None;
        for fault in self.faults.iter_mut().filter(|fault| fault.matches(operation, path)) {
            if fault.skip > 0 {
                fault.skip -= 1;
            } else if fault.times > 0 && refused.is_none() {
                fault.times -= 1;
                refused = Some(fault.errno);
            }
        }
        self.faults.retain(|fault| fault.times > 0);
        refused.map_or(Ok(()), |errno| Err(Refusal::Fault(errno)))
    }

    pub(super) fn inject(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    pub(super) fn forget_faults(&mut self) {
        self.faults.clear();
    }

    pub(super) fn is_powered(&self) -> bool {
        self.power != Power::Off
    }

    pub(super) fn power_off(&mut self) {
        self.power = Power::Off;
    }

    pub(super) fn power_off_after(&mut self, changes: u64) {
        self.power = Power::OnFor(changes);
    }

    /// The machine comes back.
    pub(super) fn power_on(&mut self) {
        self.power = Power::On;
        self.faults.clear();
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    pub(super) fn count(&self, operation: Operation) -> u64 {
        self.counts[operation as usize]
    }

    /// A change that would pass the moment of the power failure is not even begun.
    fn draw_power(&mut self, operation: Operation) -> Result<(), Errno> {
        match &mut self.power {
            Power::On => return Ok(()),
            Power::OnFor(_) if !operation.is_change() => return Ok(()),
            Power::OnFor(left @ 1..) => {
                *left -= 1;
                return Ok(());
            }
            Power::OnFor(0) | Power::Off => {}
        }
        self.power = Power::Off;
        Err(Errno::IO)
    }
}
