//! Arranges the program's descriptors under the numbers that the command asks for.
//!
//! A wanted number may be the source of another mapping, as when stdout and stderr are swapped. The order is
//! settled here, before the clone; the resulting steps are correct for any overlap.

use crate::Error;
use crate::memory::writer::Writer;
use husk_script::sys::Fd;
use husk_script::{Handle, Step};

/// One descriptor of the program.
#[derive(Clone, Copy)]
pub(crate) struct FdMapping {
    /// The descriptor to duplicate.
    pub(crate) from: Handle,
    /// The program's number for it.
    pub(crate) to: Fd,
}

/// Writes steps that leave the program with the descriptors of `mappings`, the standard streams not among
/// them, and no others. Each `to` occurs once.
pub(crate) fn arrange(mappings: &mut [FdMapping], writer: &mut Writer<'_>) -> Result<(), Error> {
    // Closes on exec every descriptor except those that the steps below install. They are marked rather than
    // closed, because the sources and the channel are still needed.
    writer.push(Step::CloseRangeOnExec { first: Fd::FIRST_EXTRA, last: Fd::MAX });

    let mut pending = mappings;
    let mut spare = None;
    while !pending.is_empty() {
        // A number can be overwritten once no other mapping has it as its source.
        let free = pending.iter().position(|mapping| {
            !pending.iter().any(|other| made_from(other, mapping.to) && other.to != mapping.to)
        });
        let Some(index) = free else {
            // Only cycles remain, such as stdout to stderr and stderr to stdout. One duplicate breaks a
            // cycle. Its register is free again before the next cycle needs it.
            let spare = match spare {
                Some(register) => register,
                None => *spare.insert(writer.register()?),
            };
            let least = above(pending);
            let first = &mut pending[0];
            writer.push(Step::Dup { from: first.from, least, out: spare });
            first.from = spare.into();
            continue;
        };
        pending.swap(index, 0);
        let (first, rest) = pending.split_at_mut(1);
        let FdMapping { from, to } = first[0];
        writer.push(if from == Handle::Number(to) {
            Step::KeepOnExec { fd: to }
        } else {
            Step::Dup3 { from, to }
        });
        pending = rest;
    }
    Ok(())
}

fn made_from(mapping: &FdMapping, number: Fd) -> bool {
    mapping.from == Handle::Number(number)
}

/// Returns a number above all those that the program wants.
pub(crate) fn above(mappings: &[FdMapping]) -> Fd {
    let highest = mappings.iter().map(|mapping| mapping.to).max().map_or(0, Fd::number);
    Fd::new(highest.saturating_add(1)).unwrap_or(Fd::MAX).max(Fd::FIRST_EXTRA)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::writer::ListMemory;
    use std::collections::BTreeMap;

    fn fd(number: i32) -> Fd {
        Fd::new(number).unwrap()
    }

    /// Performs the steps on a simulated descriptor table.
    fn performed(pairs: &[(i32, i32)], open: &[i32]) -> BTreeMap<i32, i32> {
        let memory = ListMemory::default();
        let mut writer = Writer::new(&memory);
        let mut mappings: Vec<_> = pairs
            .iter()
            .map(|&(from, to)| FdMapping { from: Handle::Number(fd(from)), to: fd(to) })
            .collect();
        arrange(&mut mappings, &mut writer).unwrap();

        // Maps a number to the file (named by its original number) and whether exec keeps it.
        let mut table: BTreeMap<i32, (i32, bool)> =
            open.iter().map(|&number| (number, (number, true))).collect();
        let mut registers = BTreeMap::new();
        for step in writer.finish() {
            let number = |handle, registers: &BTreeMap<u8, i32>| match handle {
                Handle::Number(fd) => fd.number(),
                Handle::Register(register) => registers[&register.index()],
            };
            match *step {
                Step::CloseRangeOnExec { first, .. } => {
                    table
                        .iter_mut()
                        .filter(|(number, _)| **number >= first.number())
                        .for_each(|(_, file)| file.1 = false);
                }
                Step::Dup { from, least, out } => {
                    let file = table[&number(from, &registers)].0;
                    let new = (least.number()..).find(|number| !table.contains_key(number)).unwrap();
                    table.insert(new, (file, false));
                    registers.insert(out.index(), new);
                }
                Step::Dup3 { from, to } => {
                    let from = number(from, &registers);
                    assert_ne!(from, to.number(), "dup3 refuses equal descriptors");
                    let file = table[&from].0;
                    table.insert(to.number(), (file, true));
                }
                Step::KeepOnExec { fd } => table.get_mut(&fd.number()).unwrap().1 = true,
                _ => panic!("not a step about descriptors"),
            }
        }
        table.into_iter().filter(|(_, (_, kept))| *kept).map(|(number, (file, _))| (number, file)).collect()
    }

    #[test]
    fn every_mapping_of_four_descriptors_is_correct() {
        let open = [0, 1, 2, 3, 4, 5, 6];
        // Every choice of sources for the numbers 0, 1, 3 and 4, including all cycles.
        for choice in 0..7_i32.pow(4) {
            let sources = [choice % 7, choice / 7 % 7, choice / 49 % 7, choice / 343];
            let pairs: Vec<_> = sources.into_iter().zip([0, 1, 3, 4]).collect();
            let mut wanted = BTreeMap::from([(2, 2)]);
            wanted.extend(pairs.iter().map(|&(from, to)| (to, from)));
            assert_eq!(performed(&pairs, &open), wanted, "{pairs:?}");
        }
    }

    #[test]
    fn only_requested_descriptors_stay_open() {
        assert_eq!(performed(&[], &[0, 1, 2, 3, 9]), BTreeMap::from([(0, 0), (1, 1), (2, 2)]));
        assert_eq!(performed(&[(9, 9)], &[0, 3, 9]), BTreeMap::from([(0, 0), (9, 9)]));
    }
}
