//! Determines which memory a child keeps, and which it discards, at [`Step::ForgetMemory`].
//!
//! A child with a copy of this process's memory has a copy of all of it: environment, arguments, heap. The
//! rest of the child's list is therefore copied to separate memory ([`RetainedMemory`]). The child discards the gaps
//! between the kept ranges rather than known mappings, because other threads of this process may map more
//! until the clone.
//!
//! File mappings, even private ones, and shared memory are also kept: the program, its libraries, the
//! journal. Files that the caller has mapped stay readable. So does private memory directly above a private mapping of a
//! file, which may be static data of a library.

use super::kept::RetainedMemory;
use super::pool::ScriptRef;
use super::program;
use crate::Error;
use crate::error::Reason;
use husk_listing::Line;
use husk_script::sys::Errno;
use husk_script::sys::memory::Unneeded;
use husk_script::{HookCommand, Script, Step};
use std::fs;
use std::iter;
use std::ops::Range;

/// Returns the list with everything copied that steps after the first [`Step::ForgetMemory`] refer to.
/// Earlier steps still refer to memory that is then discarded.
pub(crate) fn rest<'b>(steps: &[Step<'b>], kept: &'b RetainedMemory) -> Result<&'b [Step<'b>], Error> {
    let mut copied = Vec::with_capacity(steps.len());
    let mut forgotten = false;
    for step in steps {
        copied.push(if forgotten { copy(step, kept)? } else { *step });
        forgotten |= matches!(step, Step::ForgetMemory);
    }
    kept.slice(&copied).map_err(failed)
}

/// Puts the script into the kept memory, with the ranges to discard.
pub(crate) fn others<'b>(
    script: Script<'b>,
    kept: &'b RetainedMemory,
    stack: Range<usize>,
) -> Result<ScriptRef<'b>, Error> {
    let map = fs::read("/proc/self/maps").map_err(|error| Error::from_io("open /proc/self/maps", &error))?;
    let malformed = || Error::new("read /proc/self/maps", Errno::INVAL);
    let mut map = Map::parse(&map, &program::extent()).ok_or_else(malformed)?;
    // Nothing more is mapped after this, so that the list of kept ranges is complete.
    let most = map.kept.len() + kept.extents().len() + 3;
    let room = (most + 1) * size_of::<Unneeded>() + size_of::<Script<'_>>() + align_of::<Script<'_>>();
    kept.reserve(room).map_err(failed)?;
    map.kept.extend(kept.extents());
    map.kept.push(stack);
    let unneeded = kept.unneeded(map.spaces()).map_err(failed)?;
    kept.value(Script { unneeded, ..script }).map_err(failed)
}

fn failed(errno: Errno) -> Error {
    Error::new("memory to keep", errno)
}

/// Copies a step with everything it refers to. The compiler ensures that nothing is left out: the copy does
/// not have the original's lifetime.
fn copy<'b>(step: &Step<'_>, kept: &'b RetainedMemory) -> Result<Step<'b>, Error> {
    let copied = || {
        Ok(Some(match *step {
            Step::Close { fd } => Step::Close { fd },
            Step::CloseRange { first, last } => Step::CloseRange { first, last },
            Step::CloseRangeOnExec { first, last } => Step::CloseRangeOnExec { first, last },
            Step::CloseOthers { first, keep } => Step::CloseOthers { first, keep },
            Step::Await { fd } => Step::Await { fd },
            Step::Write { fd, bytes } => Step::Write { fd, bytes: kept.slice(bytes)? },
            Step::SignalMask { blocked } => Step::SignalMask { blocked },
            Step::ParentDeathSignal { signal, parent } => Step::ParentDeathSignal { signal, parent },
            Step::NoNewPrivs => Step::NoNewPrivs,
            Step::ForgetMemory => Step::ForgetMemory,
            Step::Undumpable => Step::Undumpable,
            Step::Request { what } => Step::Request { what },
            Step::Park { listener } => Step::Park { listener },
            Step::Seccomp { flags, program } => Step::Seccomp { flags, program: kept.slice(program)? },
            Step::Hook { hook } => Step::Hook { hook: copy_hook(hook, kept)? },
            Step::ExecveFirst { candidates, argv, envp } => {
                let candidates = candidates.iter().map(|candidate| kept.text(candidate));
                let candidates = kept.slice(&candidates.collect::<Result<Vec<_>, _>>()?)?;
                Step::ExecveFirst { candidates, argv: kept.array(argv)?, envp: kept.array(envp)? }
            }
            Step::Execve { path, argv, envp } => {
                Step::Execve { path: kept.text(path)?, argv: kept.array(argv)?, envp: kept.array(envp)? }
            }
            _ => return Ok(None),
        }))
    };
    let why = "cannot follow a step that forgets memory";
    copied().map_err(failed)?.ok_or_else(|| Error::new(Line(step).to_string(), Reason::Conflict(why)))
}

