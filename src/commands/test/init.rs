//! `husk test init`: configures cargo to run each test of a project in a sandbox.

use super::directory::Directory;
use crate::exit::Exit;
use crate::options;
use crate::output::escape;
use crate::output::{self, StdoutReader};
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use clap::{Args as _, FromArgMatches as _};
use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal as _, stdin};
use std::path::{Path, PathBuf};
use std::process::Command;
use toml::de::{DeTable, DeValue};

/// Have cargo run each test of this project in a sandbox
#[derive(Debug, clap::Args)]
struct Init {
    /// Print what would be written, and write nothing
    #[arg(long)]
    print: bool,
    /// Write it without asking
    #[arg(long)]
    yes: bool,
}

/// The systems that the configuration applies to; husk exists only there.
const TARGET: &str = "cfg(target_os = \"linux\")";
const RUNNER: &str = "runner = [\"husk\", \"test\", \"--runner\"]\n";

/// Runs `init` with the arguments after it.
pub(crate) fn perform(arguments: &[OsString]) -> Result<Exit> {
    let command = Init::augment_args(options::program()).override_usage("husk test init [--print | --yes]");
    let matches = command.try_get_matches_from(arguments);
    let init =
        Init::from_arg_matches(&matches.map_err(|error| anyhow!("init: {}", options::message(&error)))?)?;
    let project = project()?;
    let above = Directory::open(&project).with_context(|| format!("open {}", project.display()))?;
    let Configuration { name, before } = configuration(&above, &project.join(DIRECTORY))?;
    let path = project.join(DIRECTORY).join(name);
    let shown = path.display().to_string();
    let shown = escape::cell(&shown);
    let after = with_runner(&before).with_context(|| path.display().to_string())?;
    if init.print {
        output::print(&*escape::text(&format!("# {shown}\n{}\n", after.trim_end())))?;
    } else if after == before {
        output::print(format!("{shown}: nothing to do\n"))?;
    } else {
        ensure!(init.yes || stdin().is_terminal(), "nobody can be asked: --yes writes it, --print prints it");
        if !init.yes && !agrees(&path)? {
            bail!("{}: not written", path.display());
        }
        let written = above.ensure_inner(DIRECTORY).and_then(|inner| inner.replace(name.as_ref(), &after));
        written.with_context(|| format!("write {}", path.display()))?;
        output::print(format!("{shown}: written\nnow: cargo test\n"))?;
    }
    Ok(Exit::Success)
}

/// Where cargo looks for its configuration, relative to the workspace.
const DIRECTORY: &str = ".cargo";

/// Cargo's configuration file in that directory.
struct Configuration {
    name: &'static str,
    before: String,
}

/// Returns the workspace directory.
fn project() -> Result<PathBuf> {
    let asked =
        Command::new("cargo").args(["locate-project", "--workspace", "--message-format=plain"]).output();
    let asked = asked.context("run cargo")?;
    ensure!(asked.status.success(), "cargo: {}", String::from_utf8_lossy(&asked.stderr).trim());
    let manifest = String::from_utf8(asked.stdout).context("cargo names the project")?;
    Ok(Path::new(manifest.trim_end()).parent().context("cargo names no project")?.to_owned())
}

/// Reads the configuration. The repository may be untrusted, so symlinks in it are not followed.
fn configuration(above: &Directory, shown: &Path) -> Result<Configuration> {
    let directory = match above.inner(DIRECTORY) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(Configuration { name: "config.toml", before: String::new() });
        }
        opened => opened.with_context(|| format!("open {}, and follow no symlink", shown.display()))?,
    };
    // If both exist, cargo reads the one with the older name.
    for name in ["config", "config.toml"] {
        let before = directory.read(name.as_ref());
        let read = || format!("read {}, and follow no symlink", shown.join(name).display());
        if let Some(before) = before.with_context(read)? {
            return Ok(Configuration { name, before });
        }
    }
    Ok(Configuration { name: "config.toml", before: String::new() })
}

