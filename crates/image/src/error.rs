//! The errors of this crate.

use crate::digest::Digest;
use std::io;
use std::path::PathBuf;

/// Why an image cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An operation on a file failed.
    #[error("{act} {}", path.display())]
    File {
        act: &'static str,
        path: PathBuf,
        #[source]
        reason: io::Error,
    },
    /// The text is not the name of an image.
    #[error("{text}: {reason}")]
    Reference { text: String, reason: &'static str },
    /// No image in an index has the tag, or several could be meant.
    #[error("{place} has no image that {wanted}; {known}")]
    NotFound { place: String, wanted: String, known: String },
    /// A part of the image is not as the specification says.
    #[error("{part}: {reason}")]
    Malformed { part: String, reason: String },
    /// The bytes of a blob do not have the digest by which the image names them.
    #[error("{part} has the digest {found}, but the image names {wanted}")]
    Digest { part: String, wanted: Digest, found: Digest },
    /// The length of a blob is not what the image says.
    #[error("{part} has {found} bytes, but the image says {wanted}")]
    Size { part: String, wanted: u64, found: u64 },
    /// An entry of a layer is refused or cannot be written.
    #[error("{layer}: {entry}: {problem}")]
    Entry { layer: Digest, entry: String, problem: Problem },
    /// A layer cannot be read.
    #[error("read {layer}")]
    Layer {
        layer: Digest,
        #[source]
        reason: io::Error,
    },
    /// Other users could change the store.
    #[error("{}: {why}, so other users could change the layers of images", path.display())]
    Distrusted { path: PathBuf, why: String },
    /// skopeo is not installed.
    #[error(
        "{image}: skopeo is missing, which copies images from registries: run `apt install skopeo` or `dnf install skopeo`"
    )]
    NoSkopeo { image: String },
    /// skopeo failed; it has printed why.
    #[error("skopeo could not copy {image}: {reason}")]
    Skopeo { image: String, reason: String },
}

/// The problem with an entry of a layer.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The entry would harm what is outside of the layer, or makes no sense.
    #[error("{0}")]
    Refused(&'static str),
    /// A system call failed.
    #[error("{act}: {reason}")]
    Failed { act: &'static str, reason: io::Error },
    /// A limit is exceeded.
    #[error("the image has more than {most} {what}; raise the limit with {option}")]
    Limit { most: u64, what: &'static str, option: &'static str },
    /// The user namespace does not map the owner of a file.
    #[error(
        "belongs to {uid}:{gid}, but this user has too few subordinate ids: add ranges to /etc/subuid and /etc/subgid"
    )]
    Owner { uid: u64, gid: u64 },
}

impl Error {
    pub(crate) fn file(act: &'static str, path: impl Into<PathBuf>, reason: impl Into<io::Error>) -> Self {
        Self::File { act, path: path.into(), reason: reason.into() }
    }

    pub(crate) fn malformed(part: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Malformed { part: part.into(), reason: reason.into() }
    }
}
