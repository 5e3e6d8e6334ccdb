//! Time namespaces that the parent must join so that the child is born in them.
//!
//! A process cannot enter a time namespace while its memory is shared (kernel/time/namespace.c,
//! `timens_install`: EUSERS). So the calling thread joins it for the moment of the clone. That needs
//! CAP_SYS_ADMIN here and over the namespace, and a caller with one thread.
//!
//! A list that goes on in a second process anyway joins it there (`list.rs`).

use crate::Error;
use crate::command::Command;
use crate::command::join::IN_PARENT;
use husk_listing::Kinds;
use husk_script::sys::Fd;
use husk_script::sys::namespace::{Namespaces, setns};
use std::fs::File;

/// The calling thread's own time namespace, to return to.
pub(crate) struct Away {
    home: Option<File>,
}

impl Away {
    /// Joins the time namespace that the child is to be born in, if there is one.
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

    /// Returns to the thread's own namespace.
    pub(crate) fn back(self) -> Result<(), Error> {
        let Some(own) = &self.home else { return Ok(()) };
        setns(Fd::of(own), IN_PARENT)
            .map_err(|errno| Error::new(format!("return to {}", Kinds(IN_PARENT)), errno))
    }
}
