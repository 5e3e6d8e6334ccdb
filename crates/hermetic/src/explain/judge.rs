//! Turns what was observed into denials, most likely first. Pure: it asks nothing of the machine.

use super::calls::Act;
use super::observe::Observed;
use super::sight::{Inside, Outside};
use crate::plan::filter;
use crate::profile::{Limits, Net};
use crate::sandbox::ended::Reached;
use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Something that a sandbox denied to a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    pub what: Denial,
    /// The options that would allow it together; empty if none does.
    pub grants: Vec<Grant>,
}

/// The kinds of denials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denial {
    /// A path that exists on the host and is hidden.
    Hidden(PathBuf),
    /// A path that the caller could write to, and how many others below the same directory.
    Written(PathBuf, usize),
    /// An address of the network.
    Address(SocketAddr),
    /// The names of other machines.
    Names,
    /// A system call.
    Call(&'static str),
    /// Root of a user namespace inside.
    Root,
    /// A limit that ended the program.
    Limit(Reached),
    /// All of the private directories' space is used.
    Disk,
    /// A process had as many open files as it may have.
    Files,
    /// There were as many processes and threads as there may be.
    Processes,
    /// A variable that is not passed on, and that the program's output mentions.
    Variable(OsString),
}

/// An option that allows something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grant {
    Read(PathBuf),
    Overlay(PathBuf),
    Pass(OsString),
    Net(&'static str),
    Nested,
    /// A limit: the option and its new value.
    Raise(&'static str, String),
}

/// The facts about the sandbox and about the run that failed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// The directories that private ones replace.
    pub(crate) covers: Vec<PathBuf>,
    /// Paths that the profile hides.
    pub(crate) hidden: Vec<PathBuf>,
    /// The directories of `PATH`.
    pub(crate) path: Vec<PathBuf>,
    /// The directories of `LD_LIBRARY_PATH`.
    pub(crate) libraries: Vec<PathBuf>,
    /// Names of variables that are not passed on.
    pub(crate) removed: Vec<OsString>,
    /// The output of the failed run.
    pub(crate) output: String,
    pub(crate) reached: Option<Reached>,
    /// Whether the private directories were full when the program had failed.
    pub(crate) is_full: bool,
    pub(crate) net: Net,
    pub(crate) is_nested: bool,
    /// Whether the program runs as root.
    pub(crate) is_root: bool,
    pub(crate) limits: Limits,
}

/// Sockets and files of the machine's services for names and users. Every program that looks a name up tries them, and
/// does without them.
const SERVICES: [&str; 5] =
    ["/run/nscd", "/var/run/nscd", "/run/systemd", "/var/lib/sss", "/etc/resolv.conf"];

/// Directories whose files programs write if they can, and do without.
const CACHES: [&str; 2] = ["__pycache__", ".pytest_cache"];

const DNS: u16 = 53;

/// Variables with shorter names occur in output by accident.
const SHORTEST_NAME: usize = 3;

/// Variables that shells set themselves.
const OF_SHELLS: [&str; 4] = ["PWD", "OLDPWD", "SHLVL", "HOSTNAME"];

/// From so many paths in a directory on, the directory is named instead.
const MANY: usize = 3;

/// Returns all denials, most likely first. Later ones come before earlier ones.
pub(crate) fn judge(observed: &[Observed], facts: &Facts) -> Vec<Denied> {
    let mut met = facts.hidden_paths(observed);
    met.extend(facts.writes(observed));
    met.extend(facts.addresses(observed));
    met.extend(facts.root(observed));
    met.extend(facts.calls(observed));
    met.extend(facts.variables());
    // The sort is stable.
    met.sort_by_key(|denied| !facts.is_mentioned(denied));
    let limits = facts.reached.iter().map(|reached| limit(*reached));
    limits.chain(facts.full(observed)).chain(met).collect()
}

