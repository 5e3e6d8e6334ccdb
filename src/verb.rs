//! What a verb is. The table of all verbs is in `commands`.

use crate::exit::Exit;
use crate::session::Session;
use anyhow::Result;
use clap::{ArgMatches, Args, Command};
use husk_runtime::Environment;

/// What a verb's arguments can do.
pub(crate) trait Perform: Args {
    fn perform(self, session: &Session<'_>) -> Result<Exit>;
}

/// A verb, with all that is said of it.
pub(crate) struct Verb {
    pub(crate) name: &'static str,
    pub(crate) group: Group,
    /// How it is written, after its name.
    pub(crate) usage: &'static str,
    /// What its help ends with.
    pub(crate) more: &'static str,
    /// For one that makes a process of a container, which must not reach our binary: what is kept of our caller's
    /// environment where husk starts itself once more.
    pub(crate) seal: Option<Environment>,
    /// How husk ends if the verb fails.
    pub(crate) failure: Exit,
    /// Adds its options.
    pub(crate) define: fn(Command) -> Command,
    pub(crate) perform: fn(&ArgMatches, &Session<'_>) -> Result<Exit>,
}

/// Verbs that belong together.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    Life,
    Look,
    Prepare,
    Test,
}

pub(crate) const GROUPS: [Group; 4] = [Group::Life, Group::Look, Group::Prepare, Group::Test];

impl Group {
    pub(crate) fn heading(self) -> &'static str {
        match self {
            Self::Life => "A CONTAINER'S LIFE",
            Self::Look => "WHAT IS THERE",
            Self::Prepare => "BEFORE THERE IS A CONTAINER",
            Self::Test => "WITHOUT A CONTAINER",
        }
    }
}

/// How a verb is written.
pub(crate) fn usage(verb: &Verb) -> String {
    format!("husk [OPTIONS] {} {}", verb.name, verb.usage).trim_end().to_owned()
}

/// A verb of which no more is said than its options say.
pub(crate) const fn verb<V: Perform>(name: &'static str, group: Group) -> Verb {
    verb_that::<V>(name, group, |matches, session| V::from_arg_matches(matches)?.perform(session))
}

/// The same of one that asks how its arguments were written.
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
        failure: Exit::Failed,
        define: V::augment_args,
        perform,
    }
}
