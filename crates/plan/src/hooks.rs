//! Plans the hooks that the child runs, and the point at which the child asks the parent to run others.
//!
//! The specification has six kinds (config.md, "POSIX-platform Hooks"). Before the root is changed, the parent
//! runs `prestart` and `createRuntime` in its own namespaces; then the child runs `createContainer`. After `start`
//! the child runs `startContainer`. `poststart` and `poststop` are not part of a plan: commands that have no plan
//! run them, for a container that exists.

use crate::builder::{Builder, Error, mode};
use crate::origin::Origin;
use husk_bundle::Container;
use husk_bundle::container::Hook;
use husk_script::sys::CArray;
use husk_script::sys::file::OFlags;
use husk_script::{Handle, Reg, Request, Step};
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The version of the specification that husk follows.
pub const OCI_VERSION: &str = "1.3.0";

/// Returns the state that hooks read from standard input, in two parts: before the pid and after it. The
/// specification defines its contents (runtime.md, "State").
#[must_use]
pub fn state(
    id: &str,
    status: &str,
    bundle: &Path,
    annotations: &BTreeMap<String, String>,
) -> (String, String) {
    let before = format!(r#"{{"ociVersion":"{OCI_VERSION}","id":{},"status":"{status}""#, quoted(id));
    let mut after = format!(r#","bundle":{}"#, quoted(&bundle.to_string_lossy()));
    for (index, (key, value)) in annotations.iter().enumerate() {
        after += if index == 0 { r#","annotations":{"# } else { "," };
        after += &format!("{}:{}", quoted(key), quoted(value));
    }
    after += if annotations.is_empty() { "}" } else { "}}" };
    (before, after)
}

/// Quotes a string as JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The standard output and standard error of hooks; `None` for a stream whose text becomes part of an error.
type Streams = [Option<Handle>; 2];

/// Opens the files for the output of `createContainer` hooks while the caller's paths are still accessible.
/// `startContainer` hooks run after all descriptors of the host are closed, so these files are not for them.
pub(crate) fn open_streams(container: &Container, plan: &mut Builder<'_>) -> Result<Streams, Error> {
    let hooks = &container.hooks;
    if hooks.create_container.is_empty() {
        return Ok([None; 2]);
    }
    let mut open = |name: &str, path: &Option<PathBuf>| -> Result<Option<Handle>, Error> {
        let Some(path) = path else { return Ok(None) };
        plan.at(format!("annotations.run.oci.hooks.{name}"));
        let (path, out) = (plan.text(path)?, plan.register()?);
        // A FIFO that no process reads is an error, and is not waited for.
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOCTTY | OFlags::NONBLOCK;
        let flags = flags | OFlags::CLOEXEC;
        plan.push(Step::Open { path, flags, mode: mode(0o600), out });
        Ok(Some(out.into()))
    };
    Ok([open("stdout", &hooks.streams.stdout)?, open("stderr", &hooks.streams.stderr)?])
}

/// Runs the hooks that run before the old root goes away: the parent's in its namespaces, then the container's.
pub(crate) fn before_pivot(
    container: &Container,
    id: &str,
    root: Reg,
    streams: Streams,
    plan: &mut Builder<'_>,
) -> Result<(), Error> {
    let hooks = &container.hooks;
    // Asked for `createContainer` too: the parent records the child before it answers. If the parent is killed before
    // that, the child ends instead of leaving a hook behind that no record leads to.
    let kinds = [
        ("hooks.prestart", &hooks.prestart),
        ("hooks.createRuntime", &hooks.create_runtime),
        ("hooks.createContainer", &hooks.create_container),
    ];
    let asked: Vec<_> = kinds.iter().filter(|(_, hooks)| !hooks.is_empty()).map(|(name, _)| *name).collect();
    if !asked.is_empty() {
        plan.at(asked.join(", ")).push(Step::Request { what: Request::Hooks });
    }
    if hooks.create_container.is_empty() {
        return Ok(());
    }
    plan.at("hooks.createContainer");
    // Files that hooks create must not be writable by everyone. The steps before set permissions from the
    // configuration.
    plan.push(Step::Umask { mask: mode(0o022) });
    // The specification does not name the directory; runc uses this one (rootfs_linux.go, `prepareRootfs`).
    plan.push(Step::Fchdir { directory: root.into() });
    // As in runc, a hook of this kind without `env` inherits no environment from the caller.
    let environment = plan.array([]);
    let batch = Batch { kind: "createContainer", hooks: &hooks.create_container, environment, streams };
    batch.run(&state(id, "creating", &container.bundle, &container.annotations), plan)
}

/// Runs `startContainer` hooks in the container, with the program's identity and directory. The program's seccomp
/// filter applies too, because these hooks are as untrusted as the program.
pub(crate) fn before_exec<'b>(
    container: &Container,
    id: &str,
    environment: CArray<'b>,
    plan: &mut Builder<'b>,
) -> Result<(), Error> {
    let hooks = &container.hooks.start_container;
    let batch = Batch { kind: "startContainer", hooks, environment, streams: [None; 2] };
    batch.run(&state(id, "created", &container.bundle, &container.annotations), plan)
}

/// The hooks of one kind that the child runs.
struct Batch<'a, 'b> {
    kind: &'static str,
    hooks: &'a [Hook],
    /// The environment for hooks without `env`.
    environment: CArray<'b>,
    streams: Streams,
}

impl<'b> Batch<'_, 'b> {
    /// Runs the hooks one after the other. Each reads the container's state, whose two parts have the pid between
    /// them.
    fn run(&self, (before, after): &(String, String), plan: &mut Builder<'b>) -> Result<(), Error> {
        if self.hooks.is_empty() {
            return Ok(());
        }
        let before = format!(r#"{before},"pid":"#);
        let (state, streams) = ([plan.slice(before.as_bytes()), plan.slice(after.as_bytes())], self.streams);
        for (index, hook) in self.hooks.iter().enumerate() {
            plan.at(Origin::hook(self.kind, index));
            let path = plan.text(&hook.path)?;
            let argv = if hook.args.is_empty() { plan.array([path]) } else { array(&hook.args, plan)? };
            let envp = match &hook.env {
                Some(variables) => array(variables, plan)?,
                None => self.environment,
            };
            let timeout_seconds =
                hook.timeout_seconds.map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX));
            let hook =
                plan.value(husk_script::HookCommand { path, argv, envp, state, streams, timeout_seconds });
            plan.push(Step::Hook { hook });
        }
        Ok(())
    }
}

