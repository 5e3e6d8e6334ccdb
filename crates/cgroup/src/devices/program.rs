//! Rules as an eBPF program.
//!
//! The program is asked with a `struct bpf_cgroup_dev_ctx`: type and access in one word, major, minor.
//! It goes through the rules from the last to the first with what is not decided yet in a register:
//! one that allows takes its part out of that, and if nothing is left the answer is yes; one that
//! denies any of it answers no. Nothing before a rule about everything is looked at.

use super::rules::{Access, Rule, Type};
use husk_sys::bpf::Instruction;

/// Registers.
const ANSWER: u8 = 0;
const CONTEXT: u8 = 1;
const KIND: u8 = 2;
const UNDECIDED: u8 = 3;
const MAJOR: u8 = 4;
const MINOR: u8 = 5;
const SCRATCH: u8 = 6;

/// Operations (linux/bpf.h, linux/bpf_common.h), on 32 bits where there is a choice.
pub(crate) mod code {
    pub(crate) const LOAD_WORD: u8 = 0x61;
    pub(crate) const AND: u8 = 0x54;
    pub(crate) const SHIFT_RIGHT: u8 = 0x74;
    pub(crate) const SET: u8 = 0xb4;
    pub(crate) const COPY: u8 = 0xbc;
    pub(crate) const JUMP_IF_EQUAL: u8 = 0x16;
    pub(crate) const JUMP_IF_NOT_EQUAL: u8 = 0x56;
    pub(crate) const EXIT: u8 = 0x95;
}

/// `BPF_DEVCG_DEV_*`.
const BLOCK: i32 = 1;
const CHARACTER: i32 = 2;

/// What rules have become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// Everything is allowed: there is nothing to ask.
    Everything,
    /// This decides.
    Instructions(Vec<Instruction>),
}

/// Compiles rules.
#[must_use]
pub fn compile(rules: &[Rule]) -> Program {
    let decisive = rules.iter().rposition(Rule::is_about_everything);
    let default = decisive.and_then(|index| rules.get(index)).is_some_and(|rule| rule.allow);
    let rules = rules.get(decisive.map_or(0, |index| index + 1)..).unwrap_or_default();
    // What allows a part changes nothing where all is allowed, unless something is denied.
    if default && rules.iter().all(|rule| rule.allow) {
        return Program::Everything;
    }
    let mut instructions = Vec::with_capacity(8 + 8 * rules.len());
    let mut push = |instruction| instructions.push(instruction);
    push(load(KIND, 0));
    push(number(code::AND, KIND, 0xffff));
    push(load(UNDECIDED, 0));
    push(number(code::SHIFT_RIGHT, UNDECIDED, 16));
    push(load(MAJOR, 4));
    push(load(MINOR, 8));
    for rule in rules.iter().rev() {
        block(rule).into_iter().for_each(&mut push);
    }
    answer(default).into_iter().for_each(&mut push);
    Program::Instructions(instructions)
}

/// The instructions of one rule. Whatever it is not about goes on behind them.
fn block(rule: &Rule) -> Vec<Instruction> {
    let mut conditions: Vec<(u8, i32)> = Vec::with_capacity(3);
    match rule.kind {
        Type::All => {}
        Type::Block => conditions.push((KIND, BLOCK)),
        Type::Character => conditions.push((KIND, CHARACTER)),
    }
    // The kernel compares 32 bits, whatever sign they have here.
    conditions.extend(rule.major.map(|major| (MAJOR, major.cast_signed())));
    conditions.extend(rule.minor.map(|minor| (MINOR, minor.cast_signed())));

    let access = i32::from(rule.access.bits());
    let verdict = match (rule.allow, rule.access) {
        (allow, Access::ALL) => answer(allow).to_vec(),
        (true, _) => {
            let mut take =
                vec![number(code::AND, UNDECIDED, !access), jump(code::JUMP_IF_NOT_EQUAL, UNDECIDED, 0, 2)];
            take.extend(answer(true));
            take
        }
        (false, _) => {
            let mut test = vec![
                register(code::COPY, SCRATCH, UNDECIDED),
                number(code::AND, SCRATCH, access),
                jump(code::JUMP_IF_EQUAL, SCRATCH, 0, 2),
            ];
            test.extend(answer(false));
            test
        }
    };
    let mut behind = conditions.len() + verdict.len();
    let mut block = Vec::with_capacity(behind);
    for (register, value) in conditions {
        behind -= 1;
        // At most eight.
        let offset = i16::try_from(behind).unwrap_or(i16::MAX);
        block.push(jump(code::JUMP_IF_NOT_EQUAL, register, value, offset));
    }
    block.extend(verdict);
    block
}

fn answer(allow: bool) -> [Instruction; 2] {
    [number(code::SET, ANSWER, i32::from(allow)), instruction(code::EXIT, 0, 0, 0)]
}

const fn load(register: u8, offset: i16) -> Instruction {
    instruction(code::LOAD_WORD, register | CONTEXT << 4, offset, 0)
}

const fn number(code: u8, register: u8, number: i32) -> Instruction {
    instruction(code, register, 0, number)
}

const fn register(code: u8, to: u8, from: u8) -> Instruction {
    instruction(code, to | from << 4, 0, 0)
}

const fn jump(code: u8, register: u8, number: i32, offset: i16) -> Instruction {
    instruction(code, register, offset, number)
}

const fn instruction(code: u8, registers: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { code, registers, offset, immediate }
}
