//! Remembers tests that passed, so that they are not run again while nothing that they can see has changed.
//!
//! ```text
//!  Profile ----> Seen       what the program sees of the host          view.rs, walk.rs
//!     |           |         or of an image                             layers.rs
//!     '--> key <--'         digest of everything that it sees          key.rs, system.rs, index.rs
//!           |
//!         Store             a file for each key whose test passed      store.rs, entry.rs
//! ```
//!
//! Only tests with declared inputs and tests in images are remembered, because only they see nothing else of the host. The
//! files are compared again after the run: a result is not remembered if a file has changed meanwhile.
//! docs/decisions/053-remembered-results.md lists what is not part of a key.

mod digest;
mod entry;
mod index;
mod key;
mod layers;
mod program;
mod store;
mod system;
pub(crate) mod view;
mod walk;

use crate::error::{Error, MissingIsolation};
use crate::host::Host;
use crate::profile::{OwnFile, Profile, Root, Variable};
use digest::{Digest, Fields};
pub(crate) use entry::Remembered;
use index::Index;
use key::Seen;
use layers::Layers;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use store::Store;
use system::{Closeness, System};
use view::View;

/// How remembered results are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A test that has passed before is not run.
    Use,
    /// Every test is run, and the result compared with the remembered one.
    Verify,
}

/// A store of results, and what the keys of this process have in common.
pub struct Cache {
    store: Store,
    pub(crate) mode: Mode,
    closeness: Closeness,
    index: Index,
    system: Option<Result<(System, Digest), String>>,
    bases: Vec<(Profile, Result<Base, String>)>,
    passed: Vec<(Key, Remembered)>,
    notes: Vec<String>,
}

/// The digest of everything except the program's arguments, and the files that it was made of.
struct Base {
    digest: Digest,
    seen: Seen,
    directory: PathBuf,
}

/// The part of a run that says what its output means.
#[derive(Debug, Default)]
pub(crate) struct Reader<'r> {
    /// The format of the output.
    pub(crate) name: &'static str,
    pub(crate) env: &'r [Variable],
    pub(crate) files: &'r [OwnFile],
    /// A random text in the variables, which is another one in each run.
    pub(crate) token: Option<&'r str>,
}

impl Reader<'_> {
    /// Returns the reader of a program whose exit status is the result.
    pub(crate) fn of_program() -> Self {
        Self { name: "program", ..Self::default() }
    }

    fn add_to(&self, digest: &mut Fields) {
        digest.add(self.name).add(self.env.len().to_le_bytes());
        for variable in self.env {
            let text = format!("{variable:?}");
            digest.add(self.token.map_or_else(|| text.clone(), |token| text.replace(token, "")));
        }
        digest.add(self.files.len().to_le_bytes());
        for file in self.files {
            digest.add(&file.name).add(&file.text);
        }
    }
}

/// The key of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    digest: Digest,
    /// The index of its base.
    base: usize,
}

impl Cache {
    /// Opens the store in a directory, which is created if it is missing. With `is_strict`, every file of the system is
    /// compared.
    ///
    /// # Errors
    ///
    /// If the directory cannot be opened, or every user may write to it.
    pub fn open(directory: &Path, mode: Mode, is_strict: bool) -> Result<Self, Error> {
        Ok(Self {
            store: Store::open(directory)?,
            mode,
            closeness: if is_strict { Closeness::EveryFile } else { Closeness::Packages },
            index: Index::open(),
            system: None,
            bases: Vec::new(),
            passed: Vec::new(),
            notes: Vec::new(),
        })
    }

    /// Returns the key of a run, or `None` and notes the reason if its result cannot be remembered. The reader's variables
    /// and files are added to those of the profile.
    pub(crate) fn key(&mut self, profile: &Profile, host: &Host, reader: &Reader<'_>) -> Option<Key> {
        let program = profile.args.first().cloned();
        let common = Profile { args: program.into_iter().collect(), ..profile.clone() };
        let known = self.bases.iter().position(|(known, _)| *known == common);
        let base = known.unwrap_or_else(|| {
            let base = self.base(&common, host);
            self.bases.push((common, base));
            self.bases.len() - 1
        });
        match &self.bases.get(base)?.1 {
            Ok(found) => {
                let mut digest = Fields::default();
                digest.add(found.digest.0);
                reader.add_to(&mut digest);
                digest.add_all(profile.args.iter().map(|argument| argument.as_bytes()));
                Some(Key { digest: digest.finish(), base })
            }
            Err(reason) => {
                let note = format!("not cached: {reason}");
                self.note(note);
                None
            }
        }
    }

