//! Finds every problem of a configuration at once, for its authors.
//!
//! [`parse`](crate::parse) is the only reader of a configuration, and it stops at the first problem. A second
//! reader could disagree with it. So this module removes the field with the problem, or replaces it by something
//! harmless, and parses again until no problem is left. Problems that only follow from such a change are not
//! reported.

use crate::config::{layers, read, resolve};
use crate::container::Container;
use crate::error::{Error, ErrorKind, Field, Warning};
use crate::json::{duplicate, tree};
use serde_json::{Value, json};
use std::path::Path;

/// The problems of a configuration.
#[derive(Debug)]
pub struct Problems {
    /// The errors, in the order in which they were found.
    pub errors: Vec<Error>,
    /// Fields that are not carried out as written.
    pub warnings: Vec<Warning>,
    /// The resolved container without the fields that have errors; `None` if there are too many.
    pub container: Option<Container>,
    mended: Mended,
}

impl Problems {
    /// Returns the name that a field of the container has in the file.
    #[must_use]
    pub fn in_file(&self, field: &Field) -> Field {
        self.mended.restored(field)
    }
}

/// The most errors that are reported. More would not be read, and finding each takes another parse.
const MOST: usize = 200;

/// Returns all problems of `config.json` in the bundle `directory`, an absolute path.
#[must_use]
pub fn problems(directory: &Path) -> Problems {
    let mut problems = match read(&directory.join("config.json")) {
        Ok(bytes) => problems_in(&bytes, directory),
        Err(kind) => return unreadable(kind),
    };
    match (layers(directory), &mut problems.container) {
        (Ok(layers), Some(container)) => container.layers = layers,
        (Ok(_), None) => {}
        (Err(error), _) => problems.errors.push(error),
    }
    problems
}

/// Returns all problems of a configuration in memory.
#[must_use]
pub fn problems_in(bytes: &[u8], directory: &Path) -> Problems {
    match serde_json::from_slice(bytes) {
        Ok(config) => {
            let mut problems = of(config, directory);
            // This cannot fail: serde_json accepted the bytes, so they are UTF-8.
            let json = std::str::from_utf8(bytes).unwrap_or_default();
            problems.warnings.extend(duplicate::keys(json, MOST));
            problems
        }
        Err(error) => unreadable(ErrorKind::Json(error.to_string())),
    }
}

fn unreadable(kind: ErrorKind) -> Problems {
    let errors = vec![Field::new("config.json").error(kind)];
    Problems { errors, warnings: Vec::new(), container: None, mended: Mended::default() }
}

fn of(mut config: Value, directory: &Path) -> Problems {
    let mut unknown = tree::unknown(&config);
    let mut errors: Vec<Error> = Vec::new();
    let mut mended = Mended::default();
    let mut read = None;
    // Each round removes or replaces a field, so the loop ends.
    for _ in 0..10 * MOST {
        let error = match resolve(config.clone(), directory) {
            Ok(found) => {
                read = Some(found);
                break;
            }
            Err(error) => error,
        };
        let field = error.field.to_string();
        let follows = mended.is_behind(&field);
        if !follows {
            errors.push(Error { field: mended.restored(&error.field), ..error });
        }
        if errors.len() == MOST || !mended.mend(&mut config, &field, follows) {
            break;
        }
    }
    let (container, warnings) = read.unzip();
    let warnings = warnings.into_iter().flatten();
    unknown.extend(warnings.map(|warning| Warning { field: mended.restored(&warning.field), ..warning }));
    Problems { errors, warnings: unknown, container, mended }
}

/// The changes made so far in order to continue parsing.
#[derive(Debug, Default)]
struct Mended {
    /// The changed fields, under the names they had at the time.
    fields: Vec<String>,
    /// The removed array elements: the array and the index. Later elements have moved up.
    elements: Vec<(String, usize)>,
}

