//! System calls by name and by number. `syscalls.txt` holds the data and names its sources. It is parsed at
//! compile time, into tables without pointers, so that a static binary needs no relocations for them.

use crate::{Abi, arch::X32_BIT};

static TEXT: &str = include_str!("syscalls.txt");

/// Marks a call that an ABI does not have.
const ABSENT: u32 = u32::MAX;

/// A system call: one line of `syscalls.txt`.
pub(crate) struct Syscall {
    /// The start and length of its name in the text.
    name: (u16, u8),
    /// Its number in each ABI, in the order of [`Abi`], or [`ABSENT`].
    numbers: [u32; 5],
    /// The x86 call that does the same with a selector as its first argument.
    multiplexed: Option<Multiplexed>,
}

/// A 32-bit x86 call that multiplexes several calls.
#[derive(Clone, Copy)]
pub(crate) struct Multiplexed {
    /// The number of `socketcall` or `ipc`.
    pub(crate) number: u32,
    /// The value of its first argument.
    pub(crate) selector: u8,
}

const COUNT: usize = count();

static CALLS: [Syscall; COUNT] = parse();

/// A hash table with linear probing: the index of each call in [`CALLS`], or [`FREE`].
static INDEX: [u16; PLACES] = index();

const PLACES: usize = (COUNT * 2).next_power_of_two();

const FREE: u16 = u16::MAX;

impl Syscall {
    /// Returns the call with this name on any architecture.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        let mut place = hash(name.as_bytes(), 0, name.len());
        loop {
            let call = CALLS.get(usize::from(INDEX[place]))?;
            if call.name().as_bytes() == name.as_bytes() {
                return Some(call);
            }
            place = (place + 1) % PLACES;
        }
    }

    /// Returns the call's name.
    pub(crate) fn name(&self) -> &'static str {
        let start = usize::from(self.name.0);
        &TEXT[start..start + usize::from(self.name.1)]
    }

    /// Returns the call's number, if the ABI has it.
    pub(crate) fn number(&self, abi: Abi) -> Option<u32> {
        let number = self.numbers[abi as usize];
        let bit = if abi == Abi::X32 { X32_BIT } else { 0 };
        (number != ABSENT).then_some(number | bit)
    }

    /// Returns the call that does the same with a selector, if the ABI has one.
    pub(crate) fn multiplexed(&self, abi: Abi) -> Option<Multiplexed> {
        if abi == Abi::X86 { self.multiplexed } else { None }
    }
}

/// Returns the number of the call with this name, if the ABI has it.
#[must_use]
pub fn call_number(name: &str, abi: Abi) -> Option<u32> {
    Syscall::named(name)?.number(abi)
}

/// Returns number and name of every call of an ABI, sorted by number. A number may have two names.
pub(crate) fn by_number(abi: Abi) -> Vec<(u32, &'static str)> {
    let mut calls: Vec<_> = CALLS.iter().filter_map(|call| Some((call.number(abi)?, call.name()))).collect();
    calls.sort_unstable();
    calls
}

/// Returns the end of the line that starts at `position`.
const fn line_end(position: usize) -> usize {
    let text = TEXT.as_bytes();
    let mut end = position;
    while text[end] != b'\n' {
        end += 1;
    }
    end
}

const fn count() -> usize {
    let text = TEXT.as_bytes();
    let (mut position, mut count) = (0, 0);
    while position < text.len() {
        if text[position] != b'#' {
            count += 1;
        }
        position = line_end(position) + 1;
    }
    count
}

#[expect(clippy::cast_possible_truncation, reason = "an overflow of these is caught below")]
const fn parse() -> [Syscall; COUNT] {
    const NONE: Syscall = Syscall { name: (0, 0), numbers: [ABSENT; 5], multiplexed: None };
    let text = TEXT.as_bytes();
    assert!(text.len() <= u16::MAX as usize);
    let mut calls = [NONE; COUNT];
    let (mut position, mut count) = (0, 0);
    while position < text.len() {
        let end = line_end(position);
        if text[position] != b'#' {
            let name = word_end(position);
            assert!(name - position <= u8::MAX as usize);
            calls[count].name = (position as u16, (name - position) as u8);
            let mut column = 0;
            let mut word = name + 1;
            while column < 5 {
                let next = word_end(word);
                calls[count].numbers[column] = if text[word] == b'-' { ABSENT } else { number(word, next) };
                column += 1;
                word = next + 1;
            }
            if word <= end {
                let ipc = text[word] == b'i';
                let colon = word + if ipc { 3 } else { 10 };
                assert!(text[colon] == b':');
                let selector = number(colon + 1, end) as u8;
                calls[count].multiplexed =
                    Some(Multiplexed { number: if ipc { 117 } else { 102 }, selector });
            }
            count += 1;
        }
        position = end + 1;
    }
    calls
}

