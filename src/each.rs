//! The containers that a verb is for: one by its name, or with crun's `--regex` every one whose name an
//! expression matches.

use crate::exit::Exit;
use crate::session::Session;
use anyhow::{Context as _, Result};
use husk_runtime::Error;
use regex::Regex;

/// How containers are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// By a name.
    Plainly,
    /// By a regular expression.
    ByRegex,
}

impl Named {
    /// As an option says it.
    pub(crate) fn of(regex: bool) -> Self {
        if regex { Self::ByRegex } else { Self::Plainly }
    }

    /// Does it to each. One of many that fails is told of, and keeps the others from nothing.
    pub(crate) fn each(
        self,
        session: &Session<'_>,
        name: &str,
        act: impl Fn(&str) -> Result<(), Error>,
    ) -> Result<Exit> {
        if self == Self::Plainly {
            act(name)?;
            return Ok(Exit::Success);
        }
        let regex = Regex::new(name).with_context(|| format!("invalid regular expression {name}"))?;
        let ids =
            session.containers()?.into_iter().map(|found| found.map_or_else(|(id, _)| id, |state| state.id));
        let mut exit = Exit::Success;
        for id in ids.filter(|id| regex.is_match(id)) {
            if let Err(error) = act(&id) {
                session.log.warning(&format!("{id}: {error}"));
                exit = Exit::Failed;
            }
        }
        Ok(exit)
    }
}
