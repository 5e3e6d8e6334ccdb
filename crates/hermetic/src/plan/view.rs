//! The layout of the program's own file system: which directories of the host it covers, and which paths below them are
//! still shown.

use super::environment;
use crate::host::Host;
use std::path::{Path, PathBuf};

/// A directory of the host that one of the program's own directories covers.
pub(crate) struct Cover<'h> {
    /// The path of the host's directory.
    pub(crate) path: &'h Path,
    /// The name of the program's directory in the root of its own file system.
    pub(crate) name: &'static str,
    pub(crate) mode: u32,
}

/// Returns the program's own directories and the paths they cover. `/tmp` is last: the root of their file system is
/// mounted there until then.
pub(crate) fn covers(host: &Host) -> Vec<Cover<'_>> {
    const OWN: [(&str, &str, u32); 4] = [
        ("/dev", "dev", 0o755),
        ("/run", "run", 0o755),
        ("/var/tmp", "var-tmp", 0o1777),
        ("/tmp", "tmp", 0o1777),
    ];
    let is_here = |path: &Path| host.own.iter().any(|own| own == path);
    let own = OWN.into_iter().map(|(path, name, mode)| Cover { path: Path::new(path), name, mode });
    let own = own.filter(|cover| is_here(cover.path));
    let is_below_own = |home: &Path| own.clone().any(|cover| home.starts_with(cover.path));
    let home = host.home.as_deref().filter(|home| !is_below_own(home));
    home.map(|path| Cover { path, name: "home", mode: 0o700 }).into_iter().chain(own.clone()).collect()
}

/// Returns a host path's location in the program's own file system, if it is covered.
pub(crate) fn place(path: &Path, covers: &[Cover<'_>]) -> Option<PathBuf> {
    covers.iter().find_map(|cover| {
        let below = path.strip_prefix(cover.path).ok()?;
        Some(Path::new(cover.name).join(below))
    })
}

/// A directory to create.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Directory {
    /// Relative to the root of the program's own file system.
    pub(crate) path: PathBuf,
    pub(crate) mode: u32,
}

/// Returns the directories to create, parents first: the covers, the home and runtime directories, and those that shown
/// paths need.
pub(crate) fn directories<'p>(
    host: &Host,
    covers: &[Cover<'_>],
    shown: impl Iterator<Item = &'p Path>,
) -> Vec<Directory> {
    let mut directories: Vec<_> =
        covers.iter().map(|cover| Directory { path: cover.name.into(), mode: cover.mode }).collect();
    for private in [environment::home(host), &environment::runtime_directory(host)] {
        with_parents(private, 0o700, covers, &mut directories);
    }
    for path in shown {
        with_parents(path, 0o755, covers, &mut directories);
    }
    directories
}

fn with_parents(path: &Path, mode: u32, covers: &[Cover<'_>], directories: &mut Vec<Directory>) {
    let Some(place) = place(path, covers) else { return };
    let mut missing: Vec<_> = place
        .ancestors()
        .filter(|ancestor| !ancestor.as_os_str().is_empty())
        .take_while(|ancestor| !directories.iter().any(|known| known.path == *ancestor))
        .map(|ancestor| Directory { path: ancestor.to_owned(), mode: 0o755 })
        .collect();
    if let Some(last) = missing.first_mut() {
        last.mode = mode;
    }
    missing.reverse();
    directories.extend(missing);
}

#[cfg(test)]
mod tests {
    use super::{Cover, directories, place};
    use crate::host::{Host, Procfs, Sysfs};
    use std::path::{Path, PathBuf};

    #[test]
    fn path_below_a_cover_is_found_in_the_cover() {
        let covers = [Cover { path: Path::new("/tmp"), name: "tmp", mode: 0 }];
        assert_eq!(place(Path::new("/tmp/a/b"), &covers), Some(PathBuf::from("tmp/a/b")));
        assert_eq!(place(Path::new("/tmp"), &covers), Some(PathBuf::from("tmp/")));
        assert_eq!(place(Path::new("/tmpfs"), &covers), None);
    }

    #[test]
    fn directories_are_made_once_and_after_their_parents() {
        let host = Host {
            uid: 7,
            gid: 7,
            program: (7, 7),
            cwd: "/tmp/a/b".into(),
            project: "/tmp/a".into(),
            home: Some("/tmp/home".into()),
            environment: Default::default(),
            own: vec!["/tmp".into(), "/run".into()],
            found: Vec::new(),
            most: [None; 5],
            cgroup: false,
            has_pid_max: false,
            overlays_tools: true,
            user_namespace: true,
            procfs: Procfs::Own,
            sysfs: Sysfs::Own,
            clocks: Default::default(),
            mqueue: false,
            wait_killable: false,
            landlock: None,
            written: [false; 3],
            null_streams: Vec::new(),
            network: None,
            lacks_places: false,
            view: None,
        };
        let covers = super::covers(&host);
        let shown = [Path::new("/tmp/a/b"), Path::new("/tmp/a/c"), Path::new("/srv")];
        let made = directories(&host, &covers, shown.into_iter());
        let made: Vec<_> =
            made.iter().map(|made| format!("{} {:o}", made.path.display(), made.mode)).collect();
        let wanted = [
            "run 755",
            "tmp 1777",
            "tmp/home 700",
            "run/user 755",
            "run/user/7 700",
            "tmp/a 755",
            "tmp/a/b 755",
            "tmp/a/c 755",
        ];
        assert_eq!(made, wanted);
    }
}
