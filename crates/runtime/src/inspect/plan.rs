//! `plan`: what would be done, and nothing is.

use crate::error::Error;
use crate::host::probe::{cgroup, probe};
use bumpalo::Bump;
use husk_bundle::Warning;
use husk_listing::Line;
use husk_plan::{CgroupEntry, CgroupMount, Invocation};
use serde::Serialize;
use std::path::Path;

/// What would be done.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The list as text, a line a step.
    pub listing: String,
    /// The same for programs.
    pub steps: Vec<PlannedStep>,
    /// What the seccomp profile decides, if there is one.
    pub decisions: Option<String>,
    /// What it names that is no system call.
    pub unknown_calls: Vec<String>,
    /// What is carried out otherwise than written.
    pub warnings: Vec<Warning>,
}

/// A step, as programs read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedStep {
    /// Its number, from 0.
    pub step: usize,
    /// The field of config.json that it comes from: `mounts[1]`.
    pub field: String,
    /// The field, and what it says where that helps: `mounts[1] /dev`.
    pub origin: String,
    /// The kind of step: `fsconfig`.
    pub kind: String,
    /// What is done: `fsconfig r0 mode=755`.
    pub text: String,
}

/// What would be done for the container in `bundle`.
///
/// # Errors
///
/// If the configuration cannot be read or carried out.
pub fn plan(bundle: &Path) -> Result<Planned, Error> {
    let (container, warnings) = husk_bundle::load(bundle, None)?;
    let mut host = probe(&container);
    // As it is where the container is made by us.
    host.entry = match cgroup() {
        CgroupMount::V1(_) => CgroupEntry::Moved,
        CgroupMount::V2 => CgroupEntry::Born,
    };
    let memory = Bump::new();
    let plan = husk_plan::create(&container, &host, &Invocation::default(), &memory)?;
    let steps = plan.steps.iter().enumerate();
    let steps = steps.map(|(index, step)| planned(index, plan.origin(index), Line(step).to_string()));
    let (decisions, unknown_calls) = husk_plan::decisions(&container, &host)?.unzip();
    Ok(Planned {
        listing: plan.to_string(),
        steps: steps.collect(),
        decisions: decisions.map(|table| table.to_string()),
        unknown_calls: unknown_calls.unwrap_or_default(),
        warnings,
    })
}

fn planned(step: usize, origin: &str, text: String) -> PlannedStep {
    // `r2 = fsopen tmpfs`: what a step leaves behind stands before what it does.
    let act = text.split_once(" = ").filter(|(register, _)| !register.contains(' '));
    let act = act.map_or(text.as_str(), |(_, act)| act);
    let first = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
    PlannedStep { step, field: first(origin), origin: origin.to_owned(), kind: first(act), text }
}
