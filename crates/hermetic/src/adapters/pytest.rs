//! pytest: its tests are listed, and their results read, by a [plugin](husk_pytest.py) in the sandbox.
//!
//! Every unit runs the caller's command with all of its arguments. The plugin narrows the collection to a file, and
//! there to a test, so no argument needs to be understood here.

use super::{Adapter, Each, OWN, Outcome, Output, Part, Reading, Role, Unit, lossy, printable, with_status};
use crate::profile::{OwnFile, Profile, Variable};
use crate::sandbox::ended::Ended;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

const PLUGIN: &str = include_str!("husk_pytest.py");

/// The variable that tells the plugin what to do.
const MODE: &str = "HUSK_PYTEST";

/// The names of pytest's program.
const PROGRAMS: [&str; 2] = ["pytest", "py.test"];

/// A command that runs pytest.
pub(crate) struct Pytest {
    pub(crate) args: Vec<OsString>,
    pub(crate) each: Each,
    /// Begins each message of the plugin.
    pub(crate) token: String,
    /// The caller's values of variables that the plugin needs.
    pub(crate) path: OsString,
    pub(crate) plugins: OsString,
}

/// Returns whether a command runs pytest, also by `python -m pytest` or `uv run pytest`.
pub(crate) fn is_pytest(args: &[OsString]) -> bool {
    args.iter().any(|word| {
        Path::new(word).file_name().is_some_and(|name| PROGRAMS.iter().any(|known| name == *known))
    })
}

impl Pytest {
    fn unit(&self, name: String, role: Role, mode: &[&[u8]]) -> Unit {
        let words: Vec<_> = mode.iter().skip(1).map(|word| hex(word)).collect();
        let mode = [lossy(mode.first().unwrap_or(&&b""[..])), self.token.clone()].into_iter().chain(words);
        let mode = mode.collect::<Vec<_>>().join(":");
        let with = |value: &str, separator: &str, old: &OsStr| {
            let mut value = OsString::from(value);
            if !old.is_empty() {
                value.push(separator);
                value.push(old);
            }
            value
        };
        let set = |name: &str, value: OsString| Variable::Set(name.into(), value);
        Unit {
            name,
            role,
            args: self.args.clone(),
            env: vec![
                set(MODE, mode.into()),
                set("HUSK_PYTHONPATH", self.path.clone()),
                set("HUSK_PYTEST_PLUGINS", self.plugins.clone()),
                set("PYTHONPATH", with(OWN, ":", &self.path)),
                set("PYTEST_PLUGINS", with("husk_pytest", ",", &self.plugins)),
            ],
            files: vec![OwnFile { name: "husk_pytest.py".to_owned(), text: PLUGIN.to_owned() }],
            ..Unit::default()
        }
    }

    /// Reads the messages of a pytest that has only collected.
    fn listed(&self, unit: &Unit, ended: &Ended, output: &Output) -> Reading {
        let mut reading = Reading::default();
        let (mut items, mut is_stopped, mut is_listed) = (Vec::new(), false, false);
        let Messages { messages, others, .. } = messages(&output.out, &self.token);
        for Message { kind, fields, .. } in messages {
            match (kind.as_str(), fields.as_slice()) {
                ("error", [name, text]) => {
                    reading.parts.push(Part::new(shown(name), Outcome::Failed, lossy(text)));
                }
                ("skip", [name, why]) => {
                    let outcome = Outcome::Skipped(Some(printable(&lossy(why))));
                    reading.parts.push(Part::new(shown(name), outcome, String::new()));
                }
                ("item", [path, name]) => items.push((path.clone(), name.clone())),
                ("stop", []) => is_stopped = true,
                ("listed", []) => is_listed = true,
                _ => {}
            }
        }
        let is_failed = reading.parts.iter().any(|part| part.outcome == Outcome::Failed);
        // With errors pytest exits with 1, and otherwise with 0.
        if !is_failed && (!ended.status.success() || !is_listed) {
            let mut said = lossy(&others);
            if ended.status.success() {
                said += "husk: pytest has not loaded the plugin 'husk_pytest', which lists its tests\n";
            }
            reading.parts.push(Part::new(unit.name.clone(), Outcome::Failed, said));
        } else if is_stopped {
            reading.not_run = items.len();
        } else {
            reading.found = self.units(&items);
        }
        reading
    }

