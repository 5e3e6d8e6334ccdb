//! User and group id maps of a new user namespace.

use crate::error::{Error, Reason};
use crate::writer::Writer;
use crate::{Command, Stdio, find_program};
use husk_script::sys::{Errno, Gid, Pid};
use husk_script::{Request, Step};
use rustix::process::{getegid, geteuid};
use std::fmt::Write as _;
use std::fs;

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

    /// What the parent does when the child asks.
    pub(crate) fn write_for(&self, child: Pid) -> Result<(), Error> {
        if !self.uids.is_empty() {
            UIDS.write(child, &self.uids)?;
        }
        if !self.gids.is_empty() {
            // Without privileges this is the price of a map at all.
            if !geteuid().is_root() && are_own(&self.gids, getegid().as_raw()) {
                write(child, "setgroups", "deny")?;
            }
            GIDS.write(child, &self.gids)?;
        }
        Ok(())
    }
}

/// Whether no other id is mapped than this one.
fn are_own(maps: &[IdMap], id: u32) -> bool {
    match maps {
        [] => true,
        [map] => map.count == 1 && map.outside == id,
        _ => false,
    }
}

fn write(child: Pid, file: &str, text: &str) -> Result<(), Error> {
    let path = format!("/proc/{}/{file}", child.as_raw_pid());
    fs::write(&path, text).map_err(|error| Error::from_io(path, &error))
}

/// What is mapped, and what is known of who else can map it.
struct Kind {
    file: &'static str,
    /// The program with privileges for it (newuidmap(1)).
    helper: &'static str,
    missing: &'static str,
    refused: &'static str,
}

const UIDS: Kind = Kind {
    file: "uid_map",
    helper: "newuidmap",
    missing: "newuidmap is missing: install uidmap",
    refused: "is there a line for this user in /etc/subuid, and are these ids in its range?",
};

const GIDS: Kind = Kind {
    file: "gid_map",
    helper: "newgidmap",
    missing: "newgidmap is missing: install uidmap",
    refused: "is there a line for this user in /etc/subgid, and are these ids in its range?",
};

impl Kind {
    fn write(&self, child: Pid, maps: &[IdMap]) -> Result<(), Error> {
        match write(child, self.file, &text(maps)) {
            // Who may not map these ids may be allowed to have them mapped.
            Err(error) if error.reason() == Reason::Errno(Errno::PERM) && !geteuid().is_root() => {
                self.have_written(child, maps)
            }
            written => written,
        }
    }

    fn have_written(&self, child: Pid, maps: &[IdMap]) -> Result<(), Error> {
        let act = format!("{} of {}", self.file, text(maps).trim_end().replace('\n', ", "));
        let Some(helper) = find_program(self.helper) else {
            return Err(Error::new(act, Reason::Conflict(self.missing)));
        };
        let numbers = maps.iter().flat_map(|map| [map.inside, map.outside, map.count]);
        let mut command = Command::new(helper);
        command.arg(child.as_raw_pid().to_string()).args(numbers.map(|number| number.to_string()));
        let output = command.stdin(Stdio::null()).output()?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(Error::new(format!("{act}: {}", said.trim()), Reason::Conflict(self.refused)))
    }
}

/// The maps as the kernel reads them: a line each.
fn text(maps: &[IdMap]) -> String {
    maps.iter().fold(String::new(), |mut text, map| {
        // Writing to a string does not fail.
        let written = writeln!(text, "{} {} {}", map.inside, map.outside, map.count);
        debug_assert!(written.is_ok());
        text
    })
}
