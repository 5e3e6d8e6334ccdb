//! The verbs. Each has a file, which turns arguments into one call of the runtime and prints the result. This
//! file has the table of verbs; `verb.rs` describes one.

mod life;
mod look;
mod prepare;
mod test;

use crate::exit::Exit;
use crate::verb::{Group, Verb, verb, verb_that};
use husk_runtime::Environment;
use life::{checkpoint, create, delete, exec, kill, pause, restore, run, start, update, wait};
use look::{events, features, list, ps, state};
use prepare::{bundle, completion, doctor, man, plan, register, spec, validate};
use std::ffi::OsStr;

/// Every verb, in the order in which the help lists them.
pub(crate) static VERBS: &[Verb] = &[
    Verb {
        usage: "[--bundle DIRECTORY] ID",
        more: run::MORE,
        common: Some(run::COMMON),
        seal: Some(Environment::Callers),
        ..verb::<run::Run>("run", Group::Life)
    },
    Verb {
        usage: "[--bundle DIRECTORY] ID",
        more: create::MORE,
        common: Some(create::COMMON),
        seal: Some(Environment::Callers),
        ..verb::<create::Create>("create", Group::Life)
    },
    Verb { usage: "ID", common: Some(&[]), ..verb::<start::Start>("start", Group::Life) },
    Verb {
        usage: "[OPTIONS] ID (PROGRAM [ARGUMENTS] | --process FILE)",
        more: exec::MORE,
        common: Some(exec::COMMON),
        seal: Some(Environment::OurOwn),
        failure: Exit::NoProcess,
        ..verb::<exec::Exec>("exec", Group::Life)
    },
    Verb {
        usage: "ID [SIGNAL]",
        more: kill::MORE,
        common: Some(&["--all"]),
        ..verb::<kill::Kill>("kill", Group::Life)
    },
    Verb { usage: "ID", more: wait::MORE, ..verb::<wait::Wait>("wait", Group::Life) },
    Verb { usage: "ID", ..verb::<pause::Pause>("pause", Group::Life) },
    Verb { usage: "ID", ..verb::<pause::Resume>("resume", Group::Life) },
    Verb { usage: "[OPTIONS] ID", more: update::MORE, ..verb::<update::Update>("update", Group::Life) },
    Verb {
        usage: "[OPTIONS] ID",
        more: checkpoint::MORE,
        ..verb::<checkpoint::Checkpoint>("checkpoint", Group::Life)
    },
    Verb { usage: "[OPTIONS] ID", more: restore::MORE, ..verb::<restore::Restore>("restore", Group::Life) },
    Verb {
        usage: "[--force] ID",
        common: Some(&["--force"]),
        ..verb::<delete::Delete>("delete", Group::Life)
    },
    Verb { usage: "ID", common: Some(&[]), ..verb::<state::State>("state", Group::Look) },
    Verb { usage: "[--format FORMAT]", ..verb::<list::List>("list", Group::Look) },
    Verb { usage: "[--format FORMAT] ID [PS OPTIONS]", more: ps::MORE, ..verb::<ps::Ps>("ps", Group::Look) },
    Verb { usage: "[--stats] ID", more: events::MORE, ..verb::<events::Events>("events", Group::Look) },
    verb::<features::Features>("features", Group::Look),
    Verb {
        usage: "[--bundle DIRECTORY] [--rootless]",
        more: spec::MORE,
        define: spec::define,
        ..verb::<spec::Spec>("spec", Group::Prepare)
    },
    Verb {
        usage: "[OPTIONS] IMAGE DIRECTORY",
        more: bundle::MORE,
        ..verb::<bundle::Bundle>("bundle", Group::Prepare)
    },
    Verb { usage: "[BUNDLE]", more: plan::MORE, ..verb::<plan::Plan>("plan", Group::Prepare) },
    Verb {
        usage: "[BUNDLE]",
        more: validate::MORE,
        ..verb::<validate::Validate>("validate", Group::Prepare)
    },
    Verb {
        usage: "[--format FORMAT]",
        more: doctor::MORE,
        ..verb::<doctor::Doctor>("doctor", Group::Prepare)
    },
    Verb {
        usage: "[OPTIONS] ENGINE",
        more: register::MORE,
        ..verb::<register::Register>("register", Group::Prepare)
    },
    Verb {
        usage: "SHELL",
        more: completion::MORE,
        ..verb::<completion::Completion>("completion", Group::Prepare)
    },
    Verb { usage: "[VERB]", more: man::MORE, ..verb::<man::Man>("man", Group::Prepare) },
    Verb {
        usage: "[OPTIONS] [--] PROGRAM [ARGUMENTS]",
        more: test::options::MORE,
        common: Some(test::options::COMMON),
        variables: test::options::VARIABLES,
        failure: Exit::NoSandbox,
        ..verb_that::<test::options::Test>("test", Group::Test, test::perform)
    },
];

pub(crate) fn find(name: &OsStr) -> Option<&'static Verb> {
    VERBS.iter().find(|verb| name == verb.name)
}

#[cfg(test)]
mod tests {
    use super::find;
    use super::life::{create, exec, run};
    use super::test::options;
    use crate::options::program;
    use crate::rare::tests::assert_defaults;
    use std::ffi::OsStr;

    #[test]
    fn options_that_are_left_out_have_the_defaults_of_clap() {
        let of = |name: &str| (find(OsStr::new(name)).unwrap().define)(program());
        assert_defaults::<create::RareCreation>(of("create"));
        assert_defaults::<create::CreateOrphans>(of("create"));
        assert_defaults::<run::RareRun>(of("run"));
        assert_defaults::<exec::RareExec>(of("exec"));
        assert_defaults::<options::RareTest>(of("test"));
        assert_defaults::<options::Tests>(of("test"));
    }
}
