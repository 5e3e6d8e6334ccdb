//! Compares the steps of profiles on fixed hosts with golden listings. `HUSK_GOLDEN=write` rewrites the listings;
//! review the difference.

#![expect(clippy::unwrap_used, reason = "a test")]

use bumpalo::Bump;
use husk_hermetic::{
    Host, HostFile, Image, Landlock, Limits, Link, Net, PathAccess, Procfs, Profile, Root, Show, Streams,
    Sysfs, ToolPath, Variable, bundle, plan,
};
use husk_script::Step;
use husk_script::sys::Fd;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn profile() -> Profile {
    Profile { args: vec!["check".into(), "--all".into()], ..Profile::default() }
}

/// An ordinary user in a repository in their home directory.
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
        environment: environment.map(|(name, value)| (name.into(), value.into())).into(),
        own: ["/dev", "/run", "/var/tmp", "/tmp"].map(Into::into).to_vec(),
        found: Vec::new(),
        most: [None, None, Some(1000), None, None],
        cgroup: false,
        has_pid_max: true,
        overlays_tools: true,
        user_namespace: true,
        procfs: Procfs::Own,
        sysfs: Sysfs::Own,
        clocks: Default::default(),
        mqueue: true,
        wait_killable: true,
        landlock: Landlock::of_version(7),
        written: [false, true, true],
        null_streams: Vec::new(),
        network: None,
        lacks_places: false,
        view: None,
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
fn user_with_default_options() {
    is("user", &profile(), &user());
}

#[test]
fn root_with_a_project_in_a_shared_directory() {
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
        sysfs: Sysfs::Callers,
        ..user()
    };
    is("root-in-container", &profile(), &host);
}

#[test]
fn user_with_all_options() {
    let shown = [
        ("target", PathAccess::Write),
        (".", PathAccess::Overlay),
        ("../.cargo/bin", PathAccess::Read),
        ("../.netrc", PathAccess::Read),
        ("/usr/share", PathAccess::Hide),
        ("/etc/hostname", PathAccess::Hide),
        ("../nothing", PathAccess::Hide),
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
    let show = |(path, access): (&str, PathAccess)| Show { path: path.into(), access };
    let found = found.map(|(path, is_directory)| HostFile { path: path.into(), is_directory, mode: 0o755 });
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
    let profile = Profile {
        env,
        shown: shown.map(show).to_vec(),
        net: Net::None,
        limits,
        keeps_files: true,
        ..profile()
    };
    is("everything", &profile, &Host { found: found.to_vec(), ..user() });
}

#[test]
fn user_with_tools() {
    let tool = |(path, access): (&str, PathAccess)| {
        let is_directory = !path.ends_with(".toml");
        ToolPath { file: HostFile { path: path.into(), is_directory, mode: 0o755 }, access }
    };
    let tools = [
        ("/home/ann/.cargo/bin", PathAccess::Read),
        ("/home/ann/.cargo/config.toml", PathAccess::Read),
        ("/home/ann/.cargo/registry", PathAccess::Overlay),
        ("/home/ann/.cache/go-build", PathAccess::Write),
        ("/srv/go/pkg", PathAccess::Overlay),
    ];
    let links = vec![
        Link { path: "/run/user/1000/node".into(), target: "/home/ann/.fnm/v24".into() },
        Link { path: "/home/ann/.cargo/bin/cargo".into(), target: "rustup".into() },
    ];
    is("tools", &Profile { tools: tools.map(tool).to_vec(), links, ..profile() }, &user());
}

/// An image that lacks mount points, with every kind of shown path.
fn image(access: PathAccess) -> (Profile, Host) {
    let image = Image { access, ..Image::of("/srv/image".into()) };
    let kinds = [
        ("/src", PathAccess::Write),
        ("/lib", PathAccess::Overlay),
        ("/run/tool", PathAccess::Read),
        ("/etc/shadow", PathAccess::Hide),
        ("/boot", PathAccess::Hide),
    ];
    let show = |(path, access): (&str, PathAccess)| Show { path: path.into(), access };
    let found = kinds.map(|(path, _)| HostFile {
        path: path.into(),
        is_directory: path != "/etc/shadow",
        mode: 0o755,
    });
    let profile = Profile { shown: kinds.map(show).to_vec(), image: Some(image), ..profile() };
    let (cwd, project) = ("/work".into(), "/work".into());
    (profile, Host { cwd, project, home: None, found: found.to_vec(), lacks_places: true, ..user() })
}

#[test]
fn image_of_layers_for_a_test_of_the_host() {
    let layers =
        ["c/files", "b/files", "a/files"].map(|name| Path::new("/home/ann/.cache/layers").join(name));
    let show = |path: &str, access| Show { path: path.into(), access };
    let shown = vec![show("/srv/web", PathAccess::Read), show("/srv/web/target/tmp", PathAccess::Overlay)];
    let access = PathAccess::Overlay;
    let image = Image { root: Root::Layers(layers.to_vec()), access, shown, ..Image::of("/".into()) };
    let profile = Profile { image: Some(image), ..profile() };
    let host = Host { cwd: "/srv/web".into(), home: None, program: (0, 0), lacks_places: true, ..user() };
    is("layers", &profile, &host);
}

#[test]
fn layers_are_never_written_to() {
    let refuses = |path: &str, access| {
        let root = Root::Layers(vec!["/layers/a".into()]);
        let image = Image { root, access: PathAccess::Overlay, ..Image::of("/".into()) };
        let shown = vec![Show { path: path.into(), access }];
        let found = vec![HostFile { path: path.into(), is_directory: true, mode: 0o755 }];
        let profile = Profile { image: Some(image), shown, ..profile() };
        let host = Host { home: None, found, ..user() };
        plan(&profile, &host, Streams::Callers, &Bump::new()).map(|_| ()).map_err(|error| error.to_string())
    };
    assert!(refuses("/data", PathAccess::Write).unwrap_err().starts_with("write /data: no change"));
    assert!(refuses("/run/x", PathAccess::Read).unwrap_err().starts_with("read /run/x: a private directory"));
    assert_eq!(refuses("/data", PathAccess::Overlay), Ok(()));
}

/// A bundle with mounts of each kind, and with masked and read-only paths.
fn of_bundle() -> (Profile, Host) {
    // Each caller has a directory of its own, because tests run at the same time.
    static CALLERS: AtomicUsize = AtomicUsize::new(0);
    let number = CALLERS.fetch_add(1, Ordering::Relaxed);
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("of-bundle-{number}"));
    fs::create_dir_all(directory.join("rootfs")).unwrap();
    let config = r#"{
        "ociVersion": "1.3.0",
        "root": { "path": "rootfs" },
        "process": { "user": { "uid": 0, "gid": 0 }, "args": ["/check"], "cwd": "/work" },
        "mounts": [
            { "destination": "/proc", "type": "proc", "source": "proc" },
            { "destination": "/volume", "type": "bind", "source": "/srv/volume", "options": ["rbind"] },
            { "destination": "/new", "type": "tmpfs", "source": "tmpfs", "options": ["size=4k"] },
            { "destination": "/sys", "type": "sysfs", "source": "sysfs" }
        ],
        "linux": {
            "namespaces": [{ "type": "mount" }, { "type": "pid" }],
            "maskedPaths": ["/proc/keys"],
            "readonlyPaths": ["/proc/sys"]
        }
    }"#;
    fs::write(directory.join("config.json"), config).unwrap();
    let (mut profile, _) = bundle(&directory).unwrap();
    // A path that is the same on every machine.
    profile.image.as_mut().unwrap().root = Root::Directory("/srv/bundle/rootfs".into());
    let (cwd, project) = ("/work".into(), "/work".into());
    (profile, Host { program: (0, 0), cwd, project, home: None, lacks_places: true, ..user() })
}

