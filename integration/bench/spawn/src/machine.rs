//! Reads the facts about the machine that affect measurements. None of them identifies a single machine.

use std::fs;

/// Returns names and values for people to read.
pub(crate) fn facts() -> Vec<(String, String)> {
    let kernel = read("/proc/sys/kernel/osrelease");
    let cpu = field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let cpus = std::thread::available_parallelism().map_or_else(|_| String::new(), |n| n.to_string());
    let memory = meminfo_mib("MemTotal").map_or_else(String::new, |mib| format!("{mib} MiB"));
    let huge = read("/sys/kernel/mm/transparent_hugepage/enabled");
    let facts = [
        ("kernel", kernel),
        ("CPU", cpu),
        ("CPUs", cpus),
        ("memory", memory),
        ("transparent huge pages", huge),
    ];
    facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Returns how much memory is available without swapping, in MiB.
pub(crate) fn available() -> u64 {
    meminfo_mib("MemAvailable").unwrap_or(0)
}

fn meminfo_mib(name: &str) -> Option<u64> {
    let value = field("/proc/meminfo", name)?;
    let kib: u64 = value.strip_suffix(" kB")?.parse().ok()?;
    Some(kib / 1024)
}

/// Returns the first value of this name in a file of `name : value` lines.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find_map(|(key, value)| (key.trim() == name).then(|| value.trim().to_owned()))
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}