impl Facts {
    /// Returns paths that exist on the host and not in the sandbox.
    fn hidden_paths(&self, observed: &[Observed]) -> Vec<Denied> {
        let mut denied: Vec<Denied> = Vec::new();
        for observed_path in observed.iter().rev() {
            let Observed::Path { act, path, inside, outside } = observed_path else { continue };
            if self.is_harmless_miss(path, outside, observed) {
                continue;
            }
            let grants = if self.is_hidden_by_option(path) {
                Vec::new()
            } else {
                let grants = self.shows(*act, inside, outside);
                if grants.is_empty() {
                    continue;
                }
                grants
            };
            let is_known = |known: &Denied| match grants.is_empty() {
                true => known.what == Denial::Hidden(path.clone()),
                false => grants.iter().all(|grant| known.grants.iter().any(|known| known.covers(grant))),
            };
            if !denied.iter().any(is_known) {
                denied.retain(|known| known.grants.is_empty() || !known.are_covered(&grants));
                denied.push(Denied { what: Denial::Hidden(path.clone()), grants });
            }
        }
        self.by_directory(denied)
    }

    /// Names the directory instead of many of its files.
    fn by_directory(&self, mut denied: Vec<Denied>) -> Vec<Denied> {
        let parent = |denied: &Denied| match &denied.grants[..] {
            [Grant::Read(path)] => path.parent().map(Path::to_owned),
            _ => None,
        };
        let parents: Vec<PathBuf> = denied.iter().filter_map(parent).collect();
        for directory in &parents {
            let count = parents.iter().filter(|other| *other == directory).count();
            let is_known = denied.iter().any(|known| known.what == Denial::Hidden(directory.clone()));
            if count < MANY || is_known || self.is_cover(directory) {
                continue;
            }
            let place = denied.iter().position(|denied| parent(denied).as_ref() == Some(directory));
            denied.retain(|denied| parent(denied).as_ref() != Some(directory));
            let whole = Denied {
                what: Denial::Hidden(directory.clone()),
                grants: vec![Grant::Read(directory.clone())],
            };
            denied.insert(place.unwrap_or(denied.len()).min(denied.len()), whole);
        }
        denied
    }

    /// Returns the options that show a path, if private directories hide it.
    fn shows(&self, act: Act, inside: &Inside, outside: &Outside) -> Vec<Grant> {
        let makes = matches!(act, Act::Make | Act::WriteOrMake);
        if makes && inside.target.is_none() && inside.parent.is_none() {
            let directory = outside.directory.iter().map(|found| &found.path);
            return directory.filter(|path| self.is_below_cover(path)).cloned().map(Grant::Overlay).collect();
        }
        let Some(target) = outside.target.as_ref().filter(|_| inside.target.is_none() && !makes) else {
            return Vec::new();
        };
        // A path is shown without its symlinks, so these need the directories that contain them.
        let links =
            outside.links.iter().filter(|link| self.is_below_cover(link)).filter_map(|link| link.parent());
        let target = Some(target.path.as_path()).filter(|path| self.is_below_cover(path));
        let mut grants: Vec<Grant> = links.chain(target).map(|path| Grant::Read(path.to_owned())).collect();
        grants.sort();
        grants.dedup();
        let shown = grants.clone();
        grants.retain(|grant| !shown.iter().any(|other| other != grant && other.covers(grant)));
        grants
    }

    /// Returns refused changes of files that the caller could change, by directory.
    fn writes(&self, observed: &[Observed]) -> Vec<Denied> {
        let mut directories: Vec<(PathBuf, Vec<PathBuf>)> = Vec::new();
        for observed in observed.iter().rev() {
            let Observed::Path { act, path, inside, outside } = observed else { continue };
            let Some(directory) = self.refused_write(*act, path, inside, outside) else { continue };
            match directories.iter_mut().find(|(known, _)| *known == directory) {
                Some((_, paths)) => paths.push(path.clone()),
                None => directories.push((directory, vec![path.clone()])),
            }
        }
        self.join(directories)
            .into_iter()
            .filter_map(|(directory, paths)| {
                let (last, others) = paths.split_first()?;
                let grants = vec![Grant::Overlay(directory)];
                Some(Denied { what: Denial::Written(last.clone(), others.len()), grants })
            })
            .collect()
    }

    /// Returns the directory that would have to be writable.
    fn refused_write(&self, act: Act, path: &Path, inside: &Inside, outside: &Outside) -> Option<PathBuf> {
        let is_cache = path.components().any(|part| CACHES.iter().any(|cache| part.as_os_str() == *cache));
        if is_cache || matches!(act, Act::Read | Act::Execute | Act::Connect) {
            return None;
        }
        // Otherwise a directory is missing, and the act fails for another reason.
        inside.target.as_ref().or(inside.parent.as_ref())?;
        let directory = outside.directory.as_ref()?;
        let written = match (act, &outside.target) {
            (Act::Change | Act::WriteOrMake, Some(target)) => target,
            _ => directory,
        };
        (written.is_writable && directory.path.components().count() > 1).then(|| directory.path.clone())
    }

