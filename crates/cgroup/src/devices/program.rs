//! Compiles rules to an eBPF program.
//!
//! The rules are evaluated here and not in the kernel: for every class of devices that they distinguish, the
//! final set of accesses is computed. The program is a tree of comparisons: type, major, minor. Each leaf is a
//! set of accesses, and equal leaves are merged.
//!
//! The tree makes verification fast. A program that checks the rules in turn compares the same numbers repeatedly, and
//! the verifier follows every path for every earlier outcome. For the built-in rules alone that took 62
//! instructions and 214 microseconds to load (Linux 6.18). The tree takes 33 instructions and 62 microseconds;
//! the shortest program takes 16 microseconds.
//!
//! The program's argument is a `struct bpf_cgroup_dev_ctx`: type and access in one word, major, minor.

use super::rules::{DeviceAccess, DevicePermissions, Rule, Type, allowed};
use crate::error::Error;
use husk_sys::bpf::EbpfInstruction;
use std::collections::BTreeSet;

const ANSWER: u8 = 0;
const CONTEXT: u8 = 1;
const KIND: u8 = 2;
const ACCESS: u8 = 3;
const MAJOR: u8 = 4;
const MINOR: u8 = 5;

/// Opcodes (linux/bpf.h, linux/bpf_common.h); the 32-bit variant where there are two.
pub(crate) mod code {
    pub(crate) const LOAD_WORD: u8 = 0x61;
    pub(crate) const AND: u8 = 0x54;
    pub(crate) const SHIFT_RIGHT: u8 = 0x74;
    pub(crate) const SET: u8 = 0xb4;
    pub(crate) const JUMP: u8 = 0x05;
    pub(crate) const JUMP_IF_EQUAL: u8 = 0x16;
    pub(crate) const JUMP_IF_NOT_EQUAL: u8 = 0x56;
    pub(crate) const EXIT: u8 = 0x95;
}

/// `BPF_DEVCG_DEV_CHAR`; the only other type is a block device.
const CHARACTER: u32 = 2;

/// The result of compiling rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceProgram {
    /// Everything is allowed, so no program is needed.
    Everything,
    /// The program to attach.
    Instructions(Vec<EbpfInstruction>),
}

/// Compiles rules.
///
/// # Errors
///
/// If there are so many rules that a jump is too long.
pub fn compile(rules: &[Rule]) -> Result<DeviceProgram, Error> {
    // Rules before the last one about everything have no effect.
    let decisive = rules.iter().rposition(Rule::is_about_everything).unwrap_or(0);
    let rules = rules.get(decisive..).unwrap_or_default();
    let character = DecisionTree::of(rules, Type::Character);
    let block = DecisionTree::of(rules, Type::Block);
    if [&character, &block].iter().all(|tree| tree.is_everything()) {
        return Ok(DeviceProgram::Everything);
    }
    let mut code = Code::default();
    code.push(load(ACCESS, 0));
    code.push(number(code::SHIFT_RIGHT, ACCESS, 16));
    code.push(load(MAJOR, 4));
    code.push(load(MINOR, 8));
    if character == block {
        code.tree(&character);
    } else {
        code.push(load(KIND, 0));
        code.push(number(code::AND, KIND, 0xffff));
        code.jump(code::JUMP_IF_NOT_EQUAL, KIND, CHARACTER, Label::Block);
        code.tree(&character);
        code.place(Label::Block);
        code.tree(&block);
    }
    code.leaves();
    code.resolve().map(DeviceProgram::Instructions)
}

/// The accesses that are allowed to the devices of one type.
#[derive(Debug, PartialEq, Eq)]
struct DecisionTree {
    /// The majors that differ from `others`.
    majors: Vec<(u32, Minors)>,
    others: Minors,
}

/// The accesses that are allowed to the devices of one major.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Minors {
    /// The minors that differ from `others`.
    minors: Vec<(u32, DevicePermissions)>,
    others: DevicePermissions,
}

impl DecisionTree {
    fn of(rules: &[Rule], kind: Type) -> Self {
        let others = Minors::of(rules, kind, None);
        let majors: BTreeSet<u32> = rules.iter().filter_map(|rule| rule.major).collect();
        let mut majors: Vec<_> =
            majors.into_iter().map(|major| (major, Minors::of(rules, kind, Some(major)))).collect();
        majors.retain(|(_, minors)| *minors != others);
        Self { majors, others }
    }

    fn is_everything(&self) -> bool {
        self.majors.is_empty()
            && self.others.minors.is_empty()
            && self.others.others == DevicePermissions::ALL
    }
}

