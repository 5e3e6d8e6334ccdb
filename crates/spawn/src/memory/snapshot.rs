//! Copies of the environment, for children to inherit.
//!
//! A child reads its environment after [`spawn`](crate::Command::spawn) has returned, when this process's may
//! have changed. So the child gets a copy. One copy serves all children until the environment changes.
//! Comparing is cheaper than copying, because the child's processor has to fetch a new copy into its cache.
//!
//! # Safety
//!
//! `environ` belongs to libc. `std::env::set_var` and setenv(3) may be called only while no other thread
//! reads the environment, including `environ`. Their callers must ensure this, so reading is sound at any
//! other time.

#![allow(unsafe_code, clippy::allow_attributes, reason = "reads libc's environ")]

use core::ffi::{CStr, c_char};
use core::ops::ControlFlow;
use husk_script::sys::{CArray, CPtr};
use self_cell::self_cell;
use std::sync::{Arc, Mutex, PoisonError};

// SAFETY: libc defines it with this type (environ(7)).
unsafe extern "C" {
    static environ: *const *const c_char;
}

self_cell! {
    /// The environment at one moment.
    pub(crate) struct Snapshot {
        owner: Box<[u8]>,
        #[covariant]
        dependent: Variables,
    }
}

/// The strings of an environment, stored one after another.
struct Variables<'a> {
    strings: Vec<&'a CStr>,
    /// Pointers to the strings, ending with a null pointer, as exec takes them.
    pointers: Vec<CPtr<'a>>,
}

/// The snapshot that was taken last.
static LATEST: Mutex<Option<Arc<Snapshot>>> = Mutex::new(None);

/// Returns the current environment.
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

    /// Whether the environment still has the same variables in the same order.
    fn is_current(&self) -> bool {
        let mut known = self.variables().iter();
        let compared = visit(|variable| match known.next() {
            Some(known) if *known == variable => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        });
        compared.is_continue() && known.next().is_none()
    }

    /// Returns each `NAME=value`.
    pub(crate) fn variables(&self) -> &[&CStr] {
        &self.borrow_dependent().strings
    }

    /// Returns all variables as exec takes them.
    pub(crate) fn array(&self) -> CArray<'_> {
        CArray::new(&self.borrow_dependent().pointers).expect("ends with the only null pointer")
    }
}

/// Calls `look` with each `NAME=value` of this process, until `look` breaks.
fn visit(mut look: impl FnMut(&CStr) -> ControlFlow<()>) -> ControlFlow<()> {
    // SAFETY: libc always keeps this word valid; see the module documentation.
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
        // SAFETY: an entry that is not null is a string that ends with NUL. It does not change while `look`
        // reads it.
        look(unsafe { CStr::from_ptr(string) })?;
        // SAFETY: an entry that is not null is followed by at least the null pointer.
        entry = unsafe { entry.add(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_is_reused_until_the_environment_changes() {
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
