//! The program's environment: passed-on variables of the caller, fixed values and requested ones.

use crate::bundle::text;
use crate::host::Host;
use crate::outputs::VARIABLES;
use crate::profile::{Image, Profile, Variable};
use crate::tools;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Names of variables that are passed on: paths of programs and libraries, and the user's name.
const NAMES: &[&str] = &["PATH", "USER", "LOGNAME", "LD_LIBRARY_PATH", "OUT_DIR"];

/// Variables that describe the terminal, also passed on.
const OF_TERMINAL: &[&str] =
    &["TERM", "COLORTERM", "COLUMNS", "LINES", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR"];

/// The default `PATH` in an image.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Prefixes of variables that are passed on: those that test harnesses set for tests.
const PREFIXES: &[&str] =
    &["CARGO_", "RUST_", "RUSTDOC_", "RUSTUP_", "NEXTEST", "PROPTEST_", "INSTA_", "PYTEST_", "GOTEST"];

/// Variables that differ in each run of nextest. A program with declared inputs does not see them, because its result would
/// never be found again.
const OF_RUN: &[&str] =
    &["NEXTEST_RUN_ID", "NEXTEST_ATTEMPT_ID", "NEXTEST_TEST_GLOBAL_SLOT", "NEXTEST_TEST_GROUP_SLOT"];

/// Endings of variables that may hold secrets. They are not passed on, whatever the prefix.
const SECRETS: [&str; 4] = ["_TOKEN", "_SECRET", "_PASSWORD", "_KEY"];

/// A program's variables, sorted by name.
pub(crate) type Variables<'p> = BTreeMap<Cow<'p, OsStr>, Cow<'p, OsStr>>;

/// Returns all variables.
pub(crate) fn variables<'p>(profile: &'p Profile, host: &'p Host) -> Variables<'p> {
    let (image, process) = (profile.image.as_ref(), profile.image.as_ref().and_then(Image::process));
    // In an image, only the caller's description of the terminal still makes sense. A test of the host, which the image
    // shows, also needs its harness's variables.
    let callers = host.environment.iter().filter(|(name, _)| match image {
        Some(image) => {
            OF_TERMINAL.iter().any(|known| name == *known)
                || (!image.shown.is_empty() && (is_of_tests(name) || name == "LD_LIBRARY_PATH"))
        }
        None => is_let_through(name),
    });
    let is_of_run = |name: &OsStr| OF_RUN.iter().any(|known| name == *known);
    let callers = callers.filter(|(name, _)| host.view.is_none() || !is_of_run(name));
    let borrowed = |text: &'p OsString| Cow::Borrowed(text.as_os_str());
    let fixed = |text: &'static str| Cow::Borrowed(OsStr::new(text));
    let mut variables: Variables<'_> =
        callers.map(|(name, value)| (borrowed(name), borrowed(value))).collect();
    if image.is_some() {
        variables.insert(fixed("PATH"), fixed(PATH));
    }
    for (name, value) in [("TZ", "UTC"), ("LANG", "C.UTF-8"), ("SHELL", "/bin/sh")] {
        variables.insert(fixed(name), fixed(value));
    }
    variables.insert(fixed("HOME"), Cow::Borrowed(home(host).as_os_str()));
    variables.insert(fixed("XDG_RUNTIME_DIR"), Cow::Owned(runtime_directory(host).into()));
    for variable in process.iter().flat_map(|process| &process.env) {
        let (name, value) = split(&text(variable.clone()));
        variables.insert(Cow::Owned(name), Cow::Owned(value.unwrap_or_default()));
    }
    for variable in &profile.env {
        match variable {
            Variable::Set(name, value) => drop(variables.insert(borrowed(name), borrowed(value))),
            Variable::Pass(name) => {
                let value = host.environment.iter().find(|(known, _)| known == name);
                match value {
                    Some((_, value)) => drop(variables.insert(borrowed(name), borrowed(value))),
                    None => drop(variables.remove(name.as_os_str())),
                }
            }
        }
    }
    variables
}

/// Returns the program's home directory: the caller's path, or one of its own if the caller has none.
pub(crate) fn home(host: &Host) -> &Path {
    host.home.as_deref().unwrap_or(Path::new("/tmp/home"))
}

/// Returns the directory for sockets, `XDG_RUNTIME_DIR`.
pub(crate) fn runtime_directory(host: &Host) -> PathBuf {
    format!("/run/user/{}", host.program.0).into()
}

/// Splits `NAME=VALUE`, or a name alone.
fn split(variable: &OsStr) -> (OsString, Option<OsString>) {
    let bytes = variable.as_bytes();
    let place = bytes.iter().position(|byte| *byte == b'=');
    let (name, value) = place.map_or((bytes, None), |place| (&bytes[..place], bytes.get(place + 1..)));
    let own = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    (own(name), value.map(own))
}

fn is_let_through(name: &OsStr) -> bool {
    let is = |known: &str| name == known;
    NAMES.iter().chain(OF_TERMINAL).chain(VARIABLES).copied().any(is)
        || tools::is_variable(name.as_bytes())
        || is_of_tests(name)
}

/// Whether a test harness sets the variable for tests.
fn is_of_tests(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let is_secret = SECRETS.iter().any(|ending| name.ends_with(ending.as_bytes()));
    PREFIXES.iter().any(|prefix| name.starts_with(prefix.as_bytes())) && !is_secret
}

#[cfg(test)]
mod tests {
    use super::is_let_through;

    #[test]
    fn secret_variables_are_removed() {
        let let_through = |name: &str| is_let_through(name.as_ref());
        assert!(let_through("PATH"));
        assert!(let_through("CARGO_MANIFEST_DIR"));
        assert!(let_through("CARGO_BIN_EXE_husk"));
        assert!(!let_through("CARGO_REGISTRY_TOKEN"));
        assert!(!let_through("CARGO_REGISTRIES_OURS_TOKEN"));
        assert!(!let_through("AWS_ACCESS_KEY_ID"));
        assert!(!let_through("SSH_AUTH_SOCK"));
        assert!(!let_through("PATHS"));
    }
}
