//! Escapes text from other sources for a terminal.
//!
//! Arguments, paths and output of hooks may contain control characters. ESC and the C1 controls (U+0080 to
//! U+009F) can move the cursor or rename the window; after a line break, text can look like a message of
//! husk's. Text is escaped only where it leaves husk, so that nothing is escaped twice.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The indentation of continuation lines, as `husk_runtime` formats the output of hooks.
const INDENT: &str = "    ";

/// Escapes a message. Keeps line breaks that precede an indented line, because husk's own
/// messages are not indented.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    escaped(text, |char, rest| char == '\n' && rest.starts_with(INDENT))
}

/// Escapes text with lines and columns of its own.
pub(crate) fn text(text: &str) -> Cow<'_, str> {
    escaped(text, |char, _| char == '\n' || char == '\t')
}

/// Escapes one cell of a table.
pub(crate) fn cell(text: &str) -> Cow<'_, str> {
    escaped(text, |_, _| false)
}

/// Escapes JSON, where only characters below U+0020 are already escaped. The others occur only in strings, so
/// escaping them does not change the value.
pub(crate) fn json(json: String) -> String {
    match escaped(&json, |char, _| char.is_ascii() && char != '\x7f') {
        Cow::Borrowed(_) => json,
        Cow::Owned(escaped) => escaped,
    }
}

/// Escapes control characters as JSON does, except those that `stays` accepts, given the text after them.
fn escaped(text: &str, stays: impl Fn(char, &str) -> bool) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for (place, char) in text.char_indices() {
        let rest = text.get(place + char.len_utf8()..).unwrap_or_default();
        match char {
            _ if !char.is_control() || stays(char, rest) => escaped.push(char),
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            _ => {
                // Writing to a `String` cannot fail.
                let written = write!(escaped, "\\u{:04x}", u32::from(char));
                debug_assert!(written.is_ok());
            }
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::{cell, json, line, text};

    const HOSTILE: &str = "a\x1b[2J\u{9b}31m\x7f\r\tb\nhusk: done";

    #[test]
    fn line_escapes_every_control_character() {
        assert_eq!(line(HOSTILE), "a\\u001b[2J\\u009b31m\\u007f\\r\\tb\\nhusk: done");
        assert_eq!(cell(HOSTILE), line(HOSTILE));
        assert_eq!(line("größe 1 \u{1f980}"), "größe 1 \u{1f980}");
    }

    #[test]
    fn line_break_is_kept_only_before_an_indented_line() {
        assert_eq!(line("out\n    err\x1b"), "out\n    err\\u001b");
        assert_eq!(line("out\n   err"), "out\\n   err");
        assert_eq!(cell("out\n    err"), "out\\n    err");
    }

    #[test]
    fn text_keeps_its_lines_and_columns() {
        assert_eq!(text("a\tb\nc\x1b\u{85}"), "a\tb\nc\\u001b\\u0085");
    }

    #[test]
    fn json_keeps_its_meaning_without_control_characters() {
        let value = serde_json::json!({ "\u{9b}k": [HOSTILE, "\u{80}"] });
        for before in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            let after = json(before.clone());
            assert!(!after.contains(|char: char| char.is_control() && char != '\n'), "{after}");
            assert_eq!(after.lines().count(), before.lines().count());
            assert_eq!(serde_json::from_str::<serde_json::Value>(&after).unwrap(), value);
        }
    }
}
