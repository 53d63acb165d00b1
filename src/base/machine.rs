//! The machine that the server runs on: how much memory there is, how many files may be open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;

/// Where a container's memory limit stands.
const CGROUP_LIMIT: &str = "/sys/fs/cgroup/memory.max";

/// Bytes of memory that this process may use: what the machine has, or the container's limit.
pub fn memory_bytes() -> u64 {
    let machine = rustix::system::sysinfo();
    let total = machine.totalram.saturating_mul(u64::from(machine.mem_unit.max(1)));
    let limit = fs::read_to_string(CGROUP_LIMIT).ok().and_then(|text| text.trim().parse().ok());
    limit.map_or(total, |limit: u64| limit.min(total))
}

/// Raises the limit of open files as far as the operating system allows, and returns it. A server
/// with thousands of connections and SSTables needs more than the usual 1024.
pub fn raise_file_limit() -> Option<u64> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: maximum, maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        log::warn!("the limit of open files cannot be raised: {error}");
    }
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_some_memory_and_some_files() {
        assert!(memory_bytes() > 16 << 20);
        assert!(raise_file_limit().is_none_or(|files| files > 16));
    }
}
