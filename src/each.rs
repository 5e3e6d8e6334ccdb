//! Selects the containers that a verb acts on: one by name, or, with crun's `--regex`, every one whose name
//! matches.

use crate::exit::Exit;
use crate::session::Session;
use anyhow::{Error as AnyError, Result, anyhow};
use husk_runtime::Error;
use regex::Regex;

/// How a verb's argument selects containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    /// The argument is the exact name.
    Plainly,
    /// The argument is a regular expression.
    ByRegex,
}

impl Selection {
    /// Converts the value of `--regex`.
    pub(crate) fn of(regex: bool) -> Self {
        if regex { Self::ByRegex } else { Self::Plainly }
    }

    /// Calls `act` for each container. With a regular expression, an error is reported and the others still
    /// follow.
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
        let regex = Regex::new(name).map_err(|error| invalid(name, &error))?;
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

/// Returns an error of one line. The regex crate's message also has lines that quote the expression.
fn invalid(name: &str, error: &regex::Error) -> AnyError {
    let text = error.to_string();
    let reason = text.lines().last().unwrap_or_default();
    anyhow!("invalid regular expression {name:?}: {}", reason.trim_start_matches("error: "))
}
