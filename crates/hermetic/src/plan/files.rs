//! The program's file system: which host files are shown, covered and hidden, and which files are the program's own.

use super::image::{self, Opened};
use super::inputs;
use super::landlock::LandlockRules;
use super::layers::{layer, mkdir, mount_on_own, set_all};
use super::view::{self, Cover};
use crate::adapters::OWN;
use crate::bundle::ALWAYS;
use crate::host::{Host, HostFile, Procfs};
use crate::profile::{Limits, PathAccess, Profile};
use crate::tools::Link;
use husk_plan::{Builder, DEVICE_LINKS, Error, Origin};
use husk_script::sys::file::{Mode, OFlags};
use husk_script::sys::mount::{Extent, MountAttributes, MountFlags};
use husk_script::{MountPoint, Reg, Request, Step};
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::path::Path;

/// The highest value of `pid_max` (linux/threads.h, `PID_MAX_LIMIT`).
const MOST_PIDS: u64 = 4 << 20;

/// After the last pid the kernel starts again with this one (kernel/pid.c, `RESERVED_PIDS`).
pub(crate) const FIRST_PID: u32 = 300;

/// The origin of the steps that mount a procfs.
pub(crate) const PROC: &str = "proc";

/// The origin of the steps that overlay directories for tools.
pub(crate) const TOOLS: &str = "tools";

/// The devices that every program can expect, and their names in `/dev`.
pub(super) const DEVICES: &[(&CStr, &CStr)] = &[
    (c"/dev/null", c"null"),
    (c"/dev/zero", c"zero"),
    (c"/dev/full", c"full"),
    (c"/dev/random", c"random"),
    (c"/dev/urandom", c"urandom"),
    (c"/dev/tty", c"tty"),
];

/// A path of the host that is shown in the sandbox, opened before it is covered or made read-only.
pub(super) struct HostPath<'p> {
    pub(super) path: &'p Path,
    pub(super) is_directory: bool,
    pub(super) mount: Reg,
}

