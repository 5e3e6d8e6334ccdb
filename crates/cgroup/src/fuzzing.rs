//! Entry points for `fuzz/` only: the parsers of text from the kernel, systemd and the bus.

use crate::error::Error;
use crate::stats::{Files, Stats, version_1, version_2};
use crate::systemd::message::Message;
use crate::v1::hierarchies;
use crate::{Resources, paths, settings};
use rustix::fd::OwnedFd;
use std::path::Path;

/// Reads statistics from a directory of files, once named as in version 2 and once as in version 1.
pub fn statistics(directory: OwnedFd, controllers: &[&str]) -> [Result<Stats, Error>; 2] {
    let path = Path::new("/group");
    let controllers: Vec<_> = controllers.iter().map(|&name| name.to_owned()).collect();
    let first =
        version_1::read([(controllers.as_slice(), Files { directory: &directory, path })].into_iter());
    [first, version_2::read(&directory, path)]
}

/// Finds the hierarchies in mountinfo and our own cgroup in them.
pub fn trees(mountinfo: &str, own: &str) {
    for mount in hierarchies::mounts(mountinfo, own) {
        assert!(!mount.controllers.is_empty());
    }
    for controller in ["", "memory", "name=systemd"] {
        assert!(paths::own(own, controller).is_none_or(|path| own.contains(path)));
    }
}

/// Parses one message of the bus, serialises it and parses the result again.
pub fn message(bytes: &[u8]) {
    let Ok(Some(length)) = Message::length(bytes) else { return };
    let Some(bytes) = bytes.get(..length) else { return };
    if let Ok(Some(message)) = Message::read(bytes) {
        // Only the bus sets the sender.
        let message = Message { sender: None, ..message };
        assert_eq!(Message::read(&message.bytes()).ok().flatten(), Some(message));
    }
}

/// Checks that the settings for these resources name no file outside the cgroup.
pub fn settings(resources: &Resources) {
    let second = settings::v2::settings(resources).map(|(settings, _)| settings).unwrap_or_default();
    let first = settings::v1::settings(resources).map(|(settings, _)| settings).unwrap_or_default();
    for setting in second.iter().chain(first.iter().map(|(_, setting)| setting)) {
        assert!(!setting.file.contains('/') && !setting.file.contains('\0'), "{setting}");
    }
}
