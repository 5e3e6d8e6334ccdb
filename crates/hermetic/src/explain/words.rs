//! The lines that tell what was denied, each with the option that allows it.

use super::Explanation;
use super::judge::{Denial, Denied, Grant};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// How many lines are shown of one explanation.
pub(crate) const MOST_LINES: usize = 5;

/// Returns the lines for people: the options with which the program passes, then the most likely denials.
pub(crate) fn lines(explanation: &Explanation) -> Vec<String> {
    let mut lines = first(explanation);
    let room = MOST_LINES - lines.len();
    // One option may allow several things.
    let mut denied: Vec<&Denied> = Vec::new();
    for one in &explanation.denied {
        if one.grants.is_empty() || denied.iter().all(|known| known.grants != one.grants) {
            denied.push(one);
        }
    }
    let shown = if denied.len() > room { room - 1 } else { denied.len() };
    lines.extend(denied.iter().take(shown).map(|denied| line(denied)));
    if denied.len() > shown {
        lines.push(format!("{} more denials", denied.len() - shown));
    }
    lines
}

/// Returns the lines for all denials.
pub(crate) fn all(explanation: &Explanation) -> Vec<String> {
    first(explanation).into_iter().chain(explanation.denied.iter().map(line)).collect()
}

fn first(explanation: &Explanation) -> Vec<String> {
    let unavailable = explanation.unavailable.iter().map(|why| format!("cannot explain the failure: {why}"));
    let passes = explanation.passes_with.iter();
    unavailable.chain(passes.map(|grants| format!("passes with: husk test {}", options(grants)))).collect()
}

/// Returns the line for one denial.
pub(crate) fn line(denied: &Denied) -> String {
    let options = options(&denied.grants);
    let allow = match options.is_empty() {
        true => "no option allows it".to_owned(),
        false => format!("allow it with '{options}'"),
    };
    match &denied.what {
        Denial::Hidden(path) if options.is_empty() => {
            format!("{} is hidden by '--hide'", quoted(path.as_os_str()))
        }
        Denial::Hidden(path) => format!("{} is hidden; show it with '{options}'", quoted(path.as_os_str())),
        Denial::Written(path, others) => {
            let others = match others {
                0 => String::new(),
                1 => " and 1 other path".to_owned(),
                others => format!(" and {others} other paths"),
            };
            let directory = denied.grants.first().map(Grant::value).unwrap_or_default();
            format!(
                "cannot write to {}{others}; {allow}, or keep the changes with '--write {directory}'",
                quoted(path.as_os_str())
            )
        }
        Denial::Address(address) => format!("cannot reach {address}; {allow}"),
        Denial::Names => format!("cannot look up names of machines; {allow}"),
        Denial::Call(name) => format!("the system call {name} is refused; {allow}"),
        Denial::Root => format!("root cannot be root of another user namespace; {allow}"),
        Denial::Limit(reached) => format!("{reached}; raise it with '{options}'"),
        Denial::Disk => format!("the private directories are full; raise the limit with '{options}'"),
        Denial::Files => format!("too many open files; raise the limit with '{options}'"),
        Denial::Processes => {
            format!("too many processes and threads; raise the limit with '{options}'")
        }
        Denial::Variable(name) => {
            format!("the output mentions {}, which is not passed on; pass it with '{options}'", quoted(name))
        }
    }
}

/// Returns options as they are typed.
pub(crate) fn options(grants: &[Grant]) -> String {
    let words = grants.iter().map(|grant| format!("{} {}", grant.option(), grant.value()));
    words.map(|words| words.trim_end().to_owned()).collect::<Vec<_>>().join(" ")
}

impl Grant {
    fn option(&self) -> &'static str {
        match self {
            Self::Read(_) => "--read",
            Self::Overlay(_) => "--overlay",
            Self::Pass(_) => "-e",
            Self::Net(_) => "--net",
            Self::Nested => "--nested",
            Self::Raise(option, _) => option,
        }
    }

    fn value(&self) -> String {
        match self {
            Self::Read(path) | Self::Overlay(path) => quoted(path.as_os_str()),
            Self::Pass(name) => quoted(name),
            Self::Net(net) => (*net).to_owned(),
            Self::Nested => String::new(),
            Self::Raise(_, value) => value.clone(),
        }
    }
}

impl Denied {
    /// Returns the kind of denial, the name of its subject and the subject, as in JSON.
    #[must_use]
    pub fn subject(&self) -> (&'static str, Option<(&'static str, String)>) {
        let path = |path: &Path| Some(("path", path.to_string_lossy().into_owned()));
        match &self.what {
            Denial::Hidden(hidden) => ("hidden", path(hidden)),
            Denial::Written(written, _) => ("write", path(written)),
            Denial::Address(address) => ("network", Some(("address", address.to_string()))),
            Denial::Names => ("names", None),
            Denial::Call(name) => ("call", Some(("call", (*name).to_owned()))),
            Denial::Root => ("root", None),
            Denial::Limit(reached) => ("limit", Some(("limit", reached.to_string()))),
            Denial::Disk => ("disk", None),
            Denial::Files => ("files", None),
            Denial::Processes => ("processes", None),
            Denial::Variable(name) => ("variable", Some(("variable", name.to_string_lossy().into_owned()))),
        }
    }

    /// Returns the options that allow it, as they are typed; `None` if no option does.
    #[must_use]
    pub fn option(&self) -> Option<String> {
        (!self.grants.is_empty()).then(|| options(&self.grants))
    }
}

