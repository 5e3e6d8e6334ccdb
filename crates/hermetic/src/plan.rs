//! A profile as a list of steps.
//!
//! All that is mounted is the child's alone, and so is what it may do to it: it has made the namespaces. So
//! paths are looked up by name. What has to be open before it is covered is opened first.

use crate::environment;
use crate::filter;
use crate::host::{Found, Host, Procfs};
use crate::profile::{Access, Net, Profile};
use crate::view::{self, Cover};
use bumpalo::Bump;
use husk_plan::{Builder, Error, Plan};
use husk_script::sys::file::{Mode, OFlags};
use husk_script::sys::limits::{Resource, Rlimit};
use husk_script::sys::mount::{Extent, MountFlags, MountPropagationFlags};
use husk_script::sys::namespace::Namespaces;
use husk_script::sys::signal::{Signal, SignalSet};
use husk_script::sys::{CArray, Fd};
use husk_script::{Reg, Request, Step};
use std::ffi::{CStr, OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// A name that is the same everywhere and that every machine can resolve.
const HOSTNAME: &[u8] = b"localhost";

/// `MOUNT_ATTR_RDONLY`, `MOUNT_ATTR_NOSUID`, `MOUNT_ATTR_NODEV`.
const RDONLY: u64 = 0x1;
const NOSUID: u64 = 0x2;
const NODEV: u64 = 0x4;

/// The devices that every program may expect.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

const LINKS: [(&CStr, &CStr); 5] = [
    (c"/proc/self/fd", c"fd"),
    (c"/proc/self/fd/0", c"stdin"),
    (c"/proc/self/fd/1", c"stdout"),
    (c"/proc/self/fd/2", c"stderr"),
    (c"pts/ptmx", c"ptmx"),
];

/// Signals whose being ignored a caller hands on.
const INHERITED: [Signal; 7] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::PIPE, Signal::TERM, Signal::CHLD, Signal::TSTP];

/// A program's standard streams.
#[derive(Clone, Copy)]
pub enum Streams {
    /// The caller's.
    Callers,
    /// An empty one to read from, and this one of the caller's to write to.
    Captured(Fd),
    /// The caller's, but for this one of the caller's as standard output.
    Heard(Fd),
}

/// Writes the plan of a program into `memory`.
///
/// The order of these lines is the order of the system calls. A line that must stand where it stands says
/// why.
///
/// # Errors
///
/// If something that is asked for cannot be done.
pub fn plan<'b>(
    profile: &Profile,
    host: &Host,
    streams: Streams,
    memory: &'b Bump,
) -> Result<Plan<'b>, Error> {
    let mut plan = Builder::new(memory);
    plan.at("signals");
    INHERITED.into_iter().for_each(|signal| plan.push(Step::DefaultAction { signal }));
    ids(host, &mut plan);
    // Not before ids are mapped, which undumpable memory may not: who is in the namespaces must not look through
    // their first process into memory that it shares.
    plan.at("init").push(Step::Undumpable);
    // Nothing of it outlives us.
    plan.push(Step::ParentDeathSignal { signal: Signal::KILL, parent: None });
    plan.at("hostname").push(Step::Sethostname { name: HOSTNAME });
    if profile.net == Net::Loopback {
        plan.at("net").push(Step::LoopbackUp);
    }
    // What is made is made with the permissions that are asked for.
    plan.at("files").push(Step::Umask { mask: Mode::empty() });
    files(profile, host, &mut plan)?;
    plan.at("cwd");
    let cwd = plan.text(&host.cwd)?;
    plan.push(Step::Chdir { path: cwd });
    plan.at("umask").push(Step::Umask { mask: Mode::from_raw_mode(0o022) });
    if let Streams::Captured(output) = streams {
        plan.at("streams");
        let input = plan.register()?;
        plan.push(Step::Open { path: c"/dev/null", flags: OFlags::RDONLY, mode: Mode::empty(), out: input });
        plan.push(Step::Dup3 { from: input.into(), to: Fd::STDIN });
        plan.push(Step::Dup3 { from: output.into(), to: Fd::STDOUT });
        plan.push(Step::Dup3 { from: output.into(), to: Fd::STDERR });
        plan.release(input);
    }
    if let Streams::Heard(output) = streams {
        plan.at("streams").push(Step::Dup3 { from: output.into(), to: Fd::STDOUT });
    }
    // What the caller has open is the host's, but for the standard streams.
    plan.at("init").push(Step::CloseOthers { first: Fd::FIRST_EXTRA, keep: None });

    plan.push(Step::CloneAndReap);
    // From here on in the process that becomes the program. A session of its own: a signal to its process
    // group does not reach who started it, nor does what it types reach their terminal.
    plan.at("session").push(Step::Setsid);
    if host.cgroup {
        // Not before: when memory is short there, the kernel must not come upon a process that shares ours.
        plan.at("limits").push(Step::Request { what: Request::Cgroup });
        plan.push(Step::Unshare { namespaces: Namespaces::CGROUP });
    }
    limits(profile, host, &mut plan);
    // An ordinary user's are lost in exec.
    if host.uid == 0 {
        plan.at("capabilities").push(Step::DropBounding { keep: 0 });
    }
    plan.at("seccomp").push(Step::NoNewPrivs);
    seccomp(&mut plan)?;
    plan.at("signals").push(Step::SignalMask { blocked: SignalSet::EMPTY });
    exec(profile, host, &mut plan)?;
    Ok(plan.finish(namespaces(profile, host)))
}

