//! Options that few callers use.
//!
//! clap builds every option of a verb before it parses the first word, and each takes a microsecond or two: together
//! a twentieth of `husk exec`. A verb lists its [common](crate::verb::Verb::common) options, and keeps the others in a
//! [`Rare`]. If a command line has only common options, the rare ones are not built, and have their defaults.
//!
//! Such a command line is parsed again with every option if clap does not accept it. All messages and help texts
//! therefore know every option.

use crate::verb::Verb;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches};
use std::cell::Cell;
use std::env;
use std::ffi::OsString;
use std::ops::Deref;

thread_local! {
    static ARE_LEFT_OUT: Cell<bool> = const { Cell::new(false) };
}

/// Rare options, which are built only if the command line has one of them. `Default` must agree with clap's defaults.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rare<T>(T);

impl<T> Deref for Rare<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Rare<T> {
    pub(crate) fn into_inner(self) -> T {
        self.0
    }
}

impl<T> From<T> for Rare<T> {
    fn from(options: T) -> Self {
        Self(options)
    }
}

impl<T: Args + Default> Args for Rare<T> {
    fn augment_args(command: Command) -> Command {
        if ARE_LEFT_OUT.get() { command } else { T::augment_args(command) }
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<T: FromArgMatches + Default> FromArgMatches for Rare<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Ok(Self(if ARE_LEFT_OUT.get() { T::default() } else { T::from_arg_matches(matches)? }))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The options of the program, as opposed to those of a verb, that engines use.
const COMMON: [&str; 4] = ["--root", "--log", "--log-format", "--systemd-cgroup"];

/// Returns the verb of a command line that has only common options. The verb may be mistaken if the value of an option
/// is the name of one.
pub(crate) fn only_common(arguments: &[OsString], verbs: &'static [Verb]) -> Option<&'static Verb> {
    // Common options are UTF-8.
    let mut words =
        arguments.iter().take_while(|word| *word != "--").map(|word| word.to_str().unwrap_or("-"));
    let verb = words.clone().find_map(|word| verbs.iter().find(|verb| verb.name == word))?;
    let common = verb.common?;
    if verb.variables.iter().any(|name| env::var_os(name).is_some()) {
        return None;
    }
    let is_common = |word: &str| {
        let name = word.split_once('=').map_or(word, |(name, _)| name);
        COMMON.contains(&name) || common.contains(&name)
    };
    words.all(|word| !word.starts_with('-') || is_common(word)).then_some(verb)
}

/// Returns whether this thread leaves rare options out.
pub(crate) fn are_left_out() -> bool {
    ARE_LEFT_OUT.get()
}

/// Returns the names of rare options, unless they are left out.
pub(crate) fn unless_left_out(names: &'static [&'static str]) -> &'static [&'static str] {
    if are_left_out() { &[] } else { names }
}

/// Leaves rare options out of the commands that this thread builds, and gives them their defaults.
pub(crate) fn leave_out(are_left_out: bool) {
    ARE_LEFT_OUT.set(are_left_out);
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{ARE_LEFT_OUT, COMMON, leave_out};
    use crate::args::{self, Asked};
    use crate::commands::VERBS;
    use crate::options::{RareGlobal, program};
    use clap::{Args, Command};
    use std::ffi::OsString;
    use std::fmt::Debug;

    /// Returns whether the rare options are left out of a command line.
    fn are_left_out(line: &str) -> bool {
        let asked = args::read(line.split(' ').map(OsString::from), VERBS);
        assert!(matches!(asked, Ok(Asked::Verb { .. })), "{line}");
        let left_out = ARE_LEFT_OUT.get();
        leave_out(false);
        left_out
    }

    #[test]
    fn command_lines_of_engines_leave_rare_options_out() {
        for line in [
            "run web-1",
            "--root /r --log /l --log-format json --systemd-cgroup create --bundle=/b --pid-file p web-1",
            "exec --process p --pid-file=/x --detach --tty --console-socket s web-1",
            "exec web-1 /bin/true",
            "delete --force web-1",
            "test ./check",
            "test --runner --timeout 10s --write=target --overlay . -- ./check --plan",
        ] {
            assert!(are_left_out(line), "{line}");
        }
        for line in [
            "--debug run web-1",
            "run --keep web-1",
            "run --bundle create -f config.json web-1",
            "exec web-1 sh -c true",
            "exec -u 1 web-1 true",
            "--root run list",
            "test --plan -- ./check",
        ] {
            assert!(!are_left_out(line), "{line}");
        }
    }

    /// Panics unless options have the same defaults if they are left out of a command line of one word.
    pub(crate) fn assert_defaults<T: Args + Default + Debug>(command: Command) {
        let matches = command.get_matches_from(["word"]);
        let parsed = T::from_arg_matches(&matches).unwrap();
        assert_eq!(format!("{parsed:?}"), format!("{:?}", T::default()));
    }

    #[test]
    fn global_options_that_are_left_out_have_the_defaults_of_clap() {
        assert_defaults::<RareGlobal>(RareGlobal::augment_args(Command::new("husk")));
    }

    #[test]
    fn every_common_option_exists() {
        for verb in VERBS {
            let command = (verb.define)(program());
            for name in verb.common.into_iter().flatten().chain(&COMMON) {
                let option =
                    command.get_arguments().find(|option| option.get_long() == name.strip_prefix("--"));
                assert!(option.is_some(), "{} {name}", verb.name);
            }
        }
    }
}
