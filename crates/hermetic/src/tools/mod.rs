//! Finds the caller's tools, so that the sandbox can show them although they are in directories that it hides.
//!
//! The search knows three kinds of places: the directories of `PATH`, the rows of a [table](table), and the files that
//! the program itself needs. Those are the targets of its symlinks, its interpreter, and the Python below a virtual
//! environment. The search asks for single files, starts no process and lists no directory.
//!
//! Installations are read-only. A program that [builds](table::is_build) may write to the project, and its changes are
//! discarded. So are changes to caches. Only programs that build or run others get caches: an overlay takes longer than
//! any other part of a sandbox, and a test rarely needs one.
//!
//! Showing a tool must not show a secret. The [search](search) rejects the home directory, and everything that holds or
//! is one of the [secrets](table::SECRETS). The [resolver](resolve) rejects what other users could have changed.

mod resolve;
mod search;
mod table;

pub use resolve::Link;
pub(crate) use table::{SECRETS, is_variable};

use crate::host::HostFile;
use crate::profile::{PathAccess, Profile, ToolPath, Variable};
use crate::sandbox::probe::{caller_home, project};
use rustix::process::{getegid, geteuid};
use search::Search;
use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::path::{Path, PathBuf};
use table::Access;

/// The tools that were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tools {
    /// Each tool of the table that was found, and its directory.
    pub found: Vec<(&'static str, PathBuf)>,
    /// Paths that are not shown, and the reasons.
    pub refused: Vec<(PathBuf, String)>,
    paths: Vec<(HostFile, Access)>,
    links: Vec<Link>,
    /// Variables for tools that would otherwise look elsewhere.
    variables: Vec<(OsString, OsString)>,
}

/// Whether the changes to caches are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caches {
    Discard,
    Keep,
}

/// The caller and the program, as far as the search depends on them.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    pub program: Vec<OsString>,
    pub environment: BTreeMap<OsString, OsString>,
    /// The home directory, without symlinks.
    pub home: Option<PathBuf>,
    pub cwd: PathBuf,
    /// The directory around the working directory that the sandbox shows.
    pub project: PathBuf,
    /// The effective uid and gid.
    pub user: (u32, u32),
    /// Whether even a program that is not known to run tools gets their caches.
    pub wants_caches: bool,
}

impl Caller {
    /// Returns the user who runs this process, with the program to search for.
    #[must_use]
    pub fn of(program: &[OsString]) -> Self {
        let home = caller_home();
        // Without a working directory, the sandbox fails later and says so.
        let cwd = env::current_dir().unwrap_or_default();
        Self {
            program: program.to_vec(),
            environment: env::vars_os().collect(),
            project: project(&cwd, home.as_deref()),
            cwd,
            home,
            user: (geteuid().as_raw(), getegid().as_raw()),
            wants_caches: false,
        }
    }

    fn variable(&self, name: &str) -> Option<&OsStr> {
        self.environment.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }
}

impl Tools {
    /// Looks for the tools of a caller.
    #[must_use]
    pub fn find(caller: &Caller) -> Self {
        Search::of(caller).run()
    }

    /// Adds what was found to a profile, except what the profile itself says something about.
    pub fn add_to(&self, profile: &mut Profile, caches: Caches) {
        if profile.image.is_some() {
            return;
        }
        let asked: Vec<_> =
            profile.shown.iter().filter_map(|show| fs::canonicalize(&show.path).ok()).collect();
        let is_asked = |path: &Path| asked.iter().any(|asked| path.starts_with(asked));
        let access = |access: Access| match (access, caches) {
            (Access::Install, _) => PathAccess::Read,
            (Access::Cache, Caches::Keep) => PathAccess::Write,
            (Access::Cache, Caches::Discard) | (Access::Build, _) => PathAccess::Overlay,
        };
        let paths = self.paths.iter().filter(|(file, _)| !is_asked(&file.path));
        let paths = paths.map(|(file, kind)| ToolPath { file: file.clone(), access: access(*kind) });
        profile.tools = paths.collect();
        profile.links.clone_from(&self.links);
        let variables = self.variables.iter();
        let variables = variables.map(|(name, value)| Variable::Set(name.clone(), value.clone()));
        // The caller's variables come later and take precedence.
        profile.env.splice(0..0, variables);
    }
}

impl Display for Tools {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (place, (name, path)) in self.found.iter().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}{name} ({})", path.display())?;
        }
        Ok(())
    }
}

/// Returns the files that the program of a profile needs and does not see.
pub(crate) fn unseen(profile: &Profile, caller: &Caller) -> Vec<PathBuf> {
    let shown = profile.shown.iter().filter_map(|show| fs::canonicalize(&show.path).ok());
    let tools = profile.tools.iter().map(|tool| tool.file.path.clone());
    let seen: Vec<_> = shown.chain(tools).chain([caller.project.clone()]).collect();
    let needed = Search::of(caller).needed();
    needed.into_iter().filter(|path| !seen.iter().any(|seen| path.starts_with(seen))).collect()
}
