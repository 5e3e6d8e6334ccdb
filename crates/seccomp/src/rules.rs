//! Decides which rules for a call take effect, and in which order they are tried. This implements libseccomp's
//! semantics, which the crate's documentation describes.

use crate::arch::Width;
use crate::profile::{Action, Comparison, Condition, Rule};

/// A condition, and the consequence if it matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentTest {
    /// The condition, with numbers truncated to the ABI's width.
    pub condition: Condition,
    /// The consequence.
    pub then: Then,
}

/// The consequence of a matching condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Then {
    /// Decides the call.
    Action(Action),
    /// Tries more tests. If none of them matches, the test after this one is tried.
    Tests(Vec<ArgumentTest>),
}

/// Returns a rule's conditions, sorted by argument. Several lists are alternatives.
pub(crate) fn alternatives(rule: &Rule) -> Vec<Vec<Condition>> {
    let mut all = rule.conditions.clone();
    all.sort_by_key(|condition| condition.argument);
    if all.windows(2).any(|pair| pair[0].argument == pair[1].argument) {
        return rule.conditions.iter().map(|condition| vec![*condition]).collect();
    }
    vec![all]
}

/// Truncates a condition to the compared bits; `None` if it then always matches.
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

/// Two rules have different actions for the same conditions.
pub(crate) struct Conflict;

/// Adds a rule to the tests for a number.
pub(crate) fn add(
    tests: &mut Vec<ArgumentTest>,
    chain: &[Condition],
    action: Action,
) -> Result<(), Conflict> {
    if holds_with(tests, chain, action) {
        return Ok(());
    }
    remove_with(tests, chain, action);
    insert(tests, chain, action)
}

/// Returns whether a rule with this action already matches whenever all these conditions do.
fn holds_with(tests: &[ArgumentTest], chain: &[Condition], action: Action) -> bool {
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

/// Removes the rules with this action that match only if all these conditions do.
fn remove_with(tests: &mut Vec<ArgumentTest>, chain: &[Condition], action: Action) {
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

fn insert(level: &mut Vec<ArgumentTest>, chain: &[Condition], action: Action) -> Result<(), Conflict> {
    let [condition, rest @ ..] = chain else { return Ok(()) };
    for (index, test) in level.iter_mut().enumerate() {
        if test.condition == *condition {
            return match &mut test.then {
                Then::Tests(tests) if !rest.is_empty() => insert(tests, rest, action),
                // An earlier rule matches whenever this one does.
                Then::Action(_) if !rest.is_empty() => Ok(()),
                // Earlier rules with the same action have been removed.
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

fn new_test(condition: Condition, rest: &[Condition], action: Action) -> ArgumentTest {
    let then = match rest {
        [] => Then::Action(action),
        [next, rest @ ..] => Then::Tests(vec![new_test(*next, rest, action)]),
    };
    ArgumentTest { condition, then }
}

/// Returns the rank of a condition. Higher ranks are tested first; of equal ranks, the earlier rule's.
fn rank(condition: Condition) -> (u8, u8, u64) {
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, MaskedEqual, NotEqual};
    let (kind, value) = match condition.comparison {
        Equal(value) | NotEqual(value) | MaskedEqual { value, .. } => (3, value),
        Less(value) | LessOrEqual(value) => (2, !value),
        Greater(value) | GreaterOrEqual(value) => (1, value),
    };
    (condition.argument.index(), kind, value)
}

/// Returns the action of the first test that matches and leads to one.
pub(crate) fn first_that_holds(tests: &[ArgumentTest], width: Width, arguments: &[u64; 6]) -> Option<Action> {
    tests.iter().find_map(|ArgumentTest { condition, then }| {
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
