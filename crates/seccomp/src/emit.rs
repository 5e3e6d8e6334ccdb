//! Generates the program from the decision table.
//!
//! Jumps go forwards only, and conditional jumps by at most 255 instructions. So the program is generated from
//! its end to its start: when an instruction is emitted, the positions of its targets are known. If a target is
//! too far, a copy of the answer or an unconditional jump is placed right behind the instruction. Later
//! instructions may use it too.
//!
//! All decisions about calls are made before, in the table.

use crate::arch::Width;
use crate::error::Error;
use crate::profile::{Action, Comparison};
use crate::program::{Instruction, MAX_INSTRUCTIONS, Program, code, offset};
use crate::rules::{ArgumentTest, Then};
use crate::table::{Decision, DecisionId, Range, Section, Table};

impl Table {
    /// Generates the program for the table.
    ///
    /// # Errors
    ///
    /// [`Error::TooLong`], if the kernel would reject it.
    pub fn program(&self) -> Result<Program, Error> {
        let mut assembler = Assembler::default();
        let mut foreign = JumpTarget::Return(Action::KillThread.value());
        // From the last to the first, because the program is generated backwards.
        let spaces: Vec<_> =
            self.sections.chunk_by(|one, other| one.abi.audit_arch() == other.abi.audit_arch()).collect();
        for sections in spaces.into_iter().rev() {
            let leaves = leaves(sections);
            let tree = assembler.tree(self, &leaves);
            let start = assembler.load(offset::NUMBER, tree);
            foreign = assembler.branch(code::EQUAL, sections[0].abi.audit_arch(), start, foreign);
        }
        assembler.load(offset::ARCH, foreign);
        let length = assembler.backwards.len();
        if length > MAX_INSTRUCTIONS {
            return Err(Error::TooLong { length });
        }
        assembler.backwards.reverse();
        Ok(Program { instructions: assembler.backwards, flags: self.flags })
    }
}

/// A leaf of the tree over numbers.
struct Leaf {
    first: u32,
    decision: DecisionId,
    /// Single numbers with another decision.
    exceptions: Vec<(u32, DecisionId)>,
}

/// The most exceptions in a leaf. An exception costs one instruction; two leaves in its place would cost two.
/// But exceptions are tried one after the other.
const EXCEPTIONS: usize = 3;

/// Returns the leaves for the numbers of sections that share an `AUDIT_ARCH`.
fn leaves(sections: &[Section]) -> Vec<Leaf> {
    let mut leaves: Vec<Leaf> = Vec::new();
    let ranges: Vec<_> = sections.iter().flat_map(|section| &section.ranges).copied().collect();
    let mut ranges = &ranges[..];
    while let [Range { first, last, decision }, rest @ ..] = ranges {
        match (leaves.last_mut(), rest) {
            (Some(leaf), [after, ..])
                if first == last && leaf.decision == after.decision && leaf.exceptions.len() < EXCEPTIONS =>
            {
                leaf.exceptions.push((*first, *decision));
                ranges = &rest[1..];
            }
            // The border between two sections.
            (Some(leaf), _) if leaf.decision == *decision => ranges = rest,
            _ => {
                leaves.push(Leaf { first: *first, decision: *decision, exceptions: Vec::new() });
                ranges = rest;
            }
        }
    }
    leaves
}

#[derive(Clone, Copy)]
enum JumpTarget {
    /// Any instruction that returns this answer.
    Return(u32),
    /// An instruction, counted from the end of the program.
    At(usize),
}

/// A partial program.
#[derive(Default)]
struct Assembler {
    /// The instructions, the last one first.
    backwards: Vec<Instruction>,
    /// The position of the nearest copy of each answer.
    answers: Vec<(u32, usize)>,
    /// Distant instructions, with the position of the nearest unconditional jump to each.
    stepping_stones: Vec<(usize, usize)>,
    /// The position of each decision's tests.
    tests: Vec<(DecisionId, usize)>,
}

impl Assembler {
    /// Emits the bisection of numbers; expects the number in `A`.
    fn tree(&mut self, table: &Table, leaves: &[Leaf]) -> JumpTarget {
        if let [leaf] = leaves {
            let mut target = self.decision(table, leaf.decision);
            for (number, decision) in leaf.exceptions.iter().rev() {
                let decision = self.decision(table, *decision);
                target = self.branch(code::EQUAL, *number, decision, target);
            }
            return target;
        }
        let (lower, upper) = leaves.split_at(leaves.len() / 2);
        let border = upper[0].first;
        let upper = self.tree(table, upper);
        let lower = self.tree(table, lower);
        self.branch(code::AT_LEAST, border, upper, lower)
    }

    fn decision(&mut self, table: &Table, id: DecisionId) -> JumpTarget {
        match table.decision_with(id) {
            Decision::Action(action) => JumpTarget::Return(action.value()),
            Decision::Tests { width, tests } => {
                if let Some((_, place)) = self.tests.iter().find(|(known, _)| *known == id) {
                    return JumpTarget::At(*place);
                }
                let target = self.tests(tests, *width, JumpTarget::Return(table.default_action.value()));
                if let JumpTarget::At(place) = target {
                    self.tests.push((id, place));
                }
                target
            }
        }
    }

    /// Emits tests in order; `otherwise` follows if none matches.
    fn tests(&mut self, tests: &[ArgumentTest], width: Width, otherwise: JumpTarget) -> JumpTarget {
        tests.iter().rev().fold(otherwise, |otherwise, test| {
            let then = match &test.then {
                Then::Action(action) => JumpTarget::Return(action.value()),
                Then::Tests(tests) => self.tests(tests, width, otherwise),
            };
            self.condition(test.condition.argument.index(), test.condition.comparison, width, then, otherwise)
        })
    }

