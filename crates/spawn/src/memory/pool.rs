//! Pooled child memory: the stack and the list that one child at a time uses.
//!
//! A child uses its memory until it execs or exits, which its journal tells (see
//! [`husk_script::journal`]). Until then the memory is neither freed nor used again, whatever
//! becomes of the [`Child`](crate::Child): it waits in the pool.

use super::dumpable;
use super::stack::Stack;
use super::writer::Memory;
use crate::Error;
use husk_script::sys::namespace::Namespaces;
use husk_script::{Script, Step};
use self_cell::self_cell;
use std::sync::{Mutex, PoisonError};

/// A reference to a list that lies in the memory it was written in.
pub(crate) type ScriptRef<'a> = &'a Script<'a>;

self_cell! {
    /// A list together with the memory it lies in, which is kept for the next one.
    struct ListInMemory {
        owner: Memory,
        #[covariant]
        dependent: ScriptRef,
    }
}

/// How many free ones are kept. More children than that between clone and exec at one time are
/// rare, and one takes only two system calls to make.
const MOST_FREE: usize = 32;

/// Memory that no [`Child`](crate::Child) holds: free, or still used by a child that is not released.
static POOL: Mutex<Vec<Parts>> = Mutex::new(Vec::new());

/// What a child uses, for one child at a time.
pub(crate) struct ChildMemory {
    /// Taken only by `drop`.
    parts: Option<Parts>,
}

/// Dropped only when the child is released.
struct Parts {
    stack: Stack,
    list: ListInMemory,
    /// Held while a child that is weaker than we are shares our memory.
    dumpable: Option<dumpable::Guard>,
}

impl Parts {
    fn is_released(&self) -> bool {
        self.list.borrow_dependent().journal.is_released()
    }
}

impl ChildMemory {
    /// Memory with the list that `write` puts into it, for a child that is cloned into `namespaces`.
    pub(crate) fn new(
        namespaces: Namespaces,
        write: impl for<'b> FnOnce(&'b Memory, &Stack) -> Result<ScriptRef<'b>, Error>,
    ) -> Result<Self, Error> {
        let free = {
            let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
            let mut free = None;
            for (index, parts) in pool.iter_mut().enumerate() {
                if parts.is_released() {
                    // Of a child that nobody waited for; this memory may not be used again soon.
                    parts.dumpable = None;
                    free = Some(index);
                }
            }
            free.map(|index| pool.swap_remove(index))
        };
        let (stack, memory) = match free {
            Some(parts) => (parts.stack, parts.list.into_owner().emptied()),
            None => (Stack::new().map_err(|errno| Error::new("stack", errno))?, Memory::default()),
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

    /// Whether the list goes on in another process than it begins in.
    pub(crate) fn runs_in_second_process(&self) -> bool {
        self.script().steps.iter().any(|step| matches!(step, Step::CloneParent { .. }))
    }

    /// Whether the child no longer uses this memory. The first time it says so, what the child did
    /// to memory that was never its own is mended.
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
