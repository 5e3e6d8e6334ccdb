//! Steps that only containers use: a root file system by descriptor, capabilities, seccomp, and waiting for
//! `start`.

use super::{
    OPEN_NULL, R0, after, after_in_namespaces, failure, fd, list, mount_tmpfs, mounts, permissions, text,
    with_privileges,
};
use crate::support::{Dir, needs_namespaces, needs_root, observe, own_root, program, skip, until_asleep};
use husk_script::hook::Failed;
use husk_script::report::{Failure, MOST_WORDS};
use husk_script::{MountPoint, PathInRoot, Request};
use husk_spawn::sys::at::Node;
use husk_spawn::sys::file::{Mode, OFlags};
use husk_spawn::sys::mount::{AttributeChange, Extent, MountAttributes, MountPropagationFlags};
use husk_spawn::sys::process::{Capabilities, KeepCaps, SockFilter};
use husk_spawn::sys::{CArray, CPtr, Errno, Fd, Gid, Uid};
use husk_spawn::{Command, HookCommand, Namespaces, Reason, Reg, Signal, Step};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::CStr;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;

const R1: Reg = Reg::new(1).unwrap();
const R2: Reg = Reg::new(2).unwrap();

/// Returns a step that stores a directory in the first register.
fn root(dir: &Dir) -> Step<'static> {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    Step::Open { path: text(dir.path()), flags, mode: Mode::empty(), out: R0 }
}

/// Returns a target path.
fn target(path: &str) -> PathInRoot<'static> {
    PathInRoot { path: text(path) }
}

#[test]
pub(crate) fn close_others() {
    let kept = File::open("/dev/zero").unwrap();
    let keep = Some(Fd::of(&kept));
    // Exec would close marked descriptors, so one that is found closed before was closed by the step.
    let close = Step::CloseOthers { first: Fd::FIRST_EXTRA, keep };
    let observed = after([OPEN_NULL, close, Step::KeepOnExec { fd: Fd::of(&kept) }]);
    assert_eq!(observed.fds()[&Fd::of(&kept).number()], Path::new("/dev/zero"));
    let gone = failure([OPEN_NULL, close, Step::Dup3 { from: R0.into(), to: fd(509) }]);
    assert!(gone.ends_with("-> 509: Bad file descriptor (os error 9)"), "{gone}");

    // Descriptors below `first` belong to the program and stay open.
    let at = |number| Step::Dup3 { from: Fd::STDIN.into(), to: fd(number) };
    let observed = after([at(509), at(510), Step::CloseOthers { first: fd(510), keep: None }]);
    assert_eq!(observed.fds().into_keys().last(), Some(509));

    // The channel is exempt: it stays open until the child has execed.
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let keep = Fd::of(&reader);
    let mut command = Command::new("true");
    command.notify_release().kill_on_drop();
    command.final_steps(list([
        Step::CloseOthers { first: Fd::FIRST_EXTRA, keep: Some(keep) },
        Step::Await { fd: keep.into() },
    ]));
    let mut child = command.spawn().unwrap();
    until_asleep(&format!("/proc/{}", child.id()));
    let mut polled = [PollFd::from_borrowed_fd(child.release_fd().unwrap(), PollFlags::IN)];
    assert_eq!(poll(&mut polled, Some(&Timespec::default())).unwrap(), 0);
    drop(writer);
    assert!(child.wait().unwrap().success());
}

#[test]
pub(crate) fn open_in_root() {
    let dir = Dir::new();
    fs::create_dir_all(dir.join("a/b")).unwrap();
    std::os::unix::fs::symlink("/a", dir.join("link")).unwrap();
    let open = |path| Step::OpenInRoot { root: R0.into(), path, out: R1 };
    let observed = after([root(&dir), open(c"link/b"), Step::Fchdir { directory: R1.into() }]);
    assert_eq!(observed.link("cwd"), dir.join("a/b"), "the link leads to /a of the root");
    let above = after([root(&dir), open(c"../../.."), Step::Fchdir { directory: R1.into() }]);
    assert_eq!(above.link("cwd"), dir.path(), "there is nothing above the root");
    assert!(
        failure([OPEN_PROC, open(c"self/cwd")]).ends_with("(os error 40)"),
        "a magic link is not followed"
    );
}

