//! Suggests what to write instead, in one sentence for each kind of problem with an obvious answer.

use super::near::nearest;
use crate::error::{Error, ErrorKind};

impl Error {
    /// Returns what to write instead, if there is an obvious answer.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let field = self.field.to_string();
        let key = field.rsplit('.').next().unwrap_or_default();
        let example = || example(&field).map(|example| format!("for example: {example}"));
        match &self.kind {
            ErrorKind::Read(_) | ErrorKind::NoFile => Some("create one with 'husk spec'".to_owned()),
            ErrorKind::Missing | ErrorKind::Empty | ErrorKind::Version(_) => example(),
            ErrorKind::Relative(path) => {
                Some(format!("write an absolute path: {:?}", format!("/{}", path.trim_start_matches("./"))))
            }
            ErrorKind::Nul => Some("remove \\u0000, which ends a string in the kernel".to_owned()),
            ErrorKind::Twice(_) => Some("remove one of them".to_owned()),
            ErrorKind::Range(_) if matches!(key, "uid" | "gid") => {
                Some("write a number from 0 to 4294967294".to_owned())
            }
            ErrorKind::NotOneOf(name) => {
                let near = nearest(&name.found, name.known.iter().copied());
                near.first().map(|name| format!("did you mean {name:?}?"))
            }
            ErrorKind::Type(_) => example(),
            ErrorKind::Conflict(_)
            | ErrorKind::Phrase(_)
            | ErrorKind::Json(_)
            | ErrorKind::Range(_)
            | ErrorKind::Unknown(_)
            | ErrorKind::TooLong(_) => example().filter(|_| key.starts_with("env")),
        }
    }
}

/// Returns a typical value of a field.
fn example(field: &str) -> Option<&'static str> {
    let field = without_indices(field);
    let found = EXAMPLES.iter().find(|(name, _)| *name == field)?;
    Some(found.1)
}

/// Returns a field's name with `[]` for each index.
fn without_indices(field: &str) -> String {
    let mut name = String::new();
    for part in field.split_inclusive(['[', ']']) {
        match part.strip_suffix(']') {
            Some(_) => name.push(']'),
            None => name.push_str(part),
        }
    }
    name
}

/// Typical values, by the names of their fields.
const EXAMPLES: &[(&str, &str)] = &[
    ("ociVersion", "\"ociVersion\": \"1.3.0\""),
    ("root", "\"root\": { \"path\": \"rootfs\" }"),
    ("root.path", "\"path\": \"rootfs\""),
    ("process.args", "\"args\": [\"sh\"]"),
    ("process.args[]", "\"sh\""),
    ("process.env", "\"env\": [\"PATH=/usr/bin:/bin\"]"),
    ("process.env[]", "\"PATH=/usr/bin:/bin\""),
    ("process.cwd", "\"cwd\": \"/\""),
    ("process.user", "\"user\": { \"uid\": 0, \"gid\": 0 }"),
    ("process.user.uid", "0"),
    ("process.user.gid", "0"),
    ("process.rlimits", "\"rlimits\": [{ \"type\": \"RLIMIT_NOFILE\", \"soft\": 1024, \"hard\": 1024 }]"),
    ("process.rlimits[].type", "\"type\": \"RLIMIT_NOFILE\""),
    ("mounts", "\"mounts\": [{ \"destination\": \"/proc\", \"type\": \"proc\", \"source\": \"proc\" }]"),
    ("mounts[]", "{ \"destination\": \"/proc\", \"type\": \"proc\", \"source\": \"proc\" }"),
    ("mounts[].destination", "\"destination\": \"/tmp\""),
    ("mounts[].type", "\"type\": \"tmpfs\""),
    ("mounts[].source", "\"source\": \"/srv/data\""),
    ("mounts[].options", "\"options\": [\"nosuid\", \"ro\"]"),
    ("mounts[].options[]", "\"nosuid\""),
    ("hooks.prestart[].path", "\"path\": \"/usr/bin/hook\""),
    ("hooks.createRuntime[].path", "\"path\": \"/usr/bin/hook\""),
    ("hooks.createContainer[].path", "\"path\": \"/usr/bin/hook\""),
    ("hooks.startContainer[].path", "\"path\": \"/usr/bin/hook\""),
    ("hooks.poststart[].path", "\"path\": \"/usr/bin/hook\""),
    ("hooks.poststop[].path", "\"path\": \"/usr/bin/hook\""),
    ("linux.namespaces", "\"namespaces\": [{ \"type\": \"mount\" }, { \"type\": \"pid\" }]"),
    ("linux.namespaces[].type", "\"type\": \"pid\""),
    ("linux.devices[].type", "\"type\": \"c\""),
    ("linux.devices[].path", "\"path\": \"/dev/fuse\""),
    ("linux.uidMappings", "\"uidMappings\": [{ \"containerID\": 0, \"hostID\": 100000, \"size\": 65536 }]"),
    ("linux.gidMappings", "\"gidMappings\": [{ \"containerID\": 0, \"hostID\": 100000, \"size\": 65536 }]"),
    ("linux.resources.memory.limit", "\"limit\": 536870912"),
    ("linux.resources.pids.limit", "\"limit\": 1000"),
    ("linux.seccomp.defaultAction", "\"defaultAction\": \"SCMP_ACT_ERRNO\""),
];

#[cfg(test)]
mod tests {
    use super::without_indices;
    use crate::error::{ErrorKind, Field};

    #[test]
    fn example_is_of_the_field_itself() {
        let hint = |field: &str| Field::new(field).error(ErrorKind::Missing).hint();
        assert_eq!(hint("linux.namespaces[12].type").unwrap(), "for example: \"type\": \"pid\"");
        assert_eq!(hint("mounts[0].type").unwrap(), "for example: \"type\": \"tmpfs\"");
        assert_eq!(hint("linux.seccomp.syscalls[0].args"), None);
        assert_eq!(without_indices("a[1].b[23][4]"), "a[].b[][]");
    }
}