    fn units(&self, items: &[(Vec<u8>, Vec<u8>)]) -> Vec<Unit> {
        if self.each == Each::Test {
            let unit = |(path, name): &(Vec<u8>, Vec<u8>)| Unit {
                tests: vec![shown(name)],
                ..self.unit(shown(name), Role::Test, &[b"run", path, name])
            };
            return items.iter().map(unit).collect();
        }
        let mut units: Vec<Unit> = Vec::new();
        let mut places = BTreeMap::new();
        for (path, name) in items {
            let file = name.split(|byte| *byte == b':').next().unwrap_or_default();
            let place = *places.entry(path).or_insert(units.len());
            if place == units.len() {
                units.push(self.unit(shown(file), Role::Test, &[b"run", path]));
            }
            if let Some(unit) = units.get_mut(place) {
                unit.tests.push(shown(name));
            }
        }
        units
    }

    /// Reads the messages of a pytest that has run tests.
    fn ran(&self, unit: &Unit, ended: &Ended, output: &Output) -> Reading {
        let mut tests: Vec<Running> = Vec::new();
        let mut places = BTreeMap::new();
        let Messages { messages, tail, .. } = messages(&output.out, &self.token);
        for Message { kind, fields, before } in messages {
            let Some(name) = fields.first().map(|name| shown(name)) else { continue };
            let place = *places.entry(name.clone()).or_insert(tests.len());
            if place == tests.len() {
                tests.push(Running::new(name));
            }
            let Some(test) = tests.get_mut(place) else { continue };
            match (kind.as_str(), fields.as_slice()) {
                ("start", [_, capture]) => test.is_captured = capture != b"no",
                ("setup" | "call" | "teardown", [_, outcome, why, text, seconds]) => {
                    if !test.is_captured {
                        test.part.said += &lossy(before);
                    }
                    test.add(&lossy(outcome), &lossy(why), &lossy(text));
                    let wall = lossy(seconds).parse().ok();
                    let wall = wall.and_then(|wall| Duration::try_from_secs_f64(wall).ok());
                    test.part.wall = Some(test.part.wall.unwrap_or_default() + wall.unwrap_or_default());
                    test.is_over |= kind == "teardown";
                }
                _ => {}
            }
        }
        let parts = tests.into_iter().map(|test| match test.is_over {
            true => test.part,
            // The process ended during the test. The text after its last message may say why.
            false => test.part.unfinished(ended, &lossy(tail)),
        });
        let parts = with_status(parts.collect(), unit, ended, output);
        let is_begun = |name: &&String| parts.iter().any(|part| part.name == **name);
        let not_run = unit.tests.len() - unit.tests.iter().filter(is_begun).count();
        Reading { parts, not_run, ..Reading::default() }
    }
}

impl Adapter for Pytest {
    fn format(&self) -> &'static str {
        "pytest"
    }

    fn token(&self) -> Option<&str> {
        Some(&self.token)
    }

    fn begin(&self) -> Vec<Unit> {
        let name = self.args.first().map(|program| Path::new(program).file_name().unwrap_or_default());
        let name = printable(&name.unwrap_or_default().to_string_lossy());
        vec![self.unit(name, Role::List, &[b"list"])]
    }

    fn show_to_people(&self, profile: &mut Profile) {
        for variable in &mut profile.env {
            if let Variable::Set(name, value) = variable
                && name == MODE
            {
                *value = value.to_string_lossy().replace(&self.token, "").into();
            }
        }
    }

    fn read(&self, unit: &Unit, ended: &Ended, output: &Output) -> Reading {
        match unit.role {
            Role::List => self.listed(unit, ended, output),
            Role::Test => self.ran(unit, ended, output),
        }
    }
}

/// A test whose messages are being read.
struct Running {
    part: Part,
    /// Whether pytest captures its output. Otherwise that comes before the messages.
    is_captured: bool,
    is_over: bool,
}

impl Running {
    fn new(name: String) -> Self {
        let part = Part::new(name, Outcome::Passed, String::new());
        Self { part, is_captured: true, is_over: false }
    }

