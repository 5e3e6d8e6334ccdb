//! Doors for `fuzz/`, and for nobody else: what reads texts of the kernel, of systemd and of its bus.

use crate::error::Error;
use crate::stats::{Files, Stats, version_1, version_2};
use crate::systemd::message::Message;
use crate::v1::hierarchies;
use crate::{Resources, paths, settings};
use rustix::fd::OwnedFd;
use std::path::Path;

/// What is read from a directory of files named as version 2's are, and as version 1's are.
pub fn statistics(directory: OwnedFd, controllers: &[&str]) -> [Result<Stats, Error>; 2] {
    let path = Path::new("/group");
    let controllers: Vec<_> = controllers.iter().map(|&name| name.to_owned()).collect();
    let first =
        version_1::read([(controllers.as_slice(), Files { directory: &directory, path })].into_iter());
    [first, version_2::read(&directory, path)]
}

/// Finds trees in mountinfo and our own place in them.
pub fn trees(mountinfo: &str, own: &str) {
    for mount in hierarchies::mounts(mountinfo, own) {
        assert!(!mount.controllers.is_empty());
    }
    for controller in ["", "memory", "name=systemd"] {
        assert!(paths::own(own, controller).is_none_or(|path| own.contains(path)));
    }
}

/// Reads one message of the bus, and writes what it understood.
pub fn message(bytes: &[u8]) {
    let Ok(Some(length)) = Message::length(bytes) else { return };
    let Some(bytes) = bytes.get(..length) else { return };
    if let Ok(Some(message)) = Message::read(bytes) {
        // Who sent it is the bus's to say.
        let message = Message { sender: None, ..message };
        assert_eq!(Message::read(&message.bytes()).ok().flatten(), Some(message));
    }
}

/// What is written for these resources: never to a file elsewhere.
pub fn settings(resources: &Resources) {
    let second = settings::v2::settings(resources).map(|(settings, _)| settings).unwrap_or_default();
    let first = settings::v1::settings(resources).map(|(settings, _)| settings).unwrap_or_default();
    for setting in second.iter().chain(first.iter().map(|(_, setting)| setting)) {
        assert!(!setting.file.contains('/') && !setting.file.contains('\0'), "{setting}");
    }
}
