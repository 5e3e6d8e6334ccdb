//! A shell in the sandbox of a program.

use crate::error::Error;
use crate::plan::is_hidden;
use crate::profile::{PathAccess, Profile, Show};
use crate::sandbox::probe::probe;
use std::env;
use std::ffi::OsStr;
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

/// Returns a word in a shell's syntax.
fn quoted(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_./=:,+@%".contains(char);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.into_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn shell_reads_quoted_words_unchanged() {
        let is = |word: &str| quoted(word.as_ref());
        assert_eq!(is("--exact"), "--exact");
        assert_eq!(is("a b"), "'a b'");
        assert_eq!(is(""), "''");
        assert_eq!(is("it's $HOME"), "'it'\\''s $HOME'");
        // A shell expands an unquoted tilde.
        assert_eq!(is("~x"), "'~x'");
    }
}
