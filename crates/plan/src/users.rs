//! Reads lists of users and groups: passwd(5) and group(5).

use std::path::PathBuf;

/// Splits each line that is UTF-8 into fields. Other lines are skipped.
pub fn fields(list: &[u8]) -> impl Iterator<Item = Vec<&str>> {
    let lines = list.split(|byte| *byte == b'\n').filter_map(|line| str::from_utf8(line).ok());
    lines.map(|line| line.strip_suffix('\r').unwrap_or(line).split(':').collect())
}

fn user(list: &[u8], uid: u32) -> Option<Vec<&str>> {
    let uid = uid.to_string();
    fields(list).find(|fields| fields.get(2) == Some(&uid.as_str()))
}

/// Returns the name of a user in a passwd file.
#[must_use]
pub fn name(list: &[u8], uid: u32) -> Option<String> {
    user(list, uid)?.first().map(ToString::to_string)
}

/// Returns the home directory of a user in a passwd file.
#[must_use]
pub fn home(list: &[u8], uid: u32) -> Option<PathBuf> {
    user(list, uid)?.get(5).filter(|home| !home.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::{home, name};

    #[test]
    fn a_line_describes_a_user() {
        let list =
            b"root:x:0:0::/root:/bin/sh\nbroken\n\xff:x:7:7::/:\nwho:x:7:8::/home/who:/bin/sh\r\nx:x:9:9:::";
        assert_eq!((name(list, 7).as_deref(), home(list, 7)), (Some("who"), Some("/home/who".into())));
        assert_eq!((name(list, 9).as_deref(), home(list, 9)), (Some("x"), None));
        assert_eq!((name(list, 8), home(list, 8)), (None, None));
    }
}
