//! Pooled child memory: a stack and a list, used by one child at a time.
//!
//! A child uses its memory until it execs or exits, which its journal records (see [`husk_script::journal`]).
//! Until then the memory is neither freed nor reused. If the [`Child`](crate::Child) is dropped first, the
//! memory waits in the pool.

use super::dumpable;
use super::stack::Stack;
use super::writer::ListMemory;
use crate::Error;
use husk_script::sys::namespace::Namespaces;
use husk_script::{Script, Step};
use self_cell::self_cell;
use std::sync::{Mutex, PoisonError};

/// A reference to a list in the memory in which it was written.
pub(crate) type ScriptRef<'a> = &'a Script<'a>;

self_cell! {
    /// A list and the memory that holds it, which is reused for the next list.
    struct ListInMemory {
        owner: ListMemory,
        #[covariant]
        dependent: ScriptRef,
    }
}

/// How many free entries are kept. More children than this are rarely between clone and exec at once, and
/// creating an entry takes only two system calls.
const MOST_FREE: usize = 32;

/// Memory that no [`Child`](crate::Child) owns: free, or still used by a child that is not released.
static POOL: Mutex<Vec<Parts>> = Mutex::new(Vec::new());

/// The memory that one child uses.
pub(crate) struct ChildMemory {
    /// `None` only after `drop` has taken it.
    parts: Option<Parts>,
}

/// The parts of a child's memory. They are dropped only when the child is released.
struct Parts {
    stack: Stack,
    list: ListInMemory,
    /// The guard that exists while a child with fewer privileges shares this process's memory.
    dumpable: Option<dumpable::Guard>,
}

impl Parts {
    fn is_released(&self) -> bool {
        self.list.borrow_dependent().journal.is_released()
    }
}

impl ChildMemory {
    /// Takes memory from the pool and has `write` put a list into it, for a child that is created in
    /// `namespaces`.
    pub(crate) fn new(
        namespaces: Namespaces,
        write: impl for<'b> FnOnce(&'b ListMemory, &Stack) -> Result<ScriptRef<'b>, Error>,
    ) -> Result<Self, Error> {
        let free = {
            let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
            let mut free = None;
            for (index, parts) in pool.iter_mut().enumerate() {
                if parts.is_released() {
                    // This child was not waited for, and its memory may not be reused soon.
                    parts.dumpable = None;
                    free = Some(index);
                }
            }
            free.map(|index| pool.swap_remove(index))
        };
        let (stack, memory) = match free {
            Some(parts) => (parts.stack, parts.list.into_owner().emptied()),
            None => (Stack::new().map_err(|errno| Error::new("stack", errno))?, ListMemory::default()),
        };
        let list = ListInMemory::try_new(memory, |memory| write(memory, &stack))?;
        let dumpable = dumpable::Guard::of_child(list.borrow_dependent().steps, namespaces)
            .map_err(|errno| Error::new("dumpable", errno))?;
        Ok(Self { parts: Some(Parts { stack, list, dumpable }) })
    }

    fn parts(&self) -> &Parts {
        self.parts.as_ref().expect("taken only by drop")
    }

    pub(crate) fn stack(&self) -> &Stack {
        &self.parts().stack
    }

    pub(crate) fn script(&self) -> &Script<'_> {
        self.parts().list.borrow_dependent()
    }

    /// Whether a second process performs the rest of the list.
    pub(crate) fn runs_in_second_process(&self) -> bool {
        self.script().steps.iter().any(|step| matches!(step, Step::CloneParent { .. }))
    }

    /// Whether the child no longer uses this memory. Once it does not, this process becomes dumpable again.
    pub(crate) fn update_release(&mut self) -> bool {
        let released = self.parts().is_released();
        if released && let Some(parts) = &mut self.parts {
            parts.dumpable = None;
        }
        released
    }
}

impl Drop for ChildMemory {
    fn drop(&mut self) {
        let released = self.update_release();
        let Some(parts) = self.parts.take() else { return };
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        if !released || pool.len() < MOST_FREE {
            pool.push(parts);
        }
    }
}
