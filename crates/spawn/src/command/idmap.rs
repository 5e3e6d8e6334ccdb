//! User and group id maps of a new user namespace.

use super::subids;
use crate::Error;
use crate::memory::writer::Writer;
use husk_script::sys::Gid;
use husk_script::{Request, Step};
use rustix::process::{getegid, geteuid};
use std::fmt::Write as _;

/// A range of ids of a user namespace and the outside ids that they map to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdMap {
    /// The first id inside the namespace.
    pub inside: u32,
    /// The id outside that `inside` maps to.
    pub outside: u32,
    /// The number of consecutive ids.
    pub count: u32,
}

impl IdMap {
    /// Maps a single id.
    #[must_use]
    pub const fn one(inside: u32, outside: u32) -> Self {
        Self { inside, outside, count: 1 }
    }
}

/// The maps of one user namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdMaps {
    /// The maps of user ids.
    pub uids: Vec<IdMap>,
    /// The maps of group ids.
    pub gids: Vec<IdMap>,
}

impl IdMaps {
    /// Maps root to the caller's own ids, and nothing else. Needs no privileges.
    ///
    /// The program has all capabilities in its user namespace, and cannot change its supplementary groups. Files that
    /// belong to the caller belong to root there, and all others to the overflow ids (user_namespaces(7)).
    ///
    /// ```
    /// # fn main() -> Result<(), husk_spawn::Error> {
    /// use husk_spawn::{Command, IdMaps};
    ///
    /// let mut id = Command::new("id");
    /// id.arg("-u").id_maps(&IdMaps::caller_as_root());
    /// # if std::fs::read_to_string("/proc/sys/user/max_user_namespaces").is_ok_and(|most| most != "0\n") {
    /// assert_eq!(id.output()?.stdout, b"0\n");
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn caller_as_root() -> Self {
        Self { uids: vec![IdMap::one(0, geteuid().as_raw())], gids: vec![IdMap::one(0, getegid().as_raw())] }
    }

    /// Maps the caller's own ids to themselves, and nothing else. Needs no privileges.
    #[must_use]
    pub fn caller_as_itself() -> Self {
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        Self { uids: vec![IdMap::one(uid, uid)], gids: vec![IdMap::one(gid, gid)] }
    }

    /// Maps root to the caller's own ids, and the ids from 1 on to the ranges that `/etc/subuid` and `/etc/subgid` give
    /// the caller. A caller without CAP_SETUID needs newuidmap(1) and newgidmap(1) to use such maps.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or has no range for the caller.
    pub fn caller_as_root_with_subordinates() -> Result<Self, Error> {
        subids::with_subordinates(Self::caller_as_root())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.uids.is_empty() && self.gids.is_empty()
    }

    /// Whether the parent must write the maps. The child can write them itself if each maps only its own id
    /// and it gives up setgroups: that needs no privilege over the parent namespace (user_namespaces(7)).
    pub(crate) fn need_parent(&self, groups: Option<&[Gid]>) -> bool {
        !self.is_empty() && (groups.is_some() || !self.are_own_ids())
    }

    fn are_own_ids(&self) -> bool {
        are_own(&self.uids, geteuid().as_raw()) && are_own(&self.gids, getegid().as_raw())
    }

    /// Writes steps that write the maps or ask the parent to.
    pub(crate) fn write(&self, groups: Option<&[Gid]>, writer: &mut Writer<'_>) {
        if self.need_parent(groups) {
            return writer.push(Step::Request { what: Request::IdMaps });
        }
        let mut write = |path, text: &str| {
            let bytes = writer.slice(text.as_bytes());
            writer.push(Step::WriteFile { path, bytes, tolerate: None });
        };
        if !self.uids.is_empty() {
            write(c"/proc/self/uid_map", &text(&self.uids));
        }
        if !self.gids.is_empty() {
            write(c"/proc/self/setgroups", "deny");
            write(c"/proc/self/gid_map", &text(&self.gids));
        }
    }
}

/// Whether the maps contain no id other than `id`.
pub(crate) fn are_own(maps: &[IdMap], id: u32) -> bool {
    match maps {
        [] => true,
        [map] => map.count == 1 && map.outside == id,
        _ => false,
    }
}

/// Formats the maps as the kernel reads them, one per line.
pub(crate) fn text(maps: &[IdMap]) -> String {
    maps.iter().fold(String::new(), |mut text, map| {
        // Writing to a `String` cannot fail.
        let written = writeln!(text, "{} {} {}", map.inside, map.outside, map.count);
        debug_assert!(written.is_ok());
        text
    })
}