impl Minors {
    /// Computes the accesses for `major`; `None` is any major that no rule names.
    fn of(rules: &[Rule], kind: Type, major: Option<u32>) -> Self {
        let about: Vec<Rule> = rules
            .iter()
            .filter(|rule| rule.kind == Type::All || rule.kind == kind)
            .filter(|rule| rule.major.is_none() || rule.major == major)
            // The major has been compared already.
            .map(|rule| Rule { major: None, ..*rule })
            .collect();
        let named: BTreeSet<u32> = about.iter().filter_map(|rule| rule.minor).collect();
        let of =
            |minor| allowed(&about, &DeviceAccess { kind, major: 0, minor, access: DevicePermissions::NONE });
        // A minor that no rule names is decided by the rules without a minor.
        let unnamed: Vec<Rule> = about.iter().filter(|rule| rule.minor.is_none()).copied().collect();
        let others =
            allowed(&unnamed, &DeviceAccess { kind, major: 0, minor: 0, access: DevicePermissions::NONE });
        let minors = named.into_iter().map(|minor| (minor, of(minor)));
        Self { minors: minors.filter(|(_, access)| *access != others).collect(), others }
    }
}

/// The target of a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    /// The comparisons for block devices.
    Block,
    /// The comparisons for a major, by its index among all majors of the program.
    Major(usize),
    /// The instructions that answer for this set of accesses.
    Leaf(DevicePermissions),
}

/// Instructions, and jumps that are not resolved yet.
#[derive(Default)]
struct Code {
    instructions: Vec<EbpfInstruction>,
    jumps: Vec<(usize, Label)>,
    places: Vec<(Label, usize)>,
    majors: usize,
}

impl Code {
    fn push(&mut self, instruction: EbpfInstruction) {
        self.instructions.push(instruction);
    }

    fn place(&mut self, label: Label) {
        self.places.push((label, self.instructions.len()));
    }

    fn jump(&mut self, code: u8, register: u8, value: u32, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        // The kernel compares 32 bits; the sign does not matter.
        self.push(number(code, register, value.cast_signed()));
    }

    fn tree(&mut self, tree: &DecisionTree) {
        let first = self.majors;
        self.majors += tree.majors.len();
        for (index, (major, _)) in tree.majors.iter().enumerate() {
            self.jump(code::JUMP_IF_EQUAL, MAJOR, *major, Label::Major(first + index));
        }
        self.minors(&tree.others);
        for (index, (_, minors)) in tree.majors.iter().enumerate() {
            self.place(Label::Major(first + index));
            self.minors(minors);
        }
    }

    fn minors(&mut self, minors: &Minors) {
        for (minor, access) in &minors.minors {
            self.jump(code::JUMP_IF_EQUAL, MINOR, *minor, Label::Leaf(*access));
        }
        self.jump(code::JUMP, 0, 0, Label::Leaf(minors.others));
    }

    /// Emits the leaves that are jumped to.
    fn leaves(&mut self) {
        for bits in 0..=DevicePermissions::ALL.bits() {
            let access = DevicePermissions::from_bits(bits);
            if !self.jumps.iter().any(|(_, label)| *label == Label::Leaf(access)) {
                continue;
            }
            self.place(Label::Leaf(access));
            if access != DevicePermissions::NONE && access != DevicePermissions::ALL {
                // Isolates the requested accesses that are not allowed.
                self.push(number(code::AND, ACCESS, DevicePermissions::ALL.without(access).bits().into()));
                self.push(instruction(code::JUMP_IF_EQUAL, ACCESS, 2, 0));
                self.answer(false);
            }
            self.answer(access != DevicePermissions::NONE);
        }
    }

    fn answer(&mut self, allow: bool) {
        self.push(number(code::SET, ANSWER, i32::from(allow)));
        self.push(instruction(code::EXIT, 0, 0, 0));
    }

    /// Fills in the offsets of the jumps.
    fn resolve(mut self) -> Result<Vec<EbpfInstruction>, Error> {
        for (from, label) in self.jumps {
            let to = self.places.iter().find(|(place, _)| *place == label).map(|(_, to)| *to);
            // Offsets count from the next instruction. All jumps go forwards.
            let length = to.and_then(|to| i16::try_from(to.checked_sub(from + 1)?).ok());
            let length = length.ok_or_else(|| Error::invalid("linux.resources.devices", "too many rules"))?;
            if let Some(instruction) = self.instructions.get_mut(from) {
                instruction.offset = length;
            }
        }
        Ok(self.instructions)
    }
}

const fn load(register: u8, offset: i16) -> EbpfInstruction {
    instruction(code::LOAD_WORD, register | CONTEXT << 4, offset, 0)
}

const fn number(code: u8, register: u8, number: i32) -> EbpfInstruction {
    instruction(code, register, 0, number)
}

const fn instruction(code: u8, registers: u8, offset: i16, immediate: i32) -> EbpfInstruction {
    EbpfInstruction { code, registers, offset, immediate }
}
