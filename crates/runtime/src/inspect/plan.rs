//! `plan`: shows the steps that `create` would perform, and performs none.

use crate::cgroups::{CgroupManager, NewCgroup};
use crate::error::Error;
use crate::host::namespaces::is_unprivileged;
use crate::host::probe::{cgroup, probe};
use bumpalo::Bump;
use husk_bundle::container::NamespaceKind;
use husk_bundle::{Container, Warning};
use husk_listing::Line;
use husk_plan::{CgroupEntry, CgroupMount, Invocation, Origin};
use serde::Serialize;
use std::path::Path;

/// The plan of a container.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The steps as text, one on a line.
    pub listing: String,
    /// The steps as data.
    pub steps: Vec<PlannedStep>,
    /// The decisions of the seccomp profile. `None` without a profile.
    pub decisions: Option<String>,
    /// The names in the profile that are not system calls.
    pub unknown_calls: Vec<String>,
    /// Settings that are not applied as written.
    pub warnings: Vec<Warning>,
}

/// A step as data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedStep {
    /// Its index, from 0.
    pub step: usize,
    /// The field of config.json that it comes from: `mounts[1]`.
    pub field: String,
    /// The field, with its value where that helps: `mounts[1] /dev`.
    pub origin: String,
    /// The kind of step: `fsconfig`.
    pub kind: String,
    /// The step as text: `fsconfig r0 mode=755`.
    pub text: String,
}

/// Plans the container in `bundle`.
///
/// # Errors
///
/// If the configuration cannot be read or planned.
pub fn plan(bundle: &Path) -> Result<Planned, Error> {
    let (container, warnings) = husk_bundle::load(bundle, None)?;
    let mut host = probe(&container);
    host.entry = entry(&container)?;
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

/// Returns how the container's process enters its cgroup if husk makes that itself, for a container named `ID`.
fn entry(container: &Container) -> Result<CgroupEntry, Error> {
    let user = container.namespaces.iter().any(|namespace| namespace.kind == NamespaceKind::User);
    Ok(match cgroup() {
        CgroupMount::V2 => CgroupEntry::Born,
        CgroupMount::V1(_) if user || is_unprivileged() => CgroupEntry::Moved,
        CgroupMount::V1(_) => {
            let new = NewCgroup::find(container, "ID", CgroupManager::Cgroupfs)?;
            new.map_or(CgroupEntry::Moved, |new| CgroupEntry::Enters(new.directories()))
        }
    })
}

fn planned(step: usize, origin: &Origin, text: String) -> PlannedStep {
    // `r2 = fsopen tmpfs`: the register that a step fills precedes its kind.
    let act = text.split_once(" = ").filter(|(register, _)| !register.contains(' '));
    let act = act.map_or(text.as_str(), |(_, act)| act);
    let first = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
    PlannedStep { step, field: origin.field().to_owned(), origin: origin.to_string(), kind: first(act), text }
}
