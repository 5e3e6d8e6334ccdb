//! The run that confirms options: the permissions that it gets without the user's consent.
//!
//! The program chooses what is suggested, so the program could ask for a secret, or for the socket of a service. For
//! that reason this run is granted only ordinary files that do not look like secrets. Nothing that it writes leaves the
//! sandbox. The run has no network, and husk discards its output and its changes to files and caches.

use super::judge::{Denial, Denied, Grant};
use super::observed;
use crate::profile::{Net, PathAccess, Profile, Show, Variable};
use crate::tools;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Parts of the names of files and variables that hold secrets, besides the [paths](tools::SECRETS) of known ones.
const SECRETS: [&str; 15] = [
    "secret",
    "password",
    "passwd",
    "credential",
    "id_rsa",
    "id_ed25519",
    ".pem",
    ".ssh",
    ".aws",
    ".gnupg",
    ".netrc",
    ".kube",
    ".docker",
    ".npmrc",
    ".config",
];

/// Ends of such names.
const SECRET_ENDS: [&str; 3] = ["token", "key", "auth"];

/// How many files of a directory are looked at, with those in its directories. A larger directory is not granted.
const MOST_FILES: usize = 10_000;

/// Returns the profile with all harmless options for these denials, and these options. `None` if there are none, or if
/// the program could tell others what it reads. `first` is the time that the first run took.
pub(crate) fn granted(
    profile: &Profile,
    first: Duration,
    denied: &[Denied],
) -> Option<(Profile, Vec<Grant>)> {
    if profile.net == Net::Host {
        return None;
    }
    // The program can read the file that it could not write to, so an overlay shows it nothing new.
    let is_visible = |denied: &Denied| matches!(denied.what, Denial::Written(..));
    let grants =
        denied.iter().flat_map(|denied| denied.grants.iter().map(|grant| (grant, is_visible(denied))));
    let harmless = grants.filter(|(grant, is_visible)| *is_visible || is_harmless(grant));
    let mut grants: Vec<Grant> = harmless.map(|(grant, _)| grant.clone()).collect();
    grants.sort();
    grants.dedup();
    if grants.is_empty() {
        return None;
    }
    let mut granted = Profile { observed: false, ..observed(profile, first) };
    for show in &mut granted.shown {
        if show.access == PathAccess::Write {
            show.access = if show.path.is_dir() { PathAccess::Overlay } else { PathAccess::Read };
        }
    }
    for tool in granted.tools.iter_mut().filter(|tool| tool.access == PathAccess::Write) {
        tool.access = PathAccess::Overlay;
    }
    for grant in &grants {
        match grant {
            Grant::Read(path) => granted.shown.push(Show { path: path.clone(), access: PathAccess::Read }),
            Grant::Overlay(path) => {
                granted.shown.push(Show { path: path.clone(), access: PathAccess::Overlay })
            }
            Grant::Pass(name) => granted.env.push(Variable::Pass(name.clone())),
            Grant::Net(_) | Grant::Nested | Grant::Raise(..) => {}
        }
    }
    Some((granted, grants))
}

fn is_harmless(grant: &Grant) -> bool {
    match grant {
        Grant::Read(path) | Grant::Overlay(path) => {
            !path.iter().any(is_secret)
                && !path.ancestors().any(is_known)
                && is_ordinary(path, &mut MOST_FILES.clone())
        }
        Grant::Pass(name) => !is_secret(name),
        Grant::Net(_) | Grant::Nested | Grant::Raise(..) => false,
    }
}

fn is_secret(name: &OsStr) -> bool {
    let name = name.to_string_lossy().to_lowercase();
    SECRETS.iter().any(|secret| name.contains(secret)) || SECRET_ENDS.iter().any(|end| name.ends_with(end))
}

/// Returns whether programs are known to keep a secret at this path.
fn is_known(path: &Path) -> bool {
    tools::SECRETS.iter().any(|secret| path.ends_with(secret))
}

/// Returns whether a path is a regular file, or a directory of those without secrets. A socket or a FIFO in it would
/// let the program talk to others.
fn is_ordinary(path: &Path, left: &mut usize) -> bool {
    let Ok(found) = fs::symlink_metadata(path) else { return false };
    if found.is_file() {
        return true;
    }
    let Some(files) = fs::read_dir(path).ok().filter(|_| found.is_dir()) else { return false };
    for file in files {
        let Ok(file) = file else { return false };
        let Some(rest) = left.checked_sub(1) else { return false };
        *left = rest;
        // A symlink leads to nothing that is not shown otherwise.
        let is_link = file.file_type().is_ok_and(|kind| kind.is_symlink());
        let path = file.path();
        if is_secret(&file.file_name()) || is_known(&path) || !is_link && !is_ordinary(&path, left) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::{Denial, Denied, Grant, PathAccess, Profile, Show, granted, is_harmless};
    use crate::host::HostFile;
    use crate::profile::ToolPath;
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    #[test]
    fn only_ordinary_files_and_plain_variables_are_granted_for_a_trial() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(is_harmless(&Grant::Read(here.join("Cargo.toml"))));
        assert!(is_harmless(&Grant::Overlay(here.join("src/report"))));
        assert!(is_harmless(&Grant::Pass("EDITOR".into())));
        let maven = tempfile::tempdir().unwrap();
        for file in [".m2/settings.xml", ".azure/profile"].map(|file| maven.path().join(file)) {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        for refused in [
            Grant::Read("/proc".into()),
            Grant::Read("/dev/null".into()),
            Grant::Read("/home/ann/.ssh".into()),
            Grant::Read(maven.path().join(".m2")),
            Grant::Read(maven.path().join(".azure/profile")),
            Grant::Read("/no/such".into()),
            Grant::Pass("GITHUB_TOKEN".into()),
            Grant::Pass("AWS_ACCESS_KEY".into()),
            Grant::Read("/home/ann/.config/gh".into()),
            Grant::Net("host"),
            Grant::Nested,
        ] {
            assert!(!is_harmless(&refused), "{refused:?}");
        }
    }

    #[test]
    fn trial_writes_to_nothing_that_stays() {
        let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let cache = HostFile::of_host(here.join("src"));
        let profile = Profile {
            shown: vec![Show { path: here.clone(), access: PathAccess::Write }],
            tools: vec![ToolPath { file: cache, access: PathAccess::Write }],
            ..Profile::default()
        };
        let file = here.join("Cargo.toml");
        let grants = vec![Grant::Read(file.clone())];
        let (granted, _) =
            granted(&profile, Duration::ZERO, &[Denied { what: Denial::Hidden(file), grants }]).unwrap();
        let shown = granted.shown.iter().map(|show| show.access);
        let writable = shown.chain(granted.tools.iter().map(|tool| tool.access));
        assert_eq!(writable.filter(|access| *access == PathAccess::Write).count(), 0);
    }
}
