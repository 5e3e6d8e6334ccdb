//! Lists a binary's tests by running the binary itself.

use super::output::CapturedOutput;
use crate::cache::{Cache, Mode, Reader, Remembered, shows_more};
use crate::error::Error;
use crate::libtest::arguments::TestArguments;
use crate::profile::Profile;
use crate::report::tested::Tested;
use crate::sandbox::Machine;
use std::collections::BTreeMap;
use std::ffi::OsString;

/// Runs a binary once for all of its tests. Returns its output, or `None` if it fails. The output is remembered like that
/// of a test.
fn ask(
    profile: &Profile,
    arguments: Vec<OsString>,
    machine: &mut Machine,
    mut cache: Option<&mut Cache>,
) -> Result<Option<String>, Error> {
    // Only the tests need the services.
    let profile = Profile { services: Vec::new(), ..with_arguments(profile, arguments) };
    let key = cache
        .as_deref_mut()
        .and_then(|cache| cache.key(&profile, &machine.host, &Reader { name: "list", ..Reader::default() }));
    let known = cache.as_ref().zip(key).filter(|(cache, _)| cache.mode == Mode::Use);
    if let Some(known) = known.and_then(|(cache, key)| cache.find(key)) {
        return Ok(Some(String::from_utf8_lossy(&known.out(None)).into_owned()));
    }
    let output = CapturedOutput::captured()?;
    let ended = machine.run(&profile, output.streams())?;
    let text = output.finish()?.text();
    if let Some((cache, key)) = cache.zip(key)
        && ended.status.success()
        && !shows_more(&machine.losses)
    {
        cache.remember(key, Remembered::new(ended.wall, text.as_bytes(), Vec::new(), None));
    }
    Ok(ended.status.success().then_some(text))
}

/// Returns the names of a binary's tests, or `None` if its output is not a list of tests.
pub(super) fn list(
    profile: &Profile,
    arguments: Vec<OsString>,
    machine: &mut Machine,
    cache: Option<&mut Cache>,
) -> Result<Option<Vec<String>>, Error> {
    let name = |line: &str| {
        let name = line.strip_suffix(": test").or_else(|| line.strip_suffix(": benchmark"));
        name.map(ToOwned::to_owned)
    };
    let text = ask(profile, arguments, machine, cache)?;
    Ok(text.and_then(|text| text.lines().map(name).collect()))
}

/// Returns what libtest prints for ignored tests: the kind of each and why it is ignored.
pub(super) fn reasons(
    profile: &Profile,
    names: Vec<&String>,
    machine: &mut Machine,
    mut cache: Option<&mut Cache>,
) -> Result<BTreeMap<String, Tested>, Error> {
    /// How many tests are named at once: a command line is limited to some megabytes.
    const AT_ONCE: usize = 1000;
    let mut told = BTreeMap::new();
    for names in names.chunks(AT_ONCE) {
        let arguments = TestArguments::to_ignore(names.iter().copied());
        let text = ask(profile, arguments, machine, cache.as_deref_mut())?.unwrap_or_default();
        for &name in names {
            let begin = format!("test {name} ");
            let line = text.lines().find_map(|line| line.strip_prefix(&begin));
            let (mode, word) = line.and_then(|line| line.split_once("... ")).unwrap_or_default();
            let mode = mode.strip_prefix("- ").map(|mode| mode.trim_end().to_owned());
            let ignored = word.strip_prefix("ignored, ").map(ToOwned::to_owned);
            told.insert(
                name.clone(),
                Tested {
                    name: name.clone(),
                    mode,
                    attempts: Vec::new(),
                    ignored,
                    explained: None,
                    unit: None,
                },
            );
        }
    }
    Ok(told)
}

pub(super) fn with_arguments(profile: &Profile, arguments: Vec<OsString>) -> Profile {
    let args = profile.args.iter().take(1).cloned().chain(arguments).collect();
    Profile { args, ..profile.clone() }
}