    fn condition(
        &mut self,
        argument: u8,
        comparison: Comparison,
        width: Width,
        yes: JumpTarget,
        no: JumpTarget,
    ) -> JumpTarget {
        use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, MaskedEqual, NotEqual};
        let (high, low) = (offset::high(argument), offset::low(argument));
        // A half without compared bits is not loaded.
        let mask = match comparison {
            MaskedEqual { mask, .. } => mask,
            _ => u64::MAX,
        };
        let mask = match width {
            Width::Word32 => mask & u64::from(u32::MAX),
            Width::Word64 => mask,
        };
        let (upper, lower) = halves(mask);
        match comparison {
            Equal(value) | MaskedEqual { value, .. } => {
                let value = halves(value);
                let rest = self.equal(low, lower, value.1, yes, no);
                self.equal(high, upper, value.0, rest, no)
            }
            NotEqual(value) => {
                let value = halves(value);
                let rest = self.equal(low, lower, value.1, no, yes);
                self.equal(high, upper, value.0, rest, yes)
            }
            Greater(value) => self.ordered(argument, code::GREATER, value, width, yes, no),
            GreaterOrEqual(value) => self.ordered(argument, code::AT_LEAST, value, width, yes, no),
            LessOrEqual(value) => self.ordered(argument, code::GREATER, value, width, no, yes),
            Less(value) => self.ordered(argument, code::AT_LEAST, value, width, no, yes),
        }
    }

    /// Compares a word of the arguments with `value`, in the bits of the mask.
    fn equal(&mut self, word: u32, mask: u32, value: u32, yes: JumpTarget, no: JumpTarget) -> JumpTarget {
        let branch = match (mask, value) {
            (0, _) => return yes,
            (u32::MAX, _) => self.branch(code::EQUAL, value, yes, no),
            (_, 0) => self.branch(code::ANY_BIT, mask, no, yes),
            _ => {
                let branch = self.branch(code::EQUAL, value, yes, no);
                self.straight(code::AND, mask, branch)
            }
        };
        self.load(word, branch)
    }

    /// Tests whether an argument is greater than `value`, or at least `value`.
    fn ordered(
        &mut self,
        argument: u8,
        code: u16,
        value: u64,
        width: Width,
        yes: JumpTarget,
        no: JumpTarget,
    ) -> JumpTarget {
        let (upper, lower) = halves(value);
        let branch = self.branch(code, lower, yes, no);
        let rest = self.load(offset::low(argument), branch);
        if width == Width::Word32 {
            return rest;
        }
        let branch = self.branch(code::EQUAL, upper, rest, no);
        let branch = self.branch(code::GREATER, upper, yes, branch);
        self.load(offset::high(argument), branch)
    }

    fn load(&mut self, offset: u32, next: JumpTarget) -> JumpTarget {
        self.straight(code::LOAD, offset, next)
    }

    /// Emits an instruction that continues with the next one.
    fn straight(&mut self, code: u16, k: u32, next: JumpTarget) -> JumpTarget {
        if self.distance(next) != Some(0) {
            self.step(next);
        }
        self.push(Instruction { code, jt: 0, jf: 0, k })
    }

    fn branch(&mut self, code: u16, k: u32, yes: JumpTarget, no: JumpTarget) -> JumpTarget {
        // A step that is inserted for one target moves the other further away.
        loop {
            match (self.near(yes), self.near(no)) {
                (Some(jt), Some(jf)) => return self.push(Instruction { code, jt, jf, k }),
                (None, _) => self.step(yes),
                (_, None) => self.step(no),
            }
        }
    }

    /// Returns the distance to a target, if a conditional jump can reach it.
    fn near(&self, target: JumpTarget) -> Option<u8> {
        self.distance(target).and_then(|distance| u8::try_from(distance).ok())
    }

    /// Returns the number of instructions between the next one and a target, or a jump to it.
    fn distance(&self, target: JumpTarget) -> Option<usize> {
        let place = match target {
            JumpTarget::Return(value) => find(&self.answers, value)?,
            JumpTarget::At(place) => find(&self.stepping_stones, place)
                .filter(|_| self.backwards.len() - place > usize::from(u8::MAX))
                .unwrap_or(place),
        };
        Some(self.backwards.len() - 1 - place)
    }

    /// Inserts an answer or a jump, so that the next instruction can reach the target.
    fn step(&mut self, target: JumpTarget) {
        let place = self.backwards.len();
        match target {
            JumpTarget::Return(value) => {
                self.push(Instruction { code: code::RETURN, jt: 0, jf: 0, k: value });
                remember(&mut self.answers, value, place);
            }
            JumpTarget::At(far) => {
                #[expect(clippy::cast_possible_truncation, reason = "no program is so long")]
                let k = (place - 1 - far) as u32;
                self.push(Instruction { code: code::JUMP, jt: 0, jf: 0, k });
                remember(&mut self.stepping_stones, far, place);
            }
        }
    }

    fn push(&mut self, instruction: Instruction) -> JumpTarget {
        self.backwards.push(instruction);
        JumpTarget::At(self.backwards.len() - 1)
    }
}

fn find<K: Copy + PartialEq>(places: &[(K, usize)], key: K) -> Option<usize> {
    places.iter().find(|(known, _)| *known == key).map(|(_, place)| *place)
}

fn remember<K: Copy + PartialEq>(places: &mut Vec<(K, usize)>, key: K, place: usize) {
    match places.iter_mut().find(|(known, _)| *known == key) {
        Some(known) => known.1 = place,
        None => places.push((key, place)),
    }
}

/// Returns the upper and the lower half.
#[expect(clippy::cast_possible_truncation, reason = "that is what is wanted")]
const fn halves(value: u64) -> (u32, u32) {
    ((value >> 32) as u32, value as u32)
}