/// Returns the FNV-1a hash of a name, as a position in [`INDEX`].
const fn hash(text: &[u8], start: usize, end: usize) -> usize {
    let (mut hash, mut position) = (0x811c_9dc5_u32, start);
    while position < end {
        hash = (hash ^ text[position] as u32).wrapping_mul(0x0100_0193);
        position += 1;
    }
    (hash ^ hash >> 16) as usize % PLACES
}

const fn index() -> [u16; PLACES] {
    let calls = parse();
    let mut places = [FREE; PLACES];
    let mut call = 0;
    while call < COUNT {
        let (start, length) = (calls[call].name.0 as usize, calls[call].name.1 as usize);
        let mut place = hash(TEXT.as_bytes(), start, start + length);
        while places[place] != FREE {
            place = (place + 1) % PLACES;
        }
        places[place] = call as u16;
        call += 1;
    }
    places
}

const fn word_end(position: usize) -> usize {
    let text = TEXT.as_bytes();
    let mut end = position;
    while text[end] != b' ' && text[end] != b'\n' {
        end += 1;
    }
    end
}

const fn number(start: usize, end: usize) -> u32 {
    let text = TEXT.as_bytes();
    let (mut value, mut position) = (0, start);
    while position < end {
        assert!(text[position].is_ascii_digit());
        value = value * 10 + (text[position] - b'0') as u32;
        position += 1;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syscall_names_are_sorted_and_unique() {
        assert!(CALLS.windows(2).all(|pair| pair[0].name() < pair[1].name()));
    }

    #[test]
    fn syscall_numbers_match_the_headers() {
        let numbers = |name| {
            let call = Syscall::named(name).unwrap();
            [Abi::X86_64, Abi::X86, Abi::X32, Abi::Aarch64, Abi::Arm].map(|abi| call.number(abi))
        };
        assert_eq!(numbers("read"), [Some(0), Some(3), Some(X32_BIT), Some(63), Some(3)]);
        assert_eq!(numbers("execve"), [Some(59), Some(11), Some(X32_BIT + 520), Some(221), Some(11)]);
        assert_eq!(numbers("open"), [Some(2), Some(5), Some(X32_BIT + 2), None, Some(5)]);
        assert_eq!(numbers("clone3"), [Some(435), Some(435), Some(X32_BIT + 435), Some(435), Some(435)]);
        assert_eq!(numbers("file_setattr")[0], Some(469));
        assert_eq!(numbers("set_tls"), [None, None, None, None, Some(0x000f_0005)]);
        assert_eq!(numbers("s390_pci_mmio_read"), [None; 5]);
        assert!(Syscall::named("no_such_call").is_none());
        assert!(Syscall::named("").is_none());
    }

    #[test]
    fn only_x86_multiplexes_syscalls() {
        let accept = Syscall::named("accept").unwrap();
        assert_eq!(accept.number(Abi::X86), None);
        let multiplexed = accept.multiplexed(Abi::X86).unwrap();
        assert_eq!((multiplexed.number, multiplexed.selector), (102, 5));
        let shmctl = Syscall::named("shmctl").unwrap().multiplexed(Abi::X86).unwrap();
        assert_eq!((shmctl.number, shmctl.selector), (117, 24));
        assert!(accept.multiplexed(Abi::X86_64).is_none());
        assert!(accept.multiplexed(Abi::Arm).is_none());
    }

    // If two calls shared a number, one of their rules would be unreachable.
    #[test]
    fn only_aliases_share_a_number() {
        for abi in [Abi::X86_64, Abi::X86, Abi::X32, Abi::Aarch64, Abi::Arm] {
            let shared: Vec<_> = by_number(abi)
                .windows(2)
                .filter(|pair| pair[0].0 == pair[1].0)
                .map(|pair| (pair[0].1, pair[1].1))
                .collect();
            let known: &[_] =
                if abi == Abi::Arm { &[("arm_sync_file_range", "sync_file_range2")] } else { &[] };
            assert_eq!(shared, known, "{abi:?}");
        }
    }
}
