//! Time namespaces that the parent joins so that the child is created in them.
//!
//! A process cannot join a time namespace while its memory is shared (kernel/time/namespace.c,
//! `timens_install`: EUSERS). So the calling thread joins it during the clone. It needs CAP_SYS_ADMIN here
//! and over the namespace, and must be the only thread.
//!
//! If a second process performs the rest of the list, that process joins instead (`list.rs`).

use crate::Error;
use crate::command::Command;
use crate::command::join::IN_PARENT;
use husk_listing::Kinds;
use husk_script::sys::Fd;
use husk_script::sys::namespace::{Namespaces, setns};
use std::fs::File;

/// The calling thread's original time namespace; `None` if it has not left it.
pub(crate) struct JoinedTimeNamespace {
    home: Option<File>,
}

impl JoinedTimeNamespace {
    /// Joins the time namespace in which the child is to be created, if there is one.
    pub(crate) fn go(command: &Command) -> Result<Self, Error> {
        let mut away = Self { home: None };
        if command.joins(Namespaces::USER) || command.runs_in_second_process() {
            return Ok(away);
        }
        for join in command.joins.iter().filter(|join| join.kinds.contains(IN_PARENT)) {
            let path = "/proc/thread-self/ns/time";
            let own = File::open(path).map_err(|error| Error::from_io(format!("open {path}"), &error))?;
            if let Err(errno) = setns(Fd::of(&join.fd), IN_PARENT) {
                away.back()?;
                return Err(Error::new(format!("join {}", Kinds(IN_PARENT)), errno));
            }
            away.home.get_or_insert(own);
        }
        Ok(away)
    }

    /// Returns to the thread's original namespace.
    pub(crate) fn back(self) -> Result<(), Error> {
        let Some(own) = &self.home else { return Ok(()) };
        setns(Fd::of(own), IN_PARENT)
            .map_err(|errno| Error::new(format!("return to {}", Kinds(IN_PARENT)), errno))
    }
}
