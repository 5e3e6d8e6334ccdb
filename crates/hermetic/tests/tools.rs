//! Looks for tools in a made-up home directory.

#![expect(clippy::unwrap_used, reason = "a test")]

use husk_hermetic::{Caches, Caller, PathAccess, Profile, Tools};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

struct Home {
    directory: TempDir,
    caller: Caller,
}

impl Home {
    /// Makes a home directory with these files, for a caller who runs this program.
    fn with(files: &[&str], program: &[&str]) -> Self {
        let directory = TempDir::new().unwrap();
        let home = fs::canonicalize(directory.path()).unwrap();
        for file in files {
            let path = home.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let user = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let (cwd, project) = (home.join("work"), home.join("work"));
        fs::create_dir(&cwd).unwrap();
        let program = program.iter().map(Into::into).collect();
        let caller = Caller { program, home: Some(home), cwd, project, user, ..Caller::default() };
        Self { directory, caller }
    }

    fn path(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.directory.path()).unwrap().join(name)
    }

    fn set(&mut self, name: &str, path: &str) -> &mut Self {
        let path = self.path(path);
        self.caller.environment.insert(name.into(), path.into());
        self
    }

    /// Returns the paths that are shown, relative to the home directory, each with its access.
    fn shown(&self) -> Vec<String> {
        let mut profile = Profile::default();
        Tools::find(&self.caller).add_to(&mut profile, Caches::Discard);
        let name = |path: &Path| path.strip_prefix(self.path("")).unwrap().display().to_string();
        let paths = profile.tools.iter();
        let paths = paths.map(|tool| match tool.access {
            PathAccess::Read => name(&tool.file.path),
            access => format!("{} {access:?}", name(&tool.file.path)),
        });
        let links = profile.links.iter();
        let links = links.map(|link| format!("{} -> {}", name(&link.path), link.target.display()));
        paths.chain(links).collect()
    }
}

#[test]
fn empty_home_shows_nothing() {
    let home = Home::with(&["work.txt"], &["check"]);
    assert_eq!(home.shown(), [""; 0]);
    assert_eq!(Tools::find(&home.caller), Tools::default());
}

#[test]
fn each_part_of_a_tool_is_shown_as_the_table_says() {
    let files = [".cargo/bin/cargo", ".cargo/registry/a", ".cargo/credentials.toml", ".m2/repository/a"];
    let home = Home::with(&files, &["sh"]);
    assert_eq!(home.shown(), [".cargo/bin", ".cargo/registry Overlay", ".m2/repository Overlay"]);
    let home = Home::with(&files, &["check"]);
    assert_eq!(home.shown(), [".cargo/bin"], "a compiled program gets no caches");
    let home = Home::with(&files, &["make"]);
    let wanted = [".cargo/bin", ".cargo/registry Overlay", ".m2/repository Overlay", "work Overlay"];
    assert_eq!(home.shown(), wanted, "a build tool may write to the project");
}

#[test]
fn variables_take_the_place_of_defaults() {
    let mut home = Home::with(&[".rustup/a", "other/a", "one/bin/a", "two/bin/a"], &["check"]);
    let paths = std::env::join_paths([home.path("one"), home.path("two")]).unwrap();
    home.caller.environment.insert("GOPATH".into(), paths);
    assert_eq!(home.set("RUSTUP_HOME", "other").shown(), ["one/bin", "other", "two/bin"]);
}

#[test]
fn directory_of_programs_is_shown_with_its_libraries() {
    let files = ["node/bin/node", "node/lib/a", "scripts/bin/a", "scripts/letter"];
    let mut home = Home::with(&files, &["check"]);
    let paths = ["node/bin", "scripts/bin", "none/bin"].map(|name| home.path(name));
    home.caller.environment.insert("PATH".into(), std::env::join_paths(paths).unwrap());
    assert_eq!(home.shown(), ["node", "scripts/bin"]);
}

#[test]
fn symlinks_on_the_way_are_shown_too() {
    let mut home = Home::with(&["tools/v1/bin/run", "tools/v1/lib/a"], &["run"]);
    symlink("v1", home.path("tools/current")).unwrap();
    symlink("tools/current", home.path("use")).unwrap();
    home.set("PATH", "use/bin");
    assert_eq!(home.shown(), ["tools/v1", "use -> tools/current", "tools/current -> v1"]);
    symlink("loop", home.path("loop")).unwrap();
    assert_eq!(home.set("PATH", "loop").shown(), [""; 0]);
}

#[test]
fn refused_paths_are_named_with_the_reason() {
    let mut home = Home::with(&[".ssh/id"], &["check"]);
    home.set("JAVA_HOME", ".ssh");
    assert_eq!(home.shown(), [""; 0]);
    let ssh = home.path(".ssh");
    assert_eq!(
        Tools::find(&home.caller).refused,
        [(ssh.clone(), format!("{} must stay hidden", ssh.display()))]
    );
}
