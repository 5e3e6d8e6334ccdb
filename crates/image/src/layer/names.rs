//! Checks the names of entries and links in a layer.

/// The longest name that a path of the kernel can have (PATH_MAX).
const LONGEST: usize = 4096;
/// The longest name in a directory (NAME_MAX).
const LONGEST_PART: usize = 255;
/// The greatest depth of a tree. It bounds the descriptors that removing one takes.
const DEEPEST: usize = 256;

/// The prefix of a name that hides another one (layer.md, "Whiteouts").
const WHITEOUT: &[u8] = b".wh.";
/// The name that hides everything below its directory in lower layers.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// The prefix of names that only aufs uses.
const AUFS: &[u8] = b".wh..wh.";

/// The meaning of an entry's name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// The layer's root directory.
    Root,
    /// A file at this path.
    Path(Vec<u8>),
    /// The file at this path in lower layers is hidden.
    Hidden(Vec<u8>),
    /// Lower layers' content of this directory is hidden. The root has an empty path.
    Opaque(Vec<u8>),
    /// Something that only another file system needs.
    Nothing,
}

/// Reads the name of an entry.
pub(crate) fn name(text: &[u8]) -> Result<Name, &'static str> {
    let path = clean(text)?;
    if path.is_empty() {
        return Ok(Name::Root);
    }
    let (parent, last) = split(&path);
    if parent.split(|byte| *byte == b'/').any(|part| part.starts_with(WHITEOUT)) {
        return Err("has a whiteout as a directory");
    }
    if last == OPAQUE {
        return Ok(Name::Opaque(parent.to_vec()));
    }
    if last.starts_with(AUFS) {
        return Ok(Name::Nothing);
    }
    match last.strip_prefix(WHITEOUT) {
        None => Ok(Name::Path(path)),
        Some(b"" | b"." | b"..") => Err("is a whiteout that hides no file"),
        Some(hidden) => Ok(Name::Hidden(join(parent, hidden))),
    }
}

/// Returns a path below the root without `.`, empty parts and a slash at either end. An absolute path begins at the
/// root.
pub(crate) fn clean(text: &[u8]) -> Result<Vec<u8>, &'static str> {
    if text.len() > LONGEST {
        return Err("has a name of more than 4096 bytes");
    }
    let mut path = Vec::with_capacity(text.len());
    let mut depth = 0;
    for part in text.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => continue,
            b".." => return Err("has a name that contains `..`"),
            part if part.len() > LONGEST_PART => return Err("has a name of more than 255 bytes"),
            part if part.contains(&0) => return Err("has a name with a zero byte"),
            part => {
                depth += 1;
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend(part);
            }
        }
    }
    if depth > DEEPEST { Err("is more than 256 directories deep") } else { Ok(path) }
}

/// Splits a clean path into its directory, which may be empty, and its last name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

pub(crate) fn join(parent: &[u8], name: &[u8]) -> Vec<u8> {
    if parent.is_empty() { name.to_vec() } else { [parent, b"/", name].concat() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_below_the_root() {
        for root in ["", ".", "./", "/", "//.//"] {
            assert_eq!(name(root.as_bytes()), Ok(Name::Root), "{root}");
        }
        for (text, path) in
            [("a", "a"), ("./a/b/", "a/b"), ("/etc//passwd", "etc/passwd"), ("..a/...", "..a/...")]
        {
            assert_eq!(name(text.as_bytes()), Ok(Name::Path(path.into())), "{text}");
        }
        assert_eq!(name(b"\xff/\xfe"), Ok(Name::Path(b"\xff/\xfe".to_vec())));
        for text in ["..", "a/..", "/../a", "a/../../b"] {
            assert!(name(text.as_bytes()).is_err(), "{text}");
        }
        assert!(name(&[b'a'; 256]).is_err());
        assert!(name(&b"a/".repeat(2049)).is_err());
        assert!(name(&b"a/".repeat(257)).is_err());
        assert!(name(b"a\0b").is_err());
    }

    #[test]
    fn whiteouts_hide_names_of_their_own_directory_only() {
        assert_eq!(name(b"a/.wh.b"), Ok(Name::Hidden(b"a/b".to_vec())));
        assert_eq!(name(b".wh.b"), Ok(Name::Hidden(b"b".to_vec())));
        assert_eq!(name(b"a/.wh..wh..opq"), Ok(Name::Opaque(b"a".to_vec())));
        assert_eq!(name(b".wh..wh..opq"), Ok(Name::Opaque(Vec::new())));
        assert_eq!(name(b".wh..wh.plnk"), Ok(Name::Nothing));
        for text in [".wh.", "a/.wh.", ".wh..", "a/.wh...", ".wh.a/b", "a/.wh..wh..opq/b"] {
            assert!(name(text.as_bytes()).is_err(), "{text}");
        }
    }
}
