//! Figures of the operating system on this process and its files.

use rustix::fs::{Advice, fadvise};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// How long nothing may happen until a store counts as idle.
const IDLE: Duration = Duration::from_millis(300);

/// CPU time of a process that sleeps for [`IDLE`], with its timers.
const IDLE_CPU: Duration = Duration::from_millis(8);

/// Folder of our commit log.
pub(crate) const COMMIT_LOG: &str = "commitlog";

/// Endings of the log files of fjall and RocksDB.
const LOGS: [&str; 2] = ["jnl", "log"];

/// CPU time of all threads of the process.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Bytes that the process has given to `write` and the like so far.
pub(crate) fn written_bytes() -> u64 {
    let io = fs::read_to_string("/proc/self/io").expect("Linux keeps these numbers");
    let line = io.lines().find_map(|line| line.strip_prefix("wchar: "));
    line.and_then(|bytes| bytes.parse().ok()).expect("Linux keeps this number")
}

/// Waits until flushes and compactions in the background have come to an end.
pub(crate) fn wait_until_idle() {
    loop {
        let before = (cpu_time(), written_bytes());
        std::thread::sleep(IDLE);
        if cpu_time().saturating_sub(before.0) < IDLE_CPU && written_bytes() == before.1 {
            return;
        }
    }
}

/// Room on disk of all files below as the file system counts it, logs left out: each engine
/// preallocates those in its own way, and after a flush nothing in them is needed.
pub(crate) fn disk_bytes(directory: &Path) -> u64 {
    let mut total = 0;
    for_each_file(directory, &mut |path| {
        let is_log = path.extension().is_some_and(|extension| LOGS.iter().any(|l| extension == *l))
            || path.parent().is_some_and(|folder| folder.ends_with(COMMIT_LOG));
        if !is_log {
            // A file of a compaction may vanish meanwhile.
            total += fs::metadata(path).map_or(0, |metadata| metadata.blocks() * 512);
        }
    });
    total
}

/// Makes the operating system forget what it has cached of all files below.
pub(crate) fn drop_page_cache(directory: &Path) {
    for_each_file(directory, &mut |path| {
        let file = fs::File::open(path).expect("the file is there");
        file.sync_all().expect("syncs work");
        fadvise(&file, 0, None, Advice::DontNeed).expect("Linux takes this advice");
    });
}

fn for_each_file(directory: &Path, visit: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            for_each_file(&entry.path(), visit);
        } else {
            visit(&entry.path());
        }
    }
}
