//! Argument vectors as `execve` wants them.

use core::ffi::CStr;
use core::num::NonZeroUsize;
use core::ptr::NonNull;

/// The address of a NUL-terminated string, one word wide, as the kernel reads it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct CPtr<'a>(Option<&'a u8>);

impl CPtr<'_> {
    /// What ends an array.
    pub const NULL: Self = Self(None);
}

impl<'a> From<&'a CStr> for CPtr<'a> {
    fn from(string: &'a CStr) -> Self {
        let bytes = string.to_bytes_with_nul();
        // Whoever reads the string has this address and no more.
        bytes.as_ptr().expose_provenance();
        // There is always a first byte: the NUL if no other.
        Self(bytes.first())
    }
}

impl CPtr<'_> {
    /// The address of the string, unless this is [`CPtr::NULL`]. Its provenance is exposed.
    #[must_use]
    pub fn address(&self) -> Option<NonZeroUsize> {
        self.0.map(|first| NonNull::from(first).addr())
    }
}

/// An array of strings that ends with a null pointer: `argv` or `envp`.
///
/// That it does end so is proved when it is made, which is why passing one to the kernel is safe.
#[derive(Clone, Copy)]
pub struct CArray<'a>(&'a [CPtr<'a>]);

impl<'a> CArray<'a> {
    /// Takes `pointers` for an array, unless it does not end with the only [`CPtr::NULL`] in it.
    #[must_use]
    pub fn new(pointers: &'a [CPtr<'a>]) -> Option<Self> {
        let first_null = pointers.iter().position(|pointer| pointer.0.is_none())?;
        (first_null.checked_add(1)? == pointers.len()).then_some(Self(pointers))
    }

    /// How many strings there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len().saturating_sub(1)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of it, the null pointer included.
    #[must_use]
    pub const fn pointers(&self) -> &'a [CPtr<'a>] {
        self.0
    }

    /// The address of the first pointer.
    pub(crate) fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_ends_with_its_only_null() {
        let word = CPtr::from(c"word");
        assert!(CArray::new(&[]).is_none());
        assert!(CArray::new(&[word]).is_none());
        assert!(CArray::new(&[word, CPtr::NULL, word]).is_none());
        assert!(CArray::new(&[word, CPtr::NULL, CPtr::NULL]).is_none());
        assert_eq!(CArray::new(&[CPtr::NULL]).unwrap().len(), 0);
        assert_eq!(CArray::new(&[word, word, CPtr::NULL]).unwrap().len(), 2);
    }

    #[test]
    fn a_pointer_is_one_word() {
        assert_eq!(size_of::<CPtr<'_>>(), size_of::<*const u8>());
    }
}
