//! Interprets a program like the kernel, for tests and for callers that want to predict a filter's answer.

use crate::program::{Instruction, code};

/// `struct seccomp_data`: the data about a call that a filter sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Data {
    /// The system call number.
    pub number: u32,
    /// `AUDIT_ARCH_*`.
    pub arch: u32,
    /// The address of the call's instruction.
    pub instruction_pointer: u64,
    /// The six arguments.
    pub arguments: [u64; 6],
}

impl Data {
    /// Returns the word at an offset, if it is aligned and in bounds.
    fn word(&self, offset: u32) -> Option<u32> {
        let half = |value: u64| {
            let halves = value.to_le_bytes();
            let start = offset as usize % 8;
            halves
                .get(start..start + 4)
                .map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        };
        match offset {
            offset if offset % 4 != 0 => None,
            0 => Some(self.number),
            4 => Some(self.arch),
            8..16 => half(self.instruction_pointer),
            16..64 => half(self.arguments[(offset as usize - 16) / 8]),
            _ => None,
        }
    }
}

/// The reason why the kernel would reject a program: the instruction at this index is unknown, or reads or
/// jumps out of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("instruction {0} is none that a filter may have")]
pub struct Fault(pub usize);

/// Returns the program's answer for the call.
///
/// # Errors
///
/// [`Fault`]. Programs from this crate never cause one.
pub fn run(program: &[Instruction], data: &Data) -> Result<u32, Fault> {
    let (mut accumulator, mut at) = (0_u32, 0_usize);
    loop {
        let fault = Fault(at);
        let &Instruction { code, jt, jf, k } = program.get(at).ok_or(fault)?;
        at += 1;
        let holds = match code {
            code::RETURN => return Ok(k),
            code::LOAD => {
                accumulator = data.word(k).ok_or(fault)?;
                continue;
            }
            code::AND => {
                accumulator &= k;
                continue;
            }
            code::JUMP => {
                at += k as usize;
                continue;
            }
            code::EQUAL => accumulator == k,
            code::GREATER => accumulator > k,
            code::AT_LEAST => accumulator >= k,
            code::ANY_BIT => accumulator & k != 0,
            _ => return Err(fault),
        };
        at += usize::from(if holds { jt } else { jf });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn instruction(code: u16, k: u32) -> Instruction {
        Instruction { code, jt: 0, jf: 0, k }
    }

    #[test]
    fn loaded_words_match_the_kernels_layout() {
        let data = Data {
            number: 1,
            arch: 2,
            instruction_pointer: 0x4_0000_0003,
            arguments: [0x6_0000_0005, 0, 0, 0, 0, 0x8_0000_0007],
        };
        let load = |k| run(&[instruction(code::LOAD, k), instruction(code::RETURN, 9)], &data);
        assert_eq!([0, 4, 8, 12, 16, 20, 56, 60].map(|k| data.word(k).unwrap()), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(load(60), Ok(9));
        assert_eq!(load(64), Err(Fault(0)));
        assert_eq!(load(2), Err(Fault(0)));
    }

    #[test]
    fn program_without_a_return_is_a_fault() {
        assert_eq!(run(&[], &Data::default()), Err(Fault(0)));
        assert_eq!(run(&[instruction(code::JUMP, 7)], &Data::default()), Err(Fault(8)));
        assert_eq!(run(&[instruction(0x61, 0)], &Data::default()), Err(Fault(0)));
    }
}
