//! Lists resources: those with names, and those that the kernel only counts.

use crate::Outcome;
use rustix::process::Pid;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the kernel may take to free an unused keyring.
const PATIENCE: Duration = Duration::from_secs(10);

/// Resources, by kind.
pub(crate) struct Left(Vec<(&'static str, BTreeSet<String>)>);

impl Left {
    /// Lists all processes and mounts, our descriptors, files in these directories, and cgroups and keyrings whose
    /// names contain `name`. With `inside`, also lists mounts and descriptors of that container.
    pub(crate) fn find(name: &str, places: &[&Path], inside: Option<Pid>) -> Outcome<Self> {
        let mut kinds = vec![
            ("processes", processes()?),
            ("mounts", lines(Path::new("/proc/self/mountinfo"))?),
            ("cgroups", cgroups(name)?),
            ("files", places.iter().flat_map(|place| below(place, &|_| true)).collect()),
            ("our descriptors", descriptors(Path::new("/proc/self/fd"))?),
            ("keyrings", keyrings(name, usize::from(inside.is_some()))?),
        ];
        if let Some(pid) = inside {
            let of = |file: &str| PathBuf::from(format!("/proc/{pid}/{file}"));
            kinds.push(("mounts in the container", lines(&of("mountinfo"))?));
            kinds.push(("descriptors in it", descriptors(&of("fd"))?));
        }
        Ok(Self(kinds))
    }

    /// Prints the numbers of each kind before and after. Returns the new resources.
    pub(crate) fn show(&self, after: &Self) -> Vec<String> {
        let mut new = Vec::new();
        for ((kind, before), (_, after)) in self.0.iter().zip(&after.0) {
            println!("{kind:<28}{:>12}{:>12}", before.len(), after.len());
            new.extend(after.difference(before).map(|name| format!("{kind}: {name}")));
        }
        new
    }
}

/// Returns all processes except ourselves, with name, umask and state.
fn processes() -> Outcome<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name == "1" || !name.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        // The process may have ended.
        let Ok(status) = fs::read_to_string(format!("/proc/{name}/status")) else { continue };
        let words: Vec<_> = status.lines().take(3).map(|line| line.replace('\t', " ")).collect();
        found.insert(format!("{name} {}", words.join(" ")));
    }
    Ok(found)
}

fn lines(file: &Path) -> Outcome<BTreeSet<String>> {
    Ok(fs::read_to_string(file)?.lines().map(str::to_owned).collect())
}

/// Returns every cgroup of our containers, in every hierarchy.
fn cgroups(name: &str) -> Outcome<BTreeSet<String>> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let trees = mounts.lines().filter(|line| line.contains(" - cgroup"));
    let trees = trees.filter_map(|line| line.split(' ').nth(4));
    let is_ours = |path: &Path| path.is_dir() && path.to_string_lossy().contains(name);
    Ok(trees.flat_map(|tree| below(Path::new(tree), &is_ours)).collect())
}

/// Returns all wanted paths below a directory.
fn below(directory: &Path, is_wanted: &dyn Fn(&Path) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    // Other programs may remove their directories meanwhile.
    for path in fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if is_wanted(&path) {
            found.push(path.display().to_string());
        }
        if path.is_dir() && !path.is_symlink() {
            found.extend(below(&path, is_wanted));
        }
    }
    found
}

/// Returns open descriptors, except the one that reads the directory.
fn descriptors(directory: &Path) -> Outcome<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if let Ok(target) = fs::read_link(&path) {
            found.insert(format!("{} {}", path.display(), target.display()));
        }
    }
    found.retain(|line| !line.ends_with(&format!("/{}/fd", std::process::id())));
    Ok(found)
}

/// Returns the session keyrings of containers, waiting until at most `in_use` remain. The kernel frees a keyring a
/// while after its last user has ended.
fn keyrings(name: &str, in_use: usize) -> Outcome<BTreeSet<String>> {
    let end = Instant::now() + PATIENCE;
    loop {
        let keys = lines(Path::new("/proc/keys"))?;
        // Keeps number and name. The fields between them include the usage count, which changes.
        let ours = keys.iter().filter(|line| line.contains(name)).filter_map(|line| {
            let mut words = line.split_whitespace();
            Some(format!("{} {}", words.next()?, words.nth(7)?))
        });
        let ours: BTreeSet<_> = ours.collect();
        if ours.len() <= in_use || Instant::now() > end {
            return Ok(ours);
        }
        std::thread::yield_now();
    }
}

/// Counters of the kernel for the whole machine.
pub(crate) struct Count(Vec<(String, u64)>);

impl Count {
    pub(crate) fn all() -> Outcome<Self> {
        let mut counts = vec![("open files".to_owned(), first_number("/proc/sys/fs/file-nr", "")?)];
        for line in ["Slab:", "SUnreclaim:", "Percpu:"] {
            let name = line.trim_end_matches(':').to_lowercase();
            counts.push((format!("{name} KiB"), first_number("/proc/meminfo", line)?));
        }
        let slabs = ["net_namespace", "pid_namespace", "mnt_cache", "mem_cgroup", "task_group", "key_jar"];
        for name in slabs {
            counts.push((format!("{name} objects"), first_number("/proc/slabinfo", name)?));
        }
        for name in ["memory", "cpu"] {
            // The third column, which also counts cgroups that are removed but not yet freed.
            let text = fs::read_to_string("/proc/cgroups")?;
            let line = text.lines().find(|line| line.split_whitespace().next() == Some(name));
            let count = line.and_then(|line| line.split_whitespace().nth(2)?.parse().ok());
            counts.push((format!("{name} cgroups"), count.unwrap_or(0)));
        }
        let vmalloc = fs::read_to_string("/proc/vmallocinfo").unwrap_or_default();
        let programs = vmalloc.lines().filter(|line| line.contains("bpf_prog_alloc")).count();
        counts.push(("BPF programs".to_owned(), u64::try_from(programs)?));
        Ok(Self(counts))
    }

    pub(crate) fn show(&self, after: &Self) {
        for ((name, before), (_, after)) in self.0.iter().zip(&after.0) {
            println!("{:<28}{before:>12}{after:>12}", format!("({name})"));
        }
    }
}

/// Returns the first number of the line with this prefix; 0 if the file or line is missing.
pub(crate) fn first_number(file: &str, begin: &str) -> Outcome<u64> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(begin)).unwrap_or("0");
    Ok(line.split_whitespace().next().unwrap_or("0").parse()?)
}