fn array<'b>(strings: &[CString], plan: &Builder<'b>) -> Result<CArray<'b>, Error> {
    let strings = strings.iter().map(|string| plan.text(OsStr::from_bytes(string.to_bytes())));
    Ok(plan.array(strings.collect::<Result<Vec<_>, _>>()?))
}

#[cfg(test)]
mod tests {
    use super::state;
    use std::collections::BTreeMap;
    use std::path::Path;

    #[test]
    fn state_json_is_split_around_the_pid() {
        let bundle = Path::new("/a \"b\"");
        let (before, after) = state("c", "creating", bundle, &BTreeMap::new());
        assert_eq!(before, r#"{"ociVersion":"1.3.0","id":"c","status":"creating""#);
        assert_eq!(after, r#","bundle":"/a \"b\""}"#);
        let annotations = [("k", "v\n"), ("l", "")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let (before, after) = state("c", "created", bundle, &annotations.into());
        let whole: serde_json::Value = serde_json::from_str(&format!("{before},\"pid\":7{after}")).unwrap();
        let annotations = serde_json::json!({ "k": "v\n", "l": "" });
        let wanted = serde_json::json!({ "ociVersion": "1.3.0", "id": "c", "status": "created", "pid": 7,
            "bundle": "/a \"b\"", "annotations": annotations });
        assert_eq!(whole, wanted);
    }
}
