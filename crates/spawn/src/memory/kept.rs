//! Memory apart from all other, for what a child keeps that forgets the rest.
//!
//! # Safety
//!
//! A chunk is a private mapping of zeros. Its bytes are handed out once each, in rising order, and stay where they
//! are until the [`Kept`] is dropped, which no reference to them outlives. What lies in it is never dropped.
//!
//! [`Kept::unneeded`] declares all other memory without a file unneeded, for a child in a copy of it whose list lies
//! here and whose stack is named.

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

/// How much is mapped at least. Only the pages that are touched exist.
const CHUNK: usize = 64 << 10;

/// See the top of this file.
#[derive(Default)]
pub(crate) struct Kept {
    chunks: RefCell<Vec<Chunk>>,
}

struct Chunk {
    mapping: NonNull<c_void>,
    size: usize,
    used: Cell<usize>,
}

// SAFETY: the mapping belongs to whoever has the `Chunk`, whatever thread that is.
unsafe impl Send for Chunk {}

impl Kept {
    /// Puts a value here.
    pub(crate) fn value<T>(&self, value: T) -> Result<&T, Errno> {
        let room = self.room(Layout::new::<T>())?.cast::<T>();
        // SAFETY: the room is nobody else's, and as large and as aligned as a `T`.
        unsafe { room.write(value) };
        // SAFETY: there is a `T` now, which stays for as long as `self`.
        Ok(unsafe { room.as_ref() })
    }

    /// Copies values here.
    pub(crate) fn slice<T: Copy>(&self, values: &[T]) -> Result<&[T], Errno> {
        let room = self.room(Layout::for_value(values))?.cast::<T>();
        // SAFETY: the room is nobody else's, and as large and as aligned as the values.
        unsafe { room.copy_from_nonoverlapping(NonNull::from(values).cast(), values.len()) };
        // SAFETY: the values are there now, and stay for as long as `self`.
        Ok(unsafe { slice::from_raw_parts(room.as_ptr(), values.len()) })
    }

    /// Copies a string here.
    pub(crate) fn text(&self, string: &CStr) -> Result<&CStr, Errno> {
        let bytes = self.slice(string.to_bytes_with_nul())?;
        // It ends as the string does that it is a copy of.
        CStr::from_bytes_with_nul(bytes).map_err(|_| Errno::INVAL)
    }

    /// Copies an array of strings here, and the strings.
    pub(crate) fn array(&self, array: CArray<'_>) -> Result<CArray<'_>, Errno> {
        let copy = |pointer: &CPtr<'_>| match pointer.address() {
            None => Ok(CPtr::NULL),
            Some(address) => {
                let string = ptr::with_exposed_provenance(address.get());
                // SAFETY: a pointer that is not null is that of a string, which the array has borrowed, and its
                // provenance is exposed.
                self.text(unsafe { CStr::from_ptr(string) }).map(CPtr::from)
            }
        };
        let pointers = array.pointers().iter().map(copy).collect::<Result<Vec<_>, _>>()?;
        CArray::new(self.slice(&pointers)?).ok_or(Errno::INVAL)
    }

    /// Makes sure that so much can be put here without another mapping. The count of bytes includes what alignment
    /// costs.
    pub(crate) fn reserve(&self, size: usize) -> Result<(), Errno> {
        let chunks = self.chunks.borrow();
        if chunks.last().is_some_and(|chunk| chunk.size - chunk.used.get() >= size) {
            return Ok(());
        }
        drop(chunks);
        self.chunks.borrow_mut().push(Chunk::new(size)?);
        Ok(())
    }

    /// The addresses of all that is here, with whole pages.
    pub(crate) fn extents(&self) -> Vec<Range<usize>> {
        let chunks = self.chunks.borrow();
        chunks
            .iter()
            .map(|chunk| chunk.mapping.addr().get()..chunk.mapping.addr().get() + chunk.size)
            .collect()
    }

    /// Declares these addresses unneeded and puts them here.
    ///
    /// Only for the list of a child in a copy of this memory. `others` has neither an address of what is here,
    /// nor one of the child's stack, of the program or of a file or shared memory.
    pub(crate) fn unneeded(&self, others: Vec<Range<usize>>) -> Result<&[Unneeded], Errno> {
        // SAFETY: these are forgotten by a step of the list, in a child that shares its memory with nobody
        // (`list.rs`). It uses its stack, the program with its static data, its journal, which lies in a shared
        // mapping, and the list. From that step on it looks at no other part of the list than `forget::rest` has
        // copied here, which takes no reference along.
        let declared = others.into_iter().map(|addresses| unsafe { Unneeded::new(addresses) });
        self.slice(&declared.collect::<Vec<_>>())
    }

    /// Bytes that nobody has yet.
    fn room(&self, layout: Layout) -> Result<NonNull<c_void>, Errno> {
        self.reserve(layout.size() + layout.align())?;
        let chunks = self.chunks.borrow();
        let chunk = chunks.last().ok_or(Errno::NOMEM)?;
        // A mapping is aligned to a page, and nothing more is asked for here.
        let start = chunk.used.get().next_multiple_of(layout.align());
        chunk.used.set(start + layout.size());
        // SAFETY: `reserve` has seen to it that the mapping is so long.
        Ok(unsafe { chunk.mapping.byte_add(start) })
    }
}

impl Chunk {
    fn new(least: usize) -> Result<Self, Errno> {
        let size = least.max(CHUNK).next_multiple_of(page_size());
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping where the kernel likes touches no memory in use.
        let mapping = unsafe { mmap_anonymous(ptr::null_mut(), size, access, MapFlags::PRIVATE) }?;
        Ok(Self { mapping: NonNull::new(mapping).ok_or(Errno::NOMEM)?, size, used: Cell::new(0) })
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`, whole; references to it cannot outlive the `Kept`.
        let unmapped = unsafe { munmap(self.mapping.as_ptr(), self.size) };
        debug_assert!(unmapped.is_ok());
    }
}

// SAFETY: the linker defines both symbols. Only their addresses are used, so their type and contents do not matter.
unsafe extern "C" {
    /// Where the linker begins the program, or the shared library that this is part of.
    #[link_name = "__ehdr_start"]
    static PROGRAM: u8;
    /// Where the linker ends its static data.
    #[link_name = "_end"]
    static END: u8;
}

/// The addresses of the program with its static data, with whole pages.
pub(crate) fn program() -> Range<usize> {
    let (start, end) = (&raw const PROGRAM, &raw const END);
    start.addr()..end.addr().next_multiple_of(page_size())
}
