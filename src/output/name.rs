//! The name that husk was called by.
//!
//! Who has put it where another runtime was finds that runtime's name in the help and before errors, and runc's
//! own beginning of errors where that was runc. Nothing else depends on it: where containers are known, and what is
//! done to them, is husk's whatever it is called.

use anyhow::Error;
use std::path::Path;
use std::sync::LazyLock;

/// The name, if it is a plain word and no number or `exe` of procfs: a caller may write there what they like.
pub(crate) static NAME: LazyLock<String> = LazyLock::new(|| {
    let called = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&called).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_word = name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(is_plain);
    if is_word && !Path::new(&called).starts_with("/proc") { name.to_owned() } else { "husk".to_owned() }
});

/// The same text with this name in the commands that a reader might type: those on lines of their own, and
/// those in quotes.
pub(crate) fn in_commands(text: &str) -> String {
    text.replace("  husk ", &format!("  {} ", *NAME)).replace("'husk ", &format!("'{} ", *NAME))
}

/// An error with this name in the condition that runc and crun word with theirs: `if husk will detach`.
pub(crate) fn in_error(text: &str) -> String {
    text.replace(" if husk will ", &format!(" if {} will ", *NAME))
}

/// An error of a verb, behind the words that runc begins it with where husk is called so: they are what people and
/// their tools look for.
pub(crate) fn as_runc(verb: &str, error: Error) -> Error {
    if *NAME == "runc" { behind_runcs_words(verb, error) } else { error }
}

fn behind_runcs_words(verb: &str, error: Error) -> Error {
    use husk_runtime::Error::{Cgroup, Kernel, Spawn, Step};

    let makes_container = match verb {
        "create" | "run" => true,
        "exec" => false,
        _ => return error,
    };
    let started = match error.downcast_ref() {
        Some(Step { origin, .. }) if origin.starts_with("mounts[") => Some(": error mounting"),
        Some(Step { .. } | Spawn(_) | Cgroup(_) | Kernel { .. }) => Some(""),
        _ => None,
    };
    let failed = if makes_container { format!("runc {verb} failed") } else { format!("{verb} failed") };
    error.context(match started {
        Some(what) if makes_container => {
            format!("{failed}: unable to start container process: error during container init{what}")
        }
        Some(_) => format!("{failed}: unable to start container process"),
        None => failed,
    })
}

#[cfg(test)]
mod tests {
    use super::behind_runcs_words;
    use anyhow::anyhow;
    use husk_runtime::Error;

    #[test]
    fn errors_begin_as_runcs_do() {
        let step = |origin: &str| Error::Step {
            origin: origin.to_owned(),
            failure: "attach: not a directory".to_owned(),
        };
        let words = |verb, error| format!("{:#}", behind_runcs_words(verb, error));
        for (verb, error, wanted) in [
            (
                "run",
                step("mounts[0] /a").into(),
                "runc run failed: unable to start container process: error during container init: \
                 error mounting: mounts[0] /a: attach: not a directory",
            ),
            (
                "create",
                step("root.path").into(),
                "runc create failed: unable to start container process: error during container init: \
                 root.path: attach: not a directory",
            ),
            (
                "exec",
                step("process.cwd").into(),
                "exec failed: unable to start container process: process.cwd: attach: not a directory",
            ),
            ("run", Error::Exists.into(), "runc run failed: container with given ID already exists"),
            ("exec", Error::Missing.into(), "exec failed: container does not exist"),
            ("create", anyhow!("--root: x"), "runc create failed: --root: x"),
            // Of these runc says what went wrong and no more.
            ("start", step("process.args").into(), "process.args: attach: not a directory"),
            ("delete", Error::Missing.into(), "container does not exist"),
        ] {
            assert_eq!(words(verb, error), wanted);
        }
    }
}
