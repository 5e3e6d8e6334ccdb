//! Which tests a binary has, as the binary itself tells.

use super::output::Output;
use crate::error::Error;
use crate::libtest::request::Request;
use crate::profile::Profile;
use crate::report::tested::Tested;
use crate::sandbox::Machine;
use std::collections::BTreeMap;
use std::ffi::OsString;

/// What a binary writes that is run once for all of its tests.
fn ask(profile: &Profile, arguments: Vec<OsString>, machine: &mut Machine) -> Result<Option<String>, Error> {
    let output = Output::captured()?;
    let ended = machine.run(&with_arguments(profile, arguments), output.streams())?;
    let text = String::from_utf8_lossy(&output.finish()?).into_owned();
    Ok(ended.status.success().then_some(text))
}

/// The names of a binary's tests, if it tells them and nothing else.
pub(super) fn list(
    profile: &Profile,
    arguments: Vec<OsString>,
    machine: &mut Machine,
) -> Result<Option<Vec<String>>, Error> {
    let name = |line: &str| {
        let name = line.strip_suffix(": test").or_else(|| line.strip_suffix(": benchmark"));
        name.map(ToOwned::to_owned)
    };
    let text = ask(profile, arguments, machine)?;
    Ok(text.and_then(|text| text.lines().map(name).collect()))
}

/// Of tests that are not to be run, what libtest says of each: of what kind it is, and why it is not run.
pub(super) fn reasons(
    profile: &Profile,
    names: Vec<&String>,
    machine: &mut Machine,
) -> Result<BTreeMap<String, Tested>, Error> {
    /// How many are named at once: a command line may have some megabytes.
    const AT_ONCE: usize = 1000;
    let mut told = BTreeMap::new();
    for names in names.chunks(AT_ONCE) {
        let text = ask(profile, Request::to_ignore(names.iter().copied()), machine)?.unwrap_or_default();
        for &name in names {
            let begin = format!("test {name} ");
            let line = text.lines().find_map(|line| line.strip_prefix(&begin));
            let (mode, word) = line.and_then(|line| line.split_once("... ")).unwrap_or_default();
            let mode = mode.strip_prefix("- ").map(|mode| mode.trim_end().to_owned());
            let ignored = word.strip_prefix("ignored, ").map(ToOwned::to_owned);
            told.insert(name.clone(), Tested { name: name.clone(), mode, attempts: Vec::new(), ignored });
        }
    }
    Ok(told)
}

pub(super) fn with_arguments(profile: &Profile, arguments: Vec<OsString>) -> Profile {
    let args = profile.args.iter().take(1).cloned().chain(arguments).collect();
    Profile { args, ..profile.clone() }
}
