//! User and group id maps of a new user namespace.

use crate::memory::writer::Writer;
use husk_script::sys::Gid;
use husk_script::{Request, Step};
use rustix::process::{getegid, geteuid};
use std::fmt::Write as _;

/// Some ids of a user namespace, and what they are outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdMap {
    /// The first id inside.
    pub inside: u32,
    /// The id outside that the first one stands for.
    pub outside: u32,
    /// How many ids follow each other.
    pub count: u32,
}

/// The maps of one user namespace.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdMaps {
    pub(crate) uids: Vec<IdMap>,
    pub(crate) gids: Vec<IdMap>,
}

impl IdMaps {
    pub(crate) fn is_empty(&self) -> bool {
        self.uids.is_empty() && self.gids.is_empty()
    }

    /// Whether the parent must write them. The child can do without if each maps its own id and no
    /// other, which needs no privilege over the parent namespace, and if it gives up setgroups
    /// (user_namespaces(7)).
    pub(crate) fn need_parent(&self, groups: Option<&[Gid]>) -> bool {
        !self.is_empty() && (groups.is_some() || !self.are_own_ids())
    }

    fn are_own_ids(&self) -> bool {
        are_own(&self.uids, geteuid().as_raw()) && are_own(&self.gids, getegid().as_raw())
    }

    /// Writes the steps that have the maps written.
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

/// Whether no other id is mapped than this one.
pub(crate) fn are_own(maps: &[IdMap], id: u32) -> bool {
    match maps {
        [] => true,
        [map] => map.count == 1 && map.outside == id,
        _ => false,
    }
}

/// The maps as the kernel reads them: a line each.
pub(crate) fn text(maps: &[IdMap]) -> String {
    maps.iter().fold(String::new(), |mut text, map| {
        // Writing to a string does not fail.
        let written = writeln!(text, "{} {} {}", map.inside, map.outside, map.count);
        debug_assert!(written.is_ok());
        text
    })
}
