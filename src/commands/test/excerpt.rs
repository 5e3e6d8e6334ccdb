//! A line of a file with a mark below the part that is wrong.

use std::fmt::{self, Display, Formatter};
use std::ops::Range;

/// A part of a text, displayed as its line with carets below it. The lines are indented as the log requires.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Excerpt<'t> {
    /// The number of the line, from 1.
    pub(super) line: usize,
    /// The number of the first wrong character in the line, from 1.
    pub(super) column: usize,
    source: &'t str,
    width: usize,
}

impl<'t> Excerpt<'t> {
    /// Returns the first line of the part of `text` at these bytes.
    pub(super) fn new(text: &'t str, place: Range<usize>) -> Self {
        let (before, rest) = text.split_at_checked(place.start).unwrap_or((text, ""));
        let begin = before.rfind('\n').map_or(0, |newline| newline + 1);
        let source = text.get(begin..).unwrap_or_default().lines().next().unwrap_or_default();
        let part = rest.get(..place.len()).unwrap_or(rest).lines().next().unwrap_or_default();
        Self {
            line: before.matches('\n').count() + 1,
            column: before.get(begin..).unwrap_or_default().chars().count() + 1,
            source,
            // An error at the end of a line has nothing to mark.
            width: part.chars().count().max(1),
        }
    }
}

impl Display for Excerpt<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // A tab would move the carets.
        let source: String =
            self.source.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
        let number = self.line.to_string();
        let (margin, before) = (" ".repeat(number.len()), " ".repeat(self.column - 1));
        write!(f, "    {number} | {}\n    {margin} | {before}", source.trim_end())?;
        f.write_str(&"^".repeat(self.width))
    }
}

#[cfg(test)]
mod tests {
    use super::Excerpt;

    #[test]
    fn part_is_marked_in_its_line() {
        let shown = |text: &str, place| {
            let excerpt = Excerpt::new(text, place);
            (excerpt.line, excerpt.column, excerpt.to_string())
        };
        let text = "a = 1\n\tgröße = 2\r\nb = [\n3]";
        let is = |shown: (usize, usize, String), line, column, text: &str| {
            assert_eq!((shown.0, shown.1, &*shown.2), (line, column, text));
        };
        is(shown(text, 0..1), 1, 1, "    1 | a = 1\n      | ^");
        is(shown(text, 7..14), 2, 2, "    2 |  größe = 2\n      |  ^^^^^");
        // A part of several lines is marked in the first one.
        is(shown(text, 24..28), 3, 5, "    3 | b = [\n      |     ^");
        // The end of the file, and a place that is not in the text.
        is(shown("a = ", 4..4), 1, 5, "    1 | a =\n      |     ^");
        is(shown("", 9..12), 1, 1, "    1 | \n      | ^");
        assert!(shown(&"\n".repeat(9), 9..9).2.starts_with("    10 | \n       | ^"));
    }
}
