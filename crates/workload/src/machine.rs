//! What the operating system tells about this machine and this process.

use std::fs;
use std::path::Path;

/// The most memory this process ever had resident, in bytes; 0 where the system does not tell.
#[must_use]
pub fn peak_resident_bytes() -> u64 {
    kibibytes("/proc/self/status", "VmHWM:")
}

/// The memory of this machine in bytes; 0 where the system does not tell.
#[must_use]
pub fn memory_bytes() -> u64 {
    kibibytes("/proc/meminfo", "MemTotal:")
}

/// How many threads can run at the same time.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The name of the processor; empty where the system does not tell.
#[must_use]
pub fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    named.map_or_else(String::new, |(_, name)| name.trim().to_owned())
}

/// The version of the kernel; empty where the system does not tell.
#[must_use]
pub fn kernel() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    text.trim().to_owned()
}

/// The kind of the file system that `path`, which must be absolute, is on; empty where the system does not tell.
#[must_use]
pub fn file_system(path: &Path) -> String {
    let text = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mounts = text.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((Path::new(words.next()?), words.next()?))
    });
    let over = mounts.filter(|(mount, _)| path.starts_with(mount));
    let nearest = over.max_by_key(|(mount, _)| mount.components().count());
    nearest.map_or_else(String::new, |(_, kind)| kind.to_owned())
}

/// The bytes that this process has caused to be written to devices, as the system accounts for them: pages that it made
/// dirty, and direct writes; those of children it has waited for too. 0 where the system does not tell.
#[must_use]
pub fn written_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

/// The value of a `Name:   123 kB` line, in bytes.
fn kibibytes(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse::<u64>().ok())
        .map_or(0, |kib| kib << 10)
}
