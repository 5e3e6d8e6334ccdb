//! Reads arbitrary bytes as the reports of shards. `test --merge` must not crash, and what it keeps must be bounded.
//!
//! A byte of 0 ends a report, so that reports can disagree.

#![no_main]

use husk_hermetic::join::Reading;
use husk_hermetic::record::{Line, MOST_SHARDS, read_bytes};
use libfuzzer_sys::fuzz_target;

/// At most this many problems of each file, shard and suite are reported, however long the report is.
const MOST_PROBLEMS: usize = 100;
/// A problem names at most ten tests. Each name is a part of the input.
const MOST_NAMES: usize = 12;

fuzz_target!(|bytes: &[u8]| {
    let mut reading = Reading::default();
    let (mut files, mut lines, mut begins, mut tests) = (0, 0, 0, 0);
    for (file, bytes) in bytes.split(|byte| *byte == 0).enumerate() {
        files += 1;
        reading.file(format!("{file}.json"));
        read_bytes(bytes, |line| {
            lines += 1;
            match &line {
                Ok(Line::Begin(begin)) => {
                    begins += 1;
                    let (part, parts) = begin.shard;
                    assert!((1..=parts).contains(&part) && parts <= MOST_SHARDS);
                }
                Ok(Line::Test(test)) => {
                    tests += 1;
                    // A report that is written again can be read again.
                    let mut again = test.line.to_string();
                    again.push('\n');
                    read_bytes(again.as_bytes(), |line| assert!(matches!(line, Ok(Line::Test(_)))));
                }
                _ => {}
            }
            reading.line(line);
        });
        reading.end_file(None);
    }
    let joined = reading.join();
    let kept = joined.others.len()
        + joined.suites.values().flat_map(|suite| suite.shards()).map(|shard| shard.tests.len()).sum::<usize>();
    assert!(kept <= tests && joined.suites.len() <= begins);
    let places = files * (MOST_PROBLEMS + 1) + begins * 8 + tests + 8;
    assert!(joined.problems.len() <= places, "{} problems of {lines} lines", joined.problems.len());
    let longest = joined.problems.iter().map(String::len).max().unwrap_or_default();
    assert!(longest <= (bytes.len() + 100) * MOST_NAMES * 8, "a problem of {longest} bytes");
});
