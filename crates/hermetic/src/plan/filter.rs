//! The program's seccomp filter: what no test needs, and what no namespace keeps apart.

use husk_script::sys::process::Instruction;
use husk_seccomp::{
    Abi, Action, Arch, Argument, Comparison, Condition, Error, Flags, Machine, Profile, Rule, Table,
};

#[cfg(target_arch = "x86_64")]
const NATIVE: (Abi, &[Arch]) = (Abi::X86_64, &[Arch::X86_64, Arch::X86]);
#[cfg(target_arch = "aarch64")]
const NATIVE: (Abi, &[Arch]) = (Abi::Aarch64, &[Arch::Aarch64, Arch::Arm]);

/// What the kernel says to those who may not.
const EPERM: u16 = 1;
/// What it says where it does not have a call, which programs know how to do without.
const ENOSYS: u16 = 38;
/// What it says of an address family that it does not have.
const EAFNOSUPPORT: u16 = 97;

/// Keyrings are a user's and not a namespace's; a profile of the processor sees the whole machine; what io_uring does
/// for a program goes past this filter.
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

/// What would change or tell of the machine. Without privileges the kernel refuses most of it anyway.
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

/// Virtual machines' sockets, which reach the machine around this one whatever the network namespace.
const AF_VSOCK: u64 = 40;
/// Types in the caller's terminal.
const TIOCSTI: u64 = 0x5412;
/// Pastes there.
const TIOCLINUX: u64 = 0x541c;

/// A profile's filter, with the flags to load it with.
pub(crate) fn compile(profile: &Profile) -> Result<(u32, Vec<Instruction>), Error> {
    // Names that no machine knows are of calls that nobody can make.
    let (table, _unknown) = Table::new(profile, &Machine::new(NATIVE.0))?;
    let program = table.program()?;
    let instructions = program.instructions.iter();
    let instructions =
        instructions.map(|from| Instruction { code: from.code, jt: from.jt, jf: from.jf, k: from.k });
    Ok((program.flags.bits(), instructions.collect()))
}

/// Every sandbox's.
pub(crate) fn profile() -> Profile {
    let (_, architectures) = NATIVE;
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let rule = |calls: &[&str], errno| Rule {
        names: names(calls),
        action: Action::Errno(errno),
        conditions: Vec::new(),
    };
    // A request is an `unsigned int`: what stands above it is not looked at.
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
