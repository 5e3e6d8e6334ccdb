//! Blocks, handles, waits for and sends signals.

use crate::raw::Action;
use crate::{Fd, Result, raw};
use linux_raw_sys::general as number;
use rustix::fd::AsFd;

/// A signal by number, real-time signals included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Signal(u8);

macro_rules! named {
    ($($name:ident = $constant:ident,)*) => {
        $(
            #[doc = concat!("`", stringify!($constant), "`")]
            #[expect(clippy::cast_possible_truncation, reason = "at most 64")]
            pub const $name: Self = Self(number::$constant as u8);
        )*

        /// The signals that have a name, each with its name without `SIG`.
        pub const NAMES: &[(&str, Self)] = &[$((stringify!($name), Self::$name),)*];
    };
}

impl Signal {
    named! {
        HUP = SIGHUP, INT = SIGINT, QUIT = SIGQUIT, ILL = SIGILL, TRAP = SIGTRAP, ABRT = SIGABRT,
        BUS = SIGBUS, FPE = SIGFPE, KILL = SIGKILL, USR1 = SIGUSR1, SEGV = SIGSEGV, USR2 = SIGUSR2,
        PIPE = SIGPIPE, ALRM = SIGALRM, TERM = SIGTERM, STKFLT = SIGSTKFLT, CHLD = SIGCHLD, CONT = SIGCONT,
        STOP = SIGSTOP, TSTP = SIGTSTP, TTIN = SIGTTIN, TTOU = SIGTTOU, URG = SIGURG,
        XCPU = SIGXCPU, XFSZ = SIGXFSZ, VTALRM = SIGVTALRM, PROF = SIGPROF, WINCH = SIGWINCH,
        IO = SIGIO, PWR = SIGPWR, SYS = SIGSYS,
    }

    /// The largest signal number.
    pub const MAX: u8 = 64;

    /// The signals that ask a process to end.
    pub const ENDING: [Self; 4] = [Self::HUP, Self::INT, Self::QUIT, Self::TERM];

    /// Returns the signal with this number, if there is one.
    #[must_use]
    pub const fn new(number: i32) -> Option<Self> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
        if number >= 1 && number <= Self::MAX as i32 { Some(Self(number as u8)) } else { None }
    }

    /// Returns the number of the signal.
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0 as i32
    }

    /// Returns the number as raw system calls take it.
    pub(crate) const fn word(self) -> usize {
        self.0 as usize
    }
}

/// Signals to block, as the kernel's `sigset_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalSet(u64);

impl SignalSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);
    /// Every signal, including those that libc reserves for itself.
    pub const FULL: Self = Self(u64::MAX);

    /// Returns this set with `signal` added.
    #[must_use]
    pub const fn with(self, signal: Signal) -> Self {
        Self(self.0 | 1_u64.wrapping_shl(signal.0.wrapping_sub(1) as u32))
    }

    /// Returns this set without `signal`.
    #[must_use]
    pub const fn without(self, signal: Signal) -> Self {
        Self(self.0 & !Self::EMPTY.with(signal).0)
    }

    /// Returns whether the set contains `signal`.
    #[must_use]
    pub const fn contains(self, signal: Signal) -> bool {
        self.with(signal).0 == self.0
    }

    /// Returns the set in the kernel's representation: bit 0 is signal 1.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }
}

/// Blocks exactly the signals of `set` in the calling thread, with `rt_sigprocmask(SIG_SETMASK)`. Returns the set that
/// was blocked before.
///
/// # Errors
///
/// None is known; the kernel ignores the bits of SIGKILL and SIGSTOP.
pub fn rt_sigprocmask(set: SignalSet) -> Result<SignalSet> {
    raw::rt_sigprocmask(set.0).map(SignalSet)
}

impl Action {
    const DEFAULT: Self = Self { handler: 0, flags: 0, restorer: 0, mask: 0 };
    const IGNORE: Self = Self { handler: 1, ..Self::DEFAULT };

    /// Returns an action that ends the process. The kernel enters a handler only with a restorer, the address of code
    /// that returns from it, although this handler never returns.
    fn exit() -> Self {
        let handler = ended as *const () as usize;
        Self { handler, flags: number::SA_RESTORER.into(), restorer: handler, mask: u64::MAX }
    }

    const fn is_ignore(&self) -> bool {
        self.handler == Self::IGNORE.handler
    }

    const fn is_handler(&self) -> bool {
        self.handler > Self::IGNORE.handler
    }
}

/// Sets the kernel's default action for `signal`, with `rt_sigaction(SIG_DFL)`.
///
/// # Errors
///
/// `EINVAL` for SIGKILL and SIGSTOP.
pub fn rt_sigaction_default(signal: Signal) -> Result {
    raw::rt_sigaction(signal.word(), Some(&Action::DEFAULT)).map(drop)
}

/// Ignores `signal`, with `rt_sigaction(SIG_IGN)`.
///
/// # Errors
///
/// `EINVAL` for SIGKILL and SIGSTOP.
pub fn rt_sigaction_ignore(signal: Signal) -> Result {
    raw::rt_sigaction(signal.word(), Some(&Action::IGNORE)).map(drop)
}

