//! `husk test --job`: a configuration for many machines. Each runs a shard, and one of them joins the reports.
//!
//! The templates beside this file say how; only numbers, the image and the command are filled in.

use super::options::Test;
use crate::exit::Exit;
use crate::output;
use anyhow::{Result, bail, ensure};
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// An engine for jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Job {
    Kubernetes,
    Github,
    Gitlab,
}

impl Job {
    fn template(self) -> &'static str {
        match self {
            Self::Kubernetes => include_str!("kubernetes.yaml"),
            Self::Github => include_str!("github.yaml"),
            Self::Gitlab => include_str!("gitlab.yaml"),
        }
    }

    /// Returns the highest number of shards that the engine permits.
    fn most(self) -> usize {
        match self {
            Self::Kubernetes => 10_000,
            Self::Github => 256,
            Self::Gitlab => 200,
        }
    }
}

/// Options that a job sets, or that choose it.
const OWN: [&str; 6] = ["job", "shards", "job-image", "shard", "json", "durations"];
/// Options whose reports the job collects.
const REPORTS: [&str; 5] = ["shard", "json", "durations", "junit", "html"];

/// Prints the configuration. `typed` are the options of the command line.
pub(super) fn print(job: Job, test: &Test, typed: &[OsString]) -> Result<Exit> {
    let named = |name: &str| typed.iter().any(|word| is_option(word, name));
    if let Some(report) = REPORTS.into_iter().find(|name| named(name)) {
        bail!("--{report}: the job sets this for each shard; leave it out");
    }
    let shards = test.tests.shards.unwrap_or(4);
    ensure!((2..=job.most()).contains(&shards), "--shards {shards}: must be from 2 to {}", job.most());
    let image = match (job, &test.tests.job_image) {
        (Job::Kubernetes, None) => bail!("--job kubernetes needs an image; name it with --job-image"),
        (Job::Github, Some(_)) => bail!("--job github runs on the machine itself; leave out --job-image"),
        (_, image) => image.as_deref(),
    };
    let image = image.map(yaml).transpose()?;
    let options: Vec<_> =
        typed.iter().filter(|word| !OWN.iter().any(|name| is_option(word, name))).cloned().collect();
    let mut command = command(&test.program, &options, test.tests.each.is_some() || test.tests.tap)?;
    match job {
        // The kubelet replaces $(NAME), and reads $$ as $.
        Job::Kubernetes => command = command.replace('$', "$$"),
        Job::Github => ensure!(!command.contains("${{"), "'${{{{' begins an expression of GitHub"),
        Job::Gitlab => {}
    }
    let list = |separator| (1..=shards).map(|part| part.to_string()).collect::<Vec<_>>().join(separator);
    let mut text = String::new();
    for line in job.template().lines() {
        let indent = line.len() - line.trim_start().len();
        let line = match line.trim_start() {
            "@COMMAND@" => {
                let indented = command.lines().map(|part| " ".repeat(indent) + part);
                indented.collect::<Vec<_>>().join("\n")
            }
            // An optional line.
            "@IMAGE@" => match &image {
                Some(image) => format!("image: {image}"),
                None => continue,
            },
            _ => line
                .replace("@SHARDS@", &shards.to_string())
                .replace("@NUMBERS@", &list(", "))
                .replace("@PARTS@", &list(" "))
                .replace("@IMAGE@", image.as_deref().unwrap_or_default()),
        };
        text.push_str(&line);
        text.push('\n');
    }
    output::print(&text)?;
    Ok(Exit::Success)
}

/// Whether a word is this option, as in `--name=value` or `--name`.
fn is_option(word: &OsStr, name: &str) -> bool {
    let rest = word.to_str().and_then(|word| word.strip_prefix("--")?.strip_prefix(name));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

/// Returns the command of a shard, for a shell.
fn command(program: &[OsString], options: &[OsString], is_divided: bool) -> Result<String> {
    let words = program.iter().chain(options);
    for word in words {
        let is_printable = word.to_str().is_some_and(|word| !word.chars().any(is_unprintable));
        ensure!(is_printable, "{}: a job cannot contain this word", husk_hermetic::quoted(word));
    }
    let quoted = |words: &mut dyn Iterator<Item = &OsString>| {
        words.map(|word| husk_hermetic::quoted(word)).collect::<Vec<_>>().join(" ")
    };
    let name = program.first().and_then(|program| Path::new(program).file_name()).unwrap_or_default();
    if name == "cargo" && !is_divided {
        ensure!(
            program.get(1).is_none_or(|verb| verb != "nextest"),
            "nextest divides tests itself: use its --partition in each job"
        );
        // Cargo splits the variable at spaces.
        if let Some(word) = options.iter().find(|word| word.to_string_lossy().contains(char::is_whitespace)) {
            bail!("{}: cargo's runner cannot contain spaces; write it in husk.toml", word.display());
        }
        let options: String = options.iter().map(|word| format!(" {}", word.display())).collect();
        let options = in_quotation_marks(&options);
        let host = "rustc -vV | sed -n 's/^host: //p' | tr a-z- A-Z_";
        return Ok(format!(
            "export \"CARGO_TARGET_$({host})_RUNNER=husk test{options} --runner\"\n{}",
            quoted(&mut program.iter())
        ));
    }
    ensure!(
        is_divided,
        "a program is one test, which cannot be divided; name a command of cargo, or pass --each or --tap"
    );
    let mut words = vec![OsString::from("husk"), "test".into()];
    words.extend(options.iter().cloned());
    Ok(format!("{} -- {}", quoted(&mut words.iter()), quoted(&mut program.iter())))
}

/// Escapes what a shell would replace in a word in quotation marks.
fn in_quotation_marks(text: &str) -> String {
    let escape = |char| if "\\\"$`".contains(char) { vec!['\\', char] } else { vec![char] };
    text.chars().flat_map(escape).collect()
}

/// Whether a character cannot be in a literal block of YAML, or would end a line of it.
fn is_unprintable(char: char) -> bool {
    char.is_control() || matches!(char, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// Returns a text as a scalar in quotation marks.
fn yaml(text: &str) -> Result<String> {
    ensure!(!text.is_empty() && !text.chars().any(is_unprintable), "--job-image: not the name of an image");
    Ok(format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
}