    /// Joins directories that are inside others, or that are many in one directory.
    fn join(&self, mut directories: Vec<(PathBuf, Vec<PathBuf>)>) -> Vec<(PathBuf, Vec<PathBuf>)> {
        let parents: Vec<PathBuf> =
            directories.iter().filter_map(|(directory, _)| directory.parent().map(Path::to_owned)).collect();
        let is_many = |parent: &&PathBuf| {
            parents.iter().filter(|other| other == parent).count() >= MANY
                && parent.components().count() > 2
                && !self.covers.iter().any(|cover| cover.starts_with(parent))
        };
        let common: Vec<PathBuf> = parents.iter().filter(is_many).cloned().collect();
        let tops: Vec<PathBuf> =
            directories.iter().map(|(directory, _)| directory.clone()).chain(common).collect();
        let mut joined: Vec<(PathBuf, Vec<PathBuf>)> = Vec::new();
        for (directory, paths) in directories.drain(..) {
            let top = tops
                .iter()
                .filter(|top| directory.starts_with(top))
                .min_by_key(|top| top.components().count());
            let top = top.cloned().unwrap_or(directory);
            match joined.iter_mut().find(|(known, _)| *known == top) {
                Some((_, known)) => known.extend(paths),
                None => joined.push((top, paths)),
            }
        }
        joined
    }

    fn addresses(&self, observed: &[Observed]) -> Vec<Denied> {
        let mut denied: Vec<Denied> = Vec::new();
        if self.net == Net::Host {
            return denied;
        }
        for observed in observed.iter().rev() {
            let found = match observed {
                Observed::Address(address) if address.port() == DNS => {
                    Some((Denial::Names, Grant::Net("host")))
                }
                Observed::Service(address) if self.net == Net::Loopback => {
                    Some((Denial::Address(*address), Grant::Net("host")))
                }
                Observed::Address(address) | Observed::Bound(address) => {
                    self.reach(*address).map(|net| (Denial::Address(*address), Grant::Net(net)))
                }
                _ => None,
            };
            if let Some((what, grant)) =
                found.filter(|(what, _)| denied.iter().all(|known| known.what != *what))
            {
                denied.push(Denied { what, grants: vec![grant] });
            }
        }
        denied
    }

