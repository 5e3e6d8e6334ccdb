//! When things happened, for somebody who asked.
//!
//! Two lanes: ours, a span for each thing that we do one after the other, and the child's, a span for
//! each step. Who does not ask pays for nothing but being asked.

use husk_listing::Line;
use husk_plan::Plan;
use husk_script::sys::time::monotonic;
use std::cell::RefCell;
use std::rc::Rc;

/// Something that took a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Who did it.
    pub lane: Lane,
    /// Why: for a step, the field that it comes from.
    pub origin: String,
    /// What was done.
    pub text: String,
    /// When it began, in nanoseconds of the monotonic clock.
    pub begin: u64,
    /// When it ended, or nothing for a step that came after a system call filter: such a step asks for
    /// no time, for the filter may not allow that.
    pub end: Option<u64>,
}

/// Who does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// husk.
    Husk,
    /// The container's process.
    Child,
}

/// Where times are written down, if anybody asked.
#[derive(Clone, Debug, Default)]
pub struct Timings(Option<Rc<RefCell<Vec<Span>>>>);

impl Timings {
    /// Times that somebody wants to see.
    #[must_use]
    pub fn wanted() -> Self {
        Self(Some(Rc::default()))
    }

    /// What was written down: ours in their order, then the child's in theirs.
    #[must_use]
    pub fn spans(&self) -> Vec<Span> {
        self.0.as_ref().map(|spans| spans.borrow().clone()).unwrap_or_default()
    }

    pub(crate) fn are_wanted(&self) -> bool {
        self.0.is_some()
    }

    /// What we did until now has ended, and this begins.
    pub(crate) fn begin(&self, text: &'static str) {
        let Some(spans) = &self.0 else { return };
        self.end();
        let (lane, origin, begin) = (Lane::Husk, String::new(), monotonic());
        spans.borrow_mut().push(Span { lane, origin, text: text.to_owned(), begin, end: None });
    }

    /// What we did until now has ended.
    pub(crate) fn end(&self) {
        let Some(spans) = &self.0 else { return };
        if let Some(last) = spans.borrow_mut().last_mut().filter(|last| last.end.is_none()) {
            last.end = Some(monotonic());
        }
    }

    /// The steps of a child that has become its program just now.
    pub(crate) fn add(&self, plan: &Plan<'_>, times: &[u64]) {
        let Some(spans) = &self.0 else { return };
        let released = monotonic();
        let last = times.iter().rposition(|time| *time != 0);
        for (index, (begin, step)) in times.iter().zip(plan.steps).enumerate() {
            let end = match times.get(index + 1) {
                Some(0) | None if Some(index) == last => Some(released),
                next => next.copied().filter(|next| *next != 0),
            };
            let (begin, end) = if *begin == 0 { (released, None) } else { (*begin, end) };
            let (origin, text) = (plan.origin(index).to_owned(), Line(step).to_string());
            spans.borrow_mut().push(Span { lane: Lane::Child, origin, text, begin, end });
        }
    }
}
