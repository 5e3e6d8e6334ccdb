//! Formats steps as text, in the words that listings and error messages use.
//!
//! This is a separate crate so that `husk-script`, which runs where nothing may be formatted, holds no formatting
//! code. It has no state and makes no system call.

#![forbid(unsafe_code)]

mod cause;
mod words;

pub use cause::Cause;

use core::fmt::{self, Display, Formatter};
use husk_script::hook::Failed;
use husk_script::sys::Fd;
use husk_script::sys::at::Node;
use husk_script::sys::limits::SchedAttr;
use husk_script::sys::mount::{AttributeChange, Extent, MountAttributes, MountPropagationFlags};
use husk_script::sys::namespace::Namespaces;
use husk_script::sys::process::{Capabilities, KeepCaps};
use husk_script::{Handle, Request, Step};
use std::ffi::CStr;

/// Formats a step as a line of a listing, without its number.
///
/// ```
/// use husk_listing::Line;
/// use husk_script::Step;
///
/// assert_eq!(Line(&Step::Chdir { path: c"/srv" }).to_string(), "cwd /srv");
/// ```
pub struct Line<'a>(pub &'a Step<'a>);

/// Formats how a hook failed after its program had started.
pub struct FailedHook(pub Failed);

impl Display for FailedHook {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Failed::Exited(status) => write!(f, "exit status {status}"),
            // A seccomp filter sends this signal for a call that it does not allow.
            Failed::Killed(31) => f.write_str("killed by signal 31: bad system call"),
            Failed::Killed(signal) => write!(f, "killed by signal {signal}"),
            Failed::TimedOut => f.write_str("timed out and was killed"),
        }
    }
}

impl Display for Line<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self.0 {
            Step::Open { path, out, .. } => write!(f, "r{} = open {}", out.index(), Text(path)),
            Step::Close { fd } => write!(f, "close {}", Descriptor(fd)),
            Step::CloseOthers { first, keep } => {
                f.write_str("close others")?;
                if first != Fd::FIRST_EXTRA {
                    write!(f, " from {}", first.number())?;
                }
                keep.map_or(Ok(()), |fd| write!(f, " but {}", fd.number()))
            }
            Step::FchownStreams { uid, .. } => write!(f, "owner of streams {}", uid.as_raw()),
            Step::OpenProc { out } => write!(f, "r{} = open /proc", out.index()),
            Step::OpenInProc { path, out, .. } => write!(f, "r{} = open in proc {}", out.index(), Text(path)),
            Step::CloseRange { first, last } => write!(f, "close {}-{}", first.number(), last.number()),
            Step::CloseRangeOnExec { first, last } => {
                write!(f, "close-on-exec {}-{}", first.number(), last.number())
            }
            Step::Dup { from, least, out } => {
                write!(f, "r{} = dup {} at least {}", out.index(), Descriptor(from), least.number())
            }
            Step::Dup3 { from, to } => write!(f, "dup {} -> {}", Descriptor(from), to.number()),
            Step::KeepOnExec { fd } => write!(f, "keep {}", fd.number()),
            Step::Await { fd } => write!(f, "await {}", Descriptor(fd)),
            Step::Write { fd, bytes } => write!(f, "write {} {}", Descriptor(fd), Bytes(bytes)),
            Step::WriteFile { path, bytes, .. } => write!(f, "write {} {}", Text(path), Bytes(bytes)),

            Step::Mkdir { path, mode, .. } => write!(f, "mkdir {} {:03o}", Text(path), mode.bits()),
            Step::Symlink { target, path } => write!(f, "symlink {} -> {}", Text(path), Text(target)),
            Step::Mount { source, target, fstype, flags, data } => {
                write!(f, "mount {} {} {}", Text(fstype), Text(source), Text(target))?;
                let flags = flags.iter_names().map(|(name, _)| name.to_ascii_lowercase());
                let data = Some(data).filter(|data| !data.is_empty()).map(|data| Text(data).to_string());
                let options: Vec<_> = flags.chain(data).collect();
                if options.is_empty() { Ok(()) } else { write!(f, " {}", options.join(",")) }
            }
            Step::MountBind { source, target } => write!(f, "bind {} {}", Text(source), Text(target)),
            Step::MountChange { target, flags } => {
                write!(f, "propagation {}{}", Text(target), PropagationOf(flags))
            }
            Step::UmountDetach { target } => write!(f, "umount {}", Text(target)),
            Step::PivotRoot { new_root, put_old } => {
                write!(f, "pivot-root {} {}", Text(new_root), Text(put_old))
            }
            Step::Chdir { path } => write!(f, "cwd {}", Text(path)),
            Step::Chroot { path } => write!(f, "chroot {}", Text(path)),
            Step::Umask { mask } => write!(f, "umask {:03o}", mask.bits()),

