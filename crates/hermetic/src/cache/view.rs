//! The view of a program whose inputs are declared: the only files that it sees.
//!
//! ```text
//!  system      /usr/bin, /usr/lib and others, as the package manager has installed them
//!  /etc        the files that programs need on every machine; /etc/hosts has only localhost
//!  inputs      what the globs match, and the paths of --read
//!  program     its file, and the libraries in the directories of LD_LIBRARY_PATH
//! ```
//!
//! Everything else of the host is absent, and so is /sys. Symlinks are as on the host; most lead nowhere.

use super::walk::{Entry, Found, Selection, split};
use crate::error::Error;
use crate::host::HostFile;
use crate::profile::{PathAccess, Profile};
use crate::tools::Link;
use husk_plan::candidates;
use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Directories with programs and libraries. `/usr/local` is not among them, because no package owns what is there.
pub(crate) const SYSTEM: &[&str] = &[
    "/usr/bin",
    "/usr/sbin",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libx32",
    "/usr/libexec",
    "/usr/include",
    "/usr/share",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
];

/// Files of `/etc` that programs need: users, names, libraries, locales, certificates, and defaults of interpreters. Those
/// that say which machine this is are left out.
const ETC: &[&str] = &[
    "alternatives",
    "bash.bashrc",
    "bashrc",
    "ca-certificates",
    "crypto-policies",
    "default/locale",
    "fonts",
    "gai.conf",
    "group",
    "host.conf",
    "inputrc",
    "java",
    "ld-musl-aarch64.path",
    "ld-musl-x86_64.path",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "localtime",
    "magic",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "perl",
    "pki/ca-trust",
    "pki/java",
    "pki/tls",
    "profile",
    "profile.d",
    "protocols",
    "python3",
    "rpc",
    "services",
    "shells",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
    "xattr.conf",
];

/// A mount for each file costs time, and the kernel has a limit of 100,000 (fs.mount-max).
const MOST_TREES: usize = 10_000;

/// The files that a program with declared inputs can see.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Files of the host, and directories with everything in them.
    pub trees: Vec<HostFile>,
    /// Symlinks as on the host.
    pub links: Vec<Link>,
    /// Directories that exist, are empty and can be written to.
    pub empty: Vec<PathBuf>,
    /// The system's directories, which are also in `trees`.
    pub(crate) system: Vec<PathBuf>,
    /// The state of every file. Of the system's, only those that are also inputs.
    pub(crate) entries: BTreeMap<PathBuf, Entry>,
}

impl View {
    /// Looks for the files of a profile that declares inputs.
    pub(crate) fn of(profile: &Profile, directory: &Path) -> Result<Self, Error> {
        let mut found = Found { excluded: profile.excluded.clone(), ..Found::default() };
        let hidden = profile.shown.iter().filter(|show| show.access == PathAccess::Hide);
        found.excluded.extend(hidden.filter_map(|show| fs::canonicalize(&show.path).ok()));
        let failed = |path: &Path| {
            let act = format!("inputs: {}", path.display());
            move |error: io::Error| Error::Look { act, reason: error.into() }
        };
        let mut system = Vec::new();
        for path in SYSTEM.iter().map(Path::new) {
            // A symlink, such as that of /bin to /usr/bin, leads to another row of the table.
            if let Some(real) = found.resolve(path).map_err(failed(path))?.filter(|real| real == path) {
                system.push(real);
            }
        }
        for name in ETC {
            let path = Path::new("/etc").join(name);
            found.add(&path, &Selection::Everything).map_err(failed(&path))?;
        }
        for glob in &profile.inputs {
            let wrong = |why| Error::Setting(format!("inputs: {}: {why}", glob.display()));
            let (base, selection) = split(glob, directory).map_err(wrong)?;
            found.add(&base, &selection).map_err(failed(glob))?;
        }
        let read = profile.shown.iter().filter(|show| show.access == PathAccess::Read);
        for path in read.map(|show| show.path.clone()).chain(program(profile)).chain(libraries(profile)) {
            let path = directory.join(path);
            found.add(&path, &Selection::Everything).map_err(failed(&path))?;
        }
        found.trees.extend(system.iter().map(|path| HostFile {
            path: path.clone(),
            is_directory: true,
            mode: 0o755,
        }));
        found.simplify();
        let Found { entries, trees, links, .. } = found;
        if trees.len() > MOST_TREES {
            let count = trees.len();
            return Err(Error::Setting(format!(
                "inputs: the globs select {count} single files; name directories, of which everything is shown"
            )));
        }
        Ok(Self { trees, links, empty: temporary(profile).into_iter().collect(), system, entries })
    }
}

impl View {
    /// Returns whether the program sees a path.
    pub(crate) fn shows(&self, path: &Path) -> bool {
        self.trees.iter().any(|tree| path.starts_with(&tree.path))
    }
}

/// Returns the value of a variable that the program gets.
fn variable(profile: &Profile, name: &str) -> Option<OsString> {
    use crate::profile::Variable;
    let asked = profile.env.iter().rev().find_map(|variable| match variable {
        Variable::Set(known, value) if known == name => Some(value.clone()),
        _ => None,
    });
    asked.or_else(|| env::var_os(name))
}

/// Returns the program's file.
fn program(profile: &Profile) -> Option<PathBuf> {
    let path = variable(profile, "PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let places = candidates(profile.args.first()?, &path);
    places.into_iter().map(PathBuf::from).find(|place| place.is_file())
}

/// Returns the libraries in the directories of `LD_LIBRARY_PATH`.
fn libraries(profile: &Profile) -> Vec<PathBuf> {
    let path = variable(profile, "LD_LIBRARY_PATH").unwrap_or_default();
    let directories = env::split_paths(&path).filter(|directory| directory.is_absolute());
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".so") || name.contains(".so.")
    };
    let entries = directories.filter_map(|directory| fs::read_dir(directory).ok()).flatten();
    let mut libraries: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(is_library).collect();
    libraries.sort();
    libraries
}

/// Returns cargo's directory for temporary files of tests, which is empty at the start of each test.
fn temporary(profile: &Profile) -> Option<PathBuf> {
    let deps = Path::new(profile.args.first()?).parent()?;
    let is_deps = deps.file_name() == Some(OsStr::new("deps"));
    let target = deps.parent()?.parent()?.join("tmp");
    fs::canonicalize(target).ok().filter(|target| is_deps && target.is_dir())
}
