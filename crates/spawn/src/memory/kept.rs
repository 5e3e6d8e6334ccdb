//! Separate memory for what a child keeps at [`Step::ForgetMemory`](crate::Step::ForgetMemory).
//!
//! # Safety
//!
//! A chunk is a private mapping of zeros. Each of its bytes is handed out once, in ascending order, and stays
//! in place until the [`RetainedMemory`] is dropped. No reference to them outlives the `RetainedMemory`. Values in it are never
//! dropped.
//!
//! [`RetainedMemory::unneeded`] declares all other memory without a file unneeded. It is for a child in a copy of the
//! memory, whose list is stored here and whose stack is known.

#![allow(unsafe_code, clippy::allow_attributes, reason = "maps memory, and lets go of it")]

use core::alloc::Layout;
use core::cell::{Cell, RefCell};
use core::ffi::{CStr, c_void};
use core::ops::Range;
use core::ptr::{self, NonNull};
use core::slice;
use husk_script::sys::memory::Unneeded;
use husk_script::sys::{CArray, CPtr, Errno};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::param::page_size;

/// The least size to map. Only touched pages take up memory.
const CHUNK: usize = 64 << 10;

/// See the module documentation.
#[derive(Default)]
pub(crate) struct RetainedMemory {
    chunks: RefCell<Vec<Chunk>>,
}

struct Chunk {
    mapping: NonNull<c_void>,
    size: usize,
    used: Cell<usize>,
}

// SAFETY: the mapping belongs to the owner of the `Chunk`, in whatever thread.
unsafe impl Send for Chunk {}

impl RetainedMemory {
    /// Moves a value here.
    pub(crate) fn value<T>(&self, value: T) -> Result<&T, Errno> {
        let room = self.room(Layout::new::<T>())?.cast::<T>();
        // SAFETY: nothing else uses this space, which has the size and alignment of a `T`.
        unsafe { room.write(value) };
        // SAFETY: it now holds a `T`, which stays as long as `self`.
        Ok(unsafe { room.as_ref() })
    }

    /// Copies values here.
    pub(crate) fn slice<T: Copy>(&self, values: &[T]) -> Result<&[T], Errno> {
        let room = self.room(Layout::for_value(values))?.cast::<T>();
        // SAFETY: nothing else uses this space, which has the size and alignment of the values.
        unsafe { room.copy_from_nonoverlapping(NonNull::from(values).cast(), values.len()) };
        // SAFETY: it now holds the values, which stay as long as `self`.
        Ok(unsafe { slice::from_raw_parts(room.as_ptr(), values.len()) })
    }

    /// Copies a string here.
    pub(crate) fn text(&self, string: &CStr) -> Result<&CStr, Errno> {
        let bytes = self.slice(string.to_bytes_with_nul())?;
        // The copy ends with the same NUL.
        CStr::from_bytes_with_nul(bytes).map_err(|_| Errno::INVAL)
    }

    /// Copies an array of strings here, including the strings.
    pub(crate) fn array(&self, array: CArray<'_>) -> Result<CArray<'_>, Errno> {
        let copy = |pointer: &CPtr<'_>| match pointer.address() {
            None => Ok(CPtr::NULL),
            Some(address) => {
                let string = ptr::with_exposed_provenance(address.get());
                // SAFETY: a pointer that is not null points to a string that the array has borrowed, and its
                // provenance is exposed.
                self.text(unsafe { CStr::from_ptr(string) }).map(CPtr::from)
            }
        };
        let pointers = array.pointers().iter().map(copy).collect::<Result<Vec<_>, _>>()?;
        CArray::new(self.slice(&pointers)?).ok_or(Errno::INVAL)
    }

    /// Ensures that `size` bytes, including alignment, can be put here without another mapping.
    pub(crate) fn reserve(&self, size: usize) -> Result<(), Errno> {
        let chunks = self.chunks.borrow();
        if chunks.last().is_some_and(|chunk| chunk.size - chunk.used.get() >= size) {
            return Ok(());
        }
        drop(chunks);
        self.chunks.borrow_mut().push(Chunk::new(size)?);
        Ok(())
    }

    /// Returns the addresses of all chunks, in whole pages.
    pub(crate) fn extents(&self) -> Vec<Range<usize>> {
        let chunks = self.chunks.borrow();
        chunks
            .iter()
            .map(|chunk| chunk.mapping.addr().get()..chunk.mapping.addr().get() + chunk.size)
            .collect()
    }

    /// Declares these addresses unneeded and puts them here.
    ///
    /// Only for the list of a child in a copy of this memory. `others` must not contain addresses of the
    /// chunks, the child's stack, the program, a file or shared memory.
    pub(crate) fn unneeded(&self, others: Vec<Range<usize>>) -> Result<&[Unneeded], Errno> {
        // SAFETY: a step of the list discards these, in a child that shares its memory with no other process
        // (`list.rs`). The child uses its stack, the program with its static data, its journal (in a shared
        // mapping) and the list. From that step on it reads only the part of the list that `forget::rest` has
        // copied here, without references to the original.
        let declared = others.into_iter().map(|addresses| unsafe { Unneeded::new(addresses) });
        self.slice(&declared.collect::<Vec<_>>())
    }

    /// Returns space that is not used yet.
    fn room(&self, layout: Layout) -> Result<NonNull<c_void>, Errno> {
        self.reserve(layout.size() + layout.align())?;
        let chunks = self.chunks.borrow();
        let chunk = chunks.last().ok_or(Errno::NOMEM)?;
        // A mapping is aligned to a page, and no type here needs more.
        let start = chunk.used.get().next_multiple_of(layout.align());
        chunk.used.set(start + layout.size());
        // SAFETY: `reserve` has ensured that the mapping is long enough.
        Ok(unsafe { chunk.mapping.byte_add(start) })
    }
}

impl Chunk {
    fn new(least: usize) -> Result<Self, Errno> {
        let size = least.max(CHUNK).next_multiple_of(page_size());
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory in use.
        let mapping = unsafe { mmap_anonymous(ptr::null_mut(), size, access, MapFlags::PRIVATE) }?;
        Ok(Self { mapping: NonNull::new(mapping).ok_or(Errno::NOMEM)?, size, used: Cell::new(0) })
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: this is the whole mapping made by `new`; references to it cannot outlive the `RetainedMemory`.
        let unmapped = unsafe { munmap(self.mapping.as_ptr(), self.size) };
        debug_assert!(unmapped.is_ok());
    }
}
