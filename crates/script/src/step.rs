//! Defines the steps: everything that a child can do before it execs.

use crate::hook::HookCommand;
use crate::registers::{Handle, Reg};
use crate::report::Request;
use crate::rootfs::target::{MountPoint, PathInRoot};
use crate::sys::at::Node;
use crate::sys::file::{Mode, OFlags};
use crate::sys::limits::{Resource, Rlimit, SchedAttr};
use crate::sys::mount::{AttributeChange, Extent, MountAttributes, MountFlags, MountPropagationFlags};
use crate::sys::namespace::Namespaces;
use crate::sys::process::{Capabilities, KeepCaps, SockFilter};
use crate::sys::signal::{Signal, SignalSet};
use crate::sys::{CArray, Errno, Fd, Gid, Pid, Uid};
use core::ffi::CStr;

/// Says which devices the standard streams of a process are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Devices {
    /// The host's null device, or the caller's terminal.
    Hosts,
    /// The container's terminal, which an earlier step created.
    Containers,
}

/// One action of the child: one system call, or a few that belong together. A step may tolerate an error number. It
/// must not allocate, lock, format, panic, or depend on why it is in the list.
///
/// Steps are named after the system calls they make.
#[derive(Clone, Copy)]
pub enum Step<'a> {
    // Descriptors.
    /// Opens a path relative to the working directory with `openat(O_CLOEXEC)`.
    Open {
        /// The file.
        path: &'a CStr,
        /// How to open it.
        flags: OFlags,
        /// The permissions of a file that the call creates.
        mode: Mode,
        /// Receives the descriptor.
        out: Reg,
    },
    /// Closes a descriptor with `close`.
    Close {
        /// The descriptor.
        fd: Handle,
    },
    /// Closes every descriptor from `first` on with `close_range`, except `keep` and the channel.
    CloseOthers {
        /// The lowest number to close; those below belong to the program.
        first: Fd,
        /// A descriptor that later steps still need.
        keep: Option<Fd>,
    },
    /// Closes every descriptor from `first` to `last` with `close_range`.
    CloseRange {
        /// The lowest number.
        first: Fd,
        /// The highest number.
        last: Fd,
    },
    /// Marks every descriptor from `first` to `last` close-on-exec with `close_range(CLOSE_RANGE_CLOEXEC)`.
    CloseRangeOnExec {
        /// The lowest number.
        first: Fd,
        /// The highest number.
        last: Fd,
    },
    /// Duplicates a descriptor with `fcntl(F_DUPFD_CLOEXEC)`, away from lower numbers.
    Dup {
        /// The descriptor.
        from: Handle,
        /// The lowest number that the new descriptor may get.
        least: Fd,
        /// Receives the new descriptor.
        out: Reg,
    },
    /// Gives the descriptor the number `to` with `dup3`; exec keeps it.
    Dup3 {
        /// The descriptor.
        from: Handle,
        /// Its number in the program.
        to: Fd,
    },
    /// Lets exec keep the descriptor under its number, with `fcntl(F_SETFD, 0)`.
    KeepOnExec {
        /// The descriptor.
        fd: Fd,
    },
    /// Changes the owner of the standard streams with `fchown`, so that the program can open them again. Devices of
    /// the host keep their owner, and so do streams whose owner cannot be changed (`EPERM`, `EROFS`).
    FchownStreams {
        /// The new owner.
        uid: Uid,
        /// The devices that the streams are.
        devices: Devices,
    },
    /// Waits with `read` until another process writes one byte or closes the other end.
    Await {
        /// The descriptor to read from.
        fd: Handle,
    },
    /// Writes all bytes in one `write`.
    Write {
        /// The descriptor to write to.
        fd: Handle,
        /// The bytes to write.
        bytes: &'a [u8],
    },
    /// Opens an existing file, writes all bytes in one `write`, as procfs and cgroupfs require, and closes it.
    WriteFile {
        /// The file.
        path: &'a CStr,
        /// The bytes to write.
        bytes: &'a [u8],
        /// An error that counts as success.
        tolerate: Option<Errno>,
    },

    /// Opens `/proc` with `openat2(O_PATH)`; fails if it is not a procfs.
    OpenProc {
        /// Receives the descriptor.
        out: Reg,
    },
    /// Opens a file in procfs with `openat2(RESOLVE_BENEATH | RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS)`.
    OpenInProc {
        /// The procfs.
        proc: Handle,
        /// The file, relative to the procfs.
        path: &'a CStr,
        /// How to open it.
        flags: OFlags,
        /// Receives the descriptor.
        out: Reg,
    },

    // Files.
    /// Creates a directory with `mkdirat`.
    Mkdir {
        /// The directory.
        path: &'a CStr,
        /// Its permissions, less the umask.
        mode: Mode,
        /// An error that counts as success: `EEXIST` if the directory may exist.
        tolerate: Option<Errno>,
    },
    /// Creates a symlink with `symlinkat`.
    Symlink {
        /// The target that the link contains.
        target: &'a CStr,
        /// The path of the link.
        path: &'a CStr,
    },
    /// Mounts a new file system with `mount`.
    Mount {
        /// The source that the mount table shows.
        source: &'a CStr,
        /// The mount point.
        target: &'a CStr,
        /// The type of the file system.
        fstype: &'a CStr,
        /// `MS_*` flags of the mount.
        flags: MountFlags,
        /// Options of the file system, separated by commas.
        data: &'a CStr,
    },
    /// Bind mounts a tree with `mount(MS_BIND | MS_REC)`.
    MountBind {
        /// The tree to mount.
        source: &'a CStr,
        /// The mount point.
        target: &'a CStr,
    },
    /// Changes the propagation of a mount with `mount`.
    MountChange {
        /// The mount point.
        target: &'a CStr,
        /// The propagation to set.
        flags: MountPropagationFlags,
    },
    /// Detaches a mount with `umount2(MNT_DETACH)`.
    UmountDetach {
        /// The mount point.
        target: &'a CStr,
    },
    /// Changes the root of the mount namespace with `pivot_root`.
    PivotRoot {
        /// The new root, a mount point.
        new_root: &'a CStr,
        /// The directory to which the old root moves.
        put_old: &'a CStr,
    },
    /// Changes the working directory with `chdir`.
    Chdir {
        /// The directory.
        path: &'a CStr,
    },
    /// Changes the root directory with `chroot`.
    Chroot {
        /// The new root.
        path: &'a CStr,
    },
    /// Sets the file mode creation mask with `umask`.
    Umask {
        /// The permission bits that new files will lack.
        mask: Mode,
    },

    // Files and mounts, by descriptor, in a root file system that is not trusted.
    /// Finds a path with `openat2(O_PATH, RESOLVE_IN_ROOT)`, as if the root were `/`.
    OpenInRoot {
        /// A descriptor of the root directory.
        root: Handle,
        /// The path, relative to the root.
        path: &'a CStr,
        /// Receives the descriptor.
        out: Reg,
    },
    /// Like `OpenInRoot`, but only for a directory. A missing one is created with its parents.
    EnsureDirectory {
        /// A descriptor of the root directory.
        root: Handle,
        /// The path, relative to the root.
        target: PathInRoot<'a>,
        /// Receives the descriptor.
        out: Reg,
    },
    /// Finds a path, creates it if it is missing, and attaches a detached mount to it with `move_mount`. Fails with
    /// `EXDEV` if the path is on a procfs and `place` forbids that. The same error reports a mount that is not a
    /// procfs if `place` requires one.
    Attach {
        /// The detached mount.
        mount: Reg,
        /// A descriptor of the root directory.
        root: Handle,
        /// The path, relative to the root.
        target: PathInRoot<'a>,
        /// The kind of file that the path must be.
        place: MountPoint,
    },
    /// Creates a node with `mknodat`, then sets its owner with `fchownat`. An identical node that exists stays as it
    /// is.
    Mknod {
        /// The directory that contains it.
        directory: Handle,
        /// Its name in the directory.
        name: &'a CStr,
        /// The kind of node and its device number.
        node: Node,
        /// Its permissions, less the umask.
        mode: Mode,
        /// Its owner.
        uid: Uid,
        /// Its group.
        gid: Gid,
    },
    /// Creates a symlink with `symlinkat`.
    SymlinkIn {
        /// The directory that contains it.
        directory: Handle,
        /// Its name in the directory.
        name: &'a CStr,
        /// The target that the link contains.
        target: &'a CStr,
        /// An error that counts as success.
        tolerate: Option<Errno>,
    },
    /// Opens a context for configuring a new file system, with `fsopen`.
    Fsopen {
        /// The type of the file system.
        fstype: &'a CStr,
        /// Receives the descriptor.
        out: Reg,
    },
    /// Sets a parameter of a new file system with `fsconfig(FSCONFIG_SET_STRING)`.
    FsconfigString {
        /// The file system context.
        fs: Reg,
        /// The parameter.
        key: &'a CStr,
        /// The value to set, as text.
        value: &'a CStr,
    },
    /// Sets a flag of a new file system with `fsconfig(FSCONFIG_SET_FLAG)`.
    FsconfigFlag {
        /// The file system context.
        fs: Reg,
        /// The flag.
        key: &'a CStr,
    },
    /// Sets a parameter of a new file system to a descriptor with `fsconfig(FSCONFIG_SET_FD)`.
    FsconfigFd {
        /// The file system context.
        fs: Reg,
        /// The parameter.
        key: &'a CStr,
        /// The descriptor to set it to.
        fd: Handle,
    },
    /// Creates the configured file system (`fsconfig(FSCONFIG_CMD_CREATE)`, `fsmount`) and closes its context. A
    /// detached mount takes the context's register.
    Fsmount {
        /// Holds the file system context, then the mount.
        fs: Reg,
        /// The attributes of the mount.
        attributes: MountAttributes,
    },
    /// Copies a mount with `open_tree(OPEN_TREE_CLONE)`; the copy is detached.
    OpenTree {
        /// The path of the mount to copy.
        path: &'a CStr,
        /// Whether to include the mounts below it.
        extent: Extent,
        /// Receives the descriptor.
        out: Reg,
    },
    /// Like `OpenTree`, but asks the parent if the child lacks permission (`EACCES`). The parent then opens the tree
    /// in the child's mount namespace.
    OpenTreeOrRequest {
        /// The path of the mount to copy.
        path: &'a CStr,
        /// Whether to include the mounts below it.
        extent: Extent,
        /// The index by which the parent knows the mount.
        mount: u32,
        /// Receives the descriptor.
        out: Reg,
    },
    /// Asks the parent for a mount that only the parent can make: an idmapped tree, opened in the child's mount
    /// namespace, or a device node.
    RequestTree {
        /// The index by which the parent knows the mount.
        mount: u32,
        /// Receives the descriptor.
        out: Reg,
    },
    /// Copies the mount of a device node with `open_tree(OPEN_TREE_CLONE)`; fails with `ENODEV` if it is another
    /// device.
    OpenDevice {
        /// The path of the node on the host.
        path: &'a CStr,
        /// The device that the node must be.
        node: Node,
        /// Receives the copy of the mount.
        out: Reg,
    },
    /// Gives the root of a new file system the permissions of the path that it will cover (`openat2`, `fstat`,
    /// `fsconfig` of `mode`). If the path does not exist, the root keeps its default permissions.
    FsconfigModeOf {
        /// The file system context.
        fs: Reg,
        /// A descriptor of the root directory.
        root: Handle,
        /// The path, relative to the root.
        path: &'a CStr,
    },
    /// Copies the content of a directory into the mount that will cover it.
    CopyUp {
        /// A descriptor of the root directory.
        root: Handle,
        /// The path, relative to the root.
        path: &'a CStr,
        /// The detached mount.
        mount: Reg,
    },
    /// Opens a mounted file system for reconfiguration, with `fspick`.
    Fspick {
        /// A descriptor of the file system's mount.
        mount: Handle,
        /// Receives the configuration.
        out: Reg,
    },
    /// Applies a configuration with `fsconfig(FSCONFIG_CMD_RECONFIGURE)` and closes it.
    Reconfigure {
        /// The configuration.
        fs: Reg,
    },
    /// Sets `security.selinux` on the root of a mount with `fsetxattr`.
    Label {
        /// A descriptor of the mount.
        mount: Reg,
        /// The SELinux label to set.
        label: &'a [u8],
    },
    /// Unmounts with `umount2(MNT_DETACH)` without propagating the change, or covers a locked mount with a tmpfs. A
    /// path that does not exist counts as success.
    Hide {
        /// The mount point.
        path: &'a CStr,
    },
    /// Removes a file that is not a directory, with `unlinkat`. A missing file counts as success.
    UnlinkIn {
        /// The directory that contains it.
        directory: Handle,
        /// Its name in the directory.
        name: &'a CStr,
    },
    /// Calls `mount_setattr`, and repeats it without `unlocked` if it fails with `EPERM`. Attributes that an outer user
    /// namespace locked then stay set. If `change` clears one of them, the step fails.
    MountSetattrUnlocked {
        /// A descriptor of the mount.
        mount: Handle,
        /// The change that must succeed.
        change: AttributeChange,
        /// The attributes to clear too if they are not locked.
        unlocked: MountAttributes,
    },
    /// Sets the propagation of the mount that contains a directory, with `mount_setattr`. It looks for the root of
    /// that mount from the directory upward.
    MountSetattrAbove {
        /// The directory at which the search begins.
        directory: Handle,
        /// The propagation to set.
        propagation: MountPropagationFlags,
    },
    /// Like `OpenTree`, but copies the mount that `fd` was opened on; `fd` becomes the root of the copy.
    OpenTreeOf {
        /// The directory or file to copy.
        fd: Handle,
        /// Whether to include the mounts below it.
        extent: Extent,
        /// Receives the descriptor.
        out: Reg,
    },
    /// Changes attributes and propagation of a mount with `mount_setattr`.
    MountSetattr {
        /// A descriptor of the mount.
        mount: Handle,
        /// Whether to include the mounts below it.
        extent: Extent,
        /// The attributes to set and to clear.
        change: AttributeChange,
        /// The propagation to set; empty to leave it unchanged.
        propagation: MountPropagationFlags,
    },
    /// Attaches a detached mount to a path with `move_mount`.
    MoveMount {
        /// The detached mount.
        mount: Handle,
        /// The mount point.
        target: Handle,
    },
    /// Makes a path unreadable: an empty directory covers a directory, the null device covers anything else. A missing
    /// path counts as success.
    Mask {
        /// A descriptor of the root directory.
        root: Handle,
        /// The path, relative to the root.
        path: &'a CStr,
        /// The host's null device.
        null: Handle,
        /// An empty directory, created by the first step that needs it.
        empty: Reg,
    },
    /// Makes a path and all mounts below it read-only. A missing path counts as success.
    ReadOnly {
        /// A descriptor of the root directory.
        root: Handle,
        /// The path, relative to the root.
        path: &'a CStr,
    },
    /// Changes into a directory with `openat2(O_PATH, RESOLVE_IN_ROOT)` and `fchdir`, unless an earlier step did.
    Enter {
        /// A descriptor of the root directory.
        root: Handle,
        /// The directory, relative to the root.
        path: &'a CStr,
        /// Receives the directory's descriptor, which tells later steps that it was entered.
        entered: Reg,
        /// An error that leaves the directory to a later step.
        tolerate: Option<Errno>,
    },
    /// Changes the working directory to a descriptor with `fchdir`.
    Fchdir {
        /// The new working directory.
        directory: Handle,
    },

    // Session and terminal.
    /// Joins a session keyring with `keyctl(KEYCTL_JOIN_SESSION_KEYRING)`, and adds these permissions to those it has
    /// (`KEYCTL_DESCRIBE`, `KEYCTL_SETPERM`).
    JoinSessionKeyring {
        /// The name of the keyring.
        name: &'a CStr,
        /// `KEY_*` permissions to add (keyctl_setperm(3)).
        permissions: u32,
        /// An error that counts as success: `ENOSYS` if the kernel may lack keyrings.
        tolerate: Option<Errno>,
    },
    /// Starts a new session with `setsid`.
    Setsid,
    /// Joins a process group with `setpgid`, or leads a new one.
    Setpgid {
        /// The group to join, or `None` for a new one.
        group: Option<Pid>,
    },
    /// Acquires a controlling terminal with `ioctl(TIOCSCTTY)`.
    Tiocsctty {
        /// A descriptor of the terminal.
        terminal: Fd,
    },
    /// Makes the child's process group the foreground group with `tcsetpgrp`.
    Tcsetpgrp {
        /// A descriptor of the terminal.
        terminal: Fd,
    },

    /// Opens both ends of a new pseudoterminal without using its name: `openat2` of `ptmx`, `ioctl(TIOCSPTLCK)` and
    /// `ioctl(TIOCGPTPEER)`. Fails if the directory is not a devpts.
    OpenPty {
        /// A descriptor of the root directory.
        root: Handle,
        /// The directory, relative to the root.
        path: &'a CStr,
        /// Receives the master.
        master: Reg,
        /// Receives the slave, which programs use.
        slave: Reg,
    },
    /// Sets the window size with `ioctl(TIOCSWINSZ)`.
    Tiocswinsz {
        /// A descriptor of the terminal.
        terminal: Handle,
        /// The number of lines.
        rows: u16,
        /// The number of characters in a line.
        columns: u16,
    },

    // Signals.
    /// Resets every handler to its default. Needed only if the child was created without `CLONE_CLEAR_SIGHAND`.
    ResetHandlers,
    /// Sets the default action with `rt_sigaction(SIG_DFL)`.
    DefaultAction {
        /// The signal to reset.
        signal: Signal,
    },
    /// Installs a handler with `rt_sigaction` that ends the process, until exec resets it. The kernel ignores a signal
    /// without a handler in the first process of a pid namespace.
    ExitOnSignal {
        /// The signal to catch.
        signal: Signal,
    },
    /// Ignores a signal with `rt_sigaction(SIG_IGN)`.
    IgnoreSignal {
        /// The signal to ignore.
        signal: Signal,
    },
    /// Sets the signal mask with `rt_sigprocmask(SIG_SETMASK)`. Unblocked signals that became pending since the clone
    /// are delivered here.
    SignalMask {
        /// The signals that are blocked from here on.
        blocked: SignalSet,
    },
    /// Sets the parent-death signal with `prctl(PR_SET_PDEATHSIG)`; fails with `ESRCH` if the parent has already died.
    ParentDeathSignal {
        /// The signal to receive.
        signal: Signal,
        /// The parent's pid, or `None` in another pid namespace, where the child cannot see it.
        parent: Option<Pid>,
    },

    // Namespaces.
    /// Creates namespaces with `unshare`.
    Unshare {
        /// The kinds of namespaces to create.
        namespaces: Namespaces,
    },
    /// Joins existing namespaces with `setns`.
    Setns {
        /// A namespace, or the pidfd of a process in the namespaces to join.
        fd: Handle,
        /// The kinds of namespaces to join.
        namespaces: Namespaces,
    },
    /// Continues the list in a new process, made by `clone(CLONE_PARENT)` without shared memory; the first process
    /// exits. The new process inherits the registers and all other state. It enters the pid namespace that was joined,
    /// or new namespaces. Both processes are children of the parent.
    CloneParent {
        /// The kinds of namespaces to create, except time.
        namespaces: Namespaces,
    },
    /// Continues the list in a new process, made by `clone` without shared memory. The new process inherits the
    /// registers and all other state.
    ///
    /// The first process must be the first of its pid namespace. It closes all descriptors except the channel, reaps
    /// every child, and forwards signals to the program's process group. It tells the parent over the channel, if
    /// there is one, when the program stops. When the program ends, it records the status and asks the parent about
    /// remaining processes, if there are any. Then it exits, which kills them.
    CloneAndReap {
        /// A directory. If the program fails, it is recorded whether the file system there is full.
        space: Option<&'a CStr>,
    },
    /// Like `CloneAndReap`, but by `vfork`: the new process uses the first one's memory until exec. Until then the
    /// first process waits and handles no signals. Not for a program that may be stopped before exec, or that must not
    /// share the memory.
    VforkAndReap {
        /// As for `CloneAndReap`.
        space: Option<&'a CStr>,
    },
    /// Sets the host name with `sethostname`.
    Sethostname {
        /// The new host name.
        name: &'a [u8],
    },
    /// Sets the NIS domain name with `setdomainname`.
    Setdomainname {
        /// The new domain name.
        name: &'a [u8],
    },
    /// Brings the loopback device up with `socket` and `ioctl(SIOCSIFFLAGS)`.
    LoopbackUp,
    /// Starts a thread that creates a network namespace with `unshare`, and goes on meanwhile. The descriptors of the
    /// process are shared with the thread until [`JoinNewNet`](Self::JoinNewNet), which must come before the steps
    /// that need the namespace or close unknown descriptors. Only in a new pid namespace, in which the thread gets a
    /// high number with `clone3`.
    NewNet {
        /// Whether the thread brings the loopback device up, as [`LoopbackUp`](Self::LoopbackUp) does.
        loopback: bool,
    },
    /// Waits for the thread of [`NewNet`](Self::NewNet), and joins its network namespace with `setns`. Fails with the
    /// error of the thread.
    JoinNewNet,
    /// Sends a request to the parent and waits until it is done.
    Request {
        /// The request.
        what: Request,
    },
    /// Runs a program beside the child and waits for it; fails if the program fails.
    Hook {
        /// The program.
        hook: &'a HookCommand<'a>,
    },
    /// Like `Request`, but sends a copy of a descriptor with `sendmsg(SCM_RIGHTS)`.
    RequestWith {
        /// The request.
        what: Request,
        /// The descriptor to send.
        fd: Handle,
    },

    // Limits.
    /// Sets a resource limit with `setrlimit`.
    Setrlimit {
        /// The resource to limit.
        resource: Resource,
        /// The soft and hard limits; `None` is unlimited.
        limit: Rlimit,
    },
    /// Sets the nice value with `setpriority`.
    Setpriority {
        /// -20 to 19.
        nice: i32,
    },
    /// Sets the scheduling policy with `sched_setattr`.
    SchedSetattr {
        /// The policy with its parameters.
        attr: SchedAttr,
    },
    /// Sets the CPUs that the process may use, with `sched_setaffinity`.
    SchedSetaffinity {
        /// Bit `n % 64` of word `n / 64` stands for CPU `n`.
        mask: &'a [u64],
    },
    /// Sets the I/O priority with `ioprio_set`.
    IoprioSet {
        /// 1 is real-time, 2 is best-effort, 3 is idle.
        class: u8,
        /// 0 (highest) to 7.
        level: u8,
    },

    /// Sets the NUMA memory policy with `set_mempolicy`.
    SetMempolicy {
        /// `MPOL_*` with its flags.
        mode: u32,
        /// Bit `n % 64` of word `n / 64` stands for node `n`.
        nodes: &'a [u64],
    },
    /// Selects the system that the program sees, with `personality`.
    Personality {
        /// `PER_*`.
        persona: u32,
    },

    // Identity.
    /// Sets the supplementary groups with `setgroups`.
    Setgroups {
        /// All supplementary groups.
        groups: &'a [Gid],
    },
    /// Sets the real, effective and saved group with `setresgid`.
    Setresgid {
        /// The group.
        gid: Gid,
    },
    /// Sets the real, effective and saved user with `setresuid`.
    Setresuid {
        /// The user.
        uid: Uid,
    },
    /// Prevents later execs from granting privileges, with `prctl(PR_SET_NO_NEW_PRIVS)`.
    NoNewPrivs,
    /// Gives up all memory that the rest of the list does not need, with `madvise(MADV_DONTNEED)`. A process that may
    /// inspect the child then cannot read the parent's data there. Only for a process with its own memory.
    ForgetMemory,
    /// Makes the process undumpable with `prctl(PR_SET_DUMPABLE)`. Until exec, only a process with privileges over it
    /// can inspect it or the processes that share its memory.
    Undumpable,

    /// Drops every capability that is not in `keep`, with `prctl(PR_CAPBSET_DROP)`.
    DropBounding {
        /// A bit for each capability to keep.
        keep: u64,
    },
    /// Sets whether capabilities survive a change of user, with `prctl(PR_SET_KEEPCAPS)`.
    KeepCaps {
        /// Whether permitted capabilities survive giving up uid 0.
        keep: KeepCaps,
    },
    /// Sets the capabilities with `capset`.
    Capset {
        /// The effective, permitted and inheritable sets.
        capabilities: Capabilities,
    },
    /// Raises each of these capabilities with `prctl(PR_CAP_AMBIENT_RAISE)`.
    RaiseAmbient {
        /// A bit for each capability.
        capabilities: u64,
    },
    /// Creates a ruleset with `landlock_create_ruleset` that handles these rights and allows none of them.
    LandlockRuleset {
        /// The `LANDLOCK_ACCESS_FS_*` rights to handle.
        handled: u64,
        /// The `LANDLOCK_SCOPE_*` flags.
        scoped: u64,
        /// Receives the ruleset.
        out: Reg,
    },
    /// Allows access to a file, or to a directory and everything below it, with `landlock_add_rule`. For a file it
    /// leaves out the rights that apply only to directories.
    LandlockAllow {
        /// A descriptor of the ruleset.
        ruleset: Handle,
        /// The file or directory.
        beneath: Handle,
        /// The `LANDLOCK_ACCESS_FS_*` rights; the ruleset must handle all of them.
        rights: u64,
        /// An error that counts as success.
        tolerate: Option<Errno>,
    },
    /// Applies the ruleset to the process and its descendants with `landlock_restrict_self`.
    LandlockRestrict {
        /// A descriptor of the ruleset.
        ruleset: Handle,
    },
    /// Installs a filter with `seccomp(SECCOMP_SET_MODE_FILTER)`.
    Seccomp {
        /// `SECCOMP_FILTER_FLAG_*`.
        flags: u32,
        /// The BPF program.
        program: &'a [SockFilter],
    },

    /// Installs a filter with `SECCOMP_FILTER_FLAG_NEW_LISTENER`, sends the listener's number to the parent, waits for
    /// the answer, and closes the listener.
    SeccompListener {
        /// `SECCOMP_FILTER_FLAG_*`.
        flags: u32,
        /// The BPF program.
        program: &'a [SockFilter],
    },
    /// Installs a filter with `SECCOMP_FILTER_FLAG_NEW_LISTENER`. The listener can be sent to a parent that has no
    /// privileges over the child.
    OpenSeccompListener {
        /// `SECCOMP_FILTER_FLAG_*`.
        flags: u32,
        /// The BPF program.
        program: &'a [SockFilter],
        /// Receives the listener.
        out: Reg,
    },

    // Exec.
    /// Checks the candidates in order with `openat2` and `faccessat`, until one is executable.
    CheckExecutable {
        /// The paths to check.
        candidates: &'a [&'a CStr],
    },
    /// Tells the parent that the child is ready, clears the parent-death signal, and waits for a connection. The child
    /// reports later failures over that connection.
    Park {
        /// A listening socket.
        listener: Fd,
    },
    /// Tries `execve` on each candidate in order until one succeeds.
    ExecveFirst {
        /// The paths to try.
        candidates: &'a [&'a CStr],
        /// Its arguments, `argv[0]` included.
        argv: CArray<'a>,
        /// Its environment.
        envp: CArray<'a>,
    },
    /// Executes the program with `execve`, which ends the list.
    Execve {
        /// The program.
        path: &'a CStr,
        /// Its arguments, `argv[0]` included.
        argv: CArray<'a>,
        /// Its environment.
        envp: CArray<'a>,
    },
}

impl Step<'_> {
    /// Returns whether the list continues in a process with its own memory.
    #[must_use]
    pub const fn leaves_memory(&self) -> bool {
        matches!(self, Step::CloneParent { .. } | Step::CloneAndReap { .. })
    }

    /// Returns the request that the step makes, or may make.
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