/// Installs a handler that ends the process, with `rt_sigaction`. It is for the first process of a pid namespace,
/// where the kernel ignores signals without a handler. Exec restores the default.
///
/// # Errors
///
/// `EINVAL` for SIGKILL and SIGSTOP.
pub fn rt_sigaction_exit(signal: Signal) -> Result {
    raw::rt_sigaction(signal.word(), Some(&Action::exit())).map(drop)
}

/// Handles the signal with one system call and nothing else, whatever the process was doing.
extern "C" fn ended(signal: i32) -> ! {
    raw::exit_group(usize::from(u8::try_from(signal).unwrap_or(0).wrapping_add(128)))
}

/// Returns the signals that the calling process ignores.
pub fn ignored() -> Result<SignalSet> {
    let mut ignored = SignalSet::EMPTY;
    for number in 1..=Signal::MAX {
        let signal = Signal(number);
        if raw::rt_sigaction(signal.word(), None)?.is_ignore() {
            ignored = ignored.with(signal);
        }
    }
    Ok(ignored)
}

/// Resets every signal that has a handler to its default, and leaves ignored signals ignored. `CLONE_CLEAR_SIGHAND`
/// does the same; this is for systems that refuse `clone3`.
pub fn reset_handlers() -> Result {
    for number in 1..=Signal::MAX {
        let signal = Signal(number);
        if signal == Signal::KILL || signal == Signal::STOP {
            continue;
        }
        if raw::rt_sigaction(signal.word(), None)?.is_handler() {
            rt_sigaction_default(signal)?;
        }
    }
    Ok(())
}

/// Waits for the next signal of `set`, which must be blocked, with `rt_sigtimedwait` without a timeout.
///
/// # Errors
///
/// `EINTR` if a signal outside the set has been handled.
pub fn rt_sigwait(set: SignalSet) -> Result<Signal> {
    let number = raw::rt_sigtimedwait(set.0)?;
    i32::try_from(number).ok().and_then(Signal::new).ok_or(crate::Errno::INVAL)
}

/// Returns a descriptor that is readable when a signal of `set` is pending, from
/// `signalfd4(SFD_CLOEXEC | SFD_NONBLOCK)`. The signals must be blocked. For a parent's event loop.
///
/// # Errors
///
/// `EMFILE` or `ENFILE`.
pub fn signalfd(set: SignalSet) -> Result<Fd> {
    raw::signalfd4(set.0, number::O_CLOEXEC | number::O_NONBLOCK)
}

/// A signal that was read from a [`signalfd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// The signal that arrived.
    pub signal: Signal,
    /// The pid of the sender, or 0 for the kernel.
    pub sender: u32,
}

/// Reads the next signal from a [`signalfd`].
///
/// # Errors
///
/// `EAGAIN` if no signal is pending.
pub fn read_signalfd(fd: impl AsFd) -> Result<Arrived> {
    // The size of `struct signalfd_siginfo`.
    let mut bytes = [0; 128];
    rustix::io::retry_on_intr(|| rustix::io::read(&fd, &mut bytes))?;
    // ssi_signo, ssi_errno, ssi_code, ssi_pid.
    let [a, b, c, d, _, _, _, _, _, _, _, _, e, f, g, h, ..] = bytes;
    let signal = i32::from_ne_bytes([a, b, c, d]);
    let signal = Signal::new(signal).ok_or(crate::Errno::INVAL)?;
    Ok(Arrived { signal, sender: u32::from_ne_bytes([e, f, g, h]) })
}

/// Sends `signal` to the process that `pidfd` refers to, with `pidfd_send_signal`. It never reaches another process
/// that has got the same pid.
///
/// # Errors
///
/// `ESRCH` if the process has been reaped, `EPERM` without permission.
pub fn pidfd_send_signal(pidfd: Fd, signal: Signal) -> Result {
    raw::pidfd_send_signal(pidfd, signal.word(), 0)
}

/// Sends `signal` to the process group that the process of `pidfd` leads or has led, with `pidfd_send_signal` and
/// `PIDFD_SIGNAL_PROCESS_GROUP`. It never reaches another group that has got the same number, even if the leader has
/// been reaped.
///
/// # Errors
///
/// `ESRCH` if the group has no process, `EPERM` without permission, `EINVAL` before Linux 6.9.
pub fn pidfd_send_signal_to_group(pidfd: Fd, signal: Signal) -> Result {
    /// `PIDFD_SIGNAL_PROCESS_GROUP` of linux/pidfd.h.
    const PROCESS_GROUP: usize = 1 << 2;
    raw::pidfd_send_signal(pidfd, signal.word(), PROCESS_GROUP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_sets_have_the_kernels_bits() {
        assert_eq!(SignalSet::EMPTY.with(Signal::HUP).bits(), 1);
        assert_eq!(SignalSet::EMPTY.with(Signal::new(64).unwrap()).bits(), 1 << 63);
        assert!(SignalSet::FULL.contains(Signal::TERM));
        assert!(!SignalSet::EMPTY.with(Signal::INT).contains(Signal::TERM));
        assert_eq!(Signal::new(0), None);
        assert_eq!(Signal::new(65), None);
    }
}