#[test]
fn image_with_all_options() {
    let (profile, host) = image(PathAccess::Read);
    is("image", &profile, &host);
}

#[test]
fn bundle_with_mounts_of_each_kind() {
    let (profile, host) = of_bundle();
    is("bundle", &profile, &host);
}

/// Returns whether a step looks up a name from the working directory or the root. Every step is listed, so that a new
/// one is not forgotten.
fn looks_up_a_name(step: &Step<'_>) -> bool {
    match step {
        Step::Open { .. }
        | Step::WriteFile { .. }
        | Step::OpenProc { .. }
        | Step::Mkdir { .. }
        | Step::Symlink { .. }
        | Step::Mount { .. }
        | Step::MountBind { .. }
        | Step::MountChange { .. }
        | Step::UmountDetach { .. }
        | Step::PivotRoot { .. }
        | Step::Chdir { .. }
        | Step::Chroot { .. }
        | Step::OpenTree { .. }
        | Step::OpenDevice { .. }
        | Step::OpenTreeOrRequest { .. }
        | Step::Hide { .. }
        | Step::Hook { .. }
        | Step::CheckExecutable { .. }
        | Step::ExecveFirst { .. }
        | Step::Execve { .. } => true,
        Step::Close { .. }
        | Step::CloseOthers { .. }
        | Step::CloseRange { .. }
        | Step::CloseRangeOnExec { .. }
        | Step::Dup { .. }
        | Step::Dup3 { .. }
        | Step::KeepOnExec { .. }
        | Step::FchownStreams { .. }
        | Step::Await { .. }
        | Step::Write { .. }
        | Step::OpenInProc { .. }
        | Step::Umask { .. }
        | Step::OpenInRoot { .. }
        | Step::EnsureDirectory { .. }
        | Step::Attach { .. }
        | Step::Mknod { .. }
        | Step::SymlinkIn { .. }
        | Step::Fsopen { .. }
        | Step::FsconfigString { .. }
        | Step::FsconfigFlag { .. }
        | Step::FsconfigFd { .. }
        | Step::Fsmount { .. }
        | Step::RequestTree { .. }
        | Step::FsconfigModeOf { .. }
        | Step::CopyUp { .. }
        | Step::Fspick { .. }
        | Step::Reconfigure { .. }
        | Step::Label { .. }
        | Step::UnlinkIn { .. }
        | Step::MountSetattrUnlocked { .. }
        | Step::MountSetattrAbove { .. }
        | Step::OpenTreeOf { .. }
        | Step::MountSetattr { .. }
        | Step::MoveMount { .. }
        | Step::Mask { .. }
        | Step::ReadOnly { .. }
        | Step::Enter { .. }
        | Step::Fchdir { .. }
        | Step::JoinSessionKeyring { .. }
        | Step::Setsid
        | Step::Setpgid { .. }
        | Step::Tiocsctty { .. }
        | Step::Tcsetpgrp { .. }
        | Step::OpenPty { .. }
        | Step::Tiocswinsz { .. }
        | Step::ResetHandlers
        | Step::DefaultAction { .. }
        | Step::ExitOnSignal { .. }
        | Step::IgnoreSignal { .. }
        | Step::SignalMask { .. }
        | Step::ParentDeathSignal { .. }
        | Step::Unshare { .. }
        | Step::Setns { .. }
        | Step::CloneParent { .. }
        | Step::CloneAndReap { .. }
        | Step::VforkAndReap { .. }
        | Step::Sethostname { .. }
        | Step::Setdomainname { .. }
        | Step::LoopbackUp
        | Step::NewNet { .. }
        | Step::JoinNewNet
        | Step::Request { .. }
        | Step::RequestWith { .. }
        | Step::Setrlimit { .. }
        | Step::Setpriority { .. }
        | Step::SchedSetattr { .. }
        | Step::SchedSetaffinity { .. }
        | Step::IoprioSet { .. }
        | Step::SetMempolicy { .. }
        | Step::Personality { .. }
        | Step::Setgroups { .. }
        | Step::Setresgid { .. }
        | Step::Setresuid { .. }
        | Step::NoNewPrivs
        | Step::ForgetMemory
        | Step::Undumpable
        | Step::DropBounding { .. }
        | Step::KeepCaps { .. }
        | Step::Capset { .. }
        | Step::RaiseAmbient { .. }
        | Step::LandlockRuleset { .. }
        | Step::LandlockAllow { .. }
        | Step::LandlockRestrict { .. }
        | Step::Seccomp { .. }
        | Step::SeccompListener { .. }
        | Step::OpenSeccompListener { .. }
        | Step::Park { .. } => false,
    }
}

