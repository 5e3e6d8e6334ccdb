//! Reads the parts of a valid configuration that the oci-spec crate cannot read.
//!
//! Each part is removed from the JSON before oci-spec reads it, and kept here. The list is correct for oci-spec
//! 0.10.0 and runtime-spec 1.3.0; a newer crate may make it shorter.

use crate::container::MemoryPolicy;
use crate::error::{Error, ErrorKind, Field, Notice, Warning};
use crate::fields::{memory, resources};
use crate::json::typed;
use caps::Capability;
use serde_json::{Map, Value};
use std::str::FromStr;

/// The parts that were removed.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    /// `process.capabilities`, in the order bounding, effective, inheritable, permitted, ambient. oci-spec refuses
    /// unknown names, but the specification asks for a warning (config.md, "capabilities").
    pub(crate) capabilities: [u64; 5],
    /// `process.scheduler.flags`. oci-spec spells two of them differently from the specification.
    pub(crate) scheduler_flags: u64,
    /// `linux.memoryPolicy`. oci-spec would not report its errors in runc's words.
    pub(crate) memory_policy: Option<MemoryPolicy>,
    /// The parts of `linux.resources` that are read here.
    pub(crate) resources: resources::Extra,
}

/// The names of the five capability sets, in the order of [`Unread::capabilities`].
pub(crate) const SETS: [&str; 5] = ["bounding", "effective", "inheritable", "permitted", "ambient"];

/// Removes and reads the parts that oci-spec cannot read.
pub(crate) fn take(config: &mut Value, warnings: &mut Vec<Warning>) -> Result<Unread, Error> {
    let mut unread = Unread::default();
    let no_pids_is_no_limit = is_before_1_3(config);
    if let Some(linux) = config.get_mut("linux") {
        unread.memory_policy = memory::take(linux)?;
        if let Some(resources) = linux.get_mut("resources") {
            unread.resources = resources::take(resources)?;
            if no_pids_is_no_limit && unread.resources.pids_limit == Some(0) {
                unread.resources.pids_limit = Some(-1);
            }
        }
    }
    let Some(process) = config.get_mut("process") else { return Ok(unread) };
    let field = Field::new("process");
    name_root(process);
    if let Some(capabilities) = process.get_mut("capabilities").and_then(Value::as_object_mut) {
        let field = field.key("capabilities");
        for (set, bits) in SETS.iter().zip(&mut unread.capabilities) {
            *bits = take_capabilities(capabilities, set, &field.key(set), warnings)?;
        }
        keep_what_can_be_ambient(&mut unread.capabilities, &field, warnings);
    }
    if let Some(scheduler) = process.get_mut("scheduler").and_then(Value::as_object_mut) {
        unread.scheduler_flags = take_scheduler_flags(scheduler, &field.key("scheduler").key("flags"))?;
    }
    if let Some(affinity) = process.get_mut("execCPUAffinity").and_then(Value::as_object_mut) {
        // The specification allows an empty list, which has no effect.
        affinity.retain(|_, value| value.as_str() != Some(""));
    }
    Ok(unread)
}

/// Whether a pids limit of 0 means no limit. Runtime-spec 1.3 made 0 a limit. Until then every runtime treated it
/// as no limit, and engines of that time write it so: podman 4 for `--pids-limit -1`.
fn is_before_1_3(config: &Value) -> bool {
    let mut version = config.get("ociVersion").and_then(Value::as_str).unwrap_or_default().split('.');
    let mut number = || version.next()?.parse::<u32>().ok();
    matches!((number(), number()), (Some(major), Some(minor)) if (major, minor) < (1, 3))
}

/// Drops ambient capabilities that are not also inheritable and permitted (capabilities(7)), as runc and crun do.
/// Engines request such capabilities for every container, so the warning is shown on request only.
fn keep_what_can_be_ambient(sets: &mut [u64; 5], field: &Field, warnings: &mut Vec<Warning>) {
    let [.., inheritable, permitted, ambient] = sets;
    let lost = *ambient & !(*inheritable & *permitted);
    *ambient &= !lost;
    for capability in caps::all().into_iter().filter(|capability| lost & capability.bitmask() != 0) {
        let text =
            format!("can't raise ambient capability {capability}: it is not inheritable and permitted");
        let notice = Notice::OnRequest;
        warnings.push(Warning { notice, field: field.key("ambient"), text });
    }
}

/// Adds missing ids: Go, and so runc, treats an absent number as 0 and an absent user as root.
fn name_root(process: &mut Value) {
    let Some(process) = process.as_object_mut() else { return };
    let user = process.entry("user").or_insert_with(|| Value::Object(Map::new()));
    if let Some(user) = user.as_object_mut() {
        for id in ["uid", "gid"] {
            user.entry(id).or_insert_with(|| Value::from(0));
        }
    }
}

fn take_capabilities(
    capabilities: &mut Map<String, Value>,
    set: &str,
    field: &Field,
    warnings: &mut Vec<Warning>,
) -> Result<u64, Error> {
    let mut bits = 0;
    for (index, name) in take_strings(capabilities, set, field)?.into_iter().enumerate() {
        match Capability::from_str(&name) {
            Ok(capability) => bits |= capability.bitmask(),
            Err(_) => {
                warnings.push(Warning::new(field.index(index), format!("{name:?} is unknown and ignored")));
            }
        }
    }
    Ok(bits)
}

/// The `SCHED_FLAG_*` bits of linux/sched.h, with the specification's names.
const SCHEDULER_FLAGS: &[(&str, u64)] = &[
    ("SCHED_FLAG_RESET_ON_FORK", 0x01),
    ("SCHED_FLAG_RECLAIM", 0x02),
    ("SCHED_FLAG_DL_OVERRUN", 0x04),
    ("SCHED_FLAG_KEEP_POLICY", 0x08),
    ("SCHED_FLAG_KEEP_PARAMS", 0x10),
    ("SCHED_FLAG_UTIL_CLAMP_MIN", 0x20),
    ("SCHED_FLAG_UTIL_CLAMP_MAX", 0x40),
];

fn take_scheduler_flags(scheduler: &mut Map<String, Value>, field: &Field) -> Result<u64, Error> {
    let mut bits = 0;
    for (index, name) in take_strings(scheduler, "flags", field)?.into_iter().enumerate() {
        match SCHEDULER_FLAGS.iter().find(|(known, _)| *known == name) {
            Some((_, bit)) => bits |= bit,
            None => return Err(field.index(index).error(ErrorKind::Unknown(name))),
        }
    }
    Ok(bits)
}

fn take_strings(object: &mut Map<String, Value>, key: &str, field: &Field) -> Result<Vec<String>, Error> {
    match object.remove(key) {
        None => Ok(Vec::new()),
        Some(value) => typed::read(value, field),
    }
}