fn copy_hook<'b>(hook: &HookCommand<'_>, kept: &'b RetainedMemory) -> Result<&'b HookCommand<'b>, Errno> {
    let [before, after] = hook.state;
    kept.value(HookCommand {
        path: kept.text(hook.path)?,
        argv: kept.array(hook.argv)?,
        envp: kept.array(hook.envp)?,
        state: [kept.slice(before)?, kept.slice(after)?],
        streams: hook.streams,
        timeout_seconds: hook.timeout_seconds,
    })
}

/// The mappings of this process.
#[derive(Debug, PartialEq, Eq)]
struct Map {
    kept: Vec<Range<usize>>,
    /// Private memory without a file: the only kind that may be discarded.
    others: Vec<Range<usize>>,
}

impl Map {
    /// Parses `/proc/self/maps` (proc_pid_maps(5)); `None` if it is malformed. `program` is kept.
    fn parse(text: &[u8], program: &Range<usize>) -> Option<Self> {
        let mut map = Self { kept: vec![program.clone()], others: Vec::new() };
        // The end of the last private file mapping or of the static data that follows it.
        let mut end_of_file = None;
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let Mapping { addresses, kind } = Mapping::parse(line)?;
            // Static data of a shared library that its file does not contain.
            let goes_on = kind == MappingKind::Anonymous && end_of_file == Some(addresses.start);
            if kind == MappingKind::File || goes_on {
                end_of_file = Some(addresses.end);
            }
            if goes_on || matches!(kind, MappingKind::File | MappingKind::Shared | MappingKind::Special) {
                map.kept.push(addresses);
            } else {
                map.others.push(addresses);
            }
        }
        Some(map)
    }

    /// Returns the gaps between kept ranges that contain other mappings, in ascending order.
    fn spaces(mut self) -> Vec<Range<usize>> {
        self.kept.sort_unstable_by_key(|kept| kept.start);
        let end = self.others.iter().map(|other| other.end).max().unwrap_or(0);
        let mut start = 0;
        let mut spaces = Vec::new();
        for kept in self.kept.into_iter().chain(iter::once(end..end)) {
            let space = start..kept.start.min(end);
            let has = |other: &Range<usize>| other.start < space.end && space.start < other.end;
            if !space.is_empty() && self.others.iter().any(has) {
                spaces.push(space);
            }
            start = start.max(kept.end);
        }
        spaces
    }
}

