//! The name by which husk was called.
//!
//! If husk is installed in place of another runtime, help and errors use that runtime's name. Under the name
//! runc, errors also begin with runc's words. Nothing else depends on the name: the state directory and all
//! behaviour are husk's.

use anyhow::Error;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::LazyLock;

/// The name, if it is a plain word; callers may pass any text. A path in /proc ends in a number or `exe`, so it
/// does not count.
pub(crate) static NAME: LazyLock<String> = LazyLock::new(|| {
    let called = Path::new(husk_runtime::arguments().first().map_or(OsStr::new(""), |called| called));
    let name = called.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_word = name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(is_plain);
    if is_word && !called.starts_with("/proc") { name.to_owned() } else { "husk".to_owned() }
});

/// Fills in this name in a text that has `{husk}` wherever a reader might type it.
pub(crate) fn fill(text: &str) -> String {
    text.replace("{husk}", &NAME)
}

/// Formats an error with this name for husk, in the phrase that runc and crun share: `if runc will detach`.
pub(crate) fn with_name(error: &husk_runtime::Error, name: &str) -> String {
    match error {
        husk_runtime::Error::TerminalMode { refused, condition } => {
            format!("{refused} if {name} will {condition}")
        }
        error => error.to_string(),
    }
}

/// Prefixes a verb's error with runc's words if husk is called runc. People and their tools look for these
/// words.
pub(crate) fn as_runc(verb: &str, error: Error) -> Error {
    if *NAME == "runc" { behind_runcs_words(verb, error) } else { error }
}

fn behind_runcs_words(verb: &str, error: Error) -> Error {
    use husk_runtime::Error::{Cgroup, Kernel, Spawn, Step};
    use husk_runtime::Part;

    let makes_container = match verb {
        "create" | "run" => true,
        "exec" => false,
        _ => return error,
    };
    let started = match error.downcast_ref() {
        Some(Step { origin, .. }) if origin.part() == Part::Mount => Some(": error mounting"),
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
    use super::{behind_runcs_words, with_name};
    use anyhow::anyhow;
    use husk_runtime::{Error, Origin};
    use std::path::Path;

    #[test]
    fn terminal_error_names_the_program_that_was_called() {
        let error = Error::TerminalMode { refused: "cannot do this", condition: "detach" };
        assert_eq!(with_name(&error, "runc"), "cannot do this if runc will detach");
        assert_eq!(with_name(&error, "husk"), error.to_string());
        assert_eq!(with_name(&Error::Exists, "runc"), Error::Exists.to_string());
    }

    #[test]
    fn errors_begin_as_in_runc() {
        let step = |origin: Origin| Error::Step {
            origin: origin.into(),
            failure: "attach: not a directory".to_owned(),
        };
        let words = |verb, error| format!("{:#}", behind_runcs_words(verb, error));
        for (verb, error, wanted) in [
            (
                "run",
                step(Origin::mount(0, Path::new("/a"))).into(),
                "runc run failed: unable to start container process: error during container init: \
                 error mounting: mounts[0] /a: attach: not a directory",
            ),
            (
                "create",
                step("root.path".into()).into(),
                "runc create failed: unable to start container process: error during container init: \
                 root.path: attach: not a directory",
            ),
            (
                "exec",
                step("process.cwd".into()).into(),
                "exec failed: unable to start container process: process.cwd: attach: not a directory",
            ),
            ("run", Error::Exists.into(), "runc run failed: container with given ID already exists"),
            ("exec", Error::Missing.into(), "exec failed: container does not exist"),
            ("create", anyhow!("--root: x"), "runc create failed: --root: x"),
            // For these errors runc adds no more than the reason.
            ("start", step("process.args".into()).into(), "process.args: attach: not a directory"),
            ("delete", Error::Missing.into(), "container does not exist"),
        ] {
            assert_eq!(words(verb, error), wanted);
        }
    }
}
