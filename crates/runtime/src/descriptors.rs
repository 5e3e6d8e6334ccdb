//! Descriptors that the caller passes on to the program: sockets to listen on (sd_listen_fds(3)), and
//! those of `--preserve-fds`.
//!
//! They keep the numbers they have. None of ours can be among them: each number has to be taken by what
//! the caller left open over exec, and all that we open closes on exec.

use crate::error::Error;
use husk_script::sys::Fd;
use husk_script::sys::file::fcntl_is_kept_on_exec;
use std::env;

/// How many sockets we were given to listen on: the variables are meant for us only if they say so.
pub(crate) fn listen_fds() -> u32 {
    let number = |name| env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    if number("LISTEN_PID") == Some(std::process::id()) { number("LISTEN_FDS").unwrap_or(0) } else { 0 }
}

/// Whether they are all there.
pub(crate) fn check(listen_fds: u32, preserve_fds: u32) -> Result<(), Error> {
    let (first, listen_fds) = (u64::from(Fd::FIRST_EXTRA.number().unsigned_abs()), u64::from(listen_fds));
    let passed = first..first + listen_fds + u64::from(preserve_fds);
    for number in passed {
        let fd = i32::try_from(number).ok().and_then(Fd::new);
        if !fd.is_some_and(|fd| fcntl_is_kept_on_exec(fd).unwrap_or(false)) {
            let option = if number < first + listen_fds { "LISTEN_FDS" } else { "--preserve-fds" };
            return Err(Error::Descriptor { option, number });
        }
    }
    Ok(())
}