    fn base(&mut self, profile: &Profile, host: &Host) -> Result<Base, String> {
        if let Some(reason) = key::unsuited(profile, host) {
            return Err(reason);
        }
        let seen = self.seen(profile, host)?;
        let digest = key::digest(profile, host, &seen, &mut self.index)?;
        Ok(Base { digest, seen, directory: host.cwd.clone() })
    }

    /// Looks at the files that a program sees.
    fn seen(&mut self, profile: &Profile, host: &Host) -> Result<Seen, String> {
        if let Some(layers) = layers_of(profile) {
            let layers = Layers::of(layers).map_err(|error| format!("the image: {error}"))?;
            return Ok(Seen::Image(layers));
        }
        let view = host.view.clone().ok_or("no inputs are declared (--inputs)")?;
        let (closeness, index, owner) = (self.closeness, &mut self.index, (host.uid, host.gid));
        // The directories of the system are the same for all profiles.
        let system = self.system.get_or_insert_with(|| {
            let system =
                System::look(closeness, &view.system).map_err(|error| format!("/usr: {error}"))??;
            let digest = system.digest(index, owner)?;
            Ok((system, digest))
        });
        let system = system.as_ref().map_err(Clone::clone)?.1;
        Ok(Seen::Inputs(view, system))
    }

    /// Returns what is remembered of a run.
    pub(crate) fn find(&self, key: Key) -> Option<Remembered> {
        self.store.find(key.digest)
    }

    /// Remembers a run that passed, as soon as its files have been compared.
    pub(crate) fn remember(&mut self, key: Key, entry: Remembered) {
        if entry.is_small() {
            self.passed.push((key, entry));
        }
    }

    /// Forgets a result that was found to depend on something else.
    pub(crate) fn forget(&mut self, key: Key) {
        if let Err(error) = self.store.remove(key.digest) {
            self.note(format!("cache: {error}"));
        }
    }

    pub(crate) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Writes the results of runs during which no file has changed. Returns notes for the user.
    pub fn finish(&mut self) -> Vec<String> {
        let passed = std::mem::take(&mut self.passed);
        if !passed.is_empty() {
            let changed: Vec<_> = (0..self.bases.len())
                .map(|base| {
                    let is_used = passed.iter().any(|(key, _)| key.base == base);
                    is_used.then(|| self.changed(base)).flatten()
                })
                .collect();
            for path in changed.iter().flatten() {
                self.note(format!("not cached: {} changed during the run", path.display()));
            }
            for (key, entry) in passed {
                if changed.get(key.base).is_some_and(Option::is_none)
                    && let Err(error) = self.store.write(key.digest, &entry)
                {
                    self.note(format!("not cached: {error}"));
                    break;
                }
            }
        }
        if let Err(error) = self.index.save() {
            self.note(format!("digests of files are not kept: {error}"));
        }
        std::mem::take(&mut self.notes)
    }

    /// Returns a file that has changed since the key was made.
    fn changed(&self, base: usize) -> Option<PathBuf> {
        let (profile, Ok(base)) = self.bases.get(base)? else { return None };
        let unknown = || Some(PathBuf::from("a file"));
        let view = match &base.seen {
            Seen::Inputs(view, _) => view,
            Seen::Image(before) => {
                let Ok(now) = Layers::of(layers_of(profile).unwrap_or_default()) else { return unknown() };
                return now.differing(before).or_else(|| self.index.changed().map(Path::to_owned));
            }
        };
        let Ok(now) = View::of(profile, &base.directory) else { return unknown() };
        if now != **view {
            let (now, before) = (&now.entries, &view.entries);
            let paths = now.keys().chain(before.keys());
            return paths.clone().find(|path| now.get(*path) != before.get(*path)).cloned().or_else(unknown);
        }
        let system = System::look(self.closeness, &view.system);
        let is_same = match (&self.system, system) {
            (Some(Ok((before, _))), Ok(Ok(now))) => *before == now,
            _ => false,
        };
        if !is_same {
            return Some("/usr".into());
        }
        self.index.changed().map(Path::to_owned)
    }
}

/// Returns the layers of a profile's image.
fn layers_of(profile: &Profile) -> Option<&[PathBuf]> {
    match &profile.image.as_ref()?.root {
        Root::Layers(layers) => Some(layers),
        Root::Directory(_) => None,
    }
}

/// Returns whether isolation that is missing lets the program see more of the host.
pub(crate) fn shows_more(losses: &[MissingIsolation]) -> bool {
    let is_limit = |loss: &MissingIsolation| {
        matches!(loss, MissingIsolation::Cgroup(_) | MissingIsolation::Processes(_))
    };
    !losses.iter().all(is_limit)
}
