//! Interprets device programs without a kernel, for tests.

use super::program::code;
use super::rules::{DeviceAccess, Type};
use husk_sys::bpf::EbpfInstruction;

/// Returns the program's answer; `None` if it uses an instruction that device programs do not use.
#[must_use]
pub fn run(program: &[EbpfInstruction], request: &DeviceAccess) -> Option<bool> {
    let kind = match request.kind {
        Type::Block => 1,
        Type::Character => 2,
        Type::All => return None,
    };
    let context = [kind | u32::from(request.access.bits()) << 16, request.major, request.minor];
    let mut registers = [0_u32; 11];
    let mut next = 0_usize;
    // All jumps go forwards, so this is the most steps that there can be.
    for _ in 0..=program.len() {
        let EbpfInstruction { code, registers: names, offset, immediate } = *program.get(next)?;
        let to = usize::from(names & 0xf);
        let operand = immediate.cast_unsigned();
        let value = *registers.get(to)?;
        let result = match code {
            code::LOAD_WORD => *context.get(usize::try_from(offset).ok()? / 4)?,
            code::AND => value & operand,
            code::SHIFT_RIGHT => value >> operand,
            code::SET => operand,
            code::JUMP => {
                next += usize::try_from(offset).ok()?;
                value
            }
            code::EXIT => return Some(registers[0] != 0),
            code::JUMP_IF_EQUAL | code::JUMP_IF_NOT_EQUAL => {
                if (value == operand) == (code == code::JUMP_IF_EQUAL) {
                    next += usize::try_from(offset).ok()?;
                }
                value
            }
            _ => return None,
        };
        *registers.get_mut(to)? = result;
        next += 1;
    }
    None
}
