//! Searches every visible process for the runtime's memory.
//!
//! It never stops a process, because it runs in pid namespaces with other processes. It identifies a process by the
//! content of its memory, not by names, because a process may exec at any moment. A descriptor of `/proc/PID/mem` still
//! refers to the memory that was there when it was opened.

use crate::others;
use std::collections::{BTreeSet, VecDeque};
use std::error::Error;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;

/// The variable that only the runtime's caller sets.
const SECRET: &str = "SCANNED_FOR=";

/// How many of the newest processes are examined in each round.
const NEWEST: usize = 8;

/// Parses an address in the runtime's program and the bytes there, in hexadecimal digits.
fn mark(address: &str, digits: &str) -> Result<(u64, Vec<u8>), Box<dyn Error>> {
    let digit = |pair: &[u8]| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?);
    let bytes = digits.as_bytes().chunks(2).map(digit).collect::<Result<Vec<u8>, Box<dyn Error>>>()?;
    Ok((u64::from_str_radix(address, 16)?, bytes))
}

/// Examines only the first process, once. Fails if it finds memory or secrets.
pub(crate) fn look_at_first(address: &str, digits: &str) -> Result<u8, Box<dyn Error>> {
    let (address, bytes) = mark(address, digits)?;
    let obtained = accessible(1, address, &bytes);
    obtained.iter().for_each(|found| println!("{found}"));
    Ok(if obtained.is_empty() { 0 } else { 3 })
}

/// Reads all memory of the first process, which must be possible. Fails if it contains a secret.
pub(crate) fn read_first() -> Result<u8, Box<dyn Error>> {
    let memory = File::open("/proc/1/mem")?;
    let mut obtained: BTreeSet<String> = secrets(&fs::read("/proc/1/environ")?).collect();
    let mut mappings = 0;
    for line in fs::read_to_string("/proc/1/maps")?.lines() {
        let (addresses, rest) = line.split_once(' ').ok_or("a line of another form")?;
        // The kernel does not allow reading these.
        if rest.ends_with("[vvar]") || rest.ends_with("[vvar_vclock]") || rest.ends_with("[vsyscall]") {
            continue;
        }
        let (start, end) = addresses.split_once('-').ok_or("no addresses")?;
        let (start, end) = (u64::from_str_radix(start, 16)?, u64::from_str_radix(end, 16)?);
        let mut found = vec![0; usize::try_from(end - start)?];
        memory.read_exact_at(&mut found, start)?;
        obtained.extend(secrets(&found));
        mappings += 1;
    }
    obtained.iter().for_each(|found| println!("{found}"));
    if mappings == 0 {
        return Err("there is no memory".into());
    }
    Ok(if obtained.is_empty() { 0 } else { 3 })
}

/// Returns the value after each occurrence of the secret's name.
fn secrets(bytes: &[u8]) -> impl Iterator<Item = String> {
    let places = (0..bytes.len()).filter(|start| bytes[*start..].starts_with(SECRET.as_bytes()));
    places.map(|start| {
        let value = &bytes[start + SECRET.len()..];
        let end = value.iter().position(|byte| !byte.is_ascii_lowercase() && *byte != b' ');
        String::from_utf8_lossy(&value[..end.unwrap_or(value.len())]).into_owned()
    })
}

/// Examines the newest processes and the first one, for ever. Each round examines one older process too, so that a
/// process that stays is found even if others start too fast to examine them all.
pub(crate) fn look(address: &str, digits: &str) -> Result<(), Box<dyn Error>> {
    let (address, bytes) = mark(address, digits)?;
    let own = i64::from(std::process::id());
    let (mut told, mut newest, mut last) = (BTreeSet::new(), VecDeque::new(), own);
    let mut older = Vec::new();
    println!("begun");
    loop {
        // The newest pid: reading all of /proc takes longer than a process needs to start.
        let load = fs::read_to_string("/proc/loadavg")?;
        let latest = load.split_whitespace().last().ok_or("no last pid")?.parse()?;
        if latest < last {
            last = latest - 1;
        }
        newest.extend((last + 1)..=latest);
        newest.drain(..newest.len().saturating_sub(NEWEST));
        last = latest;
        if older.is_empty() {
            older = others()?.filter_map(|name| name.parse().ok()).collect::<Vec<_>>();
        }
        for pid in newest.iter().copied().chain([1]).chain(older.pop()).filter(|pid| *pid != own) {
            for found in accessible(pid, address, &bytes) {
                if told.insert(found.clone()) {
                    println!("{found}");
                    std::io::stdout().flush()?;
                }
            }
        }
    }
}

/// Returns what can be accessed of one process.
fn accessible(pid: i64, address: u64, bytes: &[u8]) -> Vec<String> {
    let mut obtained = Vec::new();
    if let Ok(memory) = File::options().read(true).write(true).open(format!("/proc/{pid}/mem")) {
        let mut found = vec![0; bytes.len()];
        if memory.read_exact_at(&mut found, address).is_ok() && found == bytes {
            obtained.push("memory of the runtime".to_owned());
        }
    }
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    for variable in environment.split(|byte| *byte == 0) {
        if let Some(value) = std::str::from_utf8(variable).ok().and_then(|text| text.strip_prefix(SECRET)) {
            obtained.push(format!("environment of {value}"));
        }
    }
    obtained
}
