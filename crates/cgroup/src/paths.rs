//! Resolves the configuration's cgroup path to directories.
//!
//! This is purely lexical: cgroup trees hold no symlinks, and nothing here reads the file system. No `..` leads
//! out of the tree.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The directories of a container's cgroups, as plain data that can be recorded. Each controller of version 1
/// has a directory under its name. The directory of version 2 has the empty name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CgroupPaths(BTreeMap<String, PathBuf>);

impl CgroupPaths {
    /// Wraps paths that were recorded earlier.
    #[must_use]
    pub const fn new(directories: BTreeMap<String, PathBuf>) -> Self {
        Self(directories)
    }

    /// Returns the directories by controller, for recording.
    #[must_use]
    pub const fn directories(&self) -> &BTreeMap<String, PathBuf> {
        &self.0
    }

    /// Returns the directory of `controller`; the empty name is version 2.
    #[must_use]
    pub fn path(&self, controller: &str) -> Option<&Path> {
        self.0.get(controller).map(PathBuf::as_path)
    }

    /// Returns each directory once: controllers may share one.
    pub fn distinct(&self) -> impl Iterator<Item = &Path> {
        let mut seen: Vec<&Path> = Vec::new();
        self.0.values().map(PathBuf::as_path).filter(move |path| {
            let new = !seen.contains(path);
            if new {
                seen.push(path);
            }
            new
        })
    }
}

/// Returns `path` relative to the root, without `.`, `..` and doubled slashes. `..` at the root stays there.
#[must_use]
pub fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns the cgroup that `wanted` names, relative to the root of its hierarchy. An absolute path starts at
/// the root, a relative one at `base`. Without a path it is the container's id below `base`.
pub(crate) fn resolve(wanted: Option<&str>, id: &str, base: &str) -> String {
    let wanted = wanted.filter(|path| !path.is_empty());
    match wanted {
        Some(path) if path.starts_with('/') => clean(path),
        // Cleaned by itself first, so that `..` does not lead out of the base either.
        path => join(&clean(base), &clean(path.unwrap_or(id))),
    }
}

/// Joins two paths; either may be empty.
pub(crate) fn join(base: &str, path: &str) -> String {
    match (base.trim_end_matches('/'), path.trim_matches('/')) {
        ("", path) => path.to_owned(),
        (base, "") => base.to_owned(),
        (base, path) => format!("{base}/{path}"),
    }
}

/// Returns the path of a controller's cgroup from the text of `/proc/PID/cgroup`. The empty name is version 2.
pub(crate) fn own<'t>(text: &'t str, controller: &str) -> Option<&'t str> {
    text.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|name| name == controller).then_some(path)
    })
}

/// Returns the parent: `a/b` for `a/b/c`.
pub(crate) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Returns the last component of a path.
pub(crate) fn name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// Returns `path` relative to `top`, if it is below it.
pub(crate) fn below<'p>(top: &Path, path: &'p Path) -> Option<&'p str> {
    path.strip_prefix(top).ok().and_then(Path::to_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolved_path_stays_in_its_tree() {
        let table = [
            (Some("/a/b"), "a/b"),
            (Some("/../../etc"), "etc"),
            (Some("/a/../../b//c/./d/"), "b/c/d"),
            (Some("a/../.."), "base/sub"),
            (Some("../../x"), "base/sub/x"),
            (Some("pod/x"), "base/sub/pod/x"),
            (Some(""), "base/sub/id"),
            (None, "base/sub/id"),
            (Some("/"), ""),
        ];
        for (wanted, expected) in table {
            assert_eq!(resolve(wanted, "id", "/base/sub"), expected, "{wanted:?}");
        }
        assert_eq!(resolve(None, "id", "/"), "id");
    }

    #[test]
    fn own_cgroups_are_found_by_controller() {
        let text = "12:cpu,cpuacct:/a:b\n1:name=systemd:/s\n0::/user.slice/x\n";
        assert_eq!(own(text, "cpuacct"), Some("/a:b"));
        assert_eq!(own(text, "name=systemd"), Some("/s"));
        assert_eq!(own(text, ""), Some("/user.slice/x"));
        assert_eq!(own(text, "memory"), None);
    }
}