/// Quotes a word for a shell, if it needs that. Control characters, and bytes that are not UTF-8, become escape
/// sequences of `$'...'`, which not every shell reads.
#[must_use]
pub fn quoted(word: &OsStr) -> String {
    let is_plain = |char: char| char.is_alphanumeric() || "/._-+=:@%,~".contains(char);
    match word.to_str() {
        Some(word) if !word.is_empty() && word.chars().all(is_plain) && !word.starts_with('~') => {
            word.to_owned()
        }
        Some(word) if !word.contains(char::is_control) => format!("'{}'", word.replace('\'', "'\\''")),
        _ => escaped(word),
    }
}

fn escaped(word: &OsStr) -> String {
    let mut quoted = String::from("$'");
    for chunk in word.as_bytes().utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\'' | '\\' => quoted.extend(['\\', char]),
                _ if char.is_control() => {
                    char.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| hex(byte, &mut quoted))
                }
                _ => quoted.push(char),
            }
        }
        chunk.invalid().iter().for_each(|byte| hex(*byte, &mut quoted));
    }
    quoted.push('\'');
    quoted
}

fn hex(byte: u8, text: &mut String) {
    husk_script::sys::tolerate(write!(text, "\\x{byte:02x}"), "writing to a string does not fail");
}

#[cfg(test)]
mod tests {
    use super::{Explanation, lines, quoted};
    use crate::explain::judge::{Denial, Denied, Grant};
    use crate::sandbox::ended::Reached;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    fn denied(what: Denial, grants: Vec<Grant>) -> Denied {
        Denied { what, grants }
    }

    #[test]
    fn each_denial_is_one_line_with_its_option() {
        let explanation = |denied| Explanation { denied: vec![denied], ..Explanation::default() };
        for (what, grant, line) in [
            (
                Denial::Hidden("/home/ann/x".into()),
                Some(Grant::Read("/home/ann/x".into())),
                "/home/ann/x is hidden; show it with '--read /home/ann/x'",
            ),
            (Denial::Hidden("/srv/x".into()), None, "/srv/x is hidden by '--hide'"),
            (
                Denial::Written("/srv/out/a".into(), 2),
                Some(Grant::Overlay("/srv/out".into())),
                "cannot write to /srv/out/a and 2 other paths; allow it with '--overlay /srv/out', or keep the \
                 changes with '--write /srv/out'",
            ),
            (
                Denial::Address("192.0.2.1:80".parse().unwrap()),
                Some(Grant::Net("host")),
                "cannot reach 192.0.2.1:80; allow it with '--net host'",
            ),
            (
                Denial::Names,
                Some(Grant::Net("host")),
                "cannot look up names of machines; allow it with '--net host'",
            ),
            (
                Denial::Call("mount"),
                Some(Grant::Nested),
                "the system call mount is refused; allow it with '--nested'",
            ),
            (
                Denial::Root,
                Some(Grant::Nested),
                "root cannot be root of another user namespace; allow it with '--nested'",
            ),
            (Denial::Call("bpf"), None, "the system call bpf is refused; no option allows it"),
            (
                Denial::Limit(Reached::Memory(1024)),
                Some(Grant::Raise("--memory", "2k".to_owned())),
                "memory limit of 1024 bytes reached; raise it with '--memory 2k'",
            ),
            (
                Denial::Disk,
                Some(Grant::Raise("--disk", "4g".to_owned())),
                "the private directories are full; raise the limit with '--disk 4g'",
            ),
            (
                Denial::Files,
                Some(Grant::Raise("--files", "20".to_owned())),
                "too many open files; raise the limit with '--files 20'",
            ),
            (
                Denial::Processes,
                Some(Grant::Raise("--pids", "20".to_owned())),
                "too many processes and threads; raise the limit with '--pids 20'",
            ),
            (
                Denial::Variable("EDITOR".into()),
                Some(Grant::Pass("EDITOR".into())),
                "the output mentions EDITOR, which is not passed on; pass it with '-e EDITOR'",
            ),
        ] {
            assert_eq!(lines(&explanation(denied(what, grant.into_iter().collect()))), [line]);
        }
    }

    #[test]
    fn at_most_five_lines_are_shown() {
        let one = || denied(Denial::Call("bpf"), Vec::new());
        let with = |count, passes_with| Explanation {
            denied: (0..count).map(|_| one()).collect(),
            passes_with,
            ..Explanation::default()
        };
        assert_eq!(lines(&with(5, None)).len(), 5);
        assert_eq!(lines(&with(7, None)).last().unwrap(), "3 more denials");
        let grants = vec![Grant::Read("/home/ann/x".into()), Grant::Pass("EDITOR".into())];
        let lines = lines(&with(5, Some(grants)));
        assert_eq!(lines.first().unwrap(), "passes with: husk test --read /home/ann/x -e EDITOR");
        assert_eq!((lines.len(), lines.last().unwrap().as_str()), (5, "2 more denials"));
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        let is = |word: &[u8], wanted| assert_eq!(quoted(OsStr::from_bytes(word)), wanted);
        is(b"/a/b-c", "/a/b-c");
        is(b"a b", "'a b'");
        is(b"~", "'~'");
        is(b"$(x)", "'$(x)'");
        is(b"it's", "'it'\\''s'");
        is(b"$HOME", "'$HOME'");
        is(b"~x", "'~x'");
        is(b"\x1b[2J\\\xff", "$'\\x1b[2J\\\\\\xff'");
        is("\u{9b}ö".as_bytes(), "$'\\xc2\\x9bö'");
    }
}