/// While the old root is mounted on the new one, `..` leads to the host's files. Afterwards an image decides what a
/// name means.
#[test]
fn plan_resolves_no_path_after_a_change_of_root() {
    let mut plans: Vec<_> = [PathAccess::Read, PathAccess::Write, PathAccess::Overlay].map(image).to_vec();
    let (profile, host) = image(PathAccess::Read);
    plans.push((profile, Host { lacks_places: false, ..host }));
    plans.push(of_bundle());
    let streams = [
        Streams::Callers,
        Streams::Terminal,
        Streams::ForegroundTerminal,
        Streams::Captured { output: Fd::STDOUT, errors: Fd::STDOUT },
        Streams::Heard(Fd::STDOUT),
    ];
    for (profile, host) in &plans {
        for streams in streams {
            let memory = Bump::new();
            let listing = plan(profile, host, streams, &memory).unwrap();
            let is_change = |step: &Step<'_>| matches!(step, Step::PivotRoot { .. } | Step::Chroot { .. });
            let change = listing.steps.iter().position(is_change).expect("a change of root");
            let mut after = listing.steps.iter().skip(change + 1);
            let next = after.next().unwrap();
            assert!(matches!(next, Step::UmountDetach { target } if *target == c"."), "{listing}");
            let by_name: Vec<_> = after.filter(|step| looks_up_a_name(step)).collect();
            assert!(matches!(by_name[..], [Step::ExecveFirst { .. }]), "{listing}");
        }
    }
}

#[test]
fn impossible_options_are_refused() {
    let refusal = |profile: &Profile, host: &Host| {
        plan(profile, host, Streams::Callers, &Bump::new()).err().unwrap().to_string()
    };
    assert_eq!(refusal(&Profile::default(), &user()), "program: is missing");
    let shown = vec![Show { path: "f".into(), access: PathAccess::Overlay }];
    let found = vec![HostFile { path: "/srv/f".into(), is_directory: false, mode: 0o644 }];
    let host = Host { found, ..user() };
    assert_eq!(refusal(&Profile { shown, ..profile() }, &host), "overlay /srv/f: is not a directory");
}