    /// Returns the network that an address needs, if the sandbox has another.
    fn reach(&self, address: SocketAddr) -> Option<&'static str> {
        let is_own = address.ip().is_loopback() || address.ip().is_unspecified();
        match (is_own, self.net) {
            (true, Net::None) => Some("loopback"),
            (false, Net::None | Net::Loopback) => Some("host"),
            _ => None,
        }
    }

    fn calls(&self, observed: &[Observed]) -> Vec<Denied> {
        let refused = |observed: &Observed| match observed {
            Observed::Call { name, is_nested } => match (mounts(name), is_nested, self.is_nested) {
                (true, true, true) => None,
                (true, true, false) => Some((*name, vec![Grant::Nested])),
                _ => Some((*name, Vec::new())),
            },
            _ => None,
        };
        let mut denied: Vec<Denied> = Vec::new();
        for (name, grants) in observed.iter().rev().filter_map(refused) {
            let what = Denial::Call(name);
            if denied.iter().all(|known| known.what != what) {
                denied.push(Denied { what, grants });
            }
        }
        denied
    }

    /// Root cannot map its id into another user namespace unless it has kept a capability for that.
    fn root(&self, observed: &[Observed]) -> Option<Denied> {
        let is_denied = self.is_root && !self.is_nested && observed.contains(&Observed::IdMap);
        is_denied.then(|| Denied { what: Denial::Root, grants: vec![Grant::Nested] })
    }

    /// Which variables a program reads cannot be observed. So a variable counts if the output has its name.
    fn variables(&self) -> Vec<Denied> {
        let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_';
        let words: Vec<&str> = self.output.split(|char| !is_part(char)).collect();
        let is_named = |name: &&OsString| {
            let name = name.to_str().unwrap_or_default();
            name.len() >= SHORTEST_NAME && !OF_SHELLS.contains(&name) && words.contains(&name)
        };
        let named = self.removed.iter().filter(is_named);
        named
            .map(|name| Denied {
                what: Denial::Variable(name.clone()),
                grants: vec![Grant::Pass(name.clone())],
            })
            .collect()
    }

    /// Returns the limits that the observer has found to be reached.
    fn full(&self, observed: &[Observed]) -> Vec<Denied> {
        let is_full = self.is_full || observed.contains(&Observed::DiskFull);
        let disk = self.limits.disk.filter(|_| is_full);
        let disk = disk.map(|limit| (Denial::Disk, Grant::Raise("--disk", bytes(limit.saturating_mul(2)))));
        let files = self.limits.files.filter(|_| observed.contains(&Observed::FilesFull));
        let files =
            files.map(|limit| (Denial::Files, Grant::Raise("--files", limit.saturating_mul(2).to_string())));
        let most = self.limits.most_processes();
        let processes = observed.contains(&Observed::ProcessesFull);
        let processes = processes
            .then(|| (Denial::Processes, Grant::Raise("--pids", most.saturating_mul(2).to_string())));
        disk.into_iter()
            .chain(files)
            .chain(processes)
            .map(|(what, grant)| Denied { what, grants: vec![grant] })
            .collect()
    }

    /// Returns whether programs miss a path without harm.
    fn is_harmless_miss(&self, path: &Path, outside: &Outside, observed: &[Observed]) -> bool {
        let target = outside.target.as_ref().map(|target| target.path.as_path());
        let is_service = |path: &Path| SERVICES.iter().any(|service| path.starts_with(service));
        is_service(path) || target.is_some_and(is_service) || self.is_found_later(path, observed)
    }

    /// Returns whether a program of this name was found in another directory of `PATH`. The directories themselves are
    /// looked at too, and those of libraries.
    fn is_found_later(&self, path: &Path, observed: &[Observed]) -> bool {
        let is_in_path =
            |path: &Path| path.parent().is_some_and(|parent| self.path.iter().any(|one| one == parent));
        let ran = |observed: &Observed| match observed {
            Observed::Ran(other) => other.file_name() == path.file_name() && is_in_path(other),
            _ => false,
        };
        self.path.iter().chain(&self.libraries).any(|directory| directory == path)
            || (is_in_path(path) && observed.iter().any(ran))
    }

    fn is_cover(&self, path: &Path) -> bool {
        self.covers.iter().any(|cover| cover == path)
    }

    fn is_below_cover(&self, path: &Path) -> bool {
        self.covers.iter().any(|cover| path.starts_with(cover) && path != cover)
    }

    fn is_hidden_by_option(&self, path: &Path) -> bool {
        self.hidden.iter().any(|hidden| path.starts_with(hidden))
    }

    /// Returns whether the output of the failed run names what was denied.
    fn is_mentioned(&self, denied: &Denied) -> bool {
        let has = |text: &OsStr| !text.is_empty() && self.output.contains(&*text.to_string_lossy());
        let has_path = |path: &PathBuf| has(path.as_os_str()) || path.file_name().is_some_and(has);
        match &denied.what {
            Denial::Hidden(path) | Denial::Written(path, _) => has_path(path),
            Denial::Address(address) => has(address.ip().to_string().as_ref()),
            Denial::Names => ["resolv", "resolution", "getaddrinfo"].iter().any(|word| has(word.as_ref())),
            Denial::Call(name) => has(name.as_ref()),
            Denial::Root => has("uid_map".as_ref()),
            Denial::Variable(_) | Denial::Limit(_) | Denial::Disk | Denial::Files | Denial::Processes => true,
        }
    }
}

impl Denied {
    fn are_covered(&self, grants: &[Grant]) -> bool {
        self.grants.iter().all(|own| grants.iter().any(|grant| grant.covers(own)))
    }
}

impl Grant {
    /// Returns whether this option also allows what the other allows.
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Read(directory) | Self::Overlay(directory), Self::Read(path))
            | (Self::Overlay(directory), Self::Overlay(path)) => path.starts_with(directory),
            _ => self == other,
        }
    }
}

/// Returns whether a call changes mounts. The kernel refuses these without capabilities and with Landlock.
fn mounts(name: &str) -> bool {
    !filter::refused().any(|refused| refused == name)
}

