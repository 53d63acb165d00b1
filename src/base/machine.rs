//! The machine of the server: memory, limits of open files, and priorities of threads.

use rustix::fs::statvfs;
use rustix::process::{
    Resource, Rlimit, getpriority_process, getrlimit, setpriority_process, setrlimit,
};
use rustix::time::{ClockId, clock_gettime};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Mount point of control groups.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Has an entry for each open file of this process.
const OPEN_FILES: &str = "/proc/self/fd";

/// Lists the control groups of this process.
const OWN_CGROUPS: &str = "/proc/self/cgroup";

/// Bytes of memory that this process may use: what the machine has, or the limit of its container
/// or service.
pub fn memory_bytes() -> u64 {
    let machine = rustix::system::sysinfo();
    let total = machine.totalram.saturating_mul(u64::from(machine.mem_unit.max(1)));
    let own = fs::read_to_string(OWN_CGROUPS).unwrap_or_default();
    let limits = cgroup_limits(&own).into_iter();
    let limits = limits.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok());
    limits.fold(total, u64::min)
}

/// The files that may hold a limit for a process in these control groups, each group's own and
/// those of the groups around it. Within a container the names are sometimes those outside of it;
/// then the root, which is the last, is the container's own.
fn cgroup_limits(own: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        let (root, file) = if controllers.is_empty() {
            (Path::new(CGROUPS).to_owned(), "memory.max")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            (Path::new(CGROUPS).join("memory"), "memory.limit_in_bytes")
        } else {
            continue;
        };
        for group in Path::new(group.trim_start_matches('/')).ancestors() {
            files.push(root.join(group).join(file));
        }
    }
    files
}

/// Bytes of physical memory that this process holds; `None` if the machine does not tell.
pub fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    Some(kib << 10)
}

/// Niceness of the calling thread, from 0, the default, to 19, the lowest priority.
pub fn thread_niceness() -> i32 {
    getpriority_process(None).unwrap_or(0)
}

/// Sets the niceness of the calling thread. A smaller one than before needs a privilege.
pub fn set_thread_niceness(niceness: i32) -> io::Result<()> {
    // `None` is the caller, which on Linux is a thread and not its process.
    Ok(setpriority_process(None, niceness)?)
}

/// Raises the limit of open files as far as the operating system allows, and returns it. A server
/// with thousands of connections and SSTables needs more than the usual 1024.
pub fn raise_file_limit() -> Option<u64> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: maximum, maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        log::warn!("the limit of open files cannot be raised: {error}");
    }
    file_limit()
}

/// Limit of open files of this process; `None` without one.
pub fn file_limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Most files that are reserved for storage and for more important connections than those of
/// clients: enough for the flushes and compactions that may run at once.
const MOST_RESERVED_FILES: u64 = 256;

/// Kinds of connections. Each kind leaves files for the kinds after it, and all leave some for
/// storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionKind {
    /// Thrift clients.
    Client,
    /// Other nodes.
    Peer,
    /// The admin side.
    Operator,
}

impl ConnectionKind {
    /// Files that connections of this kind leave, by the limit of open files.
    pub fn reserved_files(self, limit: u64) -> u64 {
        let reserved = MOST_RESERVED_FILES.min(limit / 4);
        match self {
            Self::Client => reserved,
            Self::Peer => reserved * 3 / 4,
            Self::Operator => reserved / 2,
        }
    }

    /// Number of open files above the limit for connections of this kind.
    pub fn files_lacking(self) -> u64 {
        let Some(limit) = file_limit() else { return 0 };
        open_files().saturating_sub(limit - self.reserved_files(limit))
    }
}

/// Files that this process has open; 0 if the machine does not tell.
pub fn open_files() -> u64 {
    // Since Linux 6.2 the directory has their number as its size.
    let size = fs::metadata(OPEN_FILES).map_or(0, |directory| directory.len());
    if size > 0 {
        return size;
    }
    fs::read_dir(OPEN_FILES).map_or(0, |files| files.count() as u64)
}

/// Seconds that this process has computed, on all processors.
pub fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Bytes of the file system with this directory: those that may still be written, and all. `None`
/// if the machine does not tell.
pub fn disk_bytes(directory: &Path) -> Option<(u64, u64)> {
    let disk = statvfs(directory).ok()?;
    Some((disk.f_bavail.saturating_mul(disk.f_frsize), disk.f_blocks.saturating_mul(disk.f_frsize)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_all_surrounding_groups_count() {
        let files = |own: &str| -> Vec<_> {
            cgroup_limits(own).iter().map(|file| file.display().to_string()).collect()
        };
        assert_eq!(
            files("0::/system.slice/alexandra.service\n"),
            [
                "/sys/fs/cgroup/system.slice/alexandra.service/memory.max",
                "/sys/fs/cgroup/system.slice/memory.max",
                "/sys/fs/cgroup/memory.max",
            ]
        );
        assert_eq!(
            files("12:cpu:/a\n4:memory:/docker\n1:name=systemd:/\n"),
            [
                "/sys/fs/cgroup/memory/docker/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            ]
        );
        assert_eq!(files("garbage"), Vec::<String>::new());
    }

    #[test]
    fn there_is_some_memory_and_some_files() {
        assert!(memory_bytes() > 16 << 20);
        assert!(resident_bytes().is_none_or(|bytes| bytes > 1 << 20 && bytes < memory_bytes()));
        assert!(raise_file_limit().is_none_or(|files| files > 16));
    }

    #[test]
    fn open_files_are_counted() {
        // Other tests open files meanwhile.
        let many: Vec<_> = (0..500).map(|_| fs::File::open(OPEN_FILES).unwrap()).collect();
        let open = open_files();
        assert!((500..2000).contains(&open), "{open}");
        drop(many);
    }

    #[test]
    fn each_kind_of_connection_leaves_files_for_more_important_ones() {
        let kinds = [ConnectionKind::Client, ConnectionKind::Peer, ConnectionKind::Operator];
        assert_eq!(kinds.map(|kind| kind.reserved_files(1024)), [256, 192, 128]);
        assert_eq!(kinds.map(|kind| kind.reserved_files(1_000_000)), [256, 192, 128]);
        assert_eq!(kinds.map(|kind| kind.reserved_files(64)), [16, 12, 8]);
        assert_eq!(ConnectionKind::Client.files_lacking(), 0);
    }
}