impl Mended {
    /// Whether a problem with this field follows from a change, because the field was changed or contains a
    /// changed one.
    fn is_behind(&self, field: &str) -> bool {
        self.fields.iter().any(|mended| {
            mended.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
    }

    /// Changes the configuration so that `field` no longer causes an error. `again` means that a harmless value
    /// did not help. Returns whether anything was changed.
    fn mend(&mut self, config: &mut Value, field: &str, again: bool) -> bool {
        let (parent, last) = split(field);
        self.fields.push(field.to_owned());
        let Some(place) = find(config, parent) else {
            // The field does not exist, so the object that should contain it is removed.
            return !parent.is_empty() && self.mend(config, parent, true);
        };
        match (place, last) {
            (Value::Object(members), Last::Key(key)) => {
                let spelled = members.keys().find(|member| member.eq_ignore_ascii_case(key)).cloned();
                let harmless = if again { None } else { harmless(key) };
                match (spelled, harmless) {
                    (spelled, Some(harmless)) => {
                        members.insert(spelled.unwrap_or_else(|| key.to_owned()), harmless);
                        true
                    }
                    (Some(spelled), None) => members.remove(&spelled).is_some(),
                    (None, None) => !parent.is_empty() && self.mend(config, parent, true),
                }
            }
            (Value::Array(elements), Last::Index(index)) if index < elements.len() => {
                elements.remove(index);
                self.elements.push((parent.to_owned(), index));
                // The next element now has this name.
                self.fields.retain(|mended| !mended.starts_with(field));
                self.fields.push(format!("{parent}[]"));
                true
            }
            _ => !parent.is_empty() && self.mend(config, parent, true),
        }
    }

    /// Returns the name of a field in the original file, before elements were removed.
    fn restored(&self, field: &Field) -> Field {
        let mut name = field.to_string();
        for (array, removed) in self.elements.iter().rev() {
            let Some(rest) = name.strip_prefix(array.as_str()).and_then(|rest| rest.strip_prefix('[')) else {
                continue;
            };
            let Some((index, rest)) = rest.split_once(']') else { continue };
            if let Some(index) = index.parse::<usize>().ok().filter(|index| index >= removed) {
                name = format!("{array}[{}]{rest}", index + 1);
            }
        }
        Field::new(&name)
    }
}

/// Returns a harmless value for a required field.
fn harmless(key: &str) -> Option<Value> {
    Some(match key {
        "ociVersion" => json!("1.3.0"),
        "root" => json!({ "path": "rootfs" }),
        "path" | "destination" | "cwd" => json!("/"),
        "args" => json!(["/"]),
        "user" => json!({ "uid": 0, "gid": 0 }),
        "uid" | "gid" => json!(0),
        _ => return None,
    })
}

/// The last part of a field's name.
enum Last<'a> {
    Key(&'a str),
    Index(usize),
}

/// Splits a field's name into its parent and its last part.
fn split(field: &str) -> (&str, Last<'_>) {
    if let Some((parent, index)) = field.strip_suffix(']').and_then(|field| field.rsplit_once('['))
        && let Ok(index) = index.parse()
    {
        return (parent, Last::Index(index));
    }
    // Keys chosen by the user may contain dots.
    for map in ["annotations.", "linux.sysctl.", "linux.resources.unified."] {
        if let Some(key) = field.strip_prefix(map) {
            return (map.trim_end_matches('.'), Last::Key(key));
        }
    }
    let (parent, key) = field.rsplit_once('.').unwrap_or(("", field));
    (parent, Last::Key(key))
}

/// Finds the value of a field, ignoring the case of keys.
fn find<'a>(value: &'a mut Value, field: &str) -> Option<&'a mut Value> {
    if field.is_empty() {
        return Some(value);
    }
    let (parent, last) = split(field);
    match (find(value, parent)?, last) {
        (Value::Object(members), Last::Key(key)) => {
            members.iter_mut().find(|(member, _)| member.eq_ignore_ascii_case(key)).map(|(_, value)| value)
        }
        (Value::Array(elements), Last::Index(index)) => elements.get_mut(index),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Problems, of};
    use serde_json::{Value, json};
    use std::path::Path;

    fn told(config: Value) -> (Vec<String>, Vec<String>) {
        let Problems { errors, warnings, container, .. } = of(config, Path::new("/bundle"));
        assert!(container.is_some());
        (errors.iter().map(ToString::to_string).collect(), warnings.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn valid_configuration_has_no_problems() {
        let config = json!({ "ociVersion": "1.3.0", "root": { "path": "r" },
            "process": { "user": { "uid": 0, "gid": 0 }, "args": ["sh"], "cwd": "/" } });
        assert_eq!(told(config), (vec![], vec![]));
    }

    #[test]
    fn each_problem_is_reported_once_with_its_field() {
        let tmpfs = |options: Value| json!({ "destination": "/a", "type": "tmpfs", "options": options });
        let (errors, warnings) = told(json!({
            "root": {},
            "process": {
                "user": { "uid": -1, "gid": 0 },
                "args": [],
                "cwd": "here",
                "env": ["A=1", "B", "C=1", "D", "E\0=1"],
                "rlimits": [{ "type": "RLIMIT_NONSENSE", "soft": 1, "hard": 1 }],
                "capabilities": { "bounding": ["CAP_NONSENSE"] }
            },
            "mounts": [tmpfs(json!([])), tmpfs(json!("ro")), { "destination": "/b" }, tmpfs(json!([1])), {}],
            "linux": {
                "namespaces": [{ "type": "pid" }, { "type": "pod" }, { "type": "pid" }],
                "sysctl": { "net.ipv4.ip_forward": 1 },
                "maskedpaths": ["proc"],
                "colour": "red"
            }
        }));
        let wanted = [
            "process.env[4]: contains a NUL byte",
            "root.path: is empty",
            "process.user.uid: must be a whole number",
            "process.args: is empty",
            "process.cwd: \"here\" is not an absolute path",
            "process.env[1]: is not of the form NAME=VALUE",
            "process.env[3]: is not of the form NAME=VALUE",
            "process.rlimits[0].type: \"RLIMIT_NONSENSE\" is unknown",
            "mounts[1].options: must be an array",
            "mounts[2].type: is missing",
            "mounts[3].options[0]: must be a string",
            "mounts[4].destination: is missing",
            "mounts[4].type: is missing",
            "linux.namespaces[1].type: \"pod\" is unknown",
            "linux.namespaces[2].type: \"pid\" occurs twice",
            "linux.sysctl.net.ipv4.ip_forward: must be a string",
            "linux.maskedPaths[0]: \"proc\" is not an absolute path",
        ];
        for start in wanted {
            assert_eq!(
                errors.iter().filter(|error| error.starts_with(start)).count(),
                1,
                "{start}: {errors:#?}"
            );
        }
        assert_eq!(errors.len(), wanted.len(), "{errors:#?}");
        let wanted = [
            "linux.colour: is unknown and ignored",
            "linux.maskedpaths: is taken as \"maskedPaths\"",
            "process.capabilities.bounding[0]: \"CAP_NONSENSE\" is unknown and ignored",
        ];
        assert_eq!(warnings, wanted);
    }
}