fn limit(reached: Reached) -> Denied {
    let (option, value) = match reached {
        Reached::Wall(limit) => ("--timeout", format!("{}s", limit.as_secs_f64() * 2.0)),
        Reached::Cpu(limit) => ("--cpu", limit.saturating_mul(2).to_string()),
        Reached::Memory(limit) => ("--memory", bytes(limit.saturating_mul(2))),
        Reached::FileSize(limit) => ("--file-size", bytes(limit.saturating_mul(2))),
    };
    Denied { what: Denial::Limit(reached), grants: vec![Grant::Raise(option, value)] }
}

/// Formats a number of bytes as the options read it.
fn bytes(number: u64) -> String {
    let units = [(1 << 30, "g"), (1 << 20, "m"), (1 << 10, "k")];
    let unit = units.into_iter().find(|(unit, _)| number >= *unit && number.is_multiple_of(*unit));
    unit.map_or(number.to_string(), |(unit, name)| format!("{}{name}", number / unit))
}

#[cfg(test)]
mod tests {
    use super::{Denial, Denied, Facts, Grant, judge};
    use crate::explain::calls::Act;
    use crate::explain::observe::Observed;
    use crate::explain::sight::{Found, Inside, Outside};
    use crate::explain::words::line;
    use crate::profile::{Limits, Net};
    use crate::sandbox::ended::Reached;
    use std::path::PathBuf;

    fn facts() -> Facts {
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect();
        Facts {
            covers: paths(&["/home/ann", "/run", "/tmp"]),
            path: paths(&["/home/ann/bin", "/usr/bin"]),
            libraries: paths(&["/home/ann/lib"]),
            removed: ["EDITOR", "HOST", "IT"].map(Into::into).to_vec(),
            ..Facts::default()
        }
    }

    fn found(path: &str, is_directory: bool) -> Option<Found> {
        Some(Found { path: path.into(), is_directory, is_writable: true })
    }

    /// A path that only exists outside.
    fn missed(act: Act, path: &str) -> Observed {
        let outside = Outside { target: found(path, false), ..Outside::default() };
        Observed::Path { act, path: path.into(), inside: Inside::default(), outside }
    }

    /// A file in a directory that is read-only inside.
    fn refused(path: &str) -> Observed {
        let directory = PathBuf::from(path).parent().and_then(|parent| found(parent.to_str()?, true));
        let parent = directory.clone().map(|parent| Found { is_writable: false, ..parent });
        let (inside, outside) =
            (Inside { target: None, parent }, Outside { directory, ..Outside::default() });
        Observed::Path { act: Act::WriteOrMake, path: path.into(), inside, outside }
    }

    fn options(observed: &[Observed], facts: &Facts) -> Vec<String> {
        judge(observed, facts).iter().map(|denied| denied.option().unwrap_or_else(|| line(denied))).collect()
    }

    #[test]
    fn hidden_paths_are_joined_and_the_last_one_is_first() {
        let read = |path: &str| missed(Act::Read, path);
        assert_eq!(
            options(&[read("/home/ann/a"), read("/tmp/b"), read("/home/ann/a")], &facts()),
            ["--read /home/ann/a", "--read /tmp/b"]
        );
        let many = ["/tmp/d/1", "/tmp/d/2", "/tmp/d/3", "/tmp/x"].map(read);
        assert_eq!(options(&many, &facts()), ["--read /tmp/x", "--read /tmp/d"]);
        let below = [read("/tmp/d"), read("/tmp/d/1")];
        assert_eq!(options(&below, &facts()), ["--read /tmp/d"]);
        // The home directory itself is not suggested for its files.
        assert_eq!(
            options(&["1", "2", "3"].map(|name| read(&format!("/home/ann/{name}"))), &facts()).len(),
            3
        );
    }

    #[test]
    fn symlink_is_shown_by_its_directory() {
        let target = found("/tmp/b/file", false);
        let outside = Outside { target, links: vec!["/home/ann/links/a".into()], directory: None };
        let path = "/home/ann/links/a".into();
        let link = Observed::Path { act: Act::Read, path, inside: Inside::default(), outside };
        assert_eq!(options(&[link], &facts()), ["--read /home/ann/links --read /tmp/b/file"]);
    }

