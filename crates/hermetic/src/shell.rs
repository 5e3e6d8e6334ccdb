//! A shell in the sandbox of a program.

use crate::error::Error;
use crate::explain::words::quoted;
use crate::plan::is_hidden;
use crate::profile::{PathAccess, Profile, Show};
use crate::sandbox::probe::probe;
use std::env;
use std::path::PathBuf;

/// The shell of every system.
const SHELL: &str = "/bin/sh";

/// Replaces the program with a shell: the caller's if the sandbox shows it, otherwise `/bin/sh`. Returns the program's
/// command line for a shell.
///
/// # Errors
///
/// If a path of the profile does not exist.
pub fn open_shell(profile: &mut Profile) -> Result<String, Error> {
    let words: Vec<_> = profile.args.iter().map(|word| quoted(word)).collect();
    // Shows the paths of the profile's errors first.
    probe(profile)?;
    let callers = env::var_os("SHELL").map(PathBuf::from).filter(|shell| shell.is_absolute());
    let callers = callers.filter(|shell| {
        let mut asked = profile.clone();
        asked.shown.push(Show { path: shell.clone(), access: PathAccess::Read });
        probe(&asked).is_ok_and(|host| {
            host.found
                .last()
                .is_some_and(|found| !found.is_directory && !is_hidden(&found.path, profile, &host))
        })
    });
    profile.args = vec![callers.map_or_else(|| SHELL.into(), PathBuf::into_os_string)];
    Ok(words.join(" "))
}
