//! What the operating system tells about this machine and this process.

use std::fs;

/// The most memory this process ever had resident, in bytes; 0 where the system does not tell.
pub(crate) fn peak_resident_bytes() -> u64 {
    kibibytes("/proc/self/status", "VmHWM:")
}

/// The memory of this machine in bytes; 0 where the system does not tell.
pub(crate) fn memory_bytes() -> u64 {
    kibibytes("/proc/meminfo", "MemTotal:")
}

/// How many threads can run at the same time.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The value of a `Name:   123 kB` line, in bytes.
fn kibibytes(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse::<u64>().ok())
        .map_or(0, |kib| kib << 10)
}