/// Builds the program's file system and enters its working directory. Returns the sandbox's null device, open for
/// reading and writing.
pub(crate) fn files(
    profile: &Profile,
    host: &Host,
    sysfs: Option<Reg>,
    rules: &LandlockRules,
    plan: &mut Builder<'_>,
) -> Result<Reg, Error> {
    if let Some(view) = &host.view {
        return inputs::files(profile, view, host, rules, plan);
    }
    let covers = view::covers(host);
    let is_covered = |path: &Path| view::place(path, &covers).is_some();
    let shown: Vec<_> = profile.shown.iter().zip(&host.found).collect();

    if let Some(image) = &profile.image {
        image::check(image, shown.iter().copied(), is_covered, plan)?;
    }
    let image_root = profile.image.as_ref().map(|image| image::open(image, plan)).transpose()?;

    // Opens these paths before everything becomes read-only.
    let mut trees = Vec::new();
    for (show, found) in &shown {
        if show.access == PathAccess::Write {
            plan.at(Origin::with_path("write", &found.path));
            let tree = HostPath::open(found, image_root, plan)?;
            set_all(tree.mount, ALWAYS, plan);
            rules.allow(tree.mount, plan);
            trees.push(tree);
        }
    }
    for tool in profile.tools.iter().filter(|tool| tool.access == PathAccess::Write) {
        plan.at(Origin::with_path(TOOLS, &tool.file.path));
        let tree = HostPath::open(&tool.file, None, plan)?;
        set_all(tree.mount, ALWAYS, plan);
        rules.allow(tree.mount, plan);
        trees.push(tree);
    }
    if profile.nested && host.procfs == Procfs::Callers && image_root.is_none() {
        // A sandbox inside writes its id maps there.
        let path = Path::new("/proc");
        let mount = open(path, plan.at(PROC))?;
        set_all(mount, ALWAYS | MountAttributes::NOEXEC, plan);
        trees.push(HostPath { path, is_directory: true, mount });
    }
    let devices = inputs::open_devices(host, plan)?;
    let image = profile.image.as_ref().zip(image_root);
    let image = image.map(|(image, root)| Opened::new(image, root, plan)).transpose()?;
    // The host's files are read-only with an image too, so that a path out of the image leads to nothing writable.
    let files = read_only(plan)?;

    // Opens these paths now, when they are already read-only and not yet covered.
    let is_written = |path: &Path| trees.iter().any(|tree| path.starts_with(tree.path));
    let mut seen = Vec::new();
    if image.is_none()
        && is_covered(&host.project)
        && host.cwd.starts_with(&host.project)
        && !is_written(&host.project)
    {
        plan.at(Origin::with_path("cwd", &host.project));
        let mount = open(&host.project, plan)?;
        seen.push(HostPath { path: &host.project, is_directory: true, mount });
    }
    for (show, found) in &shown {
        let wanted = matches!(show.access, PathAccess::Read | PathAccess::Overlay);
        if wanted && is_covered(&found.path) && !seen.iter().any(|tree| found.path.starts_with(tree.path)) {
            plan.at(Origin::with_path("read", &found.path));
            let tree = HostPath::open(found, image_root, plan)?;
            rules.allow_sockets(tree.mount, plan);
            seen.push(tree);
        }
    }
    // Nobody asked for the sockets that a tool has there, so they get no rule.
    for tool in profile.tools.iter().filter(|tool| tool.access != PathAccess::Write) {
        let path = &tool.file.path;
        if is_covered(path) && !seen.iter().any(|tree| path.starts_with(tree.path)) {
            plan.at(Origin::with_path(TOOLS, path));
            seen.push(HostPath::open(&tool.file, None, plan)?);
        }
    }
    seen.append(&mut trees);
    let links = profile.links.iter().filter(|link| !seen.iter().any(|tree| link.path.starts_with(tree.path)));
    let links: Vec<_> = links.collect();
    let places: Vec<_> = seen.iter().map(|tree| (tree.path, tree.is_directory)).collect();
    own((profile, c"/tmp"), host, &covers, &places, &links, plan)?;
    let (image, root) = match image {
        Some(image) => {
            plan.release(files);
            let placed = image.place(host, rules, plan)?;
            let root = placed.root;
            (Some(placed), root)
        }
        None => (None, files),
    };
    let dev = cover(&covers, root, image.is_some(), rules, plan)?;
    if let Some(image) = &image {
        image.make_places(host, plan)?;
    }
    let overlays = shown.iter().filter(|(show, _)| show.access == PathAccess::Overlay);
    let overlays = overlays.map(|(_, found)| Layer::Overlay(found));
    let of_tools =
        profile.tools.iter().filter(|tool| tool.access == PathAccess::Overlay && host.overlays_tools);
    let overlays = overlays.chain(of_tools.map(|tool| Layer::ToolOverlay(&tool.file)));
    let mut layers: Vec<_> = seen.iter().map(Layer::HostPath).chain(overlays).collect();
    // A mount inside another one comes after it.
    layers.sort_by_key(|layer| layer.path().components().count());
    for (index, layer) in layers.into_iter().enumerate() {
        match layer {
            Layer::HostPath(tree) => put(tree, root, plan)?,
            Layer::Overlay(found) => {
                plan.at(Origin::with_path("overlay", &found.path));
                overlay(&index.to_string(), found, root, rules, plan)?;
            }
            Layer::ToolOverlay(found) => {
                plan.at(Origin::with_path(TOOLS, &found.path));
                overlay(&index.to_string(), found, root, rules, plan)?;
            }
        }
    }
    let null = fill_dev(dev, devices, host, rules, plan)?;
    if host.procfs == Procfs::Own {
        proc(profile, host, (root, null), rules, plan)?;
    }
    if let Some(image) = &image {
        image.furnish(null, sysfs, rules, plan)?;
        let overlays = image.shown().filter(|show| show.access == PathAccess::Overlay);
        for (index, show) in overlays.enumerate() {
            let found = HostFile { path: show.path.clone(), is_directory: true, mode: 0o755 };
            plan.at(Origin::with_path("overlay", &show.path));
            overlay(&format!("shown-{index}"), &found, root, rules, plan)?;
        }
    }
    let is_seen = |path: &Path| !is_covered(path) || seen.iter().any(|tree| path.starts_with(tree.path));
    for (_, found) in
        shown.iter().filter(|(show, found)| show.access == PathAccess::Hide && is_seen(&found.path))
    {
        hide(found, root, null, plan)?;
    }
    plan.at("cwd");
    let (path, cwd) = (plan.target(&host.cwd)?.path, plan.register()?);
    plan.push(Step::OpenInRoot { root: root.into(), path, out: cwd });
    if let Some(image) = image {
        image.enter(plan);
    }
    plan.at("cwd").push(Step::Fchdir { directory: cwd.into() });
    plan.release(root);
    plan.release(cwd);
    Ok(null)
}

/// Makes the host's mounts read-only and private. Returns their root.
pub(super) fn read_only(plan: &mut Builder<'_>) -> Result<Reg, Error> {
    plan.at("files");
    let root = plan.register()?;
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    plan.push(Step::Open { path: c"/", flags, mode: Mode::empty(), out: root });
    set_all(root, ALWAYS | MountAttributes::RDONLY, plan);
    Ok(root)
}

