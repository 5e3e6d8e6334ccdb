//! Profiles and the steps they become, on machines that are written down here. `HUSK_GOLDEN=write` writes the
//! listings anew; the difference is what there is to review.

#![expect(clippy::unwrap_used, reason = "a test")]

use bumpalo::Bump;
use husk_hermetic::{Access, Found, Host, Limits, Net, Procfs, Profile, Show, Streams, Variable, plan};
use std::fs;
use std::path::Path;
use std::time::Duration;

fn profile() -> Profile {
    Profile { args: vec!["check".into(), "--all".into()], ..Profile::default() }
}

/// An ordinary user in a repository in his home directory.
fn user() -> Host {
    let environment =
        [("PATH", "/usr/bin:/bin"), ("EDITOR", "vi"), ("CARGO_PKG_NAME", "web"), ("TZ", "Asia/Tokyo")];
    Host {
        uid: 1000,
        gid: 100,
        program: (1000, 100),
        cwd: "/home/ann/web/src".into(),
        project: "/home/ann/web".into(),
        home: Some("/home/ann".into()),
        environment: environment.map(|(name, value)| (name.into(), value.into())).to_vec(),
        own: ["/dev", "/run", "/var/tmp", "/tmp"].map(Into::into).to_vec(),
        found: Vec::new(),
        most: [None, None, Some(1000), None, None],
        cgroup: false,
        user_namespace: true,
        procfs: Procfs::Own,
        clocks: Default::default(),
        lacks_places: false,
    }
}

#[track_caller]
fn is(name: &str, profile: &Profile, host: &Host) {
    let golden =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/listings").join(name).with_extension("txt");
    let found = plan(profile, host, Streams::Callers, &Bump::new()).unwrap().to_string();
    if std::env::var_os("HUSK_GOLDEN").is_some_and(|value| value == "write") {
        fs::write(&golden, &found).unwrap();
    }
    assert_eq!(found, fs::read_to_string(&golden).unwrap_or_default(), "{}", golden.display());
}

#[test]
fn a_user_who_asks_for_nothing() {
    is("user", &profile(), &user());
}

#[test]
fn root_with_a_project_in_a_directory_for_everybody() {
    let (cwd, project) = ("/tmp/web".into(), "/tmp/web".into());
    is(
        "root",
        &profile(),
        &Host { uid: 0, gid: 0, program: (0, 0), cwd, project, home: Some("/root".into()), ..user() },
    );
}

#[test]
fn root_in_a_container_without_user_namespaces() {
    let host = Host {
        uid: 0,
        gid: 0,
        program: (0, 0),
        cwd: "/srv/web".into(),
        project: "/srv/web".into(),
        home: Some("/root".into()),
        user_namespace: false,
        procfs: Procfs::Callers,
        ..user()
    };
    is("root-in-container", &profile(), &host);
}

#[test]
fn everything_that_can_be_asked_for() {
    let shown = [
        ("target", Access::Write),
        (".", Access::Overlay),
        ("../.cargo/bin", Access::Read),
        ("../.netrc", Access::Read),
        ("/usr/share", Access::Hide),
        ("/etc/hostname", Access::Hide),
        ("../nothing", Access::Hide),
    ];
    let found = [
        ("/home/ann/web/target", true),
        ("/home/ann/web", true),
        ("/home/ann/.cargo/bin", true),
        ("/home/ann/.netrc", false),
        ("/usr/share", true),
        ("/etc/hostname", false),
        ("/home/ann/nothing", true),
    ];
    let show = |(path, access): (&str, Access)| Show { path: path.into(), access };
    let found =
        found.map(|(path, is_directory)| Found { path: path.into(), source: path.into(), is_directory });
    let limits = Limits {
        wall: Some(Duration::from_secs(1)),
        cpu_seconds: Some(2),
        memory: Some(3 << 20),
        processes: Some(4000),
        files: Some(5),
        file_size: Some(6),
        disk: None,
    };
    let env = vec![Variable::Pass("EDITOR".into()), Variable::Set("LANG".into(), "C".into())];
    let profile = Profile { env, shown: shown.map(show).to_vec(), net: Net::None, limits, ..profile() };
    is("everything", &profile, &Host { found: found.to_vec(), ..user() });
}

#[test]
fn what_cannot_be_done_is_said() {
    let refusal = |profile: &Profile, host: &Host| {
        plan(profile, host, Streams::Callers, &Bump::new()).err().unwrap().to_string()
    };
    assert_eq!(refusal(&Profile::default(), &user()), "program: is missing");
    let shown = vec![Show { path: "f".into(), access: Access::Overlay }];
    let found = vec![Found { path: "/srv/f".into(), source: "/srv/f".into(), is_directory: false }];
    let host = Host { found, ..user() };
    assert_eq!(refusal(&Profile { shown, ..profile() }, &host), "overlay /srv/f: is no directory");
}