fn agrees(path: &Path) -> Result<bool> {
    let path = path.display().to_string();
    let question = format!("[target.'{TARGET}']\n{RUNNER}\nAdd this to {}? [y/N] ", escape::cell(&path));
    // A user who does not see the question cannot answer it.
    ensure!(output::print(question)? == StdoutReader::There, "nobody can be asked: --yes writes it");
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Returns the configuration with husk as runner. All other text stays unchanged.
fn with_runner(text: &str) -> Result<String> {
    let wrong = |error: toml::de::Error| anyhow!("is not valid TOML: {}", error.message());
    let table = DeTable::parse(text).map_err(wrong)?;
    let targets = table.get_ref().get("target").and_then(|targets| targets.get_ref().as_table());
    for (target, value) in targets.into_iter().flatten() {
        let Some(runner) = value.get_ref().as_table().and_then(|table| table.get("runner")) else { continue };
        let target = target.get_ref();
        let runner = text.get(runner.span()).unwrap_or_default();
        if runner.contains("husk") && runner.contains("--runner") {
            return Ok(text.to_owned());
        }
        // Runners for other systems do not matter.
        let is_ours = target == TARGET || (target.contains("linux") && !target.contains("cfg(not"));
        ensure!(
            !is_ours,
            "target.'{target}' has a runner, {runner}: instead of it write {}",
            RUNNER.trim_end()
        );
    }
    let known = targets.and_then(|targets| targets.get_key_value(TARGET));
    let after = match known {
        Some((key, _)) => {
            let line = text.get(key.span().end..).and_then(|rest| rest.find('\n'));
            let (head, rest) = text.split_at(line.map_or(text.len(), |line| key.span().end + line + 1));
            let newline = if head.ends_with('\n') { "" } else { "\n" };
            format!("{head}{newline}{RUNNER}{rest}")
        }
        None => {
            let space = if text.is_empty() { "" } else { "\n" };
            let newline = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
            format!("{text}{newline}{space}[target.'{TARGET}']\n{RUNNER}")
        }
    };
    ensure!(has_runner(&after), "write there: target.'{TARGET}'.{}", RUNNER.trim_end());
    Ok(after)
}

/// Whether the text is valid TOML with husk as runner.
fn has_runner(text: &str) -> bool {
    let Ok(table) = DeTable::parse(text) else { return false };
    let within = |value: Option<&toml::Spanned<DeValue<'_>>>, key: &str| {
        value.and_then(|value| value.get_ref().as_table()).is_some_and(|table| table.contains_key(key))
    };
    let target = table.get_ref().get("target");
    let target =
        target.and_then(|target| target.get_ref().as_table()).and_then(|targets| targets.get(TARGET));
    within(target, "runner")
}

#[cfg(test)]
mod tests {
    use super::with_runner;

    const ADDED: &str =
        "[target.'cfg(target_os = \"linux\")']\nrunner = [\"husk\", \"test\", \"--runner\"]\n";

    #[test]
    fn what_is_there_stays() {
        assert_eq!(with_runner("").unwrap(), ADDED);
        let alias = "[alias] # mine\nt = \"test\"";
        let with = with_runner(alias).unwrap();
        assert_eq!(with, format!("{alias}\n\n{ADDED}"));
        // Adding it twice changes nothing.
        assert_eq!(with_runner(&with).unwrap(), with);
        let rest = "rustflags = []\n[term]\nquiet = true\n";
        let known = with_runner(&format!("{}{rest}", ADDED.split_inclusive('\n').next().unwrap())).unwrap();
        assert_eq!(known, format!("{ADDED}{rest}"));
        let elsewhere = "[target.wasm32-wasip1]\nrunner = \"wasmtime\"\n";
        assert_eq!(with_runner(elsewhere).unwrap(), format!("{elsewhere}\n{ADDED}"));
    }

    #[test]
    fn what_cannot_stay_is_said() {
        let said = |text: &str| with_runner(text).unwrap_err().to_string();
        let other = said("[target.x86_64-unknown-linux-gnu]\nrunner = \"qemu\"\n");
        assert_eq!(
            other,
            "target.'x86_64-unknown-linux-gnu' has a runner, \"qemu\": instead of it write runner = [\"husk\", \"test\", \"--runner\"]"
        );
        assert!(said("target = {}\n").starts_with("write there: target."));
        assert!(said("a = ").starts_with("is not valid TOML: "));
    }
}