            Step::OpenInRoot { path, out, .. } => write!(f, "r{} = find {}", out.index(), Text(path)),
            Step::EnsureDirectory { target, out, .. } => {
                write!(f, "r{} = directory {}", out.index(), Text(target.path))
            }
            Step::Attach { mount, target, .. } => {
                write!(f, "attach r{} -> {}", mount.index(), Text(target.path))
            }
            Step::Mknod { name, node, mode, .. } => {
                write!(f, "mknod {} {} {:03o}", Text(name), NodeText(node), mode.bits())
            }
            Step::SymlinkIn { name, target, .. } => write!(f, "symlink {} -> {}", Text(name), Text(target)),
            Step::Fsopen { fstype, out } => write!(f, "r{} = fsopen {}", out.index(), Text(fstype)),
            Step::FsconfigString { fs, key, value } => {
                write!(f, "fsconfig r{} {}={}", fs.index(), Text(key), Text(value))
            }
            Step::FsconfigFlag { fs, key } => write!(f, "fsconfig r{} {}", fs.index(), Text(key)),
            Step::FsconfigFd { fs, key, fd } => {
                write!(f, "fsconfig r{} {}={}", fs.index(), Text(key), Descriptor(fd))
            }
            Step::Fsmount { fs, attributes } => {
                write!(f, "fsmount r{}{}", fs.index(), Attributes("", attributes))
            }
            Step::OpenTree { path, extent, out } => {
                write!(f, "r{} = open-tree {}{}", out.index(), Text(path), ExtentText(extent))
            }
            Step::OpenDevice { path, node, out } => {
                write!(f, "r{} = open-device {} {}", out.index(), Text(path), NodeText(node))
            }
            Step::OpenTreeOrRequest { path, extent, mount, out } => {
                let below = ExtentText(extent);
                write!(f, "r{} = open-tree {}{below} or request tree {mount}", out.index(), Text(path))
            }
            Step::RequestTree { mount, out } => write!(f, "r{} = request tree {mount}", out.index()),
            Step::FsconfigModeOf { fs, path, .. } => {
                write!(f, "fsconfig r{} mode of {}", fs.index(), Text(path))
            }
            Step::CopyUp { path, mount, .. } => write!(f, "copy {} -> r{}", Text(path), mount.index()),
            Step::Fspick { mount, out } => write!(f, "r{} = fspick {}", out.index(), Descriptor(mount)),
            Step::Label { mount, label } => write!(f, "label r{} {}", mount.index(), Bytes(label)),
            Step::Hide { path } => write!(f, "hide {}", Text(path)),
            Step::UnlinkIn { name, .. } => write!(f, "unlink {}", Text(name)),
            Step::Reconfigure { fs } => write!(f, "reconfigure r{}", fs.index()),
            Step::MountSetattrUnlocked { mount, change, unlocked } => {
                write!(f, "attributes {}{}{}", Descriptor(mount), Change(change), Attributes("?", unlocked))
            }
            Step::MountSetattrAbove { directory, propagation } => {
                write!(f, "attributes above {}{}", Descriptor(directory), PropagationOf(propagation))
            }
            Step::OpenTreeOf { fd, extent, out } => {
                write!(f, "r{} = open-tree {}{}", out.index(), Descriptor(fd), ExtentText(extent))
            }
            Step::MountSetattr { mount, extent, change, propagation } => {
                write!(f, "attributes {}{}", Descriptor(mount), ExtentText(extent))?;
                write!(f, "{}{}", Change(change), PropagationOf(propagation))
            }
            Step::MoveMount { mount, target } => {
                write!(f, "move-mount {} -> {}", Descriptor(mount), Descriptor(target))
            }
            Step::Mask { path, .. } => write!(f, "mask {}", Text(path)),
            Step::ReadOnly { path, .. } => write!(f, "read-only {}", Text(path)),
            Step::Enter { root, path, entered, .. } => {
                write!(f, "{} = enter {} below {}", Descriptor(entered.into()), Text(path), Descriptor(root))
            }
            Step::Fchdir { directory } => write!(f, "cwd {}", Descriptor(directory)),