    fn add(&mut self, outcome: &str, why: &str, text: &str) {
        self.part.said += text;
        match outcome {
            "failed" => self.part.outcome = Outcome::Failed,
            "skipped" if self.part.outcome == Outcome::Passed => {
                self.part.outcome = Outcome::Skipped(Some(printable(why)).filter(|why| !why.is_empty()));
            }
            _ => {}
        }
    }
}

/// A message of the plugin.
struct Message<'o> {
    kind: String,
    fields: Vec<Vec<u8>>,
    /// The output before it.
    before: &'o [u8],
}

/// An output, separated.
struct Messages<'o> {
    messages: Vec<Message<'o>>,
    /// Everything that is not a message.
    others: Vec<u8>,
    /// The part after the last message.
    tail: &'o [u8],
}

/// Separates messages from the rest of an output.
fn messages<'o>(output: &'o [u8], token: &str) -> Messages<'o> {
    let begin = format!("\n\x1e{token} ");
    let (mut messages, mut others, mut rest) = (Vec::new(), Vec::new(), output);
    while let Some(place) = find(rest, begin.as_bytes()) {
        let (before, after) = rest.split_at(place);
        let after = after.get(begin.len()..).unwrap_or_default();
        let end = after.iter().position(|byte| *byte == b'\n').unwrap_or(after.len());
        let (line, after) = after.split_at(end);
        let mut words = line.split(|byte| *byte == b' ');
        let kind = lossy(words.next().unwrap_or_default());
        let fields: Option<_> = words.map(unhex).collect();
        others.extend_from_slice(before);
        rest = after.get(1..).unwrap_or_default();
        if let Some(fields) = fields {
            messages.push(Message { kind, fields, before });
        }
    }
    others.extend_from_slice(rest);
    Messages { messages, others, tail: rest }
}

fn find(output: &[u8], wanted: &[u8]) -> Option<usize> {
    output.windows(wanted.len()).position(|window| window == wanted)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let bytes = text.chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    });
    bytes.collect()
}

/// Returns a test's name as it is shown.
fn shown(name: &[u8]) -> String {
    printable(&lossy(name))
}

#[cfg(test)]
mod tests {
    use super::{Each, Outcome, Pytest, Role, Unit, hex, messages, unhex};
    use crate::adapters::{Adapter as _, Output, Reading};
    use crate::sandbox::ended::exited;

    fn adapter(each: Each) -> Pytest {
        let args = vec!["pytest".into()];
        Pytest { args, each, token: "0123".to_owned(), path: "lib".into(), plugins: "other".into() }
    }

    fn line(token: &str, kind: &str, fields: &[&[u8]]) -> Vec<u8> {
        let fields: String = fields.iter().map(|field| format!(" {}", hex(field))).collect();
        format!("\n\x1e{token} {kind}{fields}\n").into_bytes()
    }

    fn read(adapter: &Pytest, unit: &Unit, code: i32, lines: &[Vec<u8>]) -> Reading {
        adapter.read(unit, &exited(code), &Output { out: lines.concat(), errors: Vec::new() })
    }

    #[test]
    fn messages_are_found_among_hostile_output() {
        assert_eq!(unhex(hex(b"\0\xff\n").as_bytes()).unwrap(), b"\0\xff\n");
        assert_eq!((unhex(b"0"), unhex(b"0g")), (None, None));
        let output = [
            b"a\n\x1e9999 item 00 00\n\xff\0".to_vec(),
            line("0123", "item", &[b"\n", b""]),
            b"\n\x1e0123 item zz\n".to_vec(),
            vec![b'x'; 1 << 20],
            b"\n\x1e0123 cut of".to_vec(),
        ];
        let output = output.concat();
        let found = messages(&output, "0123");
        let kinds: Vec<_> =
            found.messages.iter().map(|message| (message.kind.as_str(), message.fields.len())).collect();
        assert_eq!(kinds, [("item", 2)]);
        assert_eq!(found.messages[0].fields, [b"\n".to_vec(), Vec::new()]);
        assert!(found.others.starts_with(b"a\n\x1e9999 item 00 00\n\xff\0xxx"));
    }

