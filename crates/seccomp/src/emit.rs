//! From the decision table to the program.
//!
//! A jump in a program goes forward only, and a conditional one by 255 instructions at most. So the
//! program is made from its end to its beginning: when an instruction is made, whatever it jumps to
//! has its place already, and where that is too far, a step between is put right behind the
//! instruction: a copy of the answer, or an unconditional jump, which later instructions may use too.
//!
//! Nothing here decides what happens to a call.

use crate::arch::Width;
use crate::error::Error;
use crate::profile::{Action, Comparison};
use crate::program::{Instruction, MAX_INSTRUCTIONS, Program, code, offset};
use crate::rules::{Test, Then};
use crate::table::{Decision, DecisionId, Range, Section, Table};

impl Table {
    /// The program that does what the table says.
    ///
    /// # Errors
    ///
    /// [`Error::TooLong`], if the kernel would not take it.
    pub fn program(&self) -> Result<Program, Error> {
        let mut assembler = Assembler::default();
        let mut foreign = Target::Return(Action::KillThread.value());
        // From the last to the first, as everything here.
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

/// What a branch of the tree over numbers ends in.
struct Leaf {
    first: u32,
    decision: DecisionId,
    /// Single numbers for which something else is decided.
    exceptions: Vec<(u32, DecisionId)>,
}

/// How many exceptions a leaf may have. An exception costs one instruction, where two more leaves
/// would cost two; but exceptions are tried one after the other.
const EXCEPTIONS: usize = 3;

/// The leaves of a tree over the numbers of sections that share an `AUDIT_ARCH`.
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
            // Where one section ends and the next begins.
            (Some(leaf), _) if leaf.decision == *decision => ranges = rest,
            _ => {
                leaves.push(Leaf { first: *first, decision: *decision, exceptions: Vec::new() });
                ranges = rest;
            }
        }
    }
    leaves
}

/// Where a jump goes.
#[derive(Clone, Copy)]
enum Target {
    /// To an answer, wherever one is.
    Return(u32),
    /// To an instruction, counted from the end of the program.
    At(usize),
}

/// A program that is being made.
#[derive(Default)]
struct Assembler {
    /// Its instructions, the last one first.
    backwards: Vec<Instruction>,
    /// Where the nearest copy of each answer is.
    answers: Vec<(u32, usize)>,
    /// Where the nearest jump to an instruction is that was too far away.
    stepping_stones: Vec<(usize, usize)>,
    /// Where the tests of a decision are.
    tests: Vec<(DecisionId, usize)>,
}

impl Assembler {
    /// Tells numbers apart; expects the number in `A`.
    fn tree(&mut self, table: &Table, leaves: &[Leaf]) -> Target {
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

    fn decision(&mut self, table: &Table, id: DecisionId) -> Target {
        match table.decision_with(id) {
            Decision::Action(action) => Target::Return(action.value()),
            Decision::Tests { width, tests } => {
                if let Some((_, place)) = self.tests.iter().find(|(known, _)| *known == id) {
                    return Target::At(*place);
                }
                let target = self.tests(tests, *width, Target::Return(table.default_action.value()));
                if let Target::At(place) = target {
                    self.tests.push((id, place));
                }
                target
            }
        }
    }

    /// Tests in their order; if none decides, `otherwise`.
    fn tests(&mut self, tests: &[Test], width: Width, otherwise: Target) -> Target {
        tests.iter().rev().fold(otherwise, |otherwise, test| {
            let then = match &test.then {
                Then::Action(action) => Target::Return(action.value()),
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
        yes: Target,
        no: Target,
    ) -> Target {
        use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, MaskedEqual, NotEqual};
        let (high, low) = (offset::high(argument), offset::low(argument));
        // A half whose bits do not count is not looked at.
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

    /// Is a word of the arguments this in the bits of the mask?
    fn equal(&mut self, word: u32, mask: u32, value: u32, yes: Target, no: Target) -> Target {
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

    /// Is an argument greater than this, or at least this?
    fn ordered(
        &mut self,
        argument: u8,
        code: u16,
        value: u64,
        width: Width,
        yes: Target,
        no: Target,
    ) -> Target {
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

    fn load(&mut self, offset: u32, next: Target) -> Target {
        self.straight(code::LOAD, offset, next)
    }

    /// An instruction that goes on to the next.
    fn straight(&mut self, code: u16, k: u32, next: Target) -> Target {
        if self.distance(next) != Some(0) {
            self.step(next);
        }
        self.push(Instruction { code, jt: 0, jf: 0, k })
    }

    fn branch(&mut self, code: u16, k: u32, yes: Target, no: Target) -> Target {
        // A step that is put behind the instruction for one way makes the other longer.
        loop {
            match (self.near(yes), self.near(no)) {
                (Some(jt), Some(jf)) => return self.push(Instruction { code, jt, jf, k }),
                (None, _) => self.step(yes),
                (_, None) => self.step(no),
            }
        }
    }

    /// How far a target is from the next instruction, if a conditional jump goes so far.
    fn near(&self, target: Target) -> Option<u8> {
        self.distance(target).and_then(|distance| u8::try_from(distance).ok())
    }

    /// How many instructions are between the next one and a target, or what leads there.
    fn distance(&self, target: Target) -> Option<usize> {
        let place = match target {
            Target::Return(value) => find(&self.answers, value)?,
            Target::At(place) => find(&self.stepping_stones, place)
                .filter(|_| self.backwards.len() - place > usize::from(u8::MAX))
                .unwrap_or(place),
        };
        Some(self.backwards.len() - 1 - place)
    }

    /// Brings a target within reach of the next instruction.
    fn step(&mut self, target: Target) {
        let place = self.backwards.len();
        match target {
            Target::Return(value) => {
                self.push(Instruction { code: code::RETURN, jt: 0, jf: 0, k: value });
                remember(&mut self.answers, value, place);
            }
            Target::At(far) => {
                #[expect(clippy::cast_possible_truncation, reason = "no program is so long")]
                let k = (place - 1 - far) as u32;
                self.push(Instruction { code: code::JUMP, jt: 0, jf: 0, k });
                remember(&mut self.stepping_stones, far, place);
            }
        }
    }

    fn push(&mut self, instruction: Instruction) -> Target {
        self.backwards.push(instruction);
        Target::At(self.backwards.len() - 1)
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

/// The upper and the lower half.
#[expect(clippy::cast_possible_truncation, reason = "that is what is wanted")]
const fn halves(value: u64) -> (u32, u32) {
    ((value >> 32) as u32, value as u32)
}