            Step::JoinSessionKeyring { name, .. } => write!(f, "session-keyring {}", Text(name)),
            Step::Setsid => f.write_str("setsid"),
            Step::Setpgid { group: None } => f.write_str("process-group new"),
            Step::Setpgid { group: Some(group) } => write!(f, "process-group {}", group.as_raw_pid()),
            Step::Tiocsctty { terminal } => write!(f, "controlling-terminal {}", terminal.number()),
            Step::Tcsetpgrp { terminal } => write!(f, "foreground {}", terminal.number()),
            Step::OpenPty { path, master, slave, .. } => {
                write!(f, "r{}, r{} = open-pty {}", master.index(), slave.index(), Text(path))
            }
            Step::Tiocswinsz { terminal, rows, columns } => {
                write!(f, "window-size {} {rows} {columns}", Descriptor(terminal))
            }

            Step::ResetHandlers => f.write_str("signals default"),
            Step::DefaultAction { signal } => write!(f, "signal {} default", signal.number()),
            Step::ExitOnSignal { signal } => write!(f, "signal {} exit", signal.number()),
            Step::IgnoreSignal { signal } => write!(f, "signal {} ignore", signal.number()),
            Step::SignalMask { blocked } => write!(f, "signal-mask {:#x}", blocked.bits()),
            Step::ParentDeathSignal { signal, .. } => write!(f, "parent-death-signal {}", signal.number()),

            Step::Unshare { namespaces } => write!(f, "unshare {}", Kinds(namespaces)),
            Step::Setns { fd, namespaces } => write!(f, "join {} {}", Kinds(namespaces), Descriptor(fd)),
            Step::CloneParent { namespaces } if namespaces.is_empty() => f.write_str("clone-parent"),
            Step::CloneParent { namespaces } => write!(f, "clone-parent with new {}", Kinds(namespaces)),
            Step::CloneAndReap { space: None } => f.write_str("clone-and-reap"),
            Step::CloneAndReap { space: Some(path) } => write!(f, "clone-and-reap space {}", Text(path)),
            Step::VforkAndReap { space: None } => f.write_str("vfork-and-reap"),
            Step::VforkAndReap { space: Some(path) } => write!(f, "vfork-and-reap space {}", Text(path)),
            Step::Sethostname { name } => write!(f, "hostname {}", Bytes(name)),
            Step::Setdomainname { name } => write!(f, "domainname {}", Bytes(name)),
            Step::LoopbackUp => f.write_str("loopback up"),
            Step::NewNet { loopback: false } => f.write_str("begin new net"),
            Step::NewNet { loopback: true } => f.write_str("begin new net, loopback up"),
            Step::JoinNewNet => f.write_str("join new net"),
            Step::Hook { hook } => {
                write!(f, "hook {}", Text(hook.path))?;
                for (name, stream) in ["stdout", "stderr"].into_iter().zip(hook.streams) {
                    stream.map_or(Ok(()), |stream| write!(f, " {name} -> {}", Descriptor(stream)))?;
                }
                let limit = hook.timeout_seconds;
                limit.map_or(Ok(()), |seconds| write!(f, " at most {seconds} s"))
            }
            Step::Request { what } => write!(f, "request {}", Wish(what)),
            Step::RequestWith { what, fd } => write!(f, "request {} {}", Wish(what), Descriptor(fd)),

            Step::Setrlimit { resource, limit } => {
                let limits = (Limit(limit.current), Limit(limit.maximum));
                write!(f, "rlimit {} {} {}", format!("{resource:?}").to_ascii_lowercase(), limits.0, limits.1)
            }
            Step::Setpriority { nice } => write!(f, "nice {nice}"),
            Step::SchedSetattr { attr } => scheduler(&attr, f),
            Step::SchedSetaffinity { mask } if mask.iter().all(|word| *word == u64::MAX) => {
                f.write_str("affinity all")
            }
            Step::SchedSetaffinity { mask } => {
                f.write_str("affinity")?;
                mask.iter().rev().try_for_each(|word| write!(f, " {word:016x}"))
            }
            Step::IoprioSet { class, level } => write!(f, "io-priority {class} {level}"),

