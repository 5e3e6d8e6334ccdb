//! Namespaces that the parent must join so that the child is born in them.
//!
//! A process cannot enter another pid namespace, only its children are born there (pid_namespaces(7)),
//! and it cannot enter a time namespace while its memory is shared (kernel/time/namespace.c,
//! `timens_install`: EUSERS). So the calling thread joins these for the moment of the clone. That
//! needs CAP_SYS_ADMIN here and over the namespace, and for time a caller with one thread.
//!
//! Who joins a user namespace as well has that privilege only afterwards. There the child joins all of
//! them, and its list goes on in another process, which is then in the pid namespace, or has the memory
//! of its own that a time namespace asks for.

use crate::Error;
use crate::command::Command;
use husk_listing::Kinds;
use husk_script::sys::Fd;
use husk_script::sys::namespace::{Namespaces, setns};
use std::fs::File;
use std::os::fd::OwnedFd;

/// Namespaces of somebody else, to be joined.
#[derive(Debug)]
pub(crate) struct Join {
    /// A namespace, or the pidfd of a process in those to join.
    pub(crate) fd: OwnedFd,
    /// The kinds to join.
    pub(crate) kinds: Namespaces,
}

impl Join {
    /// The kinds that the child joins itself.
    pub(crate) fn in_child(&self) -> Namespaces {
        self.kinds.without(in_parent())
    }

    /// The kinds that the parent joins for it.
    pub(crate) fn in_parent(&self) -> Namespaces {
        self.kinds.intersection(in_parent())
    }
}

fn in_parent() -> Namespaces {
    Namespaces::PID | Namespaces::TIME
}

/// The calling thread's own namespaces, to return to.
pub(crate) struct Away {
    home: Vec<(File, Namespaces)>,
}

impl Away {
    /// Joins what the parent must join of `joins`.
    pub(crate) fn go(command: &Command) -> Result<Self, Error> {
        let mut away = Self { home: Vec::new() };
        // Those the child joins itself.
        let joins = if command.joins(Namespaces::USER) { &[][..] } else { &command.joins };
        for join in joins {
            let kinds = join.in_parent();
            if kinds.is_empty() {
                continue;
            }
            let mut own = Vec::new();
            for (kind, file) in [(Namespaces::PID, "pid_for_children"), (Namespaces::TIME, "time")] {
                if kinds.contains(kind) {
                    let path = format!("/proc/thread-self/ns/{file}");
                    let file =
                        File::open(&path).map_err(|error| Error::from_io(format!("open {path}"), &error))?;
                    own.push((file, kind));
                }
            }
            match setns(Fd::of(&join.fd), kinds) {
                Ok(()) => away.home.extend(own),
                Err(errno) => {
                    away.back()?;
                    return Err(Error::new(format!("join {}", Kinds(kinds)), errno));
                }
            }
        }
        Ok(away)
    }

    /// Returns to the thread's own namespaces.
    pub(crate) fn back(self) -> Result<(), Error> {
        for (own, kind) in &self.home {
            setns(Fd::of(own), *kind)
                .map_err(|errno| Error::new(format!("return to {}", Kinds(*kind)), errno))?;
        }
        Ok(())
    }
}
