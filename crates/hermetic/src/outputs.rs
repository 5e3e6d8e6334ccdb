//! Files that tests write on purpose: coverage, profiles and new snapshots. The caller's variables name them, so their
//! directories are writable.

use crate::profile::{PathAccess, Profile, Show, Variable};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, process};

/// Variables for coverage that are passed on. Those of cargo and insta have prefixes that are passed on anyway.
pub(crate) const VARIABLES: &[&str] =
    &[LLVM_PROFILE_FILE, "GCOV_PREFIX", "GCOV_PREFIX_STRIP", "GOCOVERDIR", "COVERAGE_FILE"];

/// The pattern of a profile's name in LLVM.
const LLVM_PROFILE_FILE: &str = "LLVM_PROFILE_FILE";

/// The directory that a variable names.
struct Output {
    variable: &'static str,
    directory: PathBuf,
    access: PathAccess,
}

/// Creates missing directories that the program would create itself outside of a sandbox.
pub fn create_outputs(profile: &Profile) {
    for output in
        outputs(profile).iter().filter(|output| [LLVM_PROFILE_FILE, "GCOV_PREFIX"].contains(&output.variable))
    {
        // Without the directory, the program reports the error.
        husk_script::sys::tolerate(fs::create_dir_all(&output.directory), "the program reports it");
    }
}

/// Shows the existing directories for coverage, profiles and snapshots as writable. Returns a warning for each one that
/// would open more than its files.
pub fn show_outputs(profile: &mut Profile) -> Vec<String> {
    let mut warnings = Vec::new();
    for Output { variable, directory, access } in outputs(profile) {
        let Some(path) = fs::canonicalize(&directory).ok().filter(|path| path.is_dir()) else { continue };
        if is_shared(&path) {
            warnings.push(format!(
                "{variable}: {} is not made writable, because it has more than these files; name a directory in it",
                path.display()
            ));
        } else if !profile
            .shown
            .iter()
            .any(|show| fs::canonicalize(&show.path).is_ok_and(|shown| shown == path))
        {
            profile.shown.push(Show { path, access });
        }
    }
    warnings
}

