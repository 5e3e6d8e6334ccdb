//! Reads a configuration without the members that concern only a container's files and its beginning.
//!
//! Most of a configuration are such members, and `exec` would take a twentieth longer if it read them.

use super::duplicate::Members;
use serde_json::{Map, Value};

/// The top-level members that are left out.
const FILES: [&str; 2] = ["hooks", "mounts"];

/// The members of `linux` that are left out.
const LINUX_FILES: [&str; 4] = ["devices", "maskedPaths", "netDevices", "readonlyPaths"];

/// Returns the rest of a configuration. Returns `None` if it is not a JSON object; its error is found by reading it whole.
///
/// Only members with these exact names are left out, and others that Go takes for them remain.
pub(crate) fn without_files(bytes: &[u8]) -> Option<Value> {
    let mut top = Map::new();
    for (key, value) in members(str::from_utf8(bytes).ok()?)? {
        if FILES.contains(&&*key) {
            continue;
        }
        let value = match (&*key, members(value)) {
            ("linux", Some(linux)) => {
                let kept = linux.into_iter().filter(|(key, _)| !LINUX_FILES.contains(&&**key));
                let kept = kept.map(|(key, value)| Some((key, serde_json::from_str(value).ok()?)));
                Value::Object(kept.collect::<Option<_>>()?)
            }
            _ => serde_json::from_str(value).ok()?,
        };
        top.insert(key, value);
    }
    Some(Value::Object(top))
}

/// Returns the members of a JSON object, as text.
fn members(json: &str) -> Option<impl IntoIterator<Item = (String, &str)>> {
    let Members(members) = serde_json::from_str(json).ok()?;
    Some(members.into_iter().map(|(key, value)| (key, value.get())))
}