struct Mapping {
    addresses: Range<usize>,
    kind: MappingKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MappingKind {
    /// A private mapping of a file. Static data may follow it.
    File,
    /// Shared memory or a shared mapping of a file.
    Shared,
    /// A mapping of the kernel for its own use: `[vdso]`.
    Special,
    /// Private memory without a file, with a known name: `[heap]`.
    Named,
    /// Private memory without a file or name.
    Anonymous,
}

impl Mapping {
    /// `ADDRESS-ADDRESS PERMISSIONS OFFSET DEVICE INODE     NAME`
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.splitn(6, |byte| *byte == b' ');
        let addresses = std::str::from_utf8(fields.next()?).ok()?;
        let (start, end) = addresses.split_once('-')?;
        let address = |digits| usize::from_str_radix(digits, 16).ok();
        let is_private = fields.next()?.get(3)? == &b'p';
        let inode = fields.nth(2)?;
        let name = fields.next().unwrap_or_default().trim_ascii();
        let kind = if !is_private {
            MappingKind::Shared
        } else if inode != b"0" {
            MappingKind::File
        } else if name.is_empty() {
            MappingKind::Anonymous
        } else if [&b"[heap]"[..], b"[stack", b"[anon:"].iter().any(|known| name.starts_with(known)) {
            MappingKind::Named
        } else {
            MappingKind::Special
        };
        Some(Self { addresses: address(start)?..address(end)?, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::Map;
    use std::ops::Range;

    /// A static program whose zeroed data and heap are adjacent, without address randomisation.
    const STATIC: &str = "\
00200000-00400000 r-xp 00000000 fe:00 42                                 /usr/bin/husk (deleted)
00400000-00410000 rw-p 00200000 fe:00 42                                 /usr/bin/husk (deleted)
00410000-00460000 rw-p 00000000 00:00 0                                  [heap]
7f0000000000-7f0000010000 ---p 00000000 00:00 0 
7f0000010000-7f0000020000 rw-p 00000000 00:00 0 
7f0000020000-7f0000021000 rw-s 00000000 00:01 99                         /dev/zero (deleted)
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
7ffc00030000-7ffc00034000 r--p 00000000 00:00 0                          [vvar]
7ffc00034000-7ffc00036000 r-xp 00000000 00:00 0                          [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    fn spaces(text: &str, program: Range<usize>, kept: &[Range<usize>]) -> Vec<Range<usize>> {
        let mut map = Map::parse(text.as_bytes(), &program).unwrap();
        map.kept.extend_from_slice(kept);
        map.spaces()
    }

    #[test]
    fn memory_between_kept_ranges_is_forgotten() {
        let stack = 0x7f00_0001_0000..0x7f00_0002_0000;
        assert_eq!(
            spaces(STATIC, 0x20_0000..0x42_0000, &[stack]),
            [0x42_0000..0x7f00_0001_0000, 0x7f00_0002_1000..0x7ffc_0002_1000]
        );
    }

    #[test]
    fn zeroed_data_of_a_library_is_kept() {
        let text = "\
7f0000000000-7f0000001000 rw-p 00000000 fe:00 42                         /lib/libc.so
7f0000001000-7f0000002000 rw-p 00000000 00:00 0 
7f0000003000-7f0000004000 rw-p 00000000 00:00 0 
";
        let only = 0x7f00_0000_2000..0x7f00_0000_4000;
        assert_eq!(spaces(text, 0..1, &[]), std::slice::from_ref(&only));
    }

    // The allocator may get new memory where an old mapping has ended.
    #[test]
    fn heap_above_shared_memory_is_forgotten() {
        let text = "\
7f0000000000-7f0000001000 rw-s 00000000 00:01 99                         /dev/zero (deleted)
7f0000001000-7f0000002000 rw-p 00000000 00:00 0 
";
        let only = 0x7f00_0000_1000..0x7f00_0000_2000;
        assert_eq!(spaces(text, 0..1, &[]), std::slice::from_ref(&only));
    }

    #[test]
    fn malformed_line_of_maps_is_refused() {
        for line in ["?", "1-2", "1-2 rw-p 0 00:00", "1-x rw-p 0 00:00 0", "1-2 rw 0 00:00 0"] {
            assert_eq!(Map::parse(line.as_bytes(), &(0..1)), None, "{line}");
        }
    }
}
