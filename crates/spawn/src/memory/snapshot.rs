//! The environment that children inherit.
//!
//! A child reads its environment after [`spawn`](crate::Command::spawn) has returned, when ours may
//! have changed already; so it is given a copy. One copy serves all children until the
//! environment changes: to compare is cheaper than to copy, for what is copied anew has to be
//! fetched anew by the processor that the child runs on.
//!
//! # Safety
//!
//! `environ` is libc's. `std::env::set_var` and setenv(3) may only be called while no other thread
//! reads the environment, `environ` included; that is their caller's promise, so reading is sound
//! at any other time.

#![allow(unsafe_code, clippy::allow_attributes, reason = "reads libc's environ")]

use core::ffi::{CStr, c_char};
use core::ops::ControlFlow;
use husk_script::sys::{CArray, CPtr};
use self_cell::self_cell;
use std::sync::{Arc, Mutex, PoisonError};

// SAFETY: libc defines it, with this type (environ(7)).
unsafe extern "C" {
    static environ: *const *const c_char;
}

self_cell! {
    /// The environment as it was at one moment.
    pub(crate) struct Snapshot {
        owner: Box<[u8]>,
        #[covariant]
        dependent: Variables,
    }
}

/// Strings that lie one behind the other.
struct Variables<'a> {
    strings: Vec<&'a CStr>,
    /// The same as exec wants them, with a null pointer at the end.
    pointers: Vec<CPtr<'a>>,
}

/// The last snapshot that was taken.
static LATEST: Mutex<Option<Arc<Snapshot>>> = Mutex::new(None);

/// The environment as it is now.
pub(crate) fn snapshot() -> Arc<Snapshot> {
    let mut latest = LATEST.lock().unwrap_or_else(PoisonError::into_inner);
    match &*latest {
        Some(snapshot) if snapshot.is_current() => snapshot.clone(),
        _ => latest.insert(Arc::new(Snapshot::take())).clone(),
    }
}

impl Snapshot {
    fn take() -> Self {
        let mut bytes = Vec::new();
        let all = visit(|variable| {
            bytes.extend_from_slice(variable.to_bytes_with_nul());
            ControlFlow::Continue(())
        });
        debug_assert!(all.is_continue());
        Self::new(bytes.into_boxed_slice(), |bytes| {
            let strings: Vec<_> = bytes
                .split_inclusive(|byte| *byte == 0)
                .filter_map(|string| CStr::from_bytes_with_nul(string).ok())
                .collect();
            let pointers = strings.iter().copied().map(CPtr::from).chain([CPtr::NULL]).collect();
            Variables { strings, pointers }
        })
    }

    /// Whether the environment is still what it was, in the same order.
    fn is_current(&self) -> bool {
        let mut known = self.variables().iter();
        let compared = visit(|variable| match known.next() {
            Some(known) if *known == variable => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        });
        compared.is_continue() && known.next().is_none()
    }

    /// Each `NAME=value`.
    pub(crate) fn variables(&self) -> &[&CStr] {
        &self.borrow_dependent().strings
    }

    /// All of them, as exec wants them.
    pub(crate) fn array(&self) -> CArray<'_> {
        CArray::new(&self.borrow_dependent().pointers).expect("ends with the only null pointer")
    }
}

/// Calls `look` with each `NAME=value` of this process, until it has seen enough.
fn visit(mut look: impl FnMut(&CStr) -> ControlFlow<()>) -> ControlFlow<()> {
    // SAFETY: a word that libc keeps at all times; see the top of this file.
    let mut entry = unsafe { environ };
    if entry.is_null() {
        return ControlFlow::Continue(());
    }
    loop {
        // SAFETY: `entry` is within an array that ends with a null pointer, which ends this loop.
        let string = unsafe { *entry };
        if string.is_null() {
            return ControlFlow::Continue(());
        }
        // SAFETY: what is not null there is a string that ends with NUL, and is not changed while
        // `look` looks at it.
        look(unsafe { CStr::from_ptr(string) })?;
        // SAFETY: there is at least the null pointer after an entry that is not null.
        entry = unsafe { entry.add(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_serves_until_the_environment_changes() {
        let first = snapshot();
        assert!(Arc::ptr_eq(&first, &snapshot()));
        let wanted: Vec<_> = std::env::vars_os()
            .map(|(name, value)| [name.into_encoded_bytes(), value.into_encoded_bytes()].join(&b'='))
            .collect();
        let found: Vec<_> = first.variables().iter().map(|variable| variable.to_bytes().to_vec()).collect();
        assert_eq!(found, wanted);
        assert_eq!(first.array().len(), wanted.len());
    }
}
