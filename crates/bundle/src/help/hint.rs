//! Suggests what to write instead, in one sentence for each kind of problem with an obvious answer.

use crate::error::{Error, ErrorKind};

impl Error {
    /// Returns what to write instead, if there is an obvious answer.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let field = self.field.to_string();
        let key = field.rsplit('.').next().unwrap_or_default();
        let example = || example(key).map(|example| format!("for example: {example}"));
        match &self.kind {
            ErrorKind::Read(_) | ErrorKind::NoFile => Some("create one with 'husk spec'".to_owned()),
            ErrorKind::Missing | ErrorKind::Empty => example(),
            ErrorKind::Relative(path) => {
                Some(format!("write an absolute path: {:?}", format!("/{}", path.trim_start_matches("./"))))
            }
            ErrorKind::Nul => Some("remove \\u0000, which ends a string in the kernel".to_owned()),
            ErrorKind::Twice(_) => Some("remove one of them".to_owned()),
            ErrorKind::Range(_) if matches!(key, "uid" | "gid") => {
                Some("write a number from 0 to 4294967294".to_owned())
            }
            ErrorKind::Conflict(_)
            | ErrorKind::Phrase(_)
            | ErrorKind::Json(_)
            | ErrorKind::Range(_)
            | ErrorKind::Unknown(_)
            | ErrorKind::TooLong(_) => {
                example().filter(|_| key.starts_with("env") || matches!(&self.kind, ErrorKind::Json(_)))
            }
        }
    }
}

/// Returns a typical value of a field.
fn example(key: &str) -> Option<&'static str> {
    // An array element has the example of the array.
    let (key, is_element) = key.split_once('[').map_or((key, false), |(key, _)| (key, true));
    Some(match (key, is_element) {
        ("ociVersion", _) => "\"ociVersion\": \"1.3.0\"",
        ("root", _) => "\"root\": { \"path\": \"rootfs\" }",
        ("path", _) => "\"path\": \"/bin/sh\", or \"path\": \"rootfs\" for the root file system",
        ("args", false) => "\"args\": [\"sh\"]",
        ("args", true) => "\"sh\"",
        ("env", false) => "\"env\": [\"PATH=/usr/bin:/bin\"]",
        ("env", true) => "\"PATH=/usr/bin:/bin\"",
        ("cwd", _) => "\"cwd\": \"/\"",
        ("user", _) => "\"user\": { \"uid\": 0, \"gid\": 0 }",
        ("uid" | "gid", _) => "0",
        ("destination", _) => "\"destination\": \"/tmp\"",
        ("type", _) => "\"type\": \"tmpfs\" for a mount, \"pid\" for a namespace, \"c\" for a device",
        ("source", _) => "\"source\": \"/srv/data\"",
        ("options", false) => "\"options\": [\"nosuid\", \"ro\"]",
        ("options", true) => "\"nosuid\"",
        _ => return None,
    })
}
