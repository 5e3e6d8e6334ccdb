//! The names of images, as skopeo(1) and podman(1) write them.

use crate::error::Error;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// The place of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// `oci:DIRECTORY[:TAG]`: a directory in the OCI image layout.
    Layout { path: PathBuf, tag: Option<String> },
    /// `oci-archive:FILE[:TAG]`: the same as a tar archive.
    LayoutArchive { path: PathBuf, tag: Option<String> },
    /// `docker-archive:FILE[:TAG]`: what `docker save` writes.
    DockerArchive { path: PathBuf, tag: Option<String> },
    /// A name in a registry, such as `docker.io/library/alpine:3.20`.
    Registry(String),
}

impl Reference {
    /// Reads the name of an image.
    ///
    /// # Errors
    ///
    /// Fails if the text is not a name.
    pub fn parse(text: &OsStr) -> Result<Self, Error> {
        let refused = |reason| Error::Reference { text: text.to_string_lossy().into_owned(), reason };
        let bytes = text.as_bytes();
        let after = |prefix: &[u8]| bytes.strip_prefix(prefix);
        let local = if let Some(rest) = after(b"oci:") {
            let (path, tag) = split(rest, Separator::Last);
            Some(Self::Layout { path, tag })
        } else if let Some(rest) = after(b"oci-archive:") {
            let (path, tag) = split(rest, Separator::Last);
            Some(Self::LayoutArchive { path, tag })
        } else if let Some(rest) = after(b"docker-archive:") {
            // A tag is itself NAME:TAG here.
            let (path, tag) = split(rest, Separator::First);
            Some(Self::DockerArchive { path, tag })
        } else {
            None
        };
        match local {
            Some(
                Self::Layout { path, .. }
                | Self::LayoutArchive { path, .. }
                | Self::DockerArchive { path, .. },
            ) if path.as_os_str().is_empty() => Err(refused("names no file after the colon")),
            Some(local) => Ok(local),
            None => registry(text).map(Self::Registry).map_err(refused),
        }
    }
}

impl Reference {
    /// Makes a relative path in the name of an image relative to a directory. A name in a registry stays as it is.
    #[must_use]
    pub fn below(directory: Option<&Path>, text: &str) -> OsString {
        let kind =
            ["oci:", "oci-archive:", "docker-archive:"].into_iter().find(|kind| text.starts_with(kind));
        let (Some(kind), Some(directory)) = (kind, directory) else { return text.into() };
        let rest = &text[kind.len()..];
        let mut name = OsString::from(kind);
        // An empty path stays one, which is an error.
        name.push(if rest.is_empty() { PathBuf::new() } else { directory.join(rest) });
        name
    }
}

/// The colon that separates a path from a tag.
#[derive(Clone, Copy)]
enum Separator {
    First,
    Last,
}

/// Splits a path from its tag. A colon before a slash belongs to the path.
fn split(text: &[u8], separator: Separator) -> (PathBuf, Option<String>) {
    let colon = match separator {
        Separator::First => text.iter().position(|byte| *byte == b':'),
        Separator::Last => text.iter().rposition(|byte| *byte == b':'),
    };
    let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
    let tag = colon.and_then(|colon| Some((colon, str::from_utf8(text.get(colon + 1..)?).ok()?)));
    match (tag, separator) {
        (Some((_, tag)), Separator::Last) if tag.contains('/') => (path(text), None),
        (Some((colon, "")), _) => (path(&text[..colon]), None),
        (Some((colon, tag)), _) => (path(&text[..colon]), Some(tag.to_owned())),
        (None, _) => (path(text), None),
    }
}

/// Checks a name in a registry. It becomes an argument of skopeo, and must not be taken for an option or another
/// kind of place.
fn registry(text: &OsStr) -> Result<String, &'static str> {
    let name = text.to_str().ok_or("is not UTF-8")?;
    let name = name.strip_prefix("docker://").unwrap_or(name);
    let is_allowed = |char: char| char.is_ascii_alphanumeric() || "._-/:@[]".contains(char);
    if !name.starts_with(|char: char| char.is_ascii_alphanumeric() || char == '[') {
        return Err("is not the name of an image");
    }
    if !name.chars().all(is_allowed) {
        return Err("has a character that no name of an image has");
    }
    for kind in ["dir:", "containers-storage:", "docker-daemon:", "ostree:", "tarball:", "sif:"] {
        if name.starts_with(kind) {
            return Err("is a kind of image that husk does not read; copy it with skopeo to oci:DIRECTORY");
        }
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_images_are_read() {
        let parse = |text: &str| Reference::parse(OsStr::new(text)).map_err(|error| error.to_string());
        let tag = |tag: &str| Some(tag.to_owned());
        assert_eq!(parse("oci:dir"), Ok(Reference::Layout { path: "dir".into(), tag: None }));
        assert_eq!(parse("oci:a:b/dir"), Ok(Reference::Layout { path: "a:b/dir".into(), tag: None }));
        assert_eq!(parse("oci:/x/d:1.2"), Ok(Reference::Layout { path: "/x/d".into(), tag: tag("1.2") }));
        assert_eq!(
            parse("oci-archive:x.tar:t"),
            Ok(Reference::LayoutArchive { path: "x.tar".into(), tag: tag("t") })
        );
        assert_eq!(
            parse("docker-archive:x.tar:docker.io/library/a:latest"),
            Ok(Reference::DockerArchive { path: "x.tar".into(), tag: tag("docker.io/library/a:latest") })
        );
        assert_eq!(parse("alpine"), Ok(Reference::Registry("alpine".into())));
        let name = "registry:5000/a/b@sha256:00";
        assert_eq!(parse(&format!("docker://{name}")), Ok(Reference::Registry(name.into())));
    }

    #[test]
    fn text_that_is_no_name_is_refused() {
        for text in ["", "oci:", "oci-archive::x", "--help", "a b", "a\nb", "dir:/etc", "docker-daemon:x:y"] {
            assert!(Reference::parse(OsStr::new(text)).is_err(), "{text}");
        }
    }
}