            Step::SetMempolicy { mode, nodes } => {
                write!(f, "memory-policy {mode:#x}")?;
                let bits = nodes.iter().enumerate().flat_map(|(index, word)| {
                    (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| index * 64 + bit)
                });
                let nodes: Vec<_> = bits.map(|node| node.to_string()).collect();
                if nodes.is_empty() { Ok(()) } else { write!(f, " nodes {}", nodes.join(",")) }
            }
            Step::Personality { persona } => write!(f, "personality {persona:#x}"),

            Step::Setgroups { groups } => {
                f.write_str("groups")?;
                groups.iter().try_for_each(|group| write!(f, " {}", group.as_raw()))
            }
            Step::Setresgid { gid } => write!(f, "gid {}", gid.as_raw()),
            Step::Setresuid { uid } => write!(f, "uid {}", uid.as_raw()),
            Step::NoNewPrivs => f.write_str("no-new-privileges"),
            Step::ForgetMemory => f.write_str("forget-memory"),
            Step::Undumpable => f.write_str("undumpable"),

            Step::DropBounding { keep } => write!(f, "bounding {keep:#x}"),
            Step::KeepCaps { keep: KeepCaps::Yes } => f.write_str("keep-capabilities"),
            Step::KeepCaps { keep: KeepCaps::No } => f.write_str("lose-capabilities"),
            Step::Capset { capabilities: Capabilities { effective, permitted, inheritable } } => write!(
                f,
                "capabilities effective {effective:#x} permitted {permitted:#x} inheritable {inheritable:#x}"
            ),
            Step::RaiseAmbient { capabilities } => write!(f, "ambient {capabilities:#x}"),
            Step::LandlockRuleset { handled, scoped, out } => {
                write!(f, "r{} = landlock {handled:#x} scoped {scoped:#x}", out.index())
            }
            Step::LandlockAllow { ruleset, beneath, rights, .. } => {
                write!(f, "landlock {} allow {} {rights:#x}", Descriptor(ruleset), Descriptor(beneath))
            }
            Step::LandlockRestrict { ruleset } => write!(f, "landlock {} restrict", Descriptor(ruleset)),
            Step::Seccomp { program, .. } => write!(f, "seccomp {} instructions", program.len()),

            Step::SeccompListener { program, .. } => {
                write!(f, "seccomp {} instructions, with a listener", program.len())
            }
            Step::OpenSeccompListener { program, out, .. } => {
                write!(f, "r{} = seccomp {} instructions, with a listener", out.index(), program.len())
            }
            Step::CheckExecutable { candidates } => write!(f, "find {}", Names(candidates)),
            Step::Park { .. } => f.write_str("park"),
            Step::ExecveFirst { candidates, .. } => write!(f, "exec {}", Names(candidates)),
            Step::Execve { path, .. } => write!(f, "exec {}", Text(path)),
        }
    }
}

/// Formats a string for the kernel, and escapes bytes that are not text.
struct Text<'a>(&'a CStr);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0.to_bytes() {
            b"" => f.write_str("\"\""),
            bytes => write!(
                f,
                "{}",
                bytes
                    .utf8_chunks()
                    .map(|chunk| chunk.valid().escape_debug().to_string()
                        + &chunk.invalid().escape_ascii().to_string())
                    .collect::<String>()
            ),
        }
    }
}

/// Formats the bytes that a step writes, quoted.
struct Bytes<'a>(&'a [u8]);

impl Display for Bytes<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

struct Wish(Request);

impl Display for Wish {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Request::IdMaps => "id-maps",
            Request::Parked => "parked",
            Request::Hooks => "hooks",
            Request::Listener => "listener",
            Request::NetDevices => "net-devices",
            Request::Tree => "tree",
            Request::Terminal => "terminal",
            Request::Scheduler => "scheduler",
            Request::Cgroup => "cgroup",
            Request::RemainingProcesses => "leftovers",
            Request::Stopped => "stopped",
            Request::Files => "files",
        })
    }
}