fn namespaces(profile: &Profile, host: &Host) -> Namespaces {
    let always = Namespaces::MOUNT | Namespaces::PID | Namespaces::IPC | Namespaces::UTS;
    // One has the cgroup as its root that its maker is in.
    let cgroup = if host.cgroup { Namespaces::EMPTY } else { Namespaces::CGROUP };
    let user = if host.user_namespace { Namespaces::USER } else { Namespaces::EMPTY };
    let net = if profile.net == Net::Host { Namespaces::EMPTY } else { Namespaces::NET };
    always | cgroup | user | net
}

/// The caller's ids and no other, which takes no privilege: files that the program writes are the caller's.
fn ids(host: &Host, plan: &mut Builder<'_>) {
    if !host.user_namespace {
        return;
    }
    plan.at("ids");
    let mut write = |path, text: &str| {
        let bytes = plan.slice(text.as_bytes());
        plan.push(Step::WriteFile { path, bytes, tolerate: None });
    };
    write(c"/proc/self/uid_map", &format!("{0} {0} 1", host.uid));
    // The price of a map without privileges (user_namespaces(7)).
    write(c"/proc/self/setgroups", "deny");
    write(c"/proc/self/gid_map", &format!("{0} {0} 1", host.gid));
}

/// Something of the host that is to be seen where it is, opened before it is covered or made read-only.
struct Tree<'p> {
    path: &'p Path,
    is_directory: bool,
    mount: Reg,
}