#[test]
pub(crate) fn enter() {
    let dir = Dir::new();
    fs::create_dir(dir.join("a")).unwrap();
    fs::create_dir(dir.join("b")).unwrap();
    let enter = |path, tolerate| Step::Enter { root: R0.into(), path, entered: R1, tolerate };
    let observed = after([root(&dir), enter(c"a", None), enter(c"b", None)]);
    assert_eq!(observed.link("cwd"), dir.join("a"), "the entered directory stays current");
    let observed = after([root(&dir), enter(c"missing", Some(Errno::NOENT)), enter(c"b", None)]);
    assert_eq!(observed.link("cwd"), dir.join("b"), "a failed directory is left to the next step");
    assert!(failure([root(&dir), enter(c"missing", None)]).ends_with("(os error 2)"));
}

const OPEN_PROC: Step<'static> =
    Step::Open { path: c"/proc", flags: OFlags::PATH, mode: Mode::empty(), out: R0 };

#[test]
pub(crate) fn ensure_directory() {
    let dir = Dir::new();
    let host = Dir::new();
    std::os::unix::fs::symlink(host.join("made"), dir.join("evil")).unwrap();
    let ensure = |path| Step::EnsureDirectory { root: R0.into(), target: target(path), out: R1 };
    after([root(&dir), ensure("a/b"), ensure("a/b")]);
    assert_eq!([permissions(dir.join("a")), permissions(dir.join("a/b"))], [0o755, 0o755]);
    // A dangling symlink resolves within the root, where its target is created.
    after([root(&dir), ensure("evil/b")]);
    assert!(dir.join(host.join("made/b").strip_prefix("/").unwrap()).is_dir());
    assert_eq!(fs::read_dir(host.path()).unwrap().count(), 0);
    std::os::unix::fs::symlink("../../../x/.././y/", dir.join("a/up")).unwrap();
    after([root(&dir), ensure("a/up/z")]);
    assert!(dir.join("y/z").is_dir() && dir.join("x").is_dir());
    fs::write(dir.join("file"), "").unwrap();
    assert!(failure([root(&dir), ensure("file/b")]).ends_with("file/b: Not a directory (os error 20)"));
}

