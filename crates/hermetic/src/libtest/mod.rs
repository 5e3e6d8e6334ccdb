//! The interfaces of cargo and libtest: running in place of a test binary, its arguments, and the output of a test's
//! process.

pub(crate) mod arguments;
pub(crate) mod cargo;
pub(crate) mod output;

use crate::adapters::{Adapter, Outcome, Output, Part, Reading, Unit};
use crate::sandbox::ended::Ended;
use arguments::TestArguments;

/// A test binary: each unit is one test, whose exit status is the result.
impl Adapter for TestArguments {
    fn format(&self) -> &'static str {
        "libtest"
    }

    fn begin(&self) -> Vec<Unit> {
        Vec::new()
    }

    fn read(&self, unit: &Unit, _: &Ended, output: &Output) -> Reading {
        let said = output::said(&unit.name, &output.out);
        let part = Part { mode: said.mode, ..Part::new(unit.name.clone(), Outcome::Status, said.text) };
        Reading { parts: vec![part], ..Reading::default() }
    }
}
