//! `validate`: reports every problem of a bundle, in itself and on this machine.

use crate::host::probe::probe;
use bumpalo::Bump;
use husk_bundle::Container;
use husk_bundle::container::Source;
use husk_plan::Invocation;
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
        found.extend(here(container));
    }
    found.extend(problems.warnings.into_iter().map(|warning| Problem {
        severity: Severity::Warning,
        field: warning.field.to_string(),
        text: warning.text,
        hint: None,
    }));
    found
}

/// Returns what this machine lacks for the container.
fn here(container: &Container) -> Vec<Problem> {
    let error = |field: String, text: String, hint: &str| Problem {
        severity: Severity::Error,
        field,
        text,
        hint: Some(hint.to_owned()).filter(|hint| !hint.is_empty()),
    };
    let mut found = Vec::new();
    if !container.rootfs.is_dir() {
        let text = format!("{} is not a directory", container.rootfs.display());
        found.push(error("root.path".to_owned(), text, "unpack an image into this directory"));
    }
    let host = probe(container);
    for (index, mount) in container.mounts.iter().enumerate() {
        let Source::Bind { path, .. } = &mount.source else { continue };
        if !path.exists() {
            let text = format!("{} does not exist", path.display());
            found.push(error(format!("mounts[{index}].source"), text, "create it, or change the source"));
        }
    }
    // Planning stops at the first problem, which may be one of those above.
    if let Err(reason) = husk_plan::create(container, &host, &Invocation::default(), &Bump::new()) {
        let field = reason.origin().field();
        if found.iter().any(|finding| finding.field.starts_with(field)) {
            return found;
        }
        found.push(error(reason.origin().to_string(), reason.reason().to_owned(), ""));
    }
    found
}
