//! Records when things happen, if the caller asks for it.
//!
//! There are two lanes: husk's, with a span for each of its successive phases, and the child's, with a span for each
//! step. If times are not wanted, a check is all that it costs.

use husk_listing::Line;
use husk_plan::Plan;
use husk_script::sys::time::monotonic;
use std::cell::RefCell;
use std::rc::Rc;

/// A phase or step, and how long it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub lane: Lane,
    /// The field of config.json that a step comes from. Empty for husk's phases.
    pub origin: String,
    pub text: String,
    /// The time of its beginning, in nanoseconds of the monotonic clock.
    pub begin: u64,
    /// The time of its end. `None` for a step after a seccomp filter, which does not read the clock because the filter
    /// may not allow that.
    pub end: Option<u64>,
}

/// The process that did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    Husk,
    Child,
}

/// A shared list of spans, if times are wanted.
#[derive(Clone, Debug, Default)]
pub struct Timings(Option<Rc<RefCell<Vec<Span>>>>);

impl Timings {
    /// Returns a list that records spans.
    #[must_use]
    pub fn wanted() -> Self {
        Self(Some(Rc::default()))
    }

    /// Returns the recorded spans: husk's in order, then the child's in order.
    #[must_use]
    pub fn spans(&self) -> Vec<Span> {
        self.0.as_ref().map(|spans| spans.borrow().clone()).unwrap_or_default()
    }

    pub(crate) fn are_wanted(&self) -> bool {
        self.0.is_some()
    }

    /// Ends husk's current phase and begins the next one.
    pub(crate) fn begin(&self, text: &str) {
        let Some(spans) = &self.0 else { return };
        self.end();
        let (lane, origin, begin) = (Lane::Husk, String::new(), monotonic());
        spans.borrow_mut().push(Span { lane, origin, text: text.to_owned(), begin, end: None });
    }

    /// Ends husk's current phase.
    pub(crate) fn end(&self) {
        let Some(spans) = &self.0 else { return };
        if let Some(last) = spans.borrow_mut().last_mut().filter(|last| last.end.is_none()) {
            last.end = Some(monotonic());
        }
    }

    /// Adds the steps of a child that has just executed its program.
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
            let (origin, text) = (plan.origin(index).to_string(), Line(step).to_string());
            spans.borrow_mut().push(Span { lane: Lane::Child, origin, text, begin, end });
        }
    }
}
