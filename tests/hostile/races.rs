//! Races with a volume or image that changes while a container is made: a directory becomes a symlink to the host at
//! any moment. `HOSTILE_STARTS` is the number of containers; `make soak` uses many.

use super::false_answers::{self, FalseAnswer};
use super::tripwire::{SECRET, Tripwire};
use super::{bind, proc, tmpfs};
use crate::util::{Bundle, Runtime, is_husk, is_root, need};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::json;
use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// A container and pairs of names that are exchanged all the time: a directory and a symlink.
struct Race {
    bundle: Bundle,
    names: Vec<[PathBuf; 2]>,
}

impl Race {
    fn of(bundle: Bundle) -> Self {
        Self { bundle, names: Vec::new() }
    }

    /// Adds a directory that is exchanged with a symlink to the tripwire's.
    fn exchanging(mut self, directory: PathBuf, tripwire: &Tripwire) -> Self {
        let link = directory.with_extension("link");
        fs::create_dir_all(&directory).unwrap();
        symlink(tripwire.at("directory"), &link).unwrap();
        self.names.push([directory, link]);
        self
    }
}

/// Exchanges the names until told to end, on a processor of its own if possible.
fn exchange(names: &[[PathBuf; 2]], ends: &AtomicBool, exchanges: &AtomicU64) {
    let last = sched_getaffinity(None).map(|cpus| (0..CpuSet::MAX_CPU).rfind(|cpu| cpus.is_set(*cpu)));
    if let Ok(Some(last)) = last {
        let mut one = CpuSet::new();
        one.set(last);
        sched_setaffinity(None, &one).expect("an allowed processor");
    }
    while !ends.load(Ordering::Relaxed) {
        for [one, other] in names {
            renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).expect("two names");
        }
        exchanges.fetch_add(1, Ordering::Relaxed);
    }
}

/// Starts up to this many containers until the tripwire is harmed. Returns the harm.
fn run(make: fn(&Tripwire) -> Race, starts: usize, false_answers: &[FalseAnswer]) -> Option<String> {
    let tripwire = Tripwire::new();
    let race = make(&tripwire);
    race.bundle.write();
    let runtime = Runtime::under_test();
    let mut command = runtime.command("run");
    command.arg("--bundle").arg(race.bundle.path()).arg("c");
    // Opens the directories, because their names change.
    let directories: Vec<_> =
        race.names.iter().map(|[directory, _]| File::open(directory).unwrap()).collect();
    let (ends, exchanges) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| exchange(&race.names, &ends, &exchanges));
        let mut harmed = None;
        let mut began = 0;
        for _ in 0..starts {
            directories.iter().for_each(empty);
            let before = exchanges.load(Ordering::Relaxed);
            let (told, is_well) = start(&mut command, false_answers);
            began += usize::from(is_well);
            harmed = tripwire
                .harm()
                .or_else(|| told.contains(SECRET).then(|| "what is in it was told".to_owned()));
            if harmed.is_some() {
                break;
            }
            // Without an exchange there was no race.
            while exchanges.load(Ordering::Relaxed) == before {
                thread::yield_now();
            }
        }
        ends.store(true, Ordering::Relaxed);
        // Some containers must have run; otherwise nothing is shown.
        assert!(harmed.is_some() || began > 0, "none of {starts} containers started");
        harmed
    })
}

/// Returns a container's output, and whether it succeeded.
fn start(command: &mut Command, false_answers: &[FalseAnswer]) -> (String, bool) {
    let seen = if false_answers.is_empty() {
        command.output().expect("the runtime")
    } else {
        false_answers::run(command, false_answers).0
    };
    (String::from_utf8_lossy(&seen.stdout).into_owned(), seen.status.success())
}

/// Empties a directory, so that the next container has to create everything again.
fn empty(directory: &File) {
    for entry in fs::read_dir(format!("/proc/self/fd/{}", directory.as_raw_fd())).expect("a directory") {
        let path = entry.expect("an entry").path();
        let kind = fs::symlink_metadata(&path).expect("the metadata");
        if kind.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
            .expect("a removable path");
    }
}

/// Asserts that the host is unharmed after many starts, and is harmed on a kernel that follows symlinks.
fn holds(make: fn(&Tripwire) -> Race) {
    need!(is_root(), "needs root to be able to harm the host");
    let starts = std::env::var("HOSTILE_STARTS").map_or(50, |starts| starts.parse().expect("a number"));
    assert_eq!(run(make, starts, &[]), None);
    if is_husk() {
        assert!(
            run(make, 200, &[FalseAnswer::Follows]).is_some(),
            "the test cannot fail: the race is never lost"
        );
    }
}

fn volume(bundle: &Bundle) -> PathBuf {
    bundle.path().join("volume")
}

/// Returns a bundle with a volume that others can write to.
fn sharing(words: &str, at: &str) -> Bundle {
    let bundle = Bundle::running(words);
    let volume = volume(&bundle);
    fs::create_dir(&volume).unwrap();
    bundle.mounting(bind(&volume, at))
}

#[test]
fn volume_that_changes_below_a_mount_is_harmless() {
    holds(|tripwire| {
        let bundle = sharing("exit 0", "/volume");
        let swapped = volume(&bundle).join("swapped");
        let source = bundle.path().join("source");
        fs::write(&source, "").unwrap();
        let bundle = bundle
            .mounting(tmpfs("/volume/swapped/made"))
            .mounting(bind(&source, "/volume/swapped/file"))
            .mounting(tmpfs("/volume/swapped/some/way/down"));
        Race::of(bundle).exchanging(swapped, tripwire)
    });
}

#[test]
fn volume_that_changes_below_devices_and_masked_paths_is_harmless() {
    holds(|tripwire| {
        let bundle = sharing("exit 0", "/volume");
        let swapped = volume(&bundle).join("swapped");
        let device = json!([{ "path": "/volume/swapped/null", "type": "c", "major": 1, "minor": 3 }]);
        let bundle = bundle
            .with("/linux/devices", device)
            .with("/linux/maskedPaths", json!(["/volume/swapped/null", "/volume/swapped/empty"]))
            .with("/linux/readonlyPaths", json!(["/volume/swapped/empty", "/volume/swapped"]))
            .with("/process/cwd", json!("/volume/swapped/work"));
        Race::of(bundle).exchanging(swapped, tripwire)
    });
}

#[test]
fn image_that_changes_proc_dev_and_etc_is_harmless() {
    holds(|tripwire| {
        let bundle = Bundle::running("env").with("/mounts", json!([proc()]));
        let places = ["proc", "dev", "etc"].map(|name| bundle.rootfs().join(name));
        places.into_iter().fold(Race::of(bundle), |race, place| race.exchanging(place, tripwire))
    });
}

#[test]
fn volume_that_changes_at_dev_is_harmless() {
    need!(is_husk(), "runc starts none of the containers");
    holds(|tripwire| {
        let bundle = sharing("write /masked", "/dev").mounting(bind(&tripwire.at("directory"), "/victim"));
        let volume = volume(&bundle);
        fs::write(bundle.rootfs().join("masked"), "").unwrap();
        let bundle = bundle
            .with("/linux/maskedPaths", json!(["/masked", "/dev/shm/file"]))
            .mounting(tmpfs("/dev/shm/made"));
        Race::of(bundle).exchanging(volume.join("shm"), tripwire)
    });
}
