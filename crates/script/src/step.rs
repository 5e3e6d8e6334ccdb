//! The vocabulary: everything a child can do before it execs.

use crate::hook::Hook;
use crate::registers::{Handle, Reg};
use crate::report::Request;
use crate::rootfs::target::{Place, Target};
use crate::sys::at::Node;
use crate::sys::file::{Mode, OFlags};
use crate::sys::limits::{Resource, Rlimit, SchedAttr};
use crate::sys::mount::{Extent, MountFlags, MountPropagationFlags};
use crate::sys::namespace::Namespaces;
use crate::sys::process::{Capabilities, Instruction, KeepCaps};
use crate::sys::signal::{Signal, SignalSet};
use crate::sys::{CArray, Errno, Fd, Gid, Pid, Uid};
use core::ffi::CStr;

/// Whose devices a process has as standard streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Devices {
    /// The host's: its null device, or the caller's terminal.
    Hosts,
    /// The container's: the terminal that an earlier step made for it.
    Containers,
}

/// One thing the child does. A step makes one system call, or the few that belong together; it may
/// tolerate an error number. It may not allocate, lock, format, panic, or know why it is here.
///
/// Steps bear the names of the system calls they make.
#[derive(Clone, Copy)]
pub enum Step<'a> {
    // Descriptors.
    /// `openat(O_CLOEXEC)` below the working directory.
    Open {
        /// The file.
        path: &'a CStr,
        /// How to open it.
        flags: OFlags,
        /// The permissions of a file that this creates.
        mode: Mode,
        /// Where the descriptor is left.
        out: Reg,
    },
    /// `close`.
    Close {
        /// The descriptor.
        fd: Handle,
    },
    /// `close_range`: every descriptor from `first` on is closed now, but this one and the channel.
    CloseOthers {
        /// The lowest: what is below is the program's.
        first: Fd,
        /// The one that is still needed.
        keep: Option<Fd>,
    },
    /// `close_range`: every descriptor from `first` to `last` is closed now.
    CloseRange {
        /// The lowest.
        first: Fd,
        /// The highest.
        last: Fd,
    },
    /// `close_range(CLOSE_RANGE_CLOEXEC)`: every descriptor from `first` to `last` will be closed
    /// by exec.
    CloseRangeOnExec {
        /// The lowest.
        first: Fd,
        /// The highest.
        last: Fd,
    },
    /// `fcntl(F_DUPFD_CLOEXEC)`: another name of a descriptor, out of the way of lower numbers.
    Dup {
        /// The descriptor.
        from: Handle,
        /// The lowest number that will do.
        least: Fd,
        /// Where the new number is left.
        out: Reg,
    },
    /// `dup3`: the descriptor gets the number `to`, which exec keeps.
    Dup3 {
        /// The descriptor.
        from: Handle,
        /// Its number in the program.
        to: Fd,
    },
    /// `fcntl(F_SETFD, 0)`: exec keeps the descriptor under the number it has.
    KeepOnExec {
        /// The descriptor.
        fd: Fd,
    },
    /// `fchown` of the standard streams, so that the program may open them again. Devices of the host stay as they
    /// are, and so does what cannot be given away.
    FchownStreams {
        /// The new owner.
        uid: Uid,
        /// Whose a stream is that is a device.
        devices: Devices,
    },
    /// `read` of one byte: waits until somebody writes one, or closes the other end.
    Await {
        /// Where to read.
        fd: Handle,
    },
    /// `write`, all at once.
    Write {
        /// Where to write.
        fd: Handle,
        /// What to write.
        bytes: &'a [u8],
    },
    /// Opens a file that exists, writes all at once and closes it, as procfs and cgroupfs want it.
    WriteFile {
        /// The file.
        path: &'a CStr,
        /// What to write.
        bytes: &'a [u8],
        /// An error that is none.
        tolerate: Option<Errno>,
    },

    /// `openat2(O_PATH)` of `/proc`, which has to be procfs.
    OpenProc {
        /// Where the descriptor is left.
        out: Reg,
    },
    /// `openat2(RESOLVE_BENEATH | RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS)` in procfs.
    OpenInProc {
        /// The procfs.
        proc: Handle,
        /// The file, relative to it.
        path: &'a CStr,
        /// How to open it.
        flags: OFlags,
        /// Where the descriptor is left.
        out: Reg,
    },

    // Files.
    /// `mkdirat`.
    Mkdir {
        /// The directory.
        path: &'a CStr,
        /// Its permissions, less the umask.
        mode: Mode,
        /// An error that is none: `EEXIST` where the directory may be there.
        tolerate: Option<Errno>,
    },
    /// `symlinkat`.
    Symlink {
        /// What the link says.
        target: &'a CStr,
        /// Where it is.
        path: &'a CStr,
    },
    /// `mount` of a new file system.
    Mount {
        /// What is shown as its source.
        source: &'a CStr,
        /// Where.
        target: &'a CStr,
        /// Its type.
        fstype: &'a CStr,
        /// Its flags.
        flags: MountFlags,
        /// Its own options, separated by commas.
        data: &'a CStr,
    },
    /// `mount(MS_BIND | MS_REC)`.
    MountBind {
        /// The tree to show.
        source: &'a CStr,
        /// Where.
        target: &'a CStr,
    },
    /// `mount` of propagation flags.
    MountChange {
        /// The mount.
        target: &'a CStr,
        /// Who hears of mounts below it.
        flags: MountPropagationFlags,
    },
    /// `umount2(MNT_DETACH)`.
    UmountDetach {
        /// The mount.
        target: &'a CStr,
    },
    /// `pivot_root`.
    PivotRoot {
        /// The new root, a mount point.
        new_root: &'a CStr,
        /// Where the old root goes.
        put_old: &'a CStr,
    },
    /// `chdir`.
    Chdir {
        /// The directory.
        path: &'a CStr,
    },
    /// `chroot`.
    Chroot {
        /// The new root.
        path: &'a CStr,
    },
    /// `umask`.
    Umask {
        /// The permissions that files will not have.
        mask: Mode,
    },

    // Files and mounts of a root file system that somebody else made, by descriptor.
    /// `openat2(O_PATH, RESOLVE_IN_ROOT)`: finds a place as if the root were `/`.
    OpenInRoot {
        /// The root.
        root: Handle,
        /// The place, relative to it.
        path: &'a CStr,
        /// Where the descriptor is left.
        out: Reg,
    },
    /// The same for a directory, which is made with its parents where it is missing.
    EnsureDirectory {
        /// The root.
        root: Handle,
        /// The place, relative to it.
        target: Target<'a>,
        /// Where the descriptor is left.
        out: Reg,
    },
    /// Finds a place as the two above, makes it where it is missing, and puts a mount that is nowhere
    /// yet there by `move_mount`. `EXDEV` if the place is on a procfs and may not be, or the mount is
    /// none and has to be.
    Attach {
        /// The mount.
        mount: Reg,
        /// The root.
        root: Handle,
        /// The place, relative to it.
        target: Target<'a>,
        /// What the place has to be.
        place: Place,
    },
    /// `mknodat`, then `fchownat`. If that very node is there already, it stays.
    Mknod {
        /// The directory it is in.
        directory: Handle,
        /// Its name there.
        name: &'a CStr,
        /// What it stands for.
        node: Node,
        /// Its permissions, less the umask.
        mode: Mode,
        /// Its owner.
        uid: Uid,
        /// Its group.
        gid: Gid,
    },
    /// `symlinkat`.
    SymlinkIn {
        /// The directory it is in.
        directory: Handle,
        /// Its name there.
        name: &'a CStr,
        /// What it says.
        target: &'a CStr,
        /// An error that is none.
        tolerate: Option<Errno>,
    },
    /// `fsopen`: a file system yet to be configured.
    Fsopen {
        /// Its type.
        fstype: &'a CStr,
        /// Where the descriptor is left.
        out: Reg,
    },
    /// `fsconfig(FSCONFIG_SET_STRING)`.
    FsconfigString {
        /// The file system.
        fs: Reg,
        /// The parameter.
        key: &'a CStr,
        /// Its value.
        value: &'a CStr,
    },
    /// `fsconfig(FSCONFIG_SET_FLAG)`.
    FsconfigFlag {
        /// The file system.
        fs: Reg,
        /// The flag.
        key: &'a CStr,
    },
    /// `fsconfig(FSCONFIG_SET_FD)`.
    FsconfigFd {
        /// The file system.
        fs: Reg,
        /// The parameter.
        key: &'a CStr,
        /// Its value.
        fd: Handle,
    },
    /// `fsconfig(FSCONFIG_CMD_CREATE)`, `fsmount`, and `close` of the configuration: a mount that is
    /// nowhere yet takes its register.
    Fsmount {
        /// The file system, then the mount.
        fs: Reg,
        /// `MOUNT_ATTR_*`.
        attributes: u64,
    },
    /// `open_tree(OPEN_TREE_CLONE)`: a copy of a mount, that is nowhere yet.
    OpenTree {
        /// What to copy.
        path: &'a CStr,
        /// Whether with the mounts below it.
        extent: Extent,
        /// Where the descriptor is left.
        out: Reg,
    },
    /// The same, and if the child may not look there (`EACCES`) a request to the parent, who may, to do
    /// it in the child's mount namespace.
    OpenTreeOrRequest {
        /// What to copy.
        path: &'a CStr,
        /// Whether with the mounts below it.
        extent: Extent,
        /// The number by which the parent knows it.
        mount: u32,
        /// Where the descriptor is left.
        out: Reg,
    },
    /// Asks the parent for a mount that only it can make: a tree whose ids are mapped, opened in the child's mount
    /// namespace, or a device node.
    RequestTree {
        /// The number by which the parent knows it.
        mount: u32,
        /// Where the descriptor is left.
        out: Reg,
    },
    /// `open_tree(OPEN_TREE_CLONE)` of a device node; fails with `ENODEV` if it is another device.
    OpenDevice {
        /// Where the host has the node.
        path: &'a CStr,
        /// The device.
        node: Node,
        /// Where the copy of the mount is left.
        out: Reg,
    },
    /// `openat2`, `fstat`, and `fsconfig` of `mode`: the root of a file system yet to be made gets the
    /// permissions of the place that it will cover. If nothing is there, it keeps its own.
    FsconfigModeOf {
        /// The file system.
        fs: Reg,
        /// The root.
        root: Handle,
        /// The place, relative to it.
        path: &'a CStr,
    },
    /// Copies what is at a place into the mount that will cover it.
    CopyUp {
        /// The root.
        root: Handle,
        /// The place, relative to it.
        path: &'a CStr,
        /// The mount, which is nowhere yet.
        mount: Reg,
    },
    /// `fspick`: a file system that is mounted, to be configured anew.
    Fspick {
        /// Its mount.
        mount: Handle,
        /// Where the configuration is left.
        out: Reg,
    },
    /// `fsconfig(FSCONFIG_CMD_RECONFIGURE)` and `close` of the configuration.
    Reconfigure {
        /// The configuration.
        fs: Reg,
    },
    /// `fsetxattr` of `security.selinux` on the root of a mount.
    Label {
        /// The mount.
        mount: Reg,
        /// The label.
        label: &'a [u8],
    },
    /// `umount2(MNT_DETACH)` that nobody else hears of, or a tmpfs on top where it is refused. A place
    /// that is gone needs neither.
    Hide {
        /// The mount.
        path: &'a CStr,
    },
    /// `unlinkat` of what is no directory. One that is not there is gone.
    UnlinkIn {
        /// The directory it is in.
        directory: Handle,
        /// Its name there.
        name: &'a CStr,
    },
    /// `mount_setattr`, and where that is refused (`EPERM`) once more with less: what an outer user
    /// namespace has locked stays, unless it was asked for.
    MountSetattrUnlocked {
        /// The mount.
        mount: Handle,
        /// `MOUNT_ATTR_*` to set.
        set: u64,
        /// `MOUNT_ATTR_*` that have to be cleared first.
        clear: u64,
        /// `MOUNT_ATTR_*` to clear if they are not locked.
        unlocked: u64,
    },
    /// `mount_setattr` of propagation, of the mount that a directory is on: its own if it is a mount's
    /// root, or that of the next directory above which is one.
    MountSetattrAbove {
        /// The directory.
        directory: Handle,
        /// Who hears of mounts below it (`MS_PRIVATE`, ...).
        propagation: u64,
    },
    /// The same of what a descriptor is: a copy of the mount it was opened on that shows it alone.
    OpenTreeOf {
        /// What to copy.
        fd: Handle,
        /// Whether with the mounts below it.
        extent: Extent,
        /// Where the descriptor is left.
        out: Reg,
    },
    /// `mount_setattr`.
    MountSetattr {
        /// The mount.
        mount: Handle,
        /// Whether with the mounts below it.
        extent: Extent,
        /// `MOUNT_ATTR_*` to set.
        set: u64,
        /// `MOUNT_ATTR_*` to clear first.
        clear: u64,
        /// Who hears of mounts below it (`MS_SHARED`, ...), or 0 to leave that.
        propagation: u64,
    },
    /// `move_mount`: puts a mount that is nowhere yet onto a place.
    MoveMount {
        /// The mount.
        mount: Handle,
        /// The place.
        target: Handle,
    },
    /// Covers a place so that nothing can be read there: a directory with an empty one, anything else
    /// with the null device. A place that is not there needs no cover.
    Mask {
        /// The root.
        root: Handle,
        /// The place, relative to it.
        path: &'a CStr,
        /// The null device of the host.
        null: Handle,
        /// An empty directory, made by the first step that needs one.
        empty: Reg,
    },
    /// Makes a place and everything mounted below it read-only. One that is not there needs none.
    ReadOnly {
        /// The root.
        root: Handle,
        /// The place, relative to it.
        path: &'a CStr,
    },
    /// `openat2(O_PATH, RESOLVE_IN_ROOT)`, `fchdir`: enters a directory, unless an earlier step has.
    Enter {
        /// The root.
        root: Handle,
        /// The directory, relative to it.
        path: &'a CStr,
        /// Where the step that enters it leaves its descriptor, for later ones to know.
        entered: Reg,
        /// An error that leaves it to a later step.
        tolerate: Option<Errno>,
    },
    /// `fchdir`.
    Fchdir {
        /// The directory.
        directory: Handle,
    },

    // Session and terminal.
    /// `keyctl(KEYCTL_JOIN_SESSION_KEYRING)`, then `KEYCTL_DESCRIBE` and `KEYCTL_SETPERM`: a session
    /// keyring of this name, with these permissions beside those it has.
    JoinSessionKeyring {
        /// Its name.
        name: &'a CStr,
        /// `KEY_*` permissions (keyctl_setperm(3)).
        permissions: u32,
        /// An error that is none: `ENOSYS` where the kernel may have no keyrings.
        tolerate: Option<Errno>,
    },
    /// `setsid`.
    Setsid,
    /// `setpgid`: joins a process group, or leads one of its own.
    Setpgid {
        /// The group to join.
        group: Option<Pid>,
    },
    /// `ioctl(TIOCSCTTY)`: takes a controlling terminal.
    Tiocsctty {
        /// The terminal.
        terminal: Fd,
    },
    /// `tcsetpgrp`: the caller's process group becomes the foreground group.
    Tcsetpgrp {
        /// The terminal.
        terminal: Fd,
    },

    /// `openat2` of `ptmx` in a directory that has to be a devpts, `ioctl(TIOCSPTLCK)` and
    /// `ioctl(TIOCGPTPEER)`: both ends of a new terminal, found without its name.
    OpenPty {
        /// The root.
        root: Handle,
        /// The directory, relative to it.
        path: &'a CStr,
        /// Where the end that shows is left.
        master: Reg,
        /// Where the end that programs use is left.
        slave: Reg,
    },
    /// `ioctl(TIOCSWINSZ)`.
    Tiocswinsz {
        /// The terminal.
        terminal: Handle,
        /// Its lines.
        rows: u16,
        /// The characters of each.
        columns: u16,
    },

    // Signals.
    /// Every handler back to its default: only where the child was made without
    /// `CLONE_CLEAR_SIGHAND`.
    ResetHandlers,
    /// `rt_sigaction(SIG_DFL)`.
    DefaultAction {
        /// The signal.
        signal: Signal,
    },
    /// `rt_sigaction` with a handler that ends the process, until exec. To the first process of a pid namespace
    /// a signal without a handler does nothing.
    ExitOnSignal {
        /// The signal.
        signal: Signal,
    },
    /// `rt_sigaction(SIG_IGN)`.
    IgnoreSignal {
        /// The signal.
        signal: Signal,
    },
    /// `rt_sigprocmask(SIG_SETMASK)`. Signals that came since the clone arrive here.
    SignalMask {
        /// The signals that are blocked from here on.
        blocked: SignalSet,
    },
    /// `prctl(PR_SET_PDEATHSIG)`; fails with `ESRCH` if the parent is gone already.
    ParentDeathSignal {
        /// The signal.
        signal: Signal,
        /// The parent's pid, or `None` in another pid namespace, where the child cannot see it.
        parent: Option<Pid>,
    },

    // Namespaces.
    /// `unshare`.
    Unshare {
        /// The kinds of namespaces to make.
        namespaces: Namespaces,
    },
    /// `setns`.
    Setns {
        /// A namespace, or the pidfd of a process that is in those to join.
        fd: Handle,
        /// The kinds of namespaces to join.
        namespaces: Namespaces,
    },
    /// `clone(CLONE_PARENT)`, without shared memory: the list goes on in a process of its own, which
    /// has the pid namespace that was joined, or new ones, and the registers and all else of the
    /// first. The first exits. Both are the parent's children.
    CloneParent {
        /// The kinds of namespaces to make, time excepted.
        namespaces: Namespaces,
    },
    /// `clone` without shared memory: the list goes on in a process of its own, which has the registers and
    /// all else of the first. The first, which has to be the first of its pid namespace, closes all
    /// descriptors but the channel and waits: for the end of every process that becomes its child, and for
    /// signals, which it passes on to the other's process group. If the other stops it tells the parent, if there
    /// is a channel. When the other has ended it writes that down, asks the parent about what is left behind, if
    /// anything is, and exits; that ends whatever is left.
    CloneAndReap,
    /// The same by `vfork`: until the other has become its program it has the memory of the first, which waits for that
    /// and hears nothing. Not for a program that may be stopped before, or may not have the memory.
    VforkAndReap,
    /// `sethostname`.
    Sethostname {
        /// The name.
        name: &'a [u8],
    },
    /// `setdomainname`.
    Setdomainname {
        /// The name.
        name: &'a [u8],
    },
    /// `socket`, then `ioctl(SIOCSIFFLAGS)`: the loopback device is up.
    LoopbackUp,
    /// Asks the parent for something and waits until it is done.
    Request {
        /// What.
        what: Request,
    },
    /// Runs a program beside the child and waits for its end, which has to be a good one.
    Hook {
        /// The program.
        hook: &'a Hook<'a>,
    },
    /// The same with a copy of a descriptor, by `sendmsg(SCM_RIGHTS)`.
    RequestWith {
        /// What.
        what: Request,
        /// What goes with it.
        fd: Handle,
    },

    // Limits.
    /// `setrlimit`.
    Setrlimit {
        /// Of what.
        resource: Resource,
        /// How much; `None` is unlimited.
        limit: Rlimit,
    },
    /// `setpriority`: the nice value.
    Setpriority {
        /// -20 to 19.
        nice: i32,
    },
    /// `sched_setattr`.
    SchedSetattr {
        /// The policy with its parameters.
        attr: SchedAttr,
    },
    /// `sched_setaffinity`.
    SchedSetaffinity {
        /// Bit `n % 64` of word `n / 64` stands for CPU `n`.
        mask: &'a [u64],
    },
    /// `ioprio_set`.
    IoprioSet {
        /// 1 real-time, 2 best-effort, 3 idle.
        class: u8,
        /// 0, the highest, to 7.
        level: u8,
    },

    /// `set_mempolicy`.
    SetMempolicy {
        /// `MPOL_*` with its flags.
        mode: u32,
        /// Bit `n % 64` of word `n / 64` stands for node `n`.
        nodes: &'a [u64],
    },
    /// `personality`.
    Personality {
        /// `PER_*`.
        persona: u32,
    },

    // Identity.
    /// `setgroups`.
    Setgroups {
        /// All supplementary groups.
        groups: &'a [Gid],
    },
    /// `setresgid`: real, effective and saved.
    Setresgid {
        /// The group.
        gid: Gid,
    },
    /// `setresuid`: real, effective and saved.
    Setresuid {
        /// The user.
        uid: Uid,
    },
    /// `prctl(PR_SET_NO_NEW_PRIVS)`.
    NoNewPrivs,
    /// `madvise(MADV_DONTNEED)`: gives up all memory but what the rest of the list needs, so that nobody who may look
    /// into the process finds what the parent has in its memory. Only for a process with memory of its own.
    ForgetMemory,
    /// `prctl(PR_SET_DUMPABLE)`: until exec nobody without privileges over it looks into the process,
    /// nor into those that share its memory.
    Undumpable,

    /// `prctl(PR_CAPBSET_DROP)` for every capability that is not in `keep`.
    DropBounding {
        /// A bit for each capability.
        keep: u64,
    },
    /// `prctl(PR_SET_KEEPCAPS)`.
    KeepCaps {
        /// Whether giving up uid 0 leaves permitted capabilities.
        keep: KeepCaps,
    },
    /// `capset`.
    Capset {
        /// The three sets.
        capabilities: Capabilities,
    },
    /// `prctl(PR_CAP_AMBIENT_RAISE)` for each of these.
    RaiseAmbient {
        /// A bit for each capability.
        capabilities: u64,
    },
    /// `landlock_create_ruleset`: a ruleset that handles these rights and allows nothing yet.
    LandlockRuleset {
        /// `LANDLOCK_ACCESS_FS_*`.
        handled: u64,
        /// `LANDLOCK_SCOPE_*`.
        scoped: u64,
        /// Where the ruleset is left.
        out: Reg,
    },
    /// `landlock_add_rule`: allows a file, or a directory and everything below it, to be used. For a file the rights
    /// that only directories have are left out.
    LandlockAllow {
        /// The ruleset.
        ruleset: Handle,
        /// The file or directory.
        beneath: Handle,
        /// `LANDLOCK_ACCESS_FS_*`, all of which the ruleset handles.
        rights: u64,
        /// An error that counts as success.
        tolerate: Option<Errno>,
    },
    /// `landlock_restrict_self`: the process and its descendants keep to the ruleset.
    LandlockRestrict {
        /// The ruleset.
        ruleset: Handle,
    },
    /// `seccomp(SECCOMP_SET_MODE_FILTER)`.
    Seccomp {
        /// `SECCOMP_FILTER_FLAG_*`.
        flags: u32,
        /// The program.
        program: &'a [Instruction],
    },

    /// `seccomp(SECCOMP_SET_MODE_FILTER)` with `SECCOMP_FILTER_FLAG_NEW_LISTENER`; then the parent is
    /// told the listener's number and waited for, and it is closed.
    SeccompListener {
        /// `SECCOMP_FILTER_FLAG_*`.
        flags: u32,
        /// The program.
        program: &'a [Instruction],
    },

    // The end.
    /// `openat2` and `faccessat` of one place after the other, until there is a program.
    CheckExecutable {
        /// The places.
        candidates: &'a [&'a CStr],
    },
    /// Tells the parent that everything is ready, forgets the parent's death, and waits until
    /// somebody connects. That connection hears of what fails from here on.
    Park {
        /// A listening socket.
        listener: Fd,
    },
    /// `execve` of one place after the other, until there is a program.
    ExecveFirst {
        /// The places.
        candidates: &'a [&'a CStr],
        /// Its arguments, its name among them.
        argv: CArray<'a>,
        /// Its environment.
        envp: CArray<'a>,
    },
    /// `execve`. There is no "after".
    Execve {
        /// The program.
        path: &'a CStr,
        /// Its arguments, its name among them.
        argv: CArray<'a>,
        /// Its environment.
        envp: CArray<'a>,
    },
}

impl Step<'_> {
    /// Whether the list goes on in a process with memory of its own.
    #[must_use]
    pub const fn leaves_memory(&self) -> bool {
        matches!(self, Step::CloneParent { .. } | Step::CloneAndReap)
    }

    /// What it asks the parent for, or may ask for.
    #[must_use]
    pub const fn request(&self) -> Option<Request> {
        match *self {
            Self::Request { what } | Self::RequestWith { what, .. } => Some(what),
            Self::RequestTree { .. } | Self::OpenTreeOrRequest { .. } => Some(Request::Tree),
            Self::SeccompListener { .. } => Some(Request::Listener),
            Self::Park { .. } => Some(Request::Parked),
            _ => None,
        }
    }
}
