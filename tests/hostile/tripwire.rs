//! A tree of the host that containers must not touch, watched while one tries.

use crate::util::program;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The content of its files, which occurs nowhere else.
pub(crate) const SECRET: &str = "of-the-tripwire";

/// Files of the host that must also stay unchanged.
const HOST: [&str; 3] =
    ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname"];

/// The tree, and a description of its original state.
pub(crate) struct Tripwire {
    directory: TempDir,
    /// An inotify descriptor, which also reports changes that were undone.
    events: OwnedFd,
    before: BTreeMap<PathBuf, String>,
}

impl Tripwire {
    pub(crate) fn new() -> Self {
        Self::below(&std::env::temp_dir())
    }

    /// Creates a tripwire in this directory, for a runtime that covers the usual one.
    pub(crate) fn below(parent: &Path) -> Self {
        let directory = TempDir::new_in(parent).expect("a temporary directory");
        let at = |name: &str| directory.path().join(name);
        fs::create_dir_all(at("directory/empty")).expect("a directory");
        for file in ["file", "directory/file"] {
            fs::write(at(file), SECRET).expect("a file");
            fs::set_permissions(at(file), Permissions::from_mode(0o600)).expect("its permissions");
        }
        fs::write(at("directory/passwd"), format!("root:x:0:0::/home/{SECRET}:/bin/sh\n")).expect("a file");
        symlink("file", at("link")).expect("a link");
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).expect("inotify");
        // Closing is not watched: a child that another test was about to start may have inherited our descriptors.
        let changes = WatchFlags::ATTRIB
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MODIFY
            | WatchFlags::MOVE;
        for watched in ["", "directory", "directory/empty"] {
            inotify::add_watch(&events, at(watched), changes).expect("a watch");
        }
        let mut tripwire = Self { directory, events, before: BTreeMap::new() };
        tripwire.before = tripwire.look();
        tripwire
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Describes the changes to the tree; `None` if there are none.
    pub(crate) fn harm(&self) -> Option<String> {
        let mut words = String::new();
        let after = self.look();
        for (path, now) in &after {
            let name = path.strip_prefix(self.path()).unwrap_or(path).display();
            match self.before.get(path) {
                Some(before) if before == now => {}
                Some(_) => write!(words, "{name} changed; ").expect("text"),
                None => write!(words, "{name} created; ").expect("text"),
            }
        }
        for path in self.before.keys().filter(|path| !after.contains_key(*path)) {
            write!(words, "{} removed; ", path.display()).expect("text");
        }
        if words.is_empty() {
            words = self.passed();
        }
        (!words.is_empty()).then(|| words.trim_end_matches("; ").to_owned())
    }

    /// Describes temporary changes.
    fn passed(&self) -> String {
        let mut words = String::new();
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.events, &mut buffer);
        loop {
            match events.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| name.to_string_lossy().into_owned());
                    write!(words, "{} {:?}; ", name.unwrap_or_default(), event.events()).expect("text");
                }
                Err(Errno::AGAIN) => return words,
                Err(error) => panic!("events of the tripwire: {error}"),
            }
        }
    }

    fn look(&self) -> BTreeMap<PathBuf, String> {
        let mut found = BTreeMap::new();
        describe(self.path(), &mut found);
        for file in HOST {
            found.insert(file.into(), fs::read_to_string(file).unwrap_or_default());
        }
        let null = fs::metadata("/dev/null").expect("a null device");
        found.insert("/dev/null".into(), format!("{:o} {} {}", null.mode(), null.uid(), null.gid()));
        // No program can choose the time of change.
        let binary = fs::metadata(program()).expect("the runtime");
        let changed = (binary.ino(), binary.len(), binary.ctime(), binary.ctime_nsec());
        found.insert(program().into(), format!("{changed:?}"));
        found
    }
}

fn describe(path: &Path, found: &mut BTreeMap<PathBuf, String>) {
    let metadata = fs::symlink_metadata(path).expect("the tripwire");
    let mut words = format!("{:o} {} {} ", metadata.mode(), metadata.uid(), metadata.gid());
    if metadata.is_dir() {
        for entry in fs::read_dir(path).expect("the tripwire") {
            describe(&entry.expect("the tripwire").path(), found);
        }
    } else if metadata.is_symlink() {
        words += &fs::read_link(path).expect("the tripwire").to_string_lossy();
    } else if metadata.is_file() {
        words += &String::from_utf8_lossy(&fs::read(path).expect("the tripwire"));
    }
    found.insert(path.to_owned(), words);
}