    #[test]
    fn misses_that_every_program_has_are_left_out() {
        let misses = [
            missed(Act::Read, "/run/nscd/socket"),
            missed(Act::Read, "/run/systemd/resolve/stub-resolv.conf"),
            missed(Act::Read, "/home/ann/bin"),
            missed(Act::Read, "/home/ann/lib"),
            missed(Act::Execute, "/home/ann/bin/cat"),
            Observed::Ran("/usr/bin/cat".into()),
            refused("/srv/lib/__pycache__/a.pyc"),
        ];
        assert_eq!(judge(&misses, &facts()), []);
        let only = [missed(Act::Execute, "/home/ann/bin/own"), Observed::Ran("/usr/bin/cat".into())];
        assert_eq!(options(&only, &facts()), ["--read /home/ann/bin/own"]);
    }

    #[test]
    fn writes_are_joined_by_directory() {
        let writes = ["/srv/a/1", "/srv/a/2", "/srv/b/1"].map(refused);
        assert_eq!(options(&writes, &facts()), ["--overlay /srv/b", "--overlay /srv/a"]);
        let many = ["/srv/web/a/1", "/srv/web/b/1", "/srv/web/c/1"].map(refused);
        let denied = judge(&many, &facts());
        let wanted = Denied {
            what: Denial::Written("/srv/web/c/1".into(), 2),
            grants: vec![Grant::Overlay("/srv/web".into())],
        };
        assert_eq!(denied, [wanted]);
    }

    #[test]
    fn path_hidden_by_an_option_has_no_option() {
        let facts = Facts { hidden: vec!["/srv/secret".into()], ..facts() };
        let denied = judge(&[missed(Act::Read, "/srv/secret/key")], &facts);
        assert_eq!(denied, [Denied { what: Denial::Hidden("/srv/secret/key".into()), grants: Vec::new() }]);
    }

    #[test]
    fn addresses_need_the_network_that_has_them() {
        let met = ["127.0.0.1:80", "[::1]:80", "192.0.2.1:80", "192.0.2.1:53"];
        let met = met.map(|address| Observed::Address(address.parse().unwrap()));
        let with = |net| options(&met, &Facts { net, ..facts() });
        assert_eq!(with(Net::Host), <[&str; 0]>::default());
        assert_eq!(with(Net::Loopback), ["--net host", "--net host"]);
        assert_eq!(with(Net::None), ["--net host", "--net host", "--net loopback", "--net loopback"]);
    }

    #[test]
    fn calls_have_an_option_only_in_namespaces_of_the_program() {
        let call = |name, is_nested| Observed::Call { name, is_nested };
        assert_eq!(options(&[call("mount", true)], &facts()), ["--nested"]);
        assert!(options(&[call("mount", false)], &facts())[0].ends_with("no option allows it"));
        assert!(options(&[call("bpf", true)], &facts())[0].ends_with("no option allows it"));
        assert_eq!(judge(&[call("mount", true)], &Facts { is_nested: true, ..facts() }), []);
    }

    #[test]
    fn variables_are_whole_words_of_the_output() {
        let output = "EDITOR: not set, IT is; HOSTNAME".to_owned();
        assert_eq!(options(&[], &Facts { output, ..facts() }), ["-e EDITOR"]);
    }

    #[test]
    fn root_is_told_of_an_id_map_that_it_cannot_write() {
        let root = Facts { is_root: true, ..facts() };
        assert_eq!(options(&[Observed::IdMap], &root), ["--nested"]);
        assert_eq!(judge(&[Observed::IdMap], &facts()), []);
        assert_eq!(judge(&[Observed::IdMap], &Facts { is_nested: true, ..root }), []);
    }

    #[test]
    fn limits_and_mentions_come_first() {
        let limits = Limits { disk: Some(1 << 30), files: Some(7), ..Limits::default() };
        let reached = Some(Reached::Memory(3 << 20));
        let facts = Facts { limits, reached, output: "no a".to_owned(), ..facts() };
        let met = [
            missed(Act::Read, "/tmp/a"),
            missed(Act::Read, "/tmp/b"),
            Observed::DiskFull,
            Observed::FilesFull,
        ];
        let wanted = ["--memory 6m", "--disk 2g", "--files 14", "--read /tmp/a", "--read /tmp/b"];
        assert_eq!(options(&met, &facts), wanted);
        // The first run may have filled the disk, and the observed one not.
        let (met, wanted) = (&met[..2], [wanted[0], wanted[1], wanted[3], wanted[4]]);
        assert_eq!(options(met, &Facts { is_full: true, ..facts }), wanted);
    }
}