    #[test]
    fn collected_tests_become_units() {
        let items = [
            line("0123", "item", &[b"/p/a.py", b"a.py::x[b c]"]),
            line("0123", "item", &[b"/p/\xff.py", b"\xff.py::y"]),
            line("0123", "item", &[b"/p/a.py", b"a.py::z\x07"]),
            line("0123", "listed", &[]),
        ];
        let units = |each| {
            let adapter = adapter(each);
            let list = adapter.begin().pop().unwrap();
            assert_eq!((list.role, list.name.as_str()), (Role::List, "pytest"));
            read(&adapter, &list, 0, &items).found
        };
        let names = |units: &[Unit]| units.iter().map(|unit| unit.name.clone()).collect::<Vec<_>>();
        let (tests, files) = (units(Each::Test), units(Each::File));
        assert_eq!(names(&tests), ["a.py::x[b c]", "\u{fffd}.py::y", "a.py::z\u{fffd}"]);
        assert_eq!(names(&files), ["a.py", "\u{fffd}.py"]);
        assert_eq!(files[0].tests, ["a.py::x[b c]", "a.py::z\u{fffd}"]);
        let chosen = format!("run:0123:{}:{}", hex(b"/p/\xff.py"), hex(b"\xff.py::y"));
        let set = |name: &str, value: &str| crate::Variable::Set(name.into(), value.into());
        assert_eq!(tests[1].env[0], set("HUSK_PYTEST", &chosen));
        assert!(tests[1].env.contains(&set("PYTHONPATH", "/run/husk:lib")));
        assert!(tests[1].env.contains(&set("PYTEST_PLUGINS", "husk_pytest,other")));
    }

    #[test]
    fn list_without_the_plugin_or_with_errors_is_a_failure() {
        let adapter = adapter(Each::File);
        let list = adapter.begin().pop().unwrap();
        let item = line("0123", "item", &[b"/a.py", b"a.py::x"]);
        let silent = read(&adapter, &list, 0, &[b"1 passed".to_vec()]);
        assert!(silent.parts[0].said.contains("has not loaded the plugin"), "{silent:?}");
        let stopped =
            [line("0123", "error", &[b"b.py", b"no module"]), line("0123", "stop", &[]), item.clone()];
        let stopped = read(&adapter, &list, 1, &stopped);
        assert_eq!((stopped.parts[0].name.as_str(), stopped.not_run, stopped.found.len()), ("b.py", 1, 0));
        let empty = read(&adapter, &list, 5, &[line("0123", "listed", &[])]);
        assert_eq!((empty.parts[0].name.as_str(), &empty.parts[0].outcome), ("pytest", &Outcome::Failed));
    }

    #[test]
    fn phases_of_a_test_make_one_result() {
        let adapter = adapter(Each::File);
        let tests = ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
        let unit = Unit { name: "a.py".to_owned(), tests, ..Unit::default() };
        let start = |name: &str| line("0123", "start", &[name.as_bytes(), b"fd"]);
        let phase = |name: &str, kind: &str, outcome: &str, why: &str, text: &str| {
            let fields = [name, outcome, why, text, "0.25"].map(str::as_bytes);
            line("0123", kind, &fields)
        };
        let lines = [
            [start("a"), phase("a", "setup", "passed", "", ""), phase("a", "call", "passed", "", "")]
                .concat(),
            [
                phase("a", "teardown", "failed", "", "no"),
                start("b"),
                phase("b", "setup", "skipped", "why", ""),
            ]
            .concat(),
            [phase("b", "teardown", "passed", "", ""), start("c"), phase("c", "call", "passed", "", "")]
                .concat(),
            [phase("c", "teardown", "passed", "", ""), start("d"), b"fatal".to_vec()].concat(),
        ];
        let reading = read(&adapter, &unit, 1, &lines);
        let found: Vec<_> =
            reading.parts.iter().map(|part| (part.name.as_str(), part.outcome.clone())).collect();
        let skipped = Outcome::Skipped(Some("why".to_owned()));
        let expected =
            [("a", Outcome::Failed), ("b", skipped), ("c", Outcome::Passed), ("d", Outcome::Status)];
        assert_eq!(found, expected);
        assert_eq!((reading.not_run, reading.parts[0].said.as_str()), (1, "no"));
        assert_eq!(reading.parts[0].wall.unwrap().as_millis(), 750);
        assert_eq!(reading.parts[3].said, "fatal");
        // It has ended without a word.
        assert_eq!(read(&adapter, &unit, 0, &lines).parts[3].outcome, Outcome::Failed);
    }
}
