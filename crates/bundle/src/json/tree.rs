//! Normalises the configuration as JSON before it is converted to types. It aligns serde with Go, and so with
//! runc, and refuses values that no field can hold.

use crate::error::{Error, ErrorKind, Field, Warning};
use crate::help::near::nearest;
use serde_json::{Map, Value};

/// Changes the tree so that serde reads it as Go does.
///
/// Go treats null as absent everywhere; serde does so only for an `Option`. Go ignores the case of keys; otherwise
/// a misspelled key such as `maskedpaths` would be ignored as unknown. A string with a NUL byte is refused,
/// because it cannot be passed to the kernel. For a duplicate key the last one counts, both in Go and in
/// serde_json's tree.
pub(crate) fn normalize(config: &mut Value, warnings: &mut Vec<Warning>) -> Result<(), Error> {
    if !config.is_object() {
        return Err(JsonPath::Top.field().error(ErrorKind::Json("is not a JSON object".to_owned())));
    }
    walk(config, &JsonPath::Top, warnings)
}

fn walk(value: &mut Value, place: &JsonPath<'_>, warnings: &mut Vec<Warning>) -> Result<(), Error> {
    match value {
        Value::String(text) if text.contains('\0') => Err(place.field().error(ErrorKind::Nul)),
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            let names_are_free = place.key().is_some_and(|key| FREE.contains(&key));
            if names_are_free {
                if let Some(key) = members.keys().find(|key| key.contains('\0')) {
                    return Err(JsonPath::Key(place, key).field().error(ErrorKind::Nul));
                }
            } else {
                spell(members, place, warnings)?;
            }
            for (key, member) in members {
                walk(member, &JsonPath::Key(place, key), warnings)?;
            }
            Ok(())
        }
        Value::Array(elements) => {
            let elements = elements.iter_mut().enumerate();
            for (index, element) in elements.filter(|(_, element)| !element.is_null()) {
                walk(element, &JsonPath::Index(place, index), warnings)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Warns about every key that the specification does not define. The specification says to ignore them (config.md,
/// "Extensibility"), but authors of a configuration want to know.
pub(crate) fn unknown(config: &Value) -> Vec<Warning> {
    fn look(value: &Value, place: &JsonPath<'_>, found: &mut Vec<Warning>) {
        match value {
            Value::Object(members) => {
                let names_are_free = place.key().is_some_and(|key| FREE.contains(&key));
                for (key, member) in members {
                    let here = JsonPath::Key(place, key);
                    let is = |known: &&str| known.eq_ignore_ascii_case(key);
                    if names_are_free || KEYS.iter().any(&is) {
                        look(member, &here, found);
                    } else if !(matches!(place, JsonPath::Top) && ELSEWHERE.iter().any(is)) {
                        let meant = nearest(key, KEYS.iter().copied());
                        let meant = meant
                            .first()
                            .map(|known| format!("; did you mean {known:?}?"))
                            .unwrap_or_default();
                        found.push(Warning::new(here.field(), format!("is unknown and ignored{meant}")));
                    }
                }
            }
            Value::Array(elements) => {
                let elements = elements.iter().enumerate();
                elements.for_each(|(index, element)| look(element, &JsonPath::Index(place, index), found));
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    look(config, &JsonPath::Top, &mut found);
    found
}

/// Renames each key to the specification's spelling.
fn spell(
    members: &mut Map<String, Value>,
    place: &JsonPath<'_>,
    warnings: &mut Vec<Warning>,
) -> Result<(), Error> {
    let misspelled = |key: &String| {
        if KEYS.binary_search(&key.as_str()).is_ok() {
            return None;
        }
        let known = KEYS.iter().find(|known| known.eq_ignore_ascii_case(key));
        known.map(|known| (key.clone(), *known))
    };
    let found: Vec<_> = members.keys().filter_map(misspelled).collect();
    for (key, known) in found {
        let field = JsonPath::Key(place, &key).field();
        let Some(member) = members.remove(&key) else { continue };
        match (members.get_mut(known), member) {
            (None, member) => drop(members.insert(known.to_owned(), member)),
            // As in Go, and so in runc, the two objects are merged.
            (Some(Value::Object(there)), Value::Object(more)) => there.extend(more),
            (Some(_), _) => return Err(field.error(ErrorKind::Twice(known.to_owned()))),
        }
        warnings.push(Warning::new(field, format!("is taken as {known:?}")));
    }
    Ok(())
}

/// The position of a value in the tree. The field's name is built only on demand.
enum JsonPath<'a> {
    Top,
    Key(&'a JsonPath<'a>, &'a str),
    Index(&'a JsonPath<'a>, usize),
}

impl JsonPath<'_> {
    fn field(&self) -> Field {
        match self {
            Self::Top => Field::new("config.json"),
            Self::Key(Self::Top, key) => Field::new(key),
            Self::Key(parent, key) => parent.field().key(key),
            Self::Index(parent, index) => parent.field().index(*index),
        }
    }

    fn key(&self) -> Option<&str> {
        match self {
            Self::Key(_, key) => Some(key),
            _ => None,
        }
    }
}

/// Objects whose keys are chosen by the user.
const FREE: &[&str] = &["annotations", "netDevices", "rdma", "sysctl", "timeOffsets", "unified"];

/// Top-level keys for other systems.
const ELSEWHERE: [&str; 5] = ["freebsd", "solaris", "vm", "windows", "zos"];

/// Every key of runtime-spec 1.3.0 for Linux, and those of 1.2 that 1.3.0 removed, sorted.
const KEYS: &[&str] = &[
    "access",
    "action",
    "additionalGids",
    "allow",
    "ambient",
    "annotations",
    "apparmorProfile",
    "architectures",
    "args",
    "blockIO",
    "bounding",
    "burst",
    "capabilities",
    "cgroupsPath",
    "checkBeforeUpdate",
    "class",
    "classID",
    "closID",
    "commandLine",
    "consoleSize",
    "containerID",
    "cpu",
    "cpus",
    "createContainer",
    "createRuntime",
    "cwd",
    "deadline",
    "defaultAction",
    "defaultErrnoRet",
    "destination",
    "devices",
    "disableOOMKiller",
    "domain",
    "domainname",
    "effective",
    "enableCMT",
    "enableMBM",
    "enableMonitoring",
    "env",
    "errnoRet",
    "execCPUAffinity",
    "fileMode",
    "final",
    "flags",
    "gid",
    "gidMappings",
    "hard",
    "hcaHandles",
    "hcaObjects",
    "height",
    "hooks",
    "hostID",
    "hostname",
    "hugepageLimits",
    "idle",
    "index",
    "inheritable",
    "initial",
    "intelRdt",
    "ioPriority",
    "kernel",
    "kernelTCP",
    "l3CacheSchema",
    "leafWeight",
    "limit",
    "linux",
    "listenerMetadata",
    "listenerPath",
    "major",
    "maskedPaths",
    "memBwSchema",
    "memory",
    "memoryPolicy",
    "mems",
    "minor",
    "mode",
    "mountLabel",
    "mounts",
    "name",
    "names",
    "namespaces",
    "nanosecs",
    "netDevices",
    "network",
    "nice",
    "noNewPrivileges",
    "nodes",
    "ociVersion",
    "oomScoreAdj",
    "op",
    "options",
    "pageSize",
    "path",
    "period",
    "permitted",
    "personality",
    "pids",
    "policy",
    "poststart",
    "poststop",
    "prestart",
    "priorities",
    "priority",
    "process",
    "quota",
    "rate",
    "rdma",
    "readonly",
    "readonlyPaths",
    "realtimePeriod",
    "realtimeRuntime",
    "reservation",
    "resources",
    "rlimits",
    "root",
    "rootfsPropagation",
    "runtime",
    "scheduler",
    "schemata",
    "seccomp",
    "secs",
    "selinuxLabel",
    "shares",
    "size",
    "soft",
    "source",
    "startContainer",
    "swap",
    "swappiness",
    "syscalls",
    "sysctl",
    "terminal",
    "throttleReadBpsDevice",
    "throttleReadIOPSDevice",
    "throttleWriteBpsDevice",
    "throttleWriteIOPSDevice",
    "timeOffsets",
    "timeout",
    "type",
    "uid",
    "uidMappings",
    "umask",
    "unified",
    "useHierarchy",
    "user",
    "username",
    "value",
    "valueTwo",
    "weight",
    "weightDevice",
    "width",
];

#[cfg(test)]
mod tests {
    use super::{ELSEWHERE, KEYS, normalize};
    use serde_json::{Value, json};
    use std::collections::BTreeSet;

    fn normalized(mut config: Value) -> Result<(Value, Vec<String>), String> {
        let mut warnings = Vec::new();
        normalize(&mut config, &mut warnings).map_err(|error| error.to_string())?;
        Ok((config, warnings.iter().map(ToString::to_string).collect()))
    }

    #[test]
    fn keys_are_sorted() {
        assert!(KEYS.is_sorted());
    }

    /// Collects the keys of every object in a JSON schema.
    fn keys_of(schema: &Value, found: &mut BTreeSet<String>) {
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            found.extend(properties.keys().cloned());
        }
        match schema {
            Value::Object(members) => members.values().for_each(|member| keys_of(member, found)),
            Value::Array(elements) => elements.iter().for_each(|element| keys_of(element, found)),
            _ => {}
        }
    }

    #[test]
    fn known_keys_match_the_schema() {
        let mut wanted = BTreeSet::new();
        for schema in [
            include_str!("../../tests/schema/config-schema.json"),
            include_str!("../../tests/schema/config-linux.json"),
            include_str!("../../tests/schema/defs.json"),
            include_str!("../../tests/schema/defs-linux.json"),
        ] {
            keys_of(&serde_json::from_str(schema).unwrap(), &mut wanted);
        }
        // Clock names below `timeOffsets`, where any key is allowed.
        for other in ELSEWHERE.iter().chain(&["boottime", "monotonic"]) {
            assert!(wanted.remove(*other), "{other} is not in the schema");
        }
        // Keys of runtime-spec 1.2.
        wanted.extend(["enableCMT", "enableMBM"].map(str::to_owned));
        assert_eq!(KEYS.iter().copied().map(str::to_owned).collect::<BTreeSet<_>>(), wanted);
    }

    #[test]
    fn key_in_another_case_is_normalized_with_a_warning() {
        let (config, warnings) = normalized(json!({ "Linux": { "maskedpaths": [], "x": 1 } })).unwrap();
        assert_eq!(config, json!({ "linux": { "maskedPaths": [], "x": 1 } }));
        let wanted = ["Linux: is taken as \"linux\"", "linux.maskedpaths: is taken as \"maskedPaths\""];
        assert_eq!(warnings, wanted);
        let (config, _) =
            normalized(json!({ "linux": { "sysctl": {} }, "Linux": { "devices": [] } })).unwrap();
        assert_eq!(config, json!({ "linux": { "sysctl": {}, "devices": [] } }));
        let twice = normalized(json!({ "hostname": "a", "hostName": "b" }));
        assert_eq!(twice.unwrap_err(), "hostName: \"hostname\" occurs twice");
        let (config, warnings) = normalized(json!({ "annotations": { "PATH": "" } })).unwrap();
        assert_eq!((config, warnings), (json!({ "annotations": { "PATH": "" } }), vec![]));
    }

    #[test]
    fn nul_byte_in_a_string_is_refused() {
        let nul = normalized(json!({ "mounts": [{}, { "options": ["a", "b\0"] }] })).unwrap_err();
        assert_eq!(nul, "mounts[1].options[1]: contains a NUL byte");
        let nul = normalized(json!({ "linux": { "sysctl": { "a\0": "" } } })).unwrap_err();
        assert_eq!(nul, "linux.sysctl.a\\0: contains a NUL byte");
    }

    #[test]
    fn null_fields_are_removed_and_null_elements_are_kept() {
        let (config, _) = normalized(json!({ "a": null, "b": [null, { "c": null }] })).unwrap();
        assert_eq!(config, json!({ "b": [null, {}] }));
    }
}