/// Opens a detached copy of the mounts at a path.
fn open(path: &Path, plan: &mut Builder<'_>) -> Result<Reg, Error> {
    let (path, out) = (plan.text(path)?, plan.register()?);
    plan.push(Step::OpenTree { path, extent: Extent::All, out });
    Ok(out)
}

impl<'p> HostPath<'p> {
    /// Opens a path of the host, or of the image with this root.
    pub(super) fn open(
        found: &'p HostFile,
        image: Option<Reg>,
        plan: &mut Builder<'_>,
    ) -> Result<Self, Error> {
        let mount = match image {
            None => open(&found.path, plan)?,
            Some(root) => {
                let (path, out) = (plan.target(&found.path)?.path, plan.register()?);
                plan.push(Step::OpenInRoot { root: root.into(), path, out });
                plan.push(Step::OpenTreeOf { fd: out.into(), extent: Extent::All, out });
                out
            }
        };
        Ok(Self { path: &found.path, is_directory: found.is_directory, mount })
    }
}

/// Makes the program's own directories in one file system, and the mount points for shown paths, each with whether it is a
/// directory. The root of that file system is mounted on `base`. Relative paths start there until something covers it;
/// afterwards no path leads to that root.
pub(super) fn own(
    (profile, base): (&Profile, &'static CStr),
    host: &Host,
    covers: &[Cover<'_>],
    seen: &[(&Path, bool)],
    links: &[&Link],
    plan: &mut Builder<'_>,
) -> Result<(), Error> {
    plan.at("own files");
    let size = profile.limits.disk.map(|bytes| format!(",size={bytes}")).unwrap_or_default();
    let data = plan.text(format!("mode=755{size}"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    plan.push(Step::Mount { source: c"tmpfs", target: base, fstype: c"tmpfs", flags, data });
    plan.push(Step::Chdir { path: base });
    if profile.keeps_files {
        let (fd, flags) = (plan.register()?, OFlags::PATH | OFlags::DIRECTORY);
        plan.push(Step::Open { path: c".", flags, mode: Mode::empty(), out: fd });
        plan.push(Step::RequestWith { what: Request::Files, fd: fd.into() });
        plan.release(fd);
    }
    // A path inside another shown path exists already.
    let paths: BTreeSet<_> = seen.iter().map(|(path, _)| *path).collect();
    let is_alone = |(path, _): &&(&Path, bool)| !path.ancestors().skip(1).any(|above| paths.contains(above));
    let parents = seen.iter().filter(is_alone);
    let parents =
        parents.filter_map(|(path, is_directory)| if *is_directory { Some(*path) } else { path.parent() });
    let parents = parents.chain(links.iter().filter_map(|link| link.path.parent()));
    for made in view::directories(host, covers, parents) {
        mkdir(&made.path, made.mode, plan)?;
    }
    for (path, _) in seen.iter().filter(is_alone).filter(|(_, is_directory)| !is_directory) {
        if let Some(place) = view::place(path, covers) {
            let path = plan.text(place)?;
            let out = plan.register()?;
            let flags = OFlags::CREATE | OFlags::RDONLY;
            plan.push(Step::Open { path, flags, mode: Mode::from_raw_mode(0o644), out });
            plan.release(out);
        }
    }
    for link in links {
        if let Some(place) = view::place(&link.path, covers) {
            let (target, path) = (plan.text(&link.target)?, plan.text(place)?);
            plan.push(Step::Symlink { target, path });
        }
    }
    written(profile, covers, plan)
}

/// Writes the files that only the sandbox has.
fn written(profile: &Profile, covers: &[Cover<'_>], plan: &mut Builder<'_>) -> Result<(), Error> {
    if profile.files.is_empty() {
        return Ok(());
    }
    let directory =
        view::place(Path::new(OWN), covers).ok_or_else(|| plan.error("needs a directory at /run"))?;
    mkdir(&directory, 0o755, plan)?;
    for file in &profile.files {
        let (path, out) = (plan.text(directory.join(&file.name))?, plan.register()?);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        plan.push(Step::Open { path, flags, mode: Mode::from_raw_mode(0o644), out });
        let bytes = plan.slice(file.text.as_bytes());
        plan.push(Step::Write { fd: out.into(), bytes });
        plan.push(Step::Close { fd: out.into() });
        plan.release(out);
    }
    Ok(())
}

/// Mounts the program's own directories on those below a root. Creates mount points that an image lacks. Returns the
/// mount at `/dev`.
pub(super) fn cover(
    covers: &[Cover<'_>],
    root: Reg,
    is_image: bool,
    rules: &LandlockRules,
    plan: &mut Builder<'_>,
) -> Result<Reg, Error> {
    plan.at(if is_image { "rootfs" } else { "own files" });
    let mut dev = None;
    for cover in covers {
        let (path, out) = (plan.text(cover.name)?, plan.register()?);
        plan.push(Step::OpenTree { path, extent: Extent::Top, out });
        rules.allow(out, plan);
        if is_image {
            // Does not follow a symlink, because the program expects its own directory at exactly this path.
            let target = plan.target(cover.path)?;
            plan.push(Step::Attach { mount: out, root: root.into(), target, place: MountPoint::Ordinary });
        } else {
            attach(out, cover.path, root, plan)?;
        }
        match cover.path == Path::new("/dev") {
            true => dev = Some(out),
            false => plan.release(out),
        }
    }
    dev.ok_or_else(|| plan.error("has no directory at /dev"))
}

/// Attaches a detached mount to an existing path below a root.
pub(super) fn attach(mount: Reg, path: &Path, root: Reg, plan: &mut Builder<'_>) -> Result<(), Error> {
    let (path, out) = (plan.target(path)?.path, plan.register()?);
    plan.push(Step::OpenInRoot { root: root.into(), path, out });
    plan.push(Step::MoveMount { mount: mount.into(), target: out.into() });
    plan.release(out);
    Ok(())
}

/// A path of the profile, to be attached in the sandbox.
enum Layer<'t> {
    /// The path as it is on the host.
    HostPath(&'t HostPath<'t>),
    /// The path covered with an overlay, so that writes are discarded.
    Overlay(&'t HostFile),
    /// Like `Overlay`, for a tool.
    ToolOverlay(&'t HostFile),
}

impl Layer<'_> {
    fn path(&self) -> &Path {
        match self {
            Self::HostPath(tree) => tree.path,
            Self::Overlay(found) | Self::ToolOverlay(found) => &found.path,
        }
    }
}

pub(super) fn put(tree: &HostPath<'_>, root: Reg, plan: &mut Builder<'_>) -> Result<(), Error> {
    plan.at(Origin::with_path("show", tree.path));
    attach(tree.mount, tree.path, root, plan)?;
    plan.release(tree.mount);
    Ok(())
}

/// Covers a directory with an overlay of itself. Writes go to the program's own file system, below paths that are not
/// visible.
pub(super) fn overlay(
    name: &str,
    found: &HostFile,
    root: Reg,
    rules: &LandlockRules,
    plan: &mut Builder<'_>,
) -> Result<(), Error> {
    if !found.is_directory {
        return Err(plan.error("is not a directory"));
    }
    // overlayfs takes path names, so the directory gets one in the program's own file system.
    let lower = format!("lower-{name}");
    let (path, place, copy) = (plan.target(&found.path)?.path, plan.register()?, plan.register()?);
    plan.push(Step::OpenInRoot { root: root.into(), path, out: place });
    plan.push(Step::OpenTreeOf { fd: place.into(), extent: Extent::Top, out: copy });
    mkdir(Path::new(&lower), 0o755, plan)?;
    mount_on_own(copy, &lower, plan)?;
    plan.release(copy);
    // Its owner must be able to write to it, whatever the permissions below.
    let layer = layer(name, &lower, found.mode | 0o700, plan)?;
    rules.allow(layer, plan);
    plan.push(Step::MoveMount { mount: layer.into(), target: place.into() });
    plan.release(layer);
    plan.release(place);
    Ok(())
}

/// Fills the program's `/dev` with devices, terminals, shared memory and message queues. Returns the null device, open
/// for reading and writing.
pub(super) fn fill_dev(
    directory: Reg,
    devices: Vec<(&'static CStr, Reg)>,
    host: &Host,
    rules: &LandlockRules,
    plan: &mut Builder<'_>,
) -> Result<Reg, Error> {
    plan.at("dev").push(Step::Fchdir { directory: directory.into() });
    plan.release(directory);
    for (path, mount) in devices {
        let out = plan.register()?;
        let flags = OFlags::CREATE | OFlags::RDONLY;
        plan.push(Step::Open { path, flags, mode: Mode::from_raw_mode(0o666), out });
        plan.push(Step::MoveMount { mount: mount.into(), target: out.into() });
        plan.release(out);
        plan.release(mount);
    }
    for &(path, target) in DEVICE_LINKS {
        plan.push(Step::Symlink { target, path });
    }
    mkdir(Path::new("shm"), 0o1777, plan)?;
    mkdir(Path::new("pts"), 0o755, plan)?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    let data = c"newinstance,ptmxmode=0666,mode=620";
    plan.push(Step::Mount { source: c"devpts", target: c"pts", fstype: c"devpts", flags, data });
    if host.mqueue {
        mqueue(rules, plan)?;
    }
    let null = plan.register()?;
    plan.push(Step::Open { path: c"null", flags: OFlags::RDWR, mode: Mode::empty(), out: null });
    Ok(null)
}

/// Mounts the message queues of the program's IPC namespace. Landlock needs a rule for their file system, although
/// mq_open(3) needs no path to it.
fn mqueue(rules: &LandlockRules, plan: &mut Builder<'_>) -> Result<(), Error> {
    mkdir(Path::new("mqueue"), 0o1777, plan)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    plan.push(Step::Mount { source: c"mqueue", target: c"mqueue", fstype: c"mqueue", flags, data: c"" });
    let (root, flags) = (plan.register()?, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW);
    plan.push(Step::Open { path: c"mqueue", flags, mode: Mode::empty(), out: root });
    rules.allow(root, plan);
    plan.release(root);
    Ok(())
}

/// Mounts a procfs of the program's own processes. Covers the list of keys, which belong to users and not to a namespace. The host's procfs is still mounted then: without one, a user
/// namespace cannot mount another (fs/namespace.c, `mount_too_revealing`).
pub(super) fn proc(
    profile: &Profile,
    host: &Host,
    (root, null): (Reg, Reg),
    rules: &LandlockRules,
    plan: &mut Builder<'_>,
) -> Result<(), Error> {
    let (target, proc) = (plan.at(PROC).target(Path::new("/proc"))?, plan.register()?);
    plan.push(Step::Fsopen { fstype: c"proc", out: proc });
    plan.push(Step::Fsmount { fs: proc, attributes: ALWAYS | MountAttributes::NOEXEC });
    rules.allow(proc, plan);
    plan.push(Step::Attach { mount: proc, root: root.into(), target, place: MountPoint::Ordinary });
    if host.limits_pids() {
        limit_pids(&profile.limits, proc, plan)?;
    }
    not_its_own(host, proc, plan);
    let empty = plan.fresh_register()?;
    plan.push(Step::Mask { root: proc.into(), path: c"keys", null: null.into(), empty });
    plan.release(proc);
    Ok(())
}

/// Limits the number of processes in the pid namespace, whichever user they belong to. A cgroup could do so too, but
/// moving a process into one takes longer than the rest of a sandbox.
fn limit_pids(limits: &Limits, proc: Reg, plan: &mut Builder<'_>) -> Result<(), Error> {
    plan.at("limits");
    let most = limits.most_processes().saturating_add(FIRST_PID.into()).min(MOST_PIDS);
    let (bytes, out) = (plan.slice(most.to_string().as_bytes()), plan.register()?);
    plan.push(Step::OpenInProc {
        proc: proc.into(),
        path: c"sys/kernel/pid_max",
        flags: OFlags::WRONLY,
        out,
    });
    plan.push(Step::Write { fd: out.into(), bytes });
    plan.push(Step::Close { fd: out.into() });
    plan.release(out);
    plan.at(PROC);
    Ok(())
}

/// Makes files read-only that the program must not change although its user owns them. Some files of process 1 control
/// its memory, which it shares with us. The machine's settings belong to root, which needs no capability to change
/// them.
fn not_its_own(host: &Host, proc: Reg, plan: &mut Builder<'_>) {
    plan.push(Step::ReadOnly { root: proc.into(), path: c"1" });
    if host.uid == 0 {
        for path in [c"sys", c"sysrq-trigger", c"irq", c"bus", c"fs"] {
            plan.push(Step::ReadOnly { root: proc.into(), path });
        }
    }
}

/// Hides a directory below an empty one, and any other file below the null device.
pub(super) fn hide(found: &HostFile, root: Reg, null: Reg, plan: &mut Builder<'_>) -> Result<(), Error> {
    plan.at(Origin::with_path("hide", &found.path));
    let cover = plan.register()?;
    if found.is_directory {
        plan.push(Step::Fsopen { fstype: c"tmpfs", out: cover });
        plan.push(Step::FsconfigString { fs: cover, key: c"mode", value: c"555" });
        plan.push(Step::Fsmount { fs: cover, attributes: ALWAYS | MountAttributes::RDONLY });
    } else {
        plan.push(Step::OpenTreeOf { fd: null.into(), extent: Extent::Top, out: cover });
    }
    attach(cover, &found.path, root, plan)?;
    plan.release(cover);
    Ok(())
}
