//! Starts processes: faster than anything else, with a say in everything, from any thread.
//!
//! [`Command`] is used like [`std::process::Command`]. What it does differently is behind it. A
//! command is first written down as a list of steps, every string and number of it ready; then
//! `clone3` makes a child in *this* process's memory, on a stack of its own; the child performs the
//! list, one system call a step, and execs. So
//!
//! - **nothing is copied.** The cost does not grow with the memory of this process, as fork's does,
//!   and no page is ever duplicated.
//! - **nobody waits.** [`spawn`](Command::spawn) returns while the child is still on its way;
//!   the thread is not suspended until exec, as it is by vfork and posix_spawn. The stack and the
//!   list are used again as soon as the child no longer needs them, which the kernel tells.
//! - **anything can be done in the child, safely.** What std leaves to an `unsafe` closure that may
//!   not allocate, lock or panic (and that turns its fast path off) is a [`Step`] here: plain
//!   data that is performed by code which cannot do any of these.
//! - **an error has a name.** The child leaves the number of the step that failed; the parent, where
//!   words are free, makes the sentence: `cwd /srv: Permission denied (os error 13)`.
//! - **other threads do not matter.** No lock is taken in the child and none of libc's, so it makes
//!   no difference what they hold; every descriptor is close-on-exec from its creation, so none
//!   leaks into a child of theirs.
//!
//! ```
//! # fn main() -> Result<(), husk_spawn::Error> {
//! use husk_spawn::{Command, IdMap, Namespaces};
//!
//! // A process in namespaces of its own, without root.
//! let me = |id| [IdMap { inside: 0, outside: id, count: 1 }];
//! let mut isolated = Command::new("hostname");
//! isolated
//!     .new_namespaces(Namespaces::USER | Namespaces::PID | Namespaces::UTS)
//!     .uid_map(&me(rustix::process::geteuid().as_raw()))
//!     .gid_map(&me(rustix::process::getegid().as_raw()))
//!     .hostname("husk");
//! # if std::fs::read_link("/proc/self/ns/user").is_ok() && std::path::Path::new("/bin/hostname").exists() {
//! assert_eq!(isolated.output()?.stdout, b"husk\n");
//! # }
//! # Ok(())
//! # }
//! ```
//!
//! # Three ways to wait
//!
//! | call | returns | use it when |
//! | - | - | - |
//! | [`spawn`](Command::spawn) | as soon as there is a process | there is something else to do meanwhile |
//! | [`spawn_and_exec`](Command::spawn_and_exec) | when it has become its program, or failed to | the next act depends on it |
//! | [`status`](Command::status), [`output`](Command::output) | when it has ended | only the result counts |
//!
//! A [`Child`] is known by its pidfd and is itself a descriptor ([`AsFd`](std::os::fd::AsFd)) that
//! becomes readable when the process ends, so it fits epoll, io_uring and every async runtime.
//!
//! # What to know about shared memory
//!
//! Between clone and exec the child is a process of its own in memory that it shares with this one.
//! That shows in three places, each of which is tested:
//!
//! - The OOM killer kills every process that shares the memory of its victim
//!   (mm/oom_kill.c, `__oom_kill_process`). A child that joins a cgroup with too small a memory
//!   limit before exec can take this process with it; not one of
//!   [`spawn_and_exec`](Command::spawn_and_exec), whose parent is suspended (`in_vfork`).
//! - Whether a process can be dumped and traced is a property of memory. While a child that is
//!   weaker than this process is on its way, this process is not dumpable; see [`Command::uid`].
//! - This process may end, or exec, while a child is on its way. The child keeps the memory and goes
//!   on.
//!
//! # Requirements
//!
//! Linux 5.14 or newer on x86_64 or aarch64 (the latter is tried by hand alone). Where a seccomp filter refuses
//! `clone3` with `ENOSYS`, as old container engines' do, `clone` is used instead, and only a cgroup
//! to be born in, chosen pids and a new time namespace cannot be had. The clocks of a new time namespace can be
//! set from Linux 6.2 on, by a step before exec; without, who is born in one has entered it.

#![warn(missing_docs)]

mod child;
mod clone;
mod command;
mod error;
mod launch;
mod list;
mod memory;
mod signalfd;
pub mod sys;
mod time_namespace;

pub use child::adopted::Adopted;
pub use child::{Child, Output};
pub use command::Command;
pub use command::idmap::IdMap;
pub use command::program::find_program;
pub use command::stdio::Stdio;
pub use error::{Error, Reason};
pub use husk_script::sys::limits::{Resource, SchedAttr};
pub use husk_script::sys::namespace::Namespaces;
pub use husk_script::sys::signal::{Signal, SignalSet};
pub use husk_script::{Handle, Hook, Reg, Request, Step, hook};
pub use memory::writer::Writer;
pub use signalfd::{read_signalfd, signalfd};
