//! Starts processes quickly, with control over every attribute, from any thread.
//!
//! [`Command`] is used like [`std::process::Command`] but works differently. It first writes a list of steps,
//! with every string and number prepared. Then `clone3` creates a child that shares *this* process's memory
//! and runs on its own stack. The child performs the list, mostly one system call per step, and execs.
//! Therefore:
//!
//! - **Nothing is copied.** Unlike fork's, the cost does not grow with the memory of this process, and no
//!   page is ever duplicated.
//! - **The caller is not suspended.** [`spawn`](Command::spawn) returns before the child has execed; vfork
//!   and posix_spawn suspend the thread until exec. The kernel signals when the child no longer needs its
//!   stack and list, and both are then reused.
//! - **The child can safely do anything before exec.** std offers only an `unsafe` closure, which must not
//!   allocate, lock or panic; setting one turns off std's fast path. Here each action is a [`Step`]: plain
//!   data, performed by code that cannot allocate, lock or panic.
//! - **Errors name the step that failed.** The child stores the number of that step. The parent, which may
//!   allocate, formats the message: `cwd /srv: Permission denied (os error 13)`.
//! - **Other threads do not matter.** The child takes no lock, not even one of libc's, so locks held by other
//!   threads cannot block it. Every descriptor is close-on-exec from its creation, so none leaks into a
//!   child that another thread starts.
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
//! | [`spawn`](Command::spawn) | as soon as the process exists | the caller has other work meanwhile |
//! | [`spawn_and_exec`](Command::spawn_and_exec) | when it has execed, or failed | the next action needs the program |
//! | [`status`](Command::status), [`output`](Command::output) | when the process has ended | only the result matters |
//!
//! A [`Child`] is identified by its pidfd. It is itself a descriptor ([`AsFd`](std::os::fd::AsFd)) that
//! becomes readable when the process ends, so it works with epoll, io_uring and every async runtime.
//!
//! # Effects of shared memory
//!
//! Between clone and exec the child is a separate process that shares the memory of this one. This has three
//! visible effects, each covered by a test:
//!
//! - The OOM killer kills every process that shares its victim's memory (mm/oom_kill.c,
//!   `__oom_kill_process`). If a child joins a cgroup with too low a memory limit before exec, this process
//!   may be killed too. [`spawn_and_exec`](Command::spawn_and_exec) is not affected, because it suspends the
//!   parent (`in_vfork`).
//! - Whether a process can be dumped and traced is stored with its memory. While a child with fewer privileges
//!   has not execed, this process is not dumpable; see [`Command::uid`].
//! - This process may exit or exec while a child has not execed. The child keeps the memory and continues.
//!
//! # Requirements
//!
//! Linux 5.14 or newer on x86_64 or aarch64 (aarch64 is tested in an emulated machine). Seccomp filters of old
//! container engines reject `clone3` with `ENOSYS`; `clone` is then used instead. It cannot create a process in
//! a cgroup, with chosen pids or in a new time namespace, and [`Command::of_steps`] does not use it.
//!
//! From Linux 6.2 on, a step before exec can set the clocks of a new time namespace. Before 6.2, a process that is
//! created in one has already entered it.

#![warn(missing_docs)]

// Compiles the examples of the README.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../README.md")]
mod readme {}

mod child;
mod clone;
mod command;
mod error;
mod inherited;
mod launch;
mod list;
mod memory;
mod pipeline;
mod signalfd;
pub mod sys;
mod time_namespace;
#[cfg(feature = "tokio")]
pub mod tokio;

pub use child::adopted::Adopted;
pub use child::{Child, Output};
pub use command::Command;
pub use command::idmap::{IdMap, IdMaps};
pub use command::program::find_program;
pub use command::stdio::Stdio;
pub use error::{Error, Reason};
pub use husk_script::sys::limits::{Resource, SchedAttr};
pub use husk_script::sys::namespace::Namespaces;
pub use husk_script::sys::signal::{Signal, SignalSet};
pub use husk_script::{Handle, HookCommand, Reg, Request, Step, hook};
#[cfg(feature = "seccomp")]
pub use husk_seccomp as seccomp;
pub use inherited::{forget_variables, inherited};
pub use memory::program::run_from;
pub use memory::writer::Writer;
pub use pipeline::{Pipeline, PipelineChildren, PipelineOutput};
pub use signalfd::{read_signalfd, signalfd};
