//! Classifies the binaries that cargo and nextest run through a target runner.
//!
//! ```text
//!  cargo test     RUNNER target/debug/deps/NAME-HASH FILTER...     lists its tests, a sandbox for each
//!  cargo bench    the same with --bench                            one sandbox for all, since they are timed
//!  cargo nextest  ... --list, with NEXTEST_TEST_PHASE=list         unchanged: only the list may be printed
//!                 ... --exact NAME, with NEXTEST_TEST_PHASE=run    one sandbox: nextest runs a process per test
//!  rustdoc        RUNNER .../rust_out                              one sandbox: it is one test
//!  cargo run      RUNNER target/debug/NAME                         unchanged: not a test
//! ```

use super::arguments::TestArguments;
use crate::profile::{Image, PathAccess, Profile, Show};
use crate::sandbox::probe::{caller_home, project};
use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// How to run a binary that cargo passes to the runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryKind {
    /// A test binary: each of its tests gets a sandbox.
    Tests,
    /// One test, or several that must run together, in one sandbox.
    Test,
    /// A program that is not a test. It runs unchanged.
    Other,
}

/// Returns the kind of a profile's binary.
#[must_use]
pub fn binary_kind(profile: &Profile) -> BinaryKind {
    let phase = env::var_os("NEXTEST_TEST_PHASE");
    binary_kind_of(profile, phase.as_deref())
}

/// Returns whether cargo's binary, whose tests must run together, belongs to the first shard only. nextest divides
/// tests itself, and rustdoc checks how each of its tests ends.
#[must_use]
pub fn is_in_first_shard(profile: &Profile) -> bool {
    let is_list = profile.args.iter().any(|word| word == "--list");
    !is_list && env::var_os("NEXTEST_TEST_PHASE").is_none() && is_dep(profile)
}

/// Returns whether cargo has built the binary as one of its tests.
fn is_dep(profile: &Profile) -> bool {
    let binary = Path::new(profile.args.first().map_or(OsStr::new(""), |binary| binary));
    let name = binary.file_name().unwrap_or_default().to_string_lossy();
    let hash = name.rsplit_once('-').map_or("", |(_, hash)| hash);
    let has_hash = hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    binary.parent().and_then(Path::file_name) == Some(OsStr::new("deps")) && has_hash
}

fn binary_kind_of(profile: &Profile, phase: Option<&OsStr>) -> BinaryKind {
    let binary = Path::new(profile.args.first().map_or(OsStr::new(""), |binary| binary));
    let name = binary.file_name().unwrap_or_default().to_string_lossy();
    let is_dep = is_dep(profile);
    match phase {
        Some(phase) if phase == "list" => BinaryKind::Other,
        Some(_) => BinaryKind::Test,
        None if is_dep && TestArguments::read(profile.args.get(1..).unwrap_or_default()).is_some() => {
            BinaryKind::Tests
        }
        None if is_dep || name.starts_with("rust_out") => BinaryKind::Test,
        None => BinaryKind::Other,
    }
}

/// Shows what a test binary needs outside its working directory: its own directory, the libraries of `LD_LIBRARY_PATH`,
/// and cargo's directory for temporary files. Each test finds the last one in its original state.
pub fn show(profile: &mut Profile) {
    if !profile.inputs.is_empty() {
        // The view has the binary and its libraries, and nothing else of these directories.
        return;
    }
    let Some(directory) = profile.args.first().and_then(|binary| Path::new(binary).parent()) else { return };
    // For a binary of rustdoc, which is below /tmp, this would be the host's /tmp.
    let target = directory.parent().and_then(Path::parent).filter(|_| is_dep(profile));
    let tmp = target.map(|target| target.join("tmp"));
    let mut shown = vec![Show { path: directory.to_owned(), access: PathAccess::Read }];
    let libraries = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let libraries = env::split_paths(&libraries).filter(|path| path.is_dir());
    shown.extend(libraries.map(|path| Show { path, access: PathAccess::Read }));
    shown.extend(tmp.filter(|tmp| tmp.is_dir()).map(|path| Show { path, access: PathAccess::Overlay }));
    if let Some(image) = &mut profile.image {
        return show_in_image(image, &mut profile.directory, shown);
    }
    // Paths that the caller asked for take precedence.
    let is_asked = |path: &Path| profile.shown.iter().any(|asked| asked.path == path);
    shown.retain(|show| !is_asked(&show.path));
    profile.shown.extend(shown);
}

/// Shows in an image what a test binary of the host needs, and the repository of the working directory. The test begins
/// in that directory, as without an image.
fn show_in_image(image: &mut Image, directory: &mut Option<PathBuf>, shown: Vec<Show>) {
    let Ok(cwd) = env::current_dir() else { return };
    let project = Show { path: project(&cwd, caller_home().as_deref()), access: PathAccess::Read };
    let shown = shown.into_iter().map(|show| Show { path: cwd.join(show.path), ..show });
    let mut all: Vec<Show> = [project].into_iter().chain(shown).collect();
    // A mount inside another one comes after it.
    all.sort_by_key(|show| show.path.components().count());
    all.dedup();
    image.shown = all;
    *directory = Some(cwd);
}

#[cfg(test)]
mod tests {
    use super::{BinaryKind, binary_kind_of};
    use crate::Profile;

    #[test]
    fn kind_of_binary_follows_from_path_and_arguments() {
        let kind = |args: &[&str], phase: Option<&str>| {
            let args = args.iter().map(Into::into).collect();
            binary_kind_of(&Profile { args, ..Profile::default() }, phase.map(AsRef::as_ref))
        };
        let test = "/p/target/debug/deps/web-0123456789abcdef";
        assert_eq!(kind(&[test], None), BinaryKind::Tests);
        assert_eq!(kind(&[test, "name", "--skip", "other", "--test-threads=3"], None), BinaryKind::Tests);
        assert_eq!(kind(&[test, "--bench"], None), BinaryKind::Test);
        assert_eq!(kind(&[test, "--list"], None), BinaryKind::Test);
        assert_eq!(kind(&[test, "--format", "json"], None), BinaryKind::Test);
        assert_eq!(kind(&[test, "--list", "--format", "terse"], Some("list")), BinaryKind::Other);
        assert_eq!(kind(&[test, "--exact", "name", "--nocapture"], Some("run")), BinaryKind::Test);
        assert_eq!(kind(&["/tmp/rustdoctestA/rust_out"], None), BinaryKind::Test);
        assert_eq!(kind(&["target/debug/web"], None), BinaryKind::Other);
        assert_eq!(kind(&["target/debug/deps/web"], None), BinaryKind::Other);
    }
}