#[test]
pub(crate) fn fsconfig_fd() {
    needs_namespaces!();
    let dir = Dir::new();
    let other = observe(|command| own_root(command).new_namespaces(Namespaces::PID | Namespaces::MOUNT));
    let namespace = |name| File::open(format!("/proc/{}/ns/{name}", other.child.id())).unwrap();
    let [user, mnt, pid] = ["user", "mnt", "pid"].map(namespace);
    let join = |fd: &File, namespaces| Step::Setns { fd: Fd::of(fd).into(), namespaces };
    let steps = [
        join(&user, Namespaces::USER),
        join(&mnt, Namespaces::MOUNT),
        root(&dir),
        Step::Fsopen { fstype: c"proc", out: R1 },
        Step::FsconfigFd { fs: R1, key: c"pidns", fd: Fd::of(&pid).into() },
        Step::Fsmount { fs: R1, attributes: MountAttributes::EMPTY },
        Step::Attach { mount: R1, root: R0.into(), target: target("there"), place: MountPoint::Directory },
    ];
    let mut command = Command::new("ls");
    command.arg(dir.join("there")).final_steps(list(steps));
    let output = match command.output() {
        Err(error) if error.act().starts_with("fsconfig") => skip!("needs Linux 6.17, for {error}"),
        output => output.unwrap(),
    };
    // The only process of the other namespace, seen from outside.
    let names = String::from_utf8(output.stdout).unwrap();
    let pids: Vec<_> = names.lines().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).collect();
    assert_eq!(pids, ["1"], "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
pub(crate) fn attach() {
    needs_namespaces!();
    let dir = Dir::new();
    fs::write(dir.join("file"), "seen").unwrap();
    let observed = after_in_namespaces([
        root(&dir),
        Step::Fsopen { fstype: c"tmpfs", out: R1 },
        Step::FsconfigString { fs: R1, key: c"size", value: c"64k" },
        Step::FsconfigFlag { fs: R1, key: c"ro" },
        Step::Fsmount { fs: R1, attributes: MountAttributes::NOSUID | MountAttributes::NODEV },
        Step::Attach { mount: R1, root: R0.into(), target: target("a/b"), place: MountPoint::Directory },
        Step::OpenTree { path: text(dir.join("file")), extent: Extent::Top, out: R1 },
        Step::Attach { mount: R1, root: R0.into(), target: target("c/d"), place: MountPoint::File },
    ]);
    let [(at, tmpfs), (file, _)] = &mounts(&observed, dir.path())[..] else { panic!("two mounts") };
    assert_eq!((Path::new(at), Path::new(file)), (&*dir.join("a/b"), &*dir.join("c/d")));
    assert!(tmpfs.starts_with("rw,nosuid,nodev") && tmpfs.contains(" ro,size=64k"), "{tmpfs}");
}

/// Returns what is mounted at or below `to`. The tree has a mount below `from`, and `steps` were performed
/// with a copy of `from` in the second register.
fn copied<const N: usize>(extent: Extent, steps: [Step<'static>; N]) -> Vec<(String, String)> {
    let dir = Dir::new();
    for name in ["from/below", "to"] {
        fs::create_dir_all(dir.join(name)).unwrap();
    }
    let (from, to) = (text(dir.join("from")), text(dir.join("to")));
    let below = mount_tmpfs(&dir.join("from/below"));
    let observed = observe(|command| {
        with_privileges(command).final_steps(move |writer| {
            writer.push(below);
            writer.push(Step::OpenTree { path: from, extent, out: R1 });
            steps.into_iter().for_each(|step| writer.push(step));
            writer.push(Step::Open { path: to, flags: OFlags::PATH, mode: Mode::empty(), out: R2 });
            writer.push(Step::MoveMount { mount: R1.into(), target: R2.into() });
            Ok(())
        })
    });
    mounts(&observed, &dir.join("to"))
}

#[test]
pub(crate) fn open_tree_move_mount_and_setattr() {
    needs_namespaces!();
    let setattr =
        |extent, change, propagation| [Step::MountSetattr { mount: R1.into(), extent, change, propagation }];
    let read_only = |extent| {
        setattr(extent, AttributeChange::set(MountAttributes::RDONLY), MountPropagationFlags::empty())
    };
    assert_eq!(copied(Extent::Top, []).len(), 1);
    let all = copied(Extent::All, read_only(Extent::All));
    assert_eq!(all.len(), 2, "the mount below is attached too");
    assert!(all.iter().all(|(_, line)| line.starts_with("ro,")), "{all:?}");
    let top = copied(Extent::All, read_only(Extent::Top));
    assert!(top[0].1.starts_with("ro,") && top[1].1.starts_with("rw,"), "{top:?}");

    let [_, below] = &copied(Extent::All, [])[..] else { panic!("two mounts") };
    assert!(below.1.contains("nodev") && !below.1.contains("shared"), "{below:?}");
    let dev = AttributeChange { clear: MountAttributes::NODEV, ..AttributeChange::NONE };
    let shared = setattr(Extent::All, dev, MountPropagationFlags::SHARED);
    let [_, below] = &copied(Extent::All, shared)[..] else { panic!("two") };
    assert!(!below.1.contains("nodev") && below.1.contains(" shared:"), "{below:?}");
}

#[test]
pub(crate) fn mask_and_read_only() {
    needs_namespaces!();
    let dir = Dir::new();
    for name in ["one", "two", "three"] {
        fs::create_dir(dir.join(name)).unwrap();
        fs::write(dir.join(name).join("secret"), "").unwrap();
    }
    fs::create_dir(dir.join("three/below")).unwrap();
    fs::write(dir.join("file"), "secret").unwrap();
    let null = Step::Open { path: c"/dev/null", flags: OFlags::PATH, mode: Mode::empty(), out: R1 };
    let mask = |path| Step::Mask { root: R0.into(), path, null: R1.into(), empty: R2 };
    let read_only = |path| Step::ReadOnly { root: R0.into(), path };
    let observed = after_in_namespaces([
        root(&dir),
        null,
        mask(c"one"),
        mask(c"two"),
        mask(c"file"),
        mask(c"gone"),
        mount_tmpfs(&dir.join("three/below")),
        read_only(c"three"),
        read_only(c"gone"),
    ]);
    let seen = |name: &str| {
        Path::new("/proc")
            .join(observed.child.id().to_string())
            .join("root")
            .join(dir.join(name).strip_prefix("/").unwrap())
    };
    for name in ["one", "two"] {
        assert_eq!(fs::read_dir(seen(name)).unwrap().count(), 0, "{name}");
    }
    assert_eq!(fs::read_to_string(seen("file")).unwrap(), "");
    // Both are the same empty directory, in which nothing can be created.
    assert_eq!(fs::metadata(seen("one")).unwrap().dev(), fs::metadata(seen("two")).unwrap().dev());
    let sealed = |name: &str| mounts(&observed, &dir.join(name))[0].1.starts_with("ro,nosuid,nodev,noexec");
    assert!(sealed("one") && sealed("two"));
    for name in ["three/new", "three/below/new"] {
        let error = fs::write(seen(name), "").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem, "{name}");
    }
    // The file that covers another must be the null device, whatever its name.
    let zero = Step::Open { path: c"/dev/zero", flags: OFlags::PATH, mode: Mode::empty(), out: R1 };
    let mut command = Command::new("true");
    let error = with_privileges(&mut command).final_steps(list([root(&dir), zero, mask(c"file")])).status();
    assert_eq!(error.unwrap_err().reason(), Reason::Errno(Errno::NODEV));
}

#[test]
pub(crate) fn mknod_and_symlink_in() {
    let dir = Dir::new();
    let link = |tolerate| Step::SymlinkIn { directory: R0.into(), name: c"link", target: c"where", tolerate };
    after([root(&dir), link(None), link(Some(Errno::EXIST))]);
    assert_eq!(fs::read_link(dir.join("link")).unwrap(), Path::new("where"));
    // A device node.
    needs_root!();
    let (node, mode) = (Node::Character(1, 5), Mode::from(0o640));
    let (uid, gid) = (Uid::from_raw(3), Gid::from_raw(4));
    after([root(&dir), Step::Mknod { directory: R0.into(), name: c"node", node, mode, uid, gid }]);
    let metadata = fs::symlink_metadata(dir.join("node")).unwrap();
    assert_eq!((metadata.rdev(), metadata.uid(), metadata.gid()), (0x105, 3, 4));
    assert_eq!(permissions(dir.join("node")), 0o640);
}

#[test]
pub(crate) fn capabilities() {
    needs_root!();
    let (chown, kill) = (1, 1 << 5);
    let observed = after([
        Step::DropBounding { keep: chown | kill },
        Step::KeepCaps { keep: KeepCaps::Yes },
        Step::Setresuid { uid: Uid::from_raw(12) },
        Step::Capset {
            capabilities: Capabilities { effective: chown, permitted: chown | kill, inheritable: kill },
        },
        Step::RaiseAmbient { capabilities: kill },
    ]);
    let set = |name| u64::from_str_radix(&observed.status(name), 16).unwrap();
    assert_eq!(
        ["CapBnd", "CapInh", "CapAmb", "CapPrm", "CapEff"].map(set),
        [chown | kill, kill, kill, kill, kill]
    );
}

#[test]
pub(crate) fn open_device() {
    needs_namespaces!();
    let open = |path, minor| Step::OpenDevice { path, node: Node::Character(1, minor), out: R0 };
    let end = Step::Chdir { path: c"/no" };
    let failure = |step| {
        let mut command = Command::new("true");
        with_privileges(&mut command).final_steps(list([step, end]));
        command.status().unwrap_err().to_string()
    };
    assert_eq!(failure(open(c"/dev/null", 3)), "cwd /no: No such file or directory (os error 2)");
    assert_eq!(
        failure(open(c"/dev/null", 5)),
        "r0 = open-device /dev/null c 1:5: No such device (os error 19)"
    );
    assert!(failure(open(c"/etc/passwd", 3)).contains("No such device"));
}

#[test]
pub(crate) fn seccomp() {
    // Allows every call.
    let program: &[SockFilter] = &[SockFilter { code: 6, jt: 0, jf: 0, k: 0x7fff_0000 }];
    let observed = after([Step::NoNewPrivs, Step::Seccomp { flags: 0, program }]);
    assert_eq!(observed.status("Seccomp"), "2");
    let refused = failure([Step::NoNewPrivs, Step::Seccomp { flags: 0, program: &[] }]);
    assert_eq!(refused, "seccomp 0 instructions: Invalid argument (os error 22)");
}

#[test]
pub(crate) fn landlock() {
    if husk_script::sys::landlock::abi().is_err() {
        skip!("needs Landlock");
    }
    // WRITE_FILE, MAKE_DIR and MAKE_REG; only WRITE_FILE also applies to files.
    const RIGHTS: u64 = 0x182;
    let (dir, other) = (Dir::new(), Dir::new());
    let file = other.join("file");
    fs::write(&file, "").unwrap();
    let open = |path, flags, out| Step::Open { path, flags, mode: Mode::from_raw_mode(0o644), out };
    let (path, write) = (text(&file), OFlags::WRONLY);
    let make = |path| open(path, write | OFlags::CREATE, R2);
    let restrict = [
        Step::LandlockRuleset { handled: RIGHTS, scoped: 0, out: R1 },
        Step::LandlockAllow { ruleset: R1.into(), beneath: R0.into(), rights: RIGHTS, tolerate: None },
        Step::NoNewPrivs,
        Step::LandlockRestrict { ruleset: R1.into() },
    ];
    let [ruleset, allow, no_new_privs, restricted] = restrict;
    let of = |opened, then| {
        failure([opened, ruleset, allow, no_new_privs, restricted, then, Step::Chdir { path: c"/no" }])
    };
    let root = root(&dir);
    let (inside, outside) = (text(dir.join("made")), text(other.join("made")));
    let passed = "cwd /no: No such file or directory (os error 2)";
    assert_eq!(of(root, make(inside)), passed);
    assert!(of(root, make(outside)).ends_with("Permission denied (os error 13)"));
    assert!(of(root, open(path, write, R2)).ends_with("Permission denied (os error 13)"));
    // A rule for a file grants only the rights that apply to files.
    assert_eq!(of(open(path, OFlags::PATH, R0), open(path, write, R2)), passed);
    assert!(of(open(path, OFlags::PATH, R0), make(inside)).ends_with("Permission denied (os error 13)"));

    // A pipe has no path.
    let (reader, _writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let pipe = |tolerate| Step::LandlockAllow {
        ruleset: R1.into(),
        beneath: Fd::of(&reader).into(),
        rights: RIGHTS,
        tolerate,
    };
    let end = Step::Chdir { path: c"/no" };
    assert!(failure([ruleset, pipe(None), end]).contains("File descriptor in bad state"));
    assert_eq!(failure([ruleset, pipe(Some(Errno::BADFD)), end]), passed);
}

#[test]
pub(crate) fn check_executable_and_execve_first() {
    let dir = Dir::new();
    let [good, plain] = ["good", "plain"].map(|name| text(dir.join(name)));
    dir.program("good", program::exits(42));
    fs::write(dir.join("plain"), "").unwrap();
    let argv = || CArray::new(vec![c"zero".into(), CPtr::NULL].leak()).unwrap();
    let exec = |candidates| Step::ExecveFirst { candidates, argv: argv(), envp: argv() };
    let candidates: &[&CStr] = vec![c"/no/such", c"/dev/null/no", plain, c"/", good].leak();
    let steps = [Step::CheckExecutable { candidates }, exec(candidates)];
    assert_eq!(Command::new("true").final_steps(list(steps)).status().unwrap().code(), Some(42));
    let reason = |candidates: Vec<&'static CStr>| {
        let candidates = candidates.leak();
        let steps = list([Step::CheckExecutable { candidates }]);
        Command::new("true").final_steps(steps).status().unwrap_err().reason()
    };
    assert_eq!(reason(vec![c"/no/such"]), Reason::Errno(Errno::NOENT));
    assert_eq!(reason(vec![plain, c"/no/such"]), Reason::Errno(Errno::ACCESS));
    assert_eq!(reason(vec![c"/"]), Reason::Errno(Errno::ISDIR), "a directory is not executable");
    assert_eq!(
        reason(vec![c"/dev/null/no"]),
        Reason::Errno(Errno::NOTDIR),
        "the error of the only candidate"
    );
    assert_eq!(reason(vec![c"/no/such", c"/dev/null/no"]), Reason::Errno(Errno::NOENT));
    assert_eq!(reason(vec![c"/proc/self/exe"]), Reason::Errno(Errno::LOOP), "a magic link is not followed");
}

#[test]
pub(crate) fn park() {
    let dir = Dir::new();
    let listener = UnixListener::bind(dir.join("socket")).unwrap();
    let parked = |then| {
        let death = Step::ParentDeathSignal { signal: Signal::KILL, parent: None };
        let steps = [death, Step::Park { listener: Fd::of(&listener) }, Step::Chdir { path: then }];
        let mut child = Command::new("true").notify_release().final_steps(list(steps)).spawn().unwrap();
        assert_eq!(child.next_request().unwrap(), Some(Request::Parked));
        child.go_on().unwrap();
        // From now on no death of another process kills it, so the thread that started it may end.
        assert_eq!(child.next_request().unwrap(), None);
        child
    };
    let made_by_thread = |then| thread::scope(|scope| scope.spawn(|| parked(then)).join().unwrap());

    let mut child = made_by_thread(c"/");
    assert!(!child.is_released());
    let mut started = UnixStream::connect(dir.join("socket")).unwrap();
    assert_eq!(started.read(&mut [0]).unwrap(), 0, "exec closes the connection");
    assert!(child.wait().unwrap().success());

    let mut child = made_by_thread(c"/no/such");
    let mut started = UnixStream::connect(dir.join("socket")).unwrap();
    let mut failure = [0; Failure::SIZE];
    started.read_exact(&mut failure).unwrap();
    let error = child.wait().unwrap_err();
    let step = u32::try_from(error.step().unwrap()).unwrap();
    let wanted = Failure { step, errno: Errno::NOENT.raw_os_error() };
    assert_eq!(Failure::from_bytes(failure), wanted, "the parent receives the failure");
    assert_eq!(error.act(), "cwd /no/such");
}

#[test]
pub(crate) fn hook() {
    let dir = Dir::new();
    let words = |words: &[&str]| -> CArray<'static> {
        let words = words.iter().map(|word| CPtr::from(text(word))).chain([CPtr::NULL]);
        CArray::new(words.collect::<Vec<_>>().leak()).unwrap()
    };
    let after = |path: &str, script: &str, timeout_seconds| {
        let argv = words(&["name", "-c", script]);
        let state: [&[u8]; 2] = [b"before ", b" after"];
        let hook = HookCommand {
            path: text(path),
            argv,
            envp: words(&["A=1"]),
            state,
            streams: [None; 2],
            timeout_seconds,
        };
        let steps = [Step::Hook { hook: Box::leak(Box::new(hook)) }];
        Command::new("true").notify_release().final_steps(list(steps)).spawn().unwrap()
    };
    let file = dir.join("said");
    let script = format!("cat > {0}; echo \" $0 $A\" >> {0}; ls /proc/self/fd >> {0}", file.display());
    let mut child = after("/bin/sh", &script, Some(100));
    assert!(child.wait().unwrap().success());
    // The fourth descriptor is that of the directory listing.
    let wanted = format!("before {} after name 1\n0\n1\n2\n3\n", child.id());
    assert_eq!(fs::read_to_string(file).unwrap(), wanted);

    let fails = |path, script, timeout| {
        let mut child = after(path, script, timeout);
        let reason = child.wait().unwrap_err().reason();
        (reason, String::from_utf8(child.failure_output().to_vec()).unwrap())
    };
    let said = |words: &str| words.to_owned();
    let failed = fails("/bin/sh", "echo out; echo err >&2; exit 3", None);
    assert_eq!(failed, (Reason::Hook(Failed::Exited(3)), said("out\nerr\n")));
    assert_eq!(fails("/bin/sh", "kill -9 $$", None), (Reason::Hook(Failed::Killed(9)), said("")));
    let hangs = fails("/bin/sh", "exec tail -f /dev/null", Some(1));
    assert_eq!(hangs, (Reason::Hook(Failed::TimedOut), said("")));
    assert_eq!(fails("/no/such", "", None), (Reason::Errno(Errno::NOENT), said("")));
    // Of long output, only the end is kept.
    let (_, long) = fails("/bin/sh", "seq 100000; exit 1", None);
    assert!(long.len() == MOST_WORDS && long.ends_with("\n99999\n100000\n"), "{long}");
}
