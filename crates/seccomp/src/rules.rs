//! The rules about one call: which of them count, and in which order they are tried. This is where
//! libseccomp's meaning is made; the crate's documentation has it in words.

use crate::arch::Width;
use crate::profile::{Action, Comparison, Condition, Rule};

/// A condition, and what follows if it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// The condition; its numbers fit the width.
    pub condition: Condition,
    /// What follows.
    pub then: Then,
}

/// What follows a condition that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Then {
    /// The end.
    Action(Action),
    /// More tests. If none of them holds, the one beside the first is next.
    Tests(Vec<Test>),
}

/// A rule's conditions, in the order of their arguments. Several lists are alternatives.
pub(crate) fn alternatives(rule: &Rule) -> Vec<Vec<Condition>> {
    let mut all = rule.conditions.clone();
    all.sort_by_key(|condition| condition.argument);
    if all.windows(2).any(|pair| pair[0].argument == pair[1].argument) {
        return rule.conditions.iter().map(|condition| vec![*condition]).collect();
    }
    vec![all]
}

/// The condition in as many bits as count, unless it holds always.
pub(crate) fn narrow(condition: Condition, width: Width) -> Option<Condition> {
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, MaskedEqual, NotEqual};
    let bits = match width {
        Width::Word32 => u64::from(u32::MAX),
        Width::Word64 => u64::MAX,
    };
    let comparison = match condition.comparison {
        NotEqual(value) => NotEqual(value & bits),
        Less(value) => Less(value & bits),
        LessOrEqual(value) => LessOrEqual(value & bits),
        Equal(value) => Equal(value & bits),
        GreaterOrEqual(value) => GreaterOrEqual(value & bits),
        Greater(value) => Greater(value & bits),
        MaskedEqual { mask, .. } if mask & bits == 0 => return None,
        MaskedEqual { mask, value } => MaskedEqual { mask: mask & bits, value: value & mask & bits },
    };
    Some(Condition { comparison, ..condition })
}

/// Two rules disagree.
pub(crate) struct Conflict;

/// Adds a rule to those of a number.
pub(crate) fn add(tests: &mut Vec<Test>, chain: &[Condition], action: Action) -> Result<(), Conflict> {
    if holds_with(tests, chain, action) {
        return Ok(());
    }
    remove_with(tests, chain, action);
    insert(tests, chain, action)
}

/// Whether a rule with this action holds wherever all these conditions do.
fn holds_with(tests: &[Test], chain: &[Condition], action: Action) -> bool {
    tests.iter().any(|test| {
        let Some(place) = chain.iter().position(|condition| *condition == test.condition) else {
            return false;
        };
        match &test.then {
            Then::Action(found) => *found == action,
            Then::Tests(tests) => holds_with(tests, &chain[place + 1..], action),
        }
    })
}

/// Removes the rules with this action that hold only where all these conditions do.
fn remove_with(tests: &mut Vec<Test>, chain: &[Condition], action: Action) {
    tests.retain_mut(|test| {
        let chain = match chain {
            [condition, rest @ ..] if *condition == test.condition => rest,
            chain => chain,
        };
        match &mut test.then {
            Then::Action(found) => !(chain.is_empty() && *found == action),
            Then::Tests(tests) => {
                remove_with(tests, chain, action);
                !tests.is_empty()
            }
        }
    });
}

fn insert(level: &mut Vec<Test>, chain: &[Condition], action: Action) -> Result<(), Conflict> {
    let [condition, rest @ ..] = chain else { return Ok(()) };
    for (index, test) in level.iter_mut().enumerate() {
        if test.condition == *condition {
            return match &mut test.then {
                Then::Tests(tests) if !rest.is_empty() => insert(tests, rest, action),
                // An earlier rule holds wherever this one does.
                Then::Action(_) if !rest.is_empty() => Ok(()),
                // Of the earlier rules those with the same action have been removed.
                _ => Err(Conflict),
            };
        }
        if rank(test.condition) < rank(*condition) {
            level.insert(index, new_test(*condition, rest, action));
            return Ok(());
        }
    }
    level.push(new_test(*condition, rest, action));
    Ok(())
}

fn new_test(condition: Condition, rest: &[Condition], action: Action) -> Test {
    let then = match rest {
        [] => Then::Action(action),
        [next, rest @ ..] => Then::Tests(vec![new_test(*next, rest, action)]),
    };
    Test { condition, then }
}

/// Of two conditions the one with the higher rank is tested first; of equals the earlier.
fn rank(condition: Condition) -> (u8, u8, u64) {
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, MaskedEqual, NotEqual};
    let (kind, value) = match condition.comparison {
        Equal(value) | NotEqual(value) | MaskedEqual { value, .. } => (3, value),
        Less(value) | LessOrEqual(value) => (2, !value),
        Greater(value) | GreaterOrEqual(value) => (1, value),
    };
    (condition.argument.index(), kind, value)
}

/// What the first test decides that holds and leads to an action.
pub(crate) fn first_that_holds(tests: &[Test], width: Width, arguments: &[u64; 6]) -> Option<Action> {
    tests.iter().find_map(|Test { condition, then }| {
        let argument = arguments[usize::from(condition.argument.index())];
        let argument = match width {
            Width::Word32 => argument & u64::from(u32::MAX),
            Width::Word64 => argument,
        };
        match then {
            _ if !condition.comparison.holds(argument) => None,
            Then::Action(action) => Some(*action),
            Then::Tests(tests) => first_that_holds(tests, width, arguments),
        }
    })
}