fn files(profile: &Profile, host: &Host, plan: &mut Builder<'_>) -> Result<(), Error> {
    let covers = view::covers(host);
    let is_covered = |path: &Path| view::place(path, &covers).is_some();
    let shown: Vec<_> = profile.shown.iter().zip(&host.found).collect();

    // Before everything becomes read-only.
    let mut trees = Vec::new();
    for (show, found) in &shown {
        if show.access == Access::Write {
            plan.at(format!("write {}", found.path.display()));
            let tree = open(&found.path, found.is_directory, plan)?;
            let propagation = u64::from(MountPropagationFlags::PRIVATE.bits());
            let (set, extent) = (NOSUID | NODEV, Extent::All);
            plan.push(Step::MountSetattr { mount: tree.mount.into(), extent, set, clear: 0, propagation });
            trees.push(tree);
        }
    }
    plan.at("dev");
    let mut devices = Vec::new();
    for name in DEVICES {
        let mount = plan.register()?;
        let path = plan.text(Path::new("/dev").join(name))?;
        plan.push(Step::OpenTree { path, extent: Extent::Top, out: mount });
        devices.push((name, mount));
    }
    plan.at("files");
    let root = plan.register()?;
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    plan.push(Step::Open { path: c"/", flags, mode: Mode::empty(), out: root });
    plan.push(Step::MountSetattr {
        mount: root.into(),
        extent: Extent::All,
        set: RDONLY | NOSUID | NODEV,
        clear: 0,
        propagation: u64::from(MountPropagationFlags::PRIVATE.bits()),
    });
    plan.release(root);

    // Now, so that they are read-only too, and before they are covered.
    let is_written = |path: &Path| trees.iter().any(|tree| path.starts_with(tree.path));
    let mut seen = Vec::new();
    if is_covered(&host.project) && host.cwd.starts_with(&host.project) && !is_written(&host.project) {
        plan.at(format!("cwd {}", host.project.display()));
        seen.push(open(&host.project, true, plan)?);
    }
    for (show, found) in &shown {
        let wanted = matches!(show.access, Access::Read | Access::Overlay);
        if wanted && is_covered(&found.path) && !seen.iter().any(|tree| found.path.starts_with(tree.path)) {
            plan.at(format!("read {}", found.path.display()));
            seen.push(open(&found.path, found.is_directory, plan)?);
        }
    }
    seen.append(&mut trees);
    cover(profile, host, &covers, &seen, plan)?;
    let overlays = shown.iter().filter(|(show, _)| show.access == Access::Overlay);
    let overlays = overlays.map(|(_, found)| Layer::Overlay(found));
    let mut layers: Vec<_> = seen.iter().map(Layer::Tree).chain(overlays).collect();
    // What is in another after that one.
    layers.sort_by_key(|layer| layer.path().components().count());
    for (index, layer) in layers.into_iter().enumerate() {
        match layer {
            Layer::Tree(tree) => put(tree, plan)?,
            Layer::Overlay(found) => overlay(index, found, plan)?,
        }
    }
    dev(devices, plan)?;
    plan.at("proc");
    if host.procfs == Procfs::Own {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        plan.push(Step::Mount { source: c"proc", target: c"/proc", fstype: c"proc", flags, data: c"" });
        if host.uid == 0 {
            settings(plan)?;
        }
    }
    let is_seen = |path: &Path| !is_covered(path) || seen.iter().any(|tree| path.starts_with(tree.path));
    for (_, found) in shown.iter().filter(|(show, found)| show.access == Access::Hide && is_seen(&found.path))
    {
        hide(found, plan)?;
    }
    Ok(())
}

fn open<'p>(path: &'p Path, is_directory: bool, plan: &mut Builder<'_>) -> Result<Tree<'p>, Error> {
    let mount = plan.register()?;
    let text = plan.text(path)?;
    plan.push(Step::OpenTree { path: text, extent: Extent::All, out: mount });
    Ok(Tree { path, is_directory, mount })
}

