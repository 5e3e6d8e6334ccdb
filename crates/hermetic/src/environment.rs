//! The program's environment: what is on a list, what is the same everywhere, what was asked for.

use crate::host::Host;
use crate::profile::{Profile, Variable};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// What is the caller's by name: where programs are, who is asking, what the terminal can do.
const NAMES: [&str; 14] = [
    "PATH",
    "USER",
    "LOGNAME",
    "TERM",
    "COLORTERM",
    "COLUMNS",
    "LINES",
    "NO_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "FORCE_COLOR",
    "LD_LIBRARY_PATH",
    "OUT_DIR",
    "VIRTUAL_ENV",
];

/// What is the caller's by how it begins: what test harnesses tell tests.
const PREFIXES: [&str; 9] =
    ["CARGO_", "RUST_", "RUSTDOC_", "RUSTUP_", "NEXTEST", "PROPTEST_", "INSTA_", "PYTEST_", "GOTEST"];

/// Endings of what is secret, whatever it begins with.
const SECRETS: [&str; 4] = ["_TOKEN", "_SECRET", "_PASSWORD", "_KEY"];

/// Every variable, in the order of the names.
pub(crate) fn variables(profile: &Profile, host: &Host) -> BTreeMap<OsString, OsString> {
    let callers = host.environment.iter().filter(|(name, _)| is_let_through(name));
    let mut variables: BTreeMap<_, _> = callers.cloned().collect();
    let fixed = [("TZ", "UTC"), ("LANG", "C.UTF-8"), ("SHELL", "/bin/sh")];
    for (name, value) in fixed {
        variables.insert(name.into(), value.into());
    }
    variables.insert("HOME".into(), home(host).into());
    variables.insert("XDG_RUNTIME_DIR".into(), runtime_directory(host).into());
    for variable in &profile.env {
        match variable {
            Variable::Set(name, value) => drop(variables.insert(name.clone(), value.clone())),
            Variable::Pass(name) => {
                let value = host.environment.iter().find(|(known, _)| known == name);
                match value {
                    Some((_, value)) => drop(variables.insert(name.clone(), value.clone())),
                    None => drop(variables.remove(name)),
                }
            }
        }
    }
    variables
}

/// The program's home directory: where the caller's is, or where there is none, one of its own.
pub(crate) fn home(host: &Host) -> PathBuf {
    host.home.clone().unwrap_or_else(|| "/tmp/home".into())
}

/// Where programs keep their sockets.
pub(crate) fn runtime_directory(host: &Host) -> PathBuf {
    format!("/run/user/{}", host.uid).into()
}

fn is_let_through(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let is = |known: &str| name == known.as_bytes();
    let begins = |prefix: &str| name.starts_with(prefix.as_bytes());
    let is_secret = SECRETS.iter().any(|ending| name.ends_with(ending.as_bytes()));
    NAMES.into_iter().any(is) || (PREFIXES.into_iter().any(begins) && !is_secret)
}

#[cfg(test)]
mod tests {
    use super::is_let_through;

    #[test]
    fn what_is_secret_is_not_let_through() {
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
