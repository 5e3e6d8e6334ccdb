//! The description of a verb. `commands` has the table of all verbs.

use crate::exit::Exit;
use crate::session::Session;
use anyhow::Result;
use clap::{ArgMatches, Args, Command};
use husk_runtime::Environment;

/// Arguments of a verb that can be carried out.
pub(crate) trait Perform: Args {
    fn perform(self, session: &Session<'_>) -> Result<Exit>;
}

/// A verb and its documentation.
pub(crate) struct Verb {
    pub(crate) name: &'static str,
    pub(crate) group: Group,
    /// The arguments, as the usage line shows them after the name.
    pub(crate) usage: &'static str,
    /// The text that ends its help.
    pub(crate) more: &'static str,
    /// Set for verbs that create a process of a container, which must not reach husk's own binary. Says which
    /// part of the caller's environment is kept when husk re-executes itself.
    pub(crate) seal: Option<Environment>,
    /// Its options that most callers use, if the others are [rare](crate::rare).
    pub(crate) common: Option<&'static [&'static str]>,
    /// Variables of the environment that stand for rare options.
    pub(crate) variables: &'static [&'static str],
    /// The exit code if the verb fails.
    pub(crate) failure: Exit,
    /// Adds its options.
    pub(crate) define: fn(Command) -> Command,
    pub(crate) perform: fn(&ArgMatches, &Session<'_>) -> Result<Exit>,
}

/// A section of the help.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    Life,
    Look,
    Prepare,
    Test,
}

pub(crate) const GROUPS: &[Group] = &[Group::Life, Group::Look, Group::Prepare, Group::Test];

impl Group {
    pub(crate) fn heading(self) -> &'static str {
        match self {
            Self::Life => "MANAGE CONTAINERS",
            Self::Look => "INSPECT",
            Self::Prepare => "CONFIGURE AND DIAGNOSE",
            Self::Test => "TEST",
        }
    }
}

/// Returns the usage line.
pub(crate) fn usage(verb: &Verb) -> String {
    format!("{{husk}} [OPTIONS] {} {}", verb.name, verb.usage).trim_end().to_owned()
}

/// Creates a verb that is described by its options alone.
pub(crate) const fn verb<V: Perform>(name: &'static str, group: Group) -> Verb {
    verb_that::<V>(name, group, |matches, session| V::from_arg_matches(matches)?.perform(session))
}

/// Like `verb`, for a verb that inspects how its arguments were written.
pub(crate) const fn verb_that<V: Args>(
    name: &'static str,
    group: Group,
    perform: fn(&ArgMatches, &Session<'_>) -> Result<Exit>,
) -> Verb {
    Verb {
        name,
        group,
        usage: "",
        more: "",
        seal: None,
        common: None,
        variables: &[],
        failure: Exit::Failed,
        define: V::augment_args,
        perform,
    }
}
