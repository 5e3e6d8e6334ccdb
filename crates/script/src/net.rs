//! Creates a network namespace in a second thread while the list goes on.
//!
//! The kernel takes longer to create a network namespace than all other kinds together, and does not wait meanwhile. On
//! another processor this costs no time.

use crate::registers::Registers;
use crate::sys::clone::{self, InChild, Work};
use crate::sys::namespace::{self, Namespaces};
use crate::sys::{Errno, Result, file};
use crate::{Journal, Script, go_on};

/// The number of the second thread in a new pid namespace. The program and its first children have lower ones.
const NUMBER: i32 = 300;

struct NewNet<'j> {
    journal: &'j Journal,
    loopback: bool,
}

impl Work for NewNet<'_> {
    fn run(&self) {
        self.journal.begin_net();
        self.journal.found_net(namespace::new_net(self.loopback));
    }
}

/// Performs the rest of the list while a second thread creates a network namespace. Returns only if the thread could
/// not be created.
pub(crate) fn begin(
    child: &InChild,
    script: &Script<'_>,
    registers: &mut Registers,
    loopback: bool,
) -> Errno {
    let next = usize::try_from(script.journal.step()).map_or(usize::MAX, |step| step.saturating_add(1));
    let work = NewNet { journal: script.journal, loopback };
    clone::beside(child, NUMBER, script.journal.thread(), &work, || go_on(child, script, next, registers))
}

/// Waits for the second thread, and joins its network namespace.
pub(crate) fn join(child: &InChild, journal: &Journal) -> Result {
    // Other processes may keep the processor busy on which the kernel has put the thread.
    if journal.awaits_net() && !clone::pull(child, NUMBER) {
        // Tolerated: the thread then runs later, on that processor.
    }
    clone::await_thread(journal.thread())?;
    let net = journal.net()?;
    let joined = namespace::setns(net, Namespaces::NET);
    file::close(child, net);
    joined
}
