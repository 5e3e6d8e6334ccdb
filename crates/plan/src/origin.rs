//! The field of config.json that a step or an error comes from.

use core::fmt::{self, Display, Formatter};
use std::borrow::Cow;
use std::path::Path;

/// The field of config.json that a step or an error comes from. Formats as the field, followed by its value where that
/// helps a reader: `mounts[3] /dev/shm`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    field: Cow<'static, str>,
    subject: Option<Box<str>>,
    part: Part,
}

/// The part of a configuration that an origin belongs to, as far as messages depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    #[default]
    Other,
    Mount,
    Hook {
        /// The name of its list: `startContainer`.
        kind: &'static str,
        /// Its index in the list.
        index: usize,
    },
}

impl Origin {
    pub(crate) const NONE: &'static Self =
        &Self { field: Cow::Borrowed(""), subject: None, part: Part::Other };

    /// Returns an origin with the value of its field.
    #[must_use]
    pub fn with_subject(field: impl Into<Cow<'static, str>>, subject: &str) -> Self {
        Self { subject: Some(on_one_line(subject.into()).into()), ..Self::from(field.into()) }
    }

    /// Returns the origin of a path's field.
    #[must_use]
    pub fn with_path(field: impl Into<Cow<'static, str>>, path: &Path) -> Self {
        Self::with_subject(field, &path.to_string_lossy())
    }

    /// Returns the origin of an entry of `mounts`.
    #[must_use]
    pub fn mount(index: usize, destination: &Path) -> Self {
        Self { part: Part::Mount, ..Self::with_path(format!("mounts[{index}]"), destination) }
    }

    /// Returns the origin of a hook.
    #[must_use]
    pub fn hook(kind: &'static str, index: usize) -> Self {
        Self { part: Part::Hook { kind, index }, ..Self::from(format!("hooks.{kind}[{index}]")) }
    }

    /// Returns the field: `mounts[3]`.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }

    /// Returns the field's value, if the origin has it.
    #[must_use]
    pub fn subject(&self) -> Option<&str> {
        self.subject.as_deref()
    }

    #[must_use]
    pub fn part(&self) -> Part {
        self.part
    }
}

/// Escapes text with control characters: listings and messages need one line for each origin.
fn on_one_line(text: Cow<'_, str>) -> String {
    if text.contains(char::is_control) { text.escape_debug().to_string() } else { text.into_owned() }
}

impl From<Cow<'static, str>> for Origin {
    fn from(field: Cow<'static, str>) -> Self {
        let field = if field.contains(char::is_control) { on_one_line(field).into() } else { field };
        Self { field, ..Self::default() }
    }
}

impl From<&'static str> for Origin {
    fn from(field: &'static str) -> Self {
        Self::from(Cow::Borrowed(field))
    }
}

impl From<String> for Origin {
    fn from(field: String) -> Self {
        Self::from(Cow::<'static, str>::from(field))
    }
}

impl Display for Origin {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.subject {
            Some(subject) => f.pad(&format!("{} {subject}", self.field)),
            None => f.pad(&self.field),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Origin;
    use std::path::Path;

    #[test]
    fn an_origin_prints_its_field_and_value() {
        let mount = Origin::mount(3, Path::new("/dev/shm"));
        assert_eq!((mount.to_string().as_str(), mount.field()), ("mounts[3] /dev/shm", "mounts[3]"));
        assert_eq!(format!("{:12}|", Origin::hook("poststop", 0)), "hooks.poststop[0]|");
        assert_eq!(format!("{:8}|", Origin::from("process")), "process |");
    }

    #[test]
    fn an_origin_is_one_line() {
        assert_eq!(Origin::mount(0, Path::new("/a\nb")).to_string(), r"mounts[0] /a\nb");
        assert_eq!(Origin::from("annotations.a\nb".to_owned()).to_string(), r"annotations.a\nb");
    }
}