struct Descriptor(Handle);

impl Display for Descriptor {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Handle::Number(fd) => write!(f, "{}", fd.number()),
            Handle::Register(register) => write!(f, "r{}", register.index()),
        }
    }
}

/// Formats kinds of namespaces by their names in `/proc/PID/ns`: `mnt,pid`.
pub struct Kinds(pub Namespaces);

impl Display for Kinds {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let names =
            Namespaces::NAMES.iter().filter(|(kind, _)| self.0.contains(*kind)).map(|(_, name)| *name);
        f.write_str(&names.collect::<Vec<_>>().join(","))
    }
}

/// Formats the type and numbers of a node like `ls -l`.
struct NodeText(Node);

impl Display for NodeText {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Node::Character(major, minor) => write!(f, "c {major}:{minor}"),
            Node::Block(major, minor) => write!(f, "b {major}:{minor}"),
            Node::Fifo => f.write_str("p"),
        }
    }
}

/// Formats whether a step includes the mounts below a mount.
struct ExtentText(Extent);

impl Display for ExtentText {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Extent::Top => "",
            Extent::All => " recursive",
        })
    }
}

/// Formats mount attributes by their names in mount(8), after a space and a prefix.
struct Attributes(&'static str, MountAttributes);

impl Display for Attributes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let set = MountAttributes::NAMES.iter().filter(|(attribute, _)| self.1.contains(*attribute));
        let names: Vec<_> = set.map(|(_, name)| *name).collect();
        if names.is_empty() { Ok(()) } else { write!(f, " {}{}", self.0, names.join(",")) }
    }
}

/// Formats a change of mount attributes: ` +ro,nosuid -nodev`.
struct Change(AttributeChange);

impl Display for Change {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Attributes("+", self.0.set), Attributes("-", self.0.clear))
    }
}

/// Formats propagation by its name in mount(8), after a space.
struct PropagationOf(MountPropagationFlags);

impl Display for PropagationOf {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        const NAMES: [(MountPropagationFlags, &str); 4] = [
            (MountPropagationFlags::SHARED, "shared"),
            (MountPropagationFlags::DOWNSTREAM, "slave"),
            (MountPropagationFlags::PRIVATE, "private"),
            (MountPropagationFlags::UNBINDABLE, "unbindable"),
        ];
        let recursive = if self.0.contains(MountPropagationFlags::REC) { "r" } else { "" };
        let named = NAMES.iter().filter(|(kind, _)| self.0.contains(*kind));
        named.map(|(_, name)| name).try_for_each(|name| write!(f, " {recursive}{name}"))
    }
}

/// Formats alternatives, joined by `or`.
struct Names<'a>(&'a [&'a CStr]);

impl Display for Names<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (index, name) in self.0.iter().enumerate() {
            write!(f, "{}{}", if index == 0 { "" } else { " or " }, Text(name))?;
        }
        Ok(())
    }
}

struct Limit(Option<u64>);

impl Display for Limit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(limit) => write!(f, "{limit}"),
            None => f.write_str("unlimited"),
        }
    }
}

/// Writes a scheduling policy by its name in sched(7), with its parameters.
fn scheduler(attr: &SchedAttr, f: &mut Formatter<'_>) -> fmt::Result {
    const NAMES: &[(u32, &str)] = &[
        (0, "SCHED_OTHER"),
        (1, "SCHED_FIFO"),
        (2, "SCHED_RR"),
        (3, "SCHED_BATCH"),
        (5, "SCHED_IDLE"),
        (6, "SCHED_DEADLINE"),
        (7, "SCHED_EXT"),
    ];
    let SchedAttr { policy, nice, priority, runtime, deadline, period, .. } = attr;
    match NAMES.iter().find(|(number, _)| number == policy) {
        Some((_, name)) => write!(f, "scheduler {name}")?,
        None => write!(f, "scheduler {policy}")?,
    }
    match policy {
        1 | 2 => write!(f, " priority {priority}"),
        6 => write!(f, " runtime {runtime} deadline {deadline} period {period}"),
        _ => write!(f, " nice {nice}"),
    }
}
