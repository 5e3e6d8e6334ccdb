//! `validate`: reports every problem of a bundle, in itself and on this machine.

use crate::host::probe::probe;
use bumpalo::Bump;
use husk_bundle::container::{Mount, Source};
use husk_bundle::{Container, Field, Problems};
use husk_plan::Invocation;
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// A problem of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub severity: Severity,
    /// The field of config.json.
    pub field: String,
    pub text: String,
    /// How to fix it, if known.
    pub hint: Option<String>,
}

/// How serious a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The container cannot be created.
    Error,
    /// A setting is not applied as written.
    Warning,
}

/// Returns every problem of the bundle in a directory, which is an absolute path.
#[must_use]
pub fn validate(bundle: &Path) -> Vec<Problem> {
    let problems = husk_bundle::problems(bundle);
    let mut found: Vec<_> = problems
        .errors
        .iter()
        .map(|error| Problem {
            severity: Severity::Error,
            field: error.field.to_string(),
            text: error.kind.to_string(),
            hint: error.hint(),
        })
        .collect();
    if let Some(container) = &problems.container {
        found.extend(here(container, &problems));
    }
    found.extend(problems.warnings.into_iter().map(|warning| Problem {
        severity: Severity::Warning,
        field: warning.field.to_string(),
        text: warning.text,
        hint: None,
    }));
    found
}

/// Returns what this machine lacks for the container, apart from fields that have errors.
fn here(container: &Container, problems: &Problems) -> Vec<Problem> {
    let has_error = |field: &str| problems.errors.iter().any(|error| error.field.is_within(field));
    let mut found = Vec::new();
    if !container.rootfs.is_dir() && !has_error("root") {
        let text = format!("{} is not a directory", container.rootfs.display());
        found.push(error("root.path".to_owned(), text, "unpack an image into this directory"));
    } else if !has_error("process") && !has_error("root") {
        found.extend(missing_program(container));
    }
    for (index, mount) in container.mounts.iter().enumerate() {
        let Source::Bind { path, .. } = &mount.source else { continue };
        if !path.exists() {
            let field = problems.in_file(&Field::new("mounts").index(index).key("source"));
            let text = format!("{} does not exist", path.display());
            found.push(error(field.to_string(), text, "create it, or change the source"));
        }
    }
    if !problems.errors.is_empty() {
        return found;
    }
    // Planning stops at the first problem, which may be one of those above.
    let host = probe(container);
    if let Err(reason) = husk_plan::create(container, &host, &Invocation::default(), &Bump::new()) {
        let field = reason.origin().field();
        if found.iter().any(|finding| finding.field.starts_with(field)) {
            return found;
        }
        found.push(error(reason.origin().to_string(), reason.reason().to_owned(), ""));
    }
    found
}

fn error(field: String, text: String, hint: &str) -> Problem {
    let hint = Some(hint.to_owned()).filter(|hint| !hint.is_empty());
    Problem { severity: Severity::Error, field, text, hint }
}

/// Returns a problem if the program is not in the root file system, unless a mount or hook could add it.
fn missing_program(container: &Container) -> Option<Problem> {
    let process = container.process.as_ref()?;
    let program = process.args.first().filter(|program| !program.is_empty())?;
    let hooks = &container.hooks;
    let brings = |mount: &Mount| match &mount.source {
        Source::Bind { path, .. } => {
            path.is_dir() || Path::new(OsStr::from_bytes(program.to_bytes())) == mount.destination
        }
        Source::New { fstype, copy_up, .. } => *copy_up || !EMPTY.contains(&fstype.as_str()),
        Source::Remount { .. } | Source::Cgroup { .. } => false,
    };
    if !container.layers.is_empty()
        || !hooks.prestart.is_empty()
        || !hooks.create_runtime.is_empty()
        || !hooks.create_container.is_empty()
        || container.mounts.iter().any(brings)
    {
        return None;
    }
    let root =
        open(&container.rootfs, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let is_missing = |candidate: &OsString| {
        let path = process.cwd.join(candidate);
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        matches!(
            openat2(&root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve),
            Err(Errno::NOENT | Errno::NOTDIR)
        )
    };
    let all_missing = husk_plan::program_candidates(process, program.to_bytes()).iter().all(is_missing);
    let text = format!("{:?} does not exist in the root file system", program.to_string_lossy());
    all_missing.then(|| {
        error(
            "process.args[0]".to_owned(),
            text,
            "write the path of a program there, or change process.env's PATH",
        )
    })
}

/// File systems in which no program of the image can be.
const EMPTY: [&str; 6] = ["proc", "sysfs", "tmpfs", "devpts", "mqueue", "cgroup2"];
