//! Selects the code that depends on the processor: the system call instruction, and starting a child on its own stack.
//! Each processor has one file with the same functions.

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
mod imp;

pub(crate) use imp::{EntryPoint, call, clone_call, trap, vfork_call};

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("husk knows the system call instructions of x86_64 and aarch64 only");
