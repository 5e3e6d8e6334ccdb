//! `husk man`: manual pages, generated from the same texts as `--help`.

use crate::commands::{VERBS, find};
use crate::exit::Exit;
use crate::help::about;
use crate::options;
use crate::output;
use crate::session::Session;
use crate::verb::{GROUPS, Perform, Verb};
use anyhow::{Context as _, Result};
use clap::Arg;

pub(crate) const MORE: &str = "
EXAMPLES:
  {husk} man run | man -l -                 read the page of a verb
  {husk} man >/usr/share/man/man1/husk.1    install the page of husk
";

/// Print a manual page
#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// Verb to describe [default: husk itself]
    verb: Option<String>,
}

impl Perform for Man {
    fn perform(self, _session: &Session<'_>) -> Result<Exit> {
        let page = match &self.verb {
            Some(name) => verb(find(name.as_ref()).with_context(|| format!("unknown command {name:?}"))?),
            None => program(),
        };
        output::print(page)?;
        Ok(Exit::Success)
    }
}

fn program() -> String {
    let mut page = head("husk", "an OCI container runtime");
    page += ".SH SYNOPSIS\n.B husk\n[OPTIONS] VERB [ARGUMENTS]\n";
    page += ".SH DESCRIPTION\nRuns containers according to the OCI runtime specification. Its command line is compatible with that of runc.\n";
    for &group in GROUPS {
        page += &format!(".SS {}\n", text(group.heading()));
        for verb in VERBS.iter().filter(|verb| verb.group == group) {
            page += &format!(".TP\n.BR husk\\-{} (1)\n{}\n", text(verb.name), text(&about(verb)));
        }
    }
    page += ".SH OPTIONS\nThese options may precede or follow the verb.\n";
    page.extend(options::program().get_arguments().map(option));
    page + EXITS
}

const EXITS: &str = r".SH EXIT STATUS
.TP
.B 0
Success.
.TP
.B 1
An error, which standard error describes. Invalid arguments are errors too.
.TP
.B 3
Unknown verb.
.TP
.B 255
.B husk exec
could not start the process.
.PP
.B husk run
and
.B husk exec
otherwise exit with the program's exit code, or with 128 plus the number of the signal that killed it.
.SH FILES
.TP
.I /run/husk
State of root's containers. The state of other users' containers is in
.IR $XDG_RUNTIME_DIR/husk .
If that variable is not set, it is in
.I /run/user/UID/husk
or, if /run/user/UID does not exist, in
.IR /tmp/husk-UID .
";

fn verb(verb: &Verb) -> String {
    let command = (verb.define)(options::program().mut_args(|option| option.hide(true)));
    let mut page = head(&format!("husk-{}", verb.name), &about(verb));
    page += &format!(".SH SYNOPSIS\n.B husk\n[OPTIONS] {} {}\n", text(verb.name), text(verb.usage));
    let options: String =
        command.get_arguments().filter(|option| !option.is_hide_set()).map(option).collect();
    if !options.is_empty() {
        page += &format!(".SH OPTIONS\n{options}");
    }
    // The pages are husk's, whatever its name is now.
    let more = verb.more.trim().replace("{husk}", "husk");
    let (more, examples) = more.split_once("EXAMPLES:\n").unwrap_or((&more, ""));
    for (heading, lines) in [("DESCRIPTION", more), ("EXAMPLES", examples)] {
        if !lines.is_empty() {
            // Turns filling off, so that columns stay aligned.
            page += &format!(".SH {heading}\n.nf\n{}\n.fi\n", text(lines.trim_end()));
        }
    }
    page + ".SH SEE ALSO\n.BR husk (1)\n"
}

fn head(name: &str, about: &str) -> String {
    let (name, version) = (text(name), env!("CARGO_PKG_VERSION"));
    let title = name.to_uppercase();
    format!(".TH \"{title}\" 1 \"\" \"husk {version}\" \"husk\"\n.SH NAME\n{name} \\- {}\n", text(about))
}

/// Formats an option or argument with its description.
fn option(option: &Arg) -> String {
    let short = option.get_short().map(|short| format!("-{short}"));
    let long = option.get_long().map(|long| format!("--{long}"));
    let names: Vec<_> = short.into_iter().chain(long).collect();
    let takes_value = option.get_action().takes_values();
    let values = option.get_value_names().unwrap_or_default().iter().map(|name| name.as_str());
    let values = values.collect::<Vec<_>>().join(" ");
    let names = match (names.is_empty(), takes_value) {
        (true, _) => values,
        // Such a value is optional.
        (false, true) if option.is_require_equals_set() => format!("{}[={values}]", names.join(", ")),
        (false, true) => format!("{} {values}", names.join(", ")),
        (false, false) => names.join(", "),
    };
    let help = option.get_help().map(ToString::to_string).unwrap_or_default();
    format!(".TP\n.B {}\n{}\n", text(&names), text(&help))
}

/// Escapes text for troff: dashes stay copyable, and no line begins with a request.
fn text(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
        if line.starts_with('.') { format!("\\&{line}") } else { line }
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::verb;
    use crate::commands::find;

    #[test]
    fn an_option_is_shown_with_its_value() {
        let page = verb(find("run".as_ref()).unwrap());
        for line in [".B \\-b, \\-\\-bundle DIRECTORY\n", ".B \\-\\-timings[=FILE.svg]\n", ".B \\-\\-keep\n"]
        {
            assert!(page.contains(line), "{line}: {page}");
        }
    }
}
