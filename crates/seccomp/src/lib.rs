//! An OCI seccomp profile as a BPF program, with libseccomp's meaning and without libseccomp.
//!
//! ```
//! use husk_seccomp::{Abi, Action, Machine, Profile, Rule, Table};
//!
//! let profile = Profile {
//!     default_action: Action::Errno(1),
//!     rules: vec![Rule { names: vec!["read".to_owned()], action: Action::Allow, conditions: vec![] }],
//!     ..Profile::default()
//! };
//! let (table, warnings) = Table::new(&profile, &Machine::new(Abi::X86_64))?;
//! assert!(warnings.is_empty());
//! assert!(table.to_string().contains("0  allow              read\n"));
//! let program = table.program()?;
//! assert_eq!(program.instructions.len(), 10);
//! # Ok::<(), husk_seccomp::Error>(())
//! ```
//!
//! Three stages, each a type: a [`Profile`] is what a configuration asks for; a [`Table`] is what that
//! means for every number of every architecture, and prints itself; a [`Program`] is what the kernel
//! runs. All choices are made between the first two. The crate is pure: it makes no system call and
//! reads no file, so the same profile gives the same program anywhere, and nobody has to cache one.
//! Read `rules.rs` and `table.rs` for the meaning, `emit.rs` for the code.
//!
//! # The tree
//!
//! When a filter is installed the kernel translates it to machine code and then runs it once for
//! every number of a call, with interrupts off, to find the calls that are always allowed: these
//! never run it again. So it matters how many instructions there are, and how many of them a number
//! meets. The numbers with the same decision are merged to ranges (66 of x86-64 in
//! Docker's profile), and the program bisects them:
//!
//! ```text
//! the architecture     the native one first
//!   the number         is it at least N? ... about six such steps
//!     up to three single numbers that differ from those around them
//!       the answer, or tests of arguments; calls with the same conditions share them
//! ```
//!
//! libseccomp's program for Docker's profile, for x86-64, x86 and x32, is nearly four times as long.
//!
//! # What a profile means
//!
//! What it means to libseccomp 2.5 as runc and crun use it; `tests/libseccomp.rs` compares.
//!
//! - The native architecture is always in a filter. A call of one that is not listed kills the
//!   thread; a number of x32 counts as such, except for -1, which tracers set to skip a call.
//! - A rule with the default action is left out; so is a name that is no call, with a warning.
//! - Two conditions of a rule on the same argument make each of its conditions a rule of its own.
//! - On 32-bit architectures, x32 included, the lower half of an argument is compared and the lower
//!   half of a value is what it is compared with. A mask without bits in what is compared is no
//!   condition.
//! - For x86 a rule about a call that `socketcall` or `ipc` can make is also a rule about that one,
//!   with the selector in place of a condition on the first argument. Its other conditions stay, and
//!   then are about arguments that are something else there.
//! - A rule without conditions beats those with, wherever it stands. Of several the first counts.
//! - A rule that has all conditions of another with the same action, and more, is superfluous.
//! - Conditions are put in the order of their arguments. A rule whose conditions begin with all those
//!   of an earlier one adds nothing; one whose conditions are the beginning of an earlier one's is an
//!   error, and so are the same conditions with another action.
//! - Else rules are tried until one holds, and this is the order: that with the higher argument
//!   first; then `==`, `!=` and masks before `<` and `<=` before `>` and `>=`; then the higher value,
//!   but for `<` and `<=` the lower; then the earlier rule. Rules that begin with the same condition
//!   stay together, in the order of what follows.
//! - What runc adds to libseccomp, crun does not: unless the default action lets calls pass, a call
//!   newer than all that the profile names gets `ENOSYS`, so that C libraries fall back on an older
//!   one. The numbers that x32 and ARM have apart do not make a profile newer; for runc they do.
//!
//! Where libseccomp (2.5.4, and 2.6.1 has the same code) does something else, this crate does what the
//! rules above say. No engine's profile comes near:
//!
//! - It compares halves, and rules that begin alike share comparisons of the upper one. If a
//!   condition before a rule's last is for order or inequality, the last may be tried for the other
//!   rule too: `a0 > 5 and a1 == 1` with `a0 > 10 and a1 == 2` allows a0 of 7 with a1 of 2. Or the
//!   later rule is lost, or refused.
//! - It may take a condition for its contrary when it looks for superfluous rules: on 32-bit
//!   architectures, `a0 == 1 and a4 > 9` is lost beside `a4 <= 9`.
//! - It may forget that it has loaded a lower half when it goes on to the next test of an upper half:
//!   with `a0 <= 0xffff_fffe` and `a0 <= 0x8000_0000_8000_0000` neither holds for 0xffff_ffff.
//! - It never loads the number of a call where x32 is listed, all calls of x86-64 in the profile have
//!   conditions, and one of another architecture has none.
//! - It orders by upper halves first. So of a mask and another comparison, or of masks that differ in
//!   the upper half, the earlier comes first; of two `!=` the one or the other.
//! - It refuses rules in conflict about a call that no listed architecture has, and architectures of
//!   the other byte order. It does not always see that a rule is superfluous, and then refuses it.
//!
//! # Why not seccompiler
//!
//! Its filters have one action beside the default, one architecture, which it checks itself and for
//! which it kills the process, and five instructions a call, one after the other: Docker's profile
//! for three architectures is longer than the kernel takes. Its conditions are usable only inside such
//! a filter. What remains is the type of an instruction, four fields that stand in `program.rs`. In
//! the tests it is a second opinion on comparisons.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod arch;
mod emit;
mod error;
pub mod interpret;
mod print;
mod profile;
mod program;
mod rules;
mod syscalls;
mod table;

pub use arch::{Abi, Arch, Machine, Width};
pub use error::{Error, Warning};
pub use profile::{Action, Argument, BadAction, Comparison, Condition, Flags, Profile, Rule};
pub use program::{Instruction, MAX_INSTRUCTIONS, Program, code};
pub use rules::{Test, Then};
pub use table::{Decision, Presence, Range, Section, Table};
