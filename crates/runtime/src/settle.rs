//! What is so before anything else: as Rust's own runtime has it.

use husk_script::sys::signal::rt_sigaction_ignore;
use husk_spawn::Signal;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::fcntl_getfd;
use rustix::stdio::{stderr, stdin, stdout};
use std::mem::forget;
use std::process::abort;

/// Has a program that begins without Rust's runtime begin as with it: standard streams that its caller has closed are
/// open, so that no file of ours is taken for one, and to write to who has gone is an error and no signal.
pub fn settle() {
    // The lowest first: what is opened gets the lowest number.
    for stream in [stdin(), stdout(), stderr()] {
        if fcntl_getfd(stream).is_err() {
            match open("/dev/null", OFlags::RDWR, Mode::empty()) {
                Ok(null) => forget(null),
                Err(_) => abort(),
            }
        }
    }
    // Tolerated: the kernel refuses it for no signal that can be ignored.
    rt_sigaction_ignore(Signal::PIPE).unwrap_or(());
}