/// Covers directories with the program's own. They are in one file system, whose root is mounted on `/tmp` and
/// is where relative paths begin until the last of them covers that: it is nowhere to be seen afterwards.
fn cover(
    profile: &Profile,
    host: &Host,
    covers: &[Cover],
    seen: &[Tree<'_>],
    plan: &mut Builder<'_>,
) -> Result<(), Error> {
    plan.at("own files");
    let size = profile.limits.disk.map(|bytes| format!(",size={bytes}")).unwrap_or_default();
    let data = plan.text(format!("mode=755{size}"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    plan.push(Step::Mount { source: c"tmpfs", target: c"/tmp", fstype: c"tmpfs", flags, data });
    plan.push(Step::Chdir { path: c"/tmp" });
    // What lies in another that is shown is there already.
    let is_alone = |tree: &&Tree<'_>| {
        !seen.iter().any(|other| other.path != tree.path && tree.path.starts_with(other.path))
    };
    let parents = seen.iter().filter(is_alone);
    let parents =
        parents.filter_map(|tree| if tree.is_directory { Some(tree.path) } else { tree.path.parent() });
    for made in view::directories(host, covers, parents) {
        mkdir(&made.path, made.mode, plan)?;
    }
    for tree in seen.iter().filter(is_alone).filter(|tree| !tree.is_directory) {
        if let Some(place) = view::place(tree.path, covers) {
            let path = plan.text(place)?;
            let out = plan.register()?;
            let flags = OFlags::CREATE | OFlags::RDONLY;
            plan.push(Step::Open { path, flags, mode: Mode::from_raw_mode(0o644), out });
            plan.release(out);
        }
    }
    for cover in covers {
        let (source, target) = (plan.text(cover.name)?, plan.text(&cover.path)?);
        plan.push(Step::MountBind { source, target });
    }
    Ok(())
}

fn mkdir(path: &Path, mode: u32, plan: &mut Builder<'_>) -> Result<(), Error> {
    let path = plan.text(path)?;
    plan.push(Step::Mkdir { path, mode: Mode::from_raw_mode(mode), tolerate: None });
    Ok(())
}

/// Something of the host, at its place.
enum Layer<'t> {
    /// As it is.
    Tree(&'t Tree<'t>),
    /// What is written to it is thrown away.
    Overlay(&'t Found),
}

impl Layer<'_> {
    fn path(&self) -> &Path {
        match self {
            Self::Tree(tree) => tree.path,
            Self::Overlay(found) => &found.path,
        }
    }
}

/// Puts a mount that is nowhere yet where it is on the host.
fn put(tree: &Tree<'_>, plan: &mut Builder<'_>) -> Result<(), Error> {
    plan.at(format!("show {}", tree.path.display()));
    let (path, out) = (plan.text(tree.path)?, plan.register()?);
    plan.push(Step::Open { path, flags: OFlags::PATH, mode: Mode::empty(), out });
    plan.push(Step::MoveMount { mount: tree.mount.into(), target: out.into() });
    plan.release(out);
    plan.release(tree.mount);
    Ok(())
}

/// Covers a directory with itself. What is written lies in the program's own file system, where nobody finds it.
fn overlay(index: usize, found: &Found, plan: &mut Builder<'_>) -> Result<(), Error> {
    plan.at(format!("overlay {}", found.path.display()));
    if !found.is_directory {
        return Err(plan.error("is no directory"));
    }
    let [upper, work] = ["upper", "work"].map(|name| format!("{name}-{index}"));
    mkdir(Path::new(&upper), 0o755, plan)?;
    mkdir(Path::new(&work), 0o755, plan)?;
    let mut data = OsString::from("lowerdir=");
    data.push(escaped(&found.path));
    data.push(format!(",upperdir={upper},workdir={work},userxattr"));
    let (target, data) = (plan.text(&found.path)?, plan.text(data)?);
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    plan.push(Step::Mount { source: c"overlay", target, fstype: c"overlay", flags, data });
    Ok(())
}

/// A path as overlayfs reads it: commas separate options, colons layers.
fn escaped(path: &Path) -> OsString {
    let bytes = path.as_os_str().as_bytes().iter().flat_map(|byte| match byte {
        b'\\' | b',' | b':' => vec![b'\\', *byte],
        _ => vec![*byte],
    });
    OsStr::from_bytes(&bytes.collect::<Vec<_>>()).to_owned()
}

/// Devices, terminals and shared memory.
fn dev(devices: Vec<(&str, Reg)>, plan: &mut Builder<'_>) -> Result<(), Error> {
    plan.at("dev").push(Step::Chdir { path: c"/dev" });
    for (name, mount) in devices {
        let (path, out) = (plan.text(name)?, plan.register()?);
        let flags = OFlags::CREATE | OFlags::RDONLY;
        plan.push(Step::Open { path, flags, mode: Mode::from_raw_mode(0o666), out });
        plan.push(Step::MoveMount { mount: mount.into(), target: out.into() });
        plan.release(out);
        plan.release(mount);
    }
    for (target, path) in LINKS {
        plan.push(Step::Symlink { target, path });
    }
    mkdir(Path::new("shm"), 0o1777, plan)?;
    mkdir(Path::new("pts"), 0o755, plan)?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    let data = c"newinstance,ptmxmode=0666,mode=620";
    plan.push(Step::Mount { source: c"devpts", target: c"pts", fstype: c"devpts", flags, data });
    Ok(())
}

/// The machine's own settings belong to root, who needs no capability to change them.
fn settings(plan: &mut Builder<'_>) -> Result<(), Error> {
    let root = plan.register()?;
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    plan.push(Step::Open { path: c"/proc", flags, mode: Mode::empty(), out: root });
    for path in [c"sys", c"sysrq-trigger", c"irq", c"bus", c"fs"] {
        plan.push(Step::ReadOnly { root: root.into(), path });
    }
    plan.release(root);
    Ok(())
}

/// Covers what is to be hidden: a directory with an empty one, anything else with the null device.
fn hide(found: &Found, plan: &mut Builder<'_>) -> Result<(), Error> {
    plan.at(format!("hide {}", found.path.display()));
    let target = plan.text(&found.path)?;
    if found.is_directory {
        let (flags, data) = (MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV, c"mode=555");
        plan.push(Step::Mount { source: c"tmpfs", target, fstype: c"tmpfs", flags, data });
    } else {
        plan.push(Step::MountBind { source: c"/dev/null", target });
    }
    Ok(())
}

/// What the kernel counts for each process, or in the user namespace. None is above what the caller may have.
fn limits(profile: &Profile, host: &Host, plan: &mut Builder<'_>) {
    plan.at("limits");
    let within = |asked: u64, most: Option<u64>| most.map_or(asked, |most| asked.min(most));
    for ((resource, asked), most) in profile.limits.resources().into_iter().zip(host.most) {
        let is_cgroups = host.cgroup && matches!(resource, Resource::As | Resource::Nproc);
        let Some(asked) = asked.filter(|_| !is_cgroups) else { continue };
        // The first signal says why, the second does not.
        let maximum = if resource == Resource::Cpu { asked.saturating_add(1) } else { asked };
        let limit = Rlimit { current: Some(within(asked, most)), maximum: Some(within(maximum, most)) };
        plan.push(Step::Setrlimit { resource, limit });
    }
    // A core file is a trace.
    plan.push(Step::Setrlimit {
        resource: Resource::Core,
        limit: Rlimit { current: Some(0), maximum: Some(0) },
    });
}

fn seccomp(plan: &mut Builder<'_>) -> Result<(), Error> {
    let (flags, program) = filter::compile().map_err(|error| plan.error(error.to_string()))?;
    let program = plan.slice(&program);
    plan.push(Step::Seccomp { flags, program });
    Ok(())
}

fn exec(profile: &Profile, host: &Host, plan: &mut Builder<'_>) -> Result<(), Error> {
    plan.at("environment");
    let variables = environment::variables(profile, host);
    let strings = variables.iter().map(|(name, value)| {
        let mut variable = name.clone();
        variable.push("=");
        variable.push(value);
        plan.text(variable)
    });
    let strings = strings.collect::<Result<Vec<_>, _>>()?;
    let envp = plan.array(strings);
    plan.at("program");
    let Some(program) = profile.args.first().filter(|program| !program.is_empty()) else {
        return Err(plan.error("is missing"));
    };
    let args = profile.args.iter().map(|argument| plan.text(argument)).collect::<Result<Vec<_>, _>>()?;
    let argv: CArray<'_> = plan.array(args);
    let path = variables.get(OsStr::new("PATH")).map_or(OsStr::new("/usr/bin:/bin"), |path| path);
    let places = candidates(program, path);
    let places = places.iter().map(|place| plan.text(place)).collect::<Result<Vec<_>, _>>()?;
    let candidates = plan.slice(&places);
    plan.push(Step::ExecveFirst { candidates, argv, envp });
    Ok(())
}

/// The places where a program may be: itself if it is a path, else below each directory of PATH.
pub(crate) fn candidates(program: &OsStr, path: &OsStr) -> Vec<OsString> {
    if program.as_bytes().contains(&b'/') {
        return vec![program.to_owned()];
    }
    let directories = path.as_bytes().split(|byte| *byte == b':');
    let directories = directories.map(|directory| if directory.is_empty() { b"." } else { directory });
    directories.map(|directory| Path::new(OsStr::from_bytes(directory)).join(program).into()).collect()
}
