//! Colours and a pager, for those who read standard output on a terminal.

use super::{StdoutReader, print};
use anyhow::Result;
use husk_runtime::tolerate;
use husk_spawn::{Command, Stdio, find_program};
use rustix::stdio::stdout;
use rustix::termios::{isatty, tcgetwinsize};
use std::env;
use std::io::{Write as _, stdin};

/// A colour of a terminal, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    Red = 31,
    Green = 32,
    Yellow = 33,
    Cyan = 36,
    Grey = 90,
}

/// Paints text, or leaves it as it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Painter {
    is_coloured: bool,
}

impl Painter {
    /// Paints if standard output is a terminal that shows colours, and the user has not refused them (no-color.org).
    pub(crate) fn of_standard_output() -> Self {
        let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_plain = env::var_os("TERM").is_none_or(|terminal| terminal == "dumb");
        Self { is_coloured: isatty(stdout()) && !refused && !is_plain }
    }

    /// Paints escaped text.
    pub(crate) fn paint(self, text: &str, colour: Colour) -> String {
        if self.is_coloured { format!("\x1b[{}m{text}\x1b[0m", colour as u8) } else { text.to_owned() }
    }
}

/// Writes text to standard output, through a pager if it does not fit on the terminal. The pager is `$PAGER`, or less.
pub(crate) fn page(text: &str) -> Result<StdoutReader> {
    let is_shown = pager(text).is_some_and(|pager| shown(pager, text));
    if is_shown { Ok(StdoutReader::There) } else { print(text) }
}

/// Returns the pager, if the text needs one.
fn pager(text: &str) -> Option<Command> {
    let rows = tcgetwinsize(stdout()).ok().filter(|_| isatty(stdin()))?.ws_row;
    if rows == 0 || text.lines().count() < rows.into() {
        return None;
    }
    if let Some(line) = env::var_os("PAGER") {
        let names_one = !line.is_empty() && line != "cat";
        return names_one.then(|| {
            let mut shell = Command::new("/bin/sh");
            shell.arg("-c").arg(line);
            shell
        });
    }
    let mut less = Command::new(find_program("less")?);
    // Keeps colours, ends if the text fits after all, and does not clear the screen.
    less.arg("-FRX");
    Some(less)
}

/// Shows text in the pager. Returns false if the pager cannot be started.
fn shown(mut pager: Command, text: &str) -> bool {
    let Ok(mut child) = pager.stdin(Stdio::piped()).spawn() else { return false };
    if let Some(mut input) = child.stdin.take() {
        tolerate(input.write_all(text.as_bytes()), "the reader may leave before the end");
    }
    tolerate(child.wait().map(drop), "the pager has shown the text");
    true
}