/// Gives the profiles of this sandbox names of their own. The pids in all sandboxes are the same.
pub(crate) fn make_unique(profile: &mut Profile, environment: &mut Arc<[(OsString, OsString)]>) {
    /// How many sandboxes this process has started.
    static STARTED: AtomicU64 = AtomicU64::new(0);
    let asked = profile.env.iter_mut().filter_map(|variable| match variable {
        Variable::Set(name, value) => Some((&*name, value)),
        Variable::Pass(_) => None,
    });
    let is_passed_on = environment.iter().any(|(name, _)| name == LLVM_PROFILE_FILE);
    let callers = if is_passed_on { Arc::make_mut(environment) } else { &mut [] };
    let callers = callers.iter_mut().map(|(name, value)| (&*name, value));
    let mut patterns = asked.chain(callers).filter(|(name, _)| *name == LLVM_PROFILE_FILE).peekable();
    if patterns.peek().is_some() {
        let sandbox = format!("{}-{}", process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
        patterns.for_each(|(_, pattern)| *pattern = with_sandbox(pattern, &sandbox));
    }
}

/// Puts a sandbox's name before each `%p`, which still distinguishes the processes of the sandbox.
fn with_sandbox(pattern: &OsStr, sandbox: &str) -> OsString {
    let mut rest = pattern.as_bytes();
    let mut unique = Vec::new();
    while let Some(place) = rest.windows(2).position(|pair| pair == b"%p") {
        let (before, after) = rest.split_at(place);
        unique.extend_from_slice(before);
        unique.extend_from_slice(format!("{sandbox}-%p").as_bytes());
        rest = after.get(2..).unwrap_or_default();
    }
    unique.extend_from_slice(rest);
    OsString::from_vec(unique)
}

fn outputs(profile: &Profile) -> Vec<Output> {
    if profile.image.is_some() {
        return Vec::new();
    }
    let value = |name: &str| {
        let asked = profile.env.iter().rev().find_map(|variable| match variable {
            Variable::Set(known, value) if known == name => Some(value.clone()),
            _ => None,
        });
        asked.or_else(|| env::var_os(name)).filter(|value| !value.is_empty())
    };
    let path = |name: &str| value(name).map(PathBuf::from);
    let snapshots = value("INSTA_UPDATE").filter(|update| writes_snapshots(update));
    [
        (LLVM_PROFILE_FILE, path(LLVM_PROFILE_FILE).and_then(|path| of_pattern(&path)), PathAccess::Write),
        ("GCOV_PREFIX", path("GCOV_PREFIX"), PathAccess::Write),
        ("GOCOVERDIR", path("GOCOVERDIR"), PathAccess::Write),
        ("COVERAGE_FILE", path("COVERAGE_FILE").and_then(|path| parent(&path)), PathAccess::Write),
        // Temporary files: each test finds them in their original state. A view has an empty directory.
        (
            "CARGO_TARGET_TMPDIR",
            path("CARGO_TARGET_TMPDIR").filter(|_| profile.inputs.is_empty()),
            PathAccess::Overlay,
        ),
        (
            "INSTA_UPDATE",
            snapshots.and_then(|_| path("INSTA_WORKSPACE_ROOT").or_else(|| path("CARGO_MANIFEST_DIR"))),
            PathAccess::Write,
        ),
    ]
    .into_iter()
    .filter_map(|(variable, directory, access)| Some(Output { variable, directory: directory?, access }))
    .collect()
}

/// Returns the directory of a file; a name without one is in the working directory.
fn parent(file: &Path) -> Option<PathBuf> {
    let parent = file.parent()?;
    Some(if parent.as_os_str().is_empty() { ".".into() } else { parent.to_owned() })
}

/// Returns the longest directory that all names of a pattern have in common. A pattern that begins with `%t` means the
/// directory for temporary files, which is the program's own.
fn of_pattern(pattern: &Path) -> Option<PathBuf> {
    let directory = parent(pattern)?;
    let has_pattern = |part: &std::path::Component<'_>| part.as_os_str().as_bytes().contains(&b'%');
    let fixed: PathBuf = directory.components().take_while(|part| !has_pattern(part)).collect();
    (!fixed.as_os_str().is_empty()).then_some(fixed)
}

/// Returns whether insta writes new snapshots with this value of `INSTA_UPDATE`.
fn writes_snapshots(update: &OsStr) -> bool {
    let is_ci = || env::var_os("CI").is_some() || env::var_os("TF_BUILD").is_some();
    ["always", "new", "unseen", "force"].iter().any(|known| update == *known)
        || (update == "auto" && !is_ci())
}

/// Returns whether a directory has more than the files that a variable means. Examples are the system, the home
/// directory, and a directory that is the program's own in a sandbox.
fn is_shared(path: &Path) -> bool {
    let home = env::var_os("HOME").and_then(|home| fs::canonicalize(home).ok());
    ["/usr", "/etc", "/tmp", "/var/tmp", "/run", "/dev"]
        .iter()
        .any(|known| Path::new(known).starts_with(path))
        || home.is_some_and(|home| home.starts_with(path))
}

#[cfg(test)]
mod tests {
    use super::{is_shared, of_pattern, with_sandbox};
    use std::path::{Path, PathBuf};

    #[test]
    fn sandbox_is_named_before_each_pid() {
        assert_eq!(with_sandbox("/a/%p-%m.profraw".as_ref(), "7-0"), "/a/7-0-%p-%m.profraw");
        assert_eq!(with_sandbox("%p%p".as_ref(), "7-1"), "7-1-%p7-1-%p");
        assert_eq!(with_sandbox("/a/%m%c.profraw".as_ref(), "7-0"), "/a/%m%c.profraw");
    }

    #[test]
    fn directory_of_a_pattern_ends_before_the_first_placeholder() {
        let is = |pattern: &str| of_pattern(Path::new(pattern));
        assert_eq!(is("/a/b/%p.profraw"), Some(PathBuf::from("/a/b")));
        assert_eq!(is("/a/%h/%p.profraw"), Some(PathBuf::from("/a")));
        assert_eq!(is("a-%p.profraw"), Some(PathBuf::from(".")));
        assert_eq!(is("%t/a.profraw"), None);
    }

    #[test]
    fn shared_directories_are_recognized() {
        assert!(["/", "/tmp", "/run", "/usr", "/var"].iter().all(|path| is_shared(Path::new(path))));
        assert!(!is_shared(Path::new("/tmp/profiles")));
    }
}
