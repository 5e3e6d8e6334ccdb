//! The program's seccomp filter. It refuses system calls that tests do not need, and those that namespaces do not
//! confine.

use crate::explain::calls;
use crate::host::Host;
use husk_script::sys::process::{SockFilter, seccomp_knows};
use husk_seccomp::{
    Abi, Action, Arch, Argument, Comparison, Condition, Error, Flags, Machine, Profile, Rule, Table,
};
use std::sync::OnceLock;

#[cfg(target_arch = "x86_64")]
pub(crate) const NATIVE: (Abi, &[Arch]) = (Abi::X86_64, &[Arch::X86_64, Arch::X86]);
#[cfg(target_arch = "aarch64")]
pub(crate) const NATIVE: (Abi, &[Arch]) = (Abi::Aarch64, &[Arch::Aarch64, Arch::Arm]);

/// The kernel's answer to a caller that lacks permission.
const EPERM: u16 = 1;
/// The kernel's answer to an unknown call, which programs know how to handle.
const ENOSYS: u16 = 38;
/// The kernel's answer to an unknown address family.
const EAFNOSUPPORT: u16 = 97;

/// Calls that fail as if unknown. Keyrings belong to a user, not to a namespace. Performance events cover the whole
/// machine. Operations of io_uring bypass this filter.
const ABSENT: &[&str] = &[
    "add_key",
    "bpf",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "keyctl",
    "kexec_file_load",
    "kexec_load",
    "perf_event_open",
    "request_key",
];

/// Calls that change or reveal the machine's state. Without privileges the kernel refuses most of them anyway.
const REFUSED: &[&str] = &[
    "acct",
    "adjtimex",
    "clock_adjtime",
    "clock_settime",
    "delete_module",
    "finit_module",
    "init_module",
    "ioperm",
    "iopl",
    "open_by_handle_at",
    "quotactl",
    "reboot",
    "settimeofday",
    "stime",
    "swapoff",
    "swapon",
    "syslog",
];

/// Calls that change mounts. Landlock forbids them too.
const MOUNTS: &[&str] =
    &["fsconfig", "fsmount", "fsopen", "fspick", "mount", "move_mount", "pivot_root", "umount", "umount2"];

/// Sockets of virtual machines, which reach the enclosing machine from any network namespace.
const AF_VSOCK: u64 = 40;
/// The ioctl that types into the caller's terminal.
const TIOCSTI: u64 = 0x5412;
/// The ioctl that pastes into it.
const TIOCLINUX: u64 = 0x541c;

/// Returns a filter that notifies of the calls that the usual profile refuses, and of those that the observer
/// understands. The listener must refuse the former: see [`Answers`](crate::explain::answers::Answers).
pub(crate) fn observed(host: &Host) -> Profile {
    let usual = profile();
    let notified = usual.rules.into_iter().map(|rule| Rule { action: Action::Notify, ..rule });
    let known = Rule {
        names: calls::names().map(str::to_owned).collect(),
        action: Action::Notify,
        conditions: Vec::new(),
    };
    let flags = if host.wait_killable { usual.flags | Flags::WAIT_KILLABLE_RECV } else { usual.flags };
    Profile { rules: notified.chain([known]).collect(), flags, ..usual }
}

/// Returns the names of the calls that the usual profile refuses, some of them only with certain arguments.
pub(crate) fn refused() -> impl Iterator<Item = &'static str> {
    ABSENT.iter().chain(REFUSED).copied().chain(["socket", "ioctl"])
}

/// Returns whether the kernel can make a listener whose calls only fatal signals interrupt.
pub(crate) fn can_wait_killable() -> bool {
    seccomp_knows((Flags::NEW_LISTENER | Flags::WAIT_KILLABLE_RECV).bits())
}

/// The flags to load a filter with, and its instructions.
type Compiled = (u32, Vec<SockFilter>);

/// Returns the filter of every sandbox. It is compiled only once, which took a quarter of the time to plan a sandbox.
pub(crate) fn usual() -> Result<&'static Compiled, &'static Error> {
    static USUAL: OnceLock<Result<Compiled, Error>> = OnceLock::new();
    USUAL.get_or_init(|| compile(&profile())).as_ref()
}

/// Compiles a profile.
pub(crate) fn compile(profile: &Profile) -> Result<Compiled, Error> {
    // A name that no architecture knows stands for a call that cannot be made.
    let (table, _unknown) = Table::new(profile, &Machine::new(NATIVE.0))?;
    let program = table.program()?;
    let instructions = program.instructions.iter();
    let instructions =
        instructions.map(|from| SockFilter { code: from.code, jt: from.jt, jf: from.jf, k: from.k });
    Ok((program.flags.bits(), instructions.collect()))
}

/// Returns a profile that refuses mounts, for machines without Landlock. A program could otherwise mount cgroups in
/// namespaces of its own, and those of the caller belong to it.
pub(crate) fn without_mounts() -> Profile {
    let names = MOUNTS.iter().map(|name| (*name).to_owned()).collect();
    let rules = vec![Rule { names, action: Action::Errno(EPERM), conditions: Vec::new() }];
    Profile { rules, ..profile() }
}

/// Returns the seccomp profile of every sandbox.
pub(crate) fn profile() -> Profile {
    let (_, architectures) = NATIVE;
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let rule = |calls: &[&str], errno| Rule {
        names: names(calls),
        action: Action::Errno(errno),
        conditions: Vec::new(),
    };
    // A request is an `unsigned int`: the kernel ignores the upper half of the argument.
    let low = u64::from(u32::MAX);
    let with = |call: &str, errno, index, value| Rule {
        conditions: Argument::new(index)
            .map(|argument| Condition { argument, comparison: Comparison::MaskedEqual { mask: low, value } })
            .into_iter()
            .collect(),
        ..rule(&[call], errno)
    };
    Profile {
        default_action: Action::Allow,
        architectures: architectures.to_vec(),
        flags: Flags::SPEC_ALLOW,
        rules: vec![
            rule(ABSENT, ENOSYS),
            rule(REFUSED, EPERM),
            with("socket", EAFNOSUPPORT, 0, AF_VSOCK),
            with("ioctl", EPERM, 1, TIOCSTI),
            with("ioctl", EPERM, 1, TIOCLINUX),
        ],
    }
}
