//! Separates a test's output from libtest's, in a process that runs only this test.
//!
//! ```text
//!  (blank line)
//!  running 1 test
//!  test NAME - should panic ... OWN OUTPUT, WHAT ITS CHILDREN WRITE FAILED
//!  (blank line)
//!  failures:
//!  (blank line)
//!  ---- NAME stdout ----
//!  WHAT LIBTEST HAS CAPTURED
//!  ...
//! ```

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TestOutput {
    /// libtest's note on the kind of test, such as "should panic".
    pub(crate) mode: Option<String>,
    /// The whole output of the test. If the test did not finish, all that its process wrote.
    pub(crate) text: String,
    /// The part of `text` that libtest captured and wrote after the test had ended.
    pub(crate) captured: String,
    /// The offset in the process's output at which the test's own output ends.
    pub(crate) end: usize,
}

const HEAD: &[u8] = b"\nrunning 1 test\n";
/// The texts that can follow the test's own output.
const MARKS: [&[u8]; 4] =
    [b"ok\n\nsuccesses:\n", b"ok\n\ntest result: ", b"FAILED\n\nfailures:\n", b"FAILED\n\nsuccesses:\n"];

/// Separates the output of a process that has ended.
pub(crate) fn said(name: &str, output: &[u8]) -> TestOutput {
    let Some((before, begin)) = own_begin(name, output) else {
        return TestOutput { text: lossy(output), end: output.len(), ..TestOutput::default() };
    };
    let (line, rest) = output.split_at(begin);
    let line = line.get(before + HEAD.len()..).unwrap_or_default();
    let mode = lossy(line)
        .strip_prefix(&format!("test {name} - "))
        .and_then(|rest| rest.strip_suffix(" ... "))
        .map(str::to_owned);
    let end = MARKS.iter().filter_map(|mark| find(rest, mark)).min();
    let (own, after) = rest.split_at(end.unwrap_or(rest.len()));
    let captured = captured(name, &lossy(after)).to_owned();
    let text = [&lossy(output.get(..before).unwrap_or_default()), &lossy(own), captured.as_str()].concat();
    TestOutput { mode, text, captured, end: begin + own.len() }
}

/// Returns the offset at which a test's own output begins, if the process has written that far.
pub(crate) fn begin(name: &str, output: &[u8]) -> Option<usize> {
    own_begin(name, output).map(|(_, begin)| begin)
}

/// Returns how many bytes of `rest` certainly belong to the test's own output. `rest` begins in or after it.
pub(crate) fn known(rest: &[u8]) -> usize {
    // A prefix of a mark is held back until it is known not to be one.
    let is_mark = |place: &usize| {
        let rest = rest.get(*place..).unwrap_or_default();
        MARKS.iter().any(|mark| rest.starts_with(mark) || mark.starts_with(rest))
    };
    let places = rest.iter().enumerate().filter(|(_, byte)| matches!(byte, b'o' | b'F'));
    places.map(|(place, _)| place).find(is_mark).unwrap_or(rest.len())
}

/// Returns the offsets at which libtest's output and the test's own output begin.
fn own_begin(name: &str, output: &[u8]) -> Option<(usize, usize)> {
    let before = find(output, &[HEAD, b"test ", name.as_bytes(), b" "].concat())?;
    let line = before + HEAD.len();
    let dots = find(output.get(line..)?, b" ... ")?;
    Some((before, line + dots + b" ... ".len()))
}

/// Returns the text below a test's name in the lists of failures and successes.
fn captured<'o>(name: &str, after: &'o str) -> &'o str {
    let within = after.split_once(&format!("\n---- {name} stdout ----\n")).map(|(_, rest)| rest);
    let ends = ["failures", "successes"].map(|list| format!("\n\n{list}:\n    {name}\n"));
    let end = |rest: &str| ends.iter().find_map(|end| rest.rfind(end.as_str()));
    within.and_then(|rest| rest.get(..end(rest)?)).unwrap_or_default()
}

fn find(output: &[u8], wanted: &[u8]) -> Option<usize> {
    output.windows(wanted.len()).position(|window| window == wanted)
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{begin, known, said};

    #[test]
    fn output_of_a_test_is_separated_from_libtests() {
        let failed = b"\nrunning 1 test\ntest a - should panic ... raw\nFAILED\n\nfailures:\n\n---- a stdout ----\nhello\n\n\nfailures:\n    a\n\ntest result: FAILED. 0\n\n";
        let failed = said("a", failed);
        assert_eq!((failed.text.as_str(), failed.captured.as_str()), ("raw\nhello\n", "hello\n"));
        assert_eq!(failed.mode.as_deref(), Some("should panic"));
        let silent = b"\nrunning 1 test\ntest a ... FAILED\n\nfailures:\n\nfailures:\n    a\n\ntest result: FAILED. 0\n\n";
        assert_eq!(said("a", silent).text, "");
        let passed = b"\nrunning 1 test\ntest a ... ok\n\nsuccesses:\n\n---- a stdout ----\nhello\n\n\nsuccesses:\n    a\n\ntest result: ok. 1\n\n";
        assert_eq!(said("a", passed).text, "hello\n");
        assert_eq!(said("a", b"\nrunning 1 test\ntest a ... killed").text, "killed");
        assert_eq!(said("a", b"no test of libtest's").text, "no test of libtest's");
    }

    #[test]
    fn output_of_a_running_test_is_known() {
        assert_eq!(begin("a", b"\nrunning 1 test\ntest a"), None);
        let output = b"\nrunning 1 test\ntest a ... hello";
        assert_eq!(begin("a", output), Some(output.len() - 5));
        let known = |rest: &str| rest[..known(rest.as_bytes())].to_owned();
        assert_eq!(known("hello, oh"), "hello, oh");
        assert_eq!(known("hello ok"), "hello ");
        assert_eq!(known("hello ok\n\ntest"), "hello ");
        assert_eq!(known("hello ok\n\nor"), "hello ok\n\nor");
    }
}
