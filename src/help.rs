//! Help and version texts. Help combines clap's options with what each verb says about itself.

use crate::options;
use crate::output::name;
use crate::verb::{GROUPS, Verb, usage};
use std::fmt::Write as _;

/// Returns `husk --help`, listing these verbs.
pub(crate) fn program(verbs: &[Verb]) -> String {
    let width = verbs.iter().map(|verb| verb.name.len()).max().unwrap_or(0);
    let mut text = BEGINNING.to_owned();
    for &group in GROUPS {
        add(&mut text, format_args!("\n{}:\n", group.heading()));
        for verb in verbs.iter().filter(|verb| verb.group == group) {
            add(&mut text, format_args!("  {:width$}  {}\n", verb.name, about(verb)));
        }
    }
    let options = options::program().help_template("{options}").render_help().to_string();
    add(&mut text, format_args!("\nGLOBAL OPTIONS, BEFORE OR AFTER THE VERB:\n{}\n", options.trim_end()));
    text.push_str(EXAMPLES);
    name::fill(&text)
}

const BEGINNING: &str = "\
NAME:
  {husk} - Open Container Initiative runtime: small, static, fast

USAGE:
  {husk} [OPTIONS] VERB [ARGUMENTS]
";

const EXAMPLES: &str = "
EXAMPLES:
  {husk} spec                      write a starter config.json
  {husk} plan                      print the steps to run it
  {husk} run --bundle web web-1    run a bundle in the foreground
  {husk} help create               print the help of a verb
";

/// Returns `husk VERB --help`.
pub(crate) fn verb(verb: &Verb) -> String {
    // The program's options are described in `husk --help`.
    let command = (verb.define)(options::program().mut_args(|option| option.hide(true)));
    let mut command = command
        .override_usage(usage(verb))
        .help_template("{about}\n\nUSAGE:\n  {usage}\n\n{all-args}")
        .after_help("");
    let rendered = command.render_help().to_string();
    let mut text = format!("NAME:\n  {{husk}} {} - {}\n", verb.name, rendered.trim_end());
    for heading in ["Arguments:", "Options:"] {
        text = text.replace(&format!("\n{heading}\n"), &format!("\n{}\n", heading.to_uppercase()));
    }
    if !verb.more.is_empty() {
        add(&mut text, format_args!("\n{}\n", verb.more.trim()));
    }
    text.push_str("\nSee '{husk} --help' for global options.\n");
    name::fill(&text)
}

/// Returns a verb's one-line description.
pub(crate) fn about(verb: &Verb) -> String {
    (verb.define)(options::program()).get_about().map(ToString::to_string).unwrap_or_default()
}

/// Appends to a `String`, which cannot fail.
fn add(text: &mut String, more: std::fmt::Arguments<'_>) {
    let written = text.write_fmt(more);
    debug_assert!(written.is_ok());
}

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that this was built from, if the build sets it.
pub(crate) const COMMIT: Option<&str> = option_env!("HUSK_COMMIT");

/// Returns the text of `--version`, in runc's format.
///
/// dockerd splits at the word `version` and looks for `commit:`; podman prints the text as it is. go-runc
/// accepts a version only after the words `runc version`, and continues without one, as it does for crun. If
/// husk is called by another name, the text begins with that name, and the version still names husk.
pub(crate) fn version() -> String {
    let commit = COMMIT.map(|commit| format!("commit: {commit}\n")).unwrap_or_default();
    let what = if *name::NAME == "husk" { "" } else { "+husk" };
    format!("{} version {VERSION}{what}\n{commit}spec: {}\n", *name::NAME, husk_runtime::OCI_VERSION)
}

#[cfg(test)]
mod tests {
    use crate::commands::VERBS;
    use crate::options;

    #[test]
    fn option_texts_are_fragments_of_at_most_80_characters() {
        for verb in VERBS {
            let command = (verb.define)(options::program());
            let texts = command.get_arguments().filter_map(|option| option.get_help());
            for text in texts.chain(command.get_about()).map(ToString::to_string) {
                assert!(text.chars().count() <= 80, "{}: {text}", verb.name);
                assert!(text.starts_with(|first: char| !first.is_lowercase()), "{}: {text}", verb.name);
                assert!(!text.ends_with('.'), "{}: {text}", verb.name);
            }
        }
    }
}
