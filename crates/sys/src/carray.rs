//! Builds argument vectors for `execve`.

use core::ffi::CStr;
use core::num::NonZeroUsize;
use core::ptr::NonNull;

/// The address of a NUL-terminated string, one word wide, as the kernel reads it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct CPtr<'a>(Option<&'a u8>);

impl CPtr<'_> {
    /// The null pointer that ends an array.
    pub const NULL: Self = Self(None);
}

impl<'a> From<&'a CStr> for CPtr<'a> {
    fn from(string: &'a CStr) -> Self {
        let bytes = string.to_bytes_with_nul();
        // The kernel receives only this address, so its provenance is exposed.
        bytes.as_ptr().expose_provenance();
        // There is always a first byte, if only the NUL.
        Self(bytes.first())
    }
}

impl CPtr<'_> {
    /// Returns the address of the string, or `None` for [`CPtr::NULL`]. Its provenance is exposed.
    #[must_use]
    pub fn address(&self) -> Option<NonZeroUsize> {
        self.0.map(|first| NonNull::from(first).addr())
    }
}

/// An array of strings that ends with a null pointer: `argv` or `envp`.
///
/// The constructor checks that it does, which makes it safe to pass one to the kernel.
#[derive(Clone, Copy)]
pub struct CArray<'a>(&'a [CPtr<'a>]);

impl<'a> CArray<'a> {
    /// Wraps `pointers`. Returns `None` unless its only [`CPtr::NULL`] is the last pointer.
    #[must_use]
    pub fn new(pointers: &'a [CPtr<'a>]) -> Option<Self> {
        let first_null = pointers.iter().position(|pointer| pointer.0.is_none())?;
        (first_null.checked_add(1)? == pointers.len()).then_some(Self(pointers))
    }

    /// Returns the number of strings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len().saturating_sub(1)
    }

    /// Returns whether the array has no strings.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all pointers, including the null pointer.
    #[must_use]
    pub const fn pointers(&self) -> &'a [CPtr<'a>] {
        self.0
    }

    /// Returns the address of the first pointer.
    pub(crate) fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn array_has_one_null_at_its_end() {
        let word = CPtr::from(c"word");
        assert!(CArray::new(&[]).is_none());
        assert!(CArray::new(&[word]).is_none());
        assert!(CArray::new(&[word, CPtr::NULL, word]).is_none());
        assert!(CArray::new(&[word, CPtr::NULL, CPtr::NULL]).is_none());
        assert_eq!(CArray::new(&[CPtr::NULL]).unwrap().len(), 0);
        assert_eq!(CArray::new(&[word, word, CPtr::NULL]).unwrap().len(), 2);
    }

    #[test]
    fn c_pointer_is_one_word() {
        assert_eq!(size_of::<CPtr<'_>>(), size_of::<*const u8>());
    }
}
