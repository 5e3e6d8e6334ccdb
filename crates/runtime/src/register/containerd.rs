//! containerd: appends tables to its configuration file, between two marker lines.
//!
//! Not in an imported file: its tables for a plugin replace all tables for that plugin in the first file (containerd
//! 1.6, services/server/config/config.go, `mergeConfig`).

use super::{FileChange, Registration};
use crate::error::Error;
use toml::{Table, Value};

const BEGIN: &str = "\n# Written by 'husk register', which also takes it away ('--undo').\n";
const END: &str = "# The end of what 'husk register' wrote.\n";

/// The file that is written if there is none. Tables need a version.
const EMPTY: &str = "version = 2\n";

/// The key of the default runtime, and the marker of a line in which husk has set it.
const DEFAULT: &str = "default_runtime_name";
const WAS: &str = " # by 'husk register', was: ";

pub(super) fn change(registration: &Registration, program: Option<&str>) -> Result<FileChange, Error> {
    FileChange::new(&registration.etc, "containerd/config.toml", |before| {
        let others = match before {
            Some(before) => {
                parse(registration, before)?;
                without(before)
            }
            None if program.is_none() => return Ok(None),
            None => EMPTY.to_owned(),
        };
        match program {
            Some(program) => with(registration, program, &others).map(Some),
            None => Ok((others != EMPTY).then_some(others)),
        }
    })
}

/// Returns the configuration without husk's entries.
fn without(text: &str) -> String {
    let ours = text.split_once(BEGIN).and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
    let text = ours.map_or_else(|| text.to_owned(), |(head, tail)| head.to_owned() + tail);
    let lines = text.split_inclusive('\n').filter_map(|line| match line.split_once(WAS) {
        Some((_, was)) if was.trim().is_empty() => None,
        Some((ours, was)) => {
            let indent = &ours[..ours.len() - ours.trim_start().len()];
            Some(format!("{indent}{was}"))
        }
        None => Some(line.to_owned()),
    });
    lines.collect()
}

fn parse(registration: &Registration, text: &str) -> Result<Table, Error> {
    text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        registration.error(&format!("config.toml, line {line}: invalid TOML: {}", error.message()))
    })
}

/// Returns the configuration with husk among its runtimes.
fn with(registration: &Registration, program: &str, others: &str) -> Result<String, Error> {
    let table = parse(registration, others)?;
    let version = table.get("version").and_then(Value::as_integer).unwrap_or(1);
    if version < 2 {
        let reason =
            "config.toml has version 1; replace it with the output of 'containerd config migrate' first";
        return Err(registration.error(reason));
    }
    let plugin = if version == 2 { "io.containerd.grpc.v1.cri" } else { "io.containerd.cri.v1.runtime" };
    let containerd = ["plugins", plugin, "containerd"];
    let name = format!("[plugins.\"{plugin}\".containerd");
    let mut text = others.to_owned();
    let mut ours = String::new();
    if registration.default {
        match with_default(others, &format!("{name}]")) {
            Some(with) => text = with,
            None => ours += &format!("{name}]\n{DEFAULT} = \"husk\"\n"),
        }
    }
    // A list of runtimes replaces the built-in one, which has the default `runc`. Without that runtime containerd 1.6
    // does not serve Kubernetes.
    let runtimes = find(&table, &containerd).and_then(|table| table.get("runtimes")?.as_table());
    if runtimes.is_none() {
        ours += &format!("{name}.runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"\n");
    }
    // All runtimes of a node use the kubelet's cgroup driver.
    let runc = runtimes.and_then(|runtimes| runtimes.get("runc")?.get("options")?.get("SystemdCgroup"));
    let systemd = registration.systemd_cgroup || runc.and_then(Value::as_bool).unwrap_or(false);
    let systemd = if systemd { "SystemdCgroup = true\n" } else { "" };
    // Kubernetes' interface passes options only to runtimes of runc's type, and asks only those what they support, for
    // example user namespaces. husk's shim takes the same options.
    let (shim, binary) = match registration.shim {
        true => (format!("runtime_path = {program}\n"), String::new()),
        false => (String::new(), format!("BinaryName = {program}\n")),
    };
    let options = binary + systemd;
    let options =
        if options.is_empty() { options } else { format!("{name}.runtimes.husk.options]\n{options}") };
    let runtime = format!("{name}.runtimes.husk]\nruntime_type = \"io.containerd.runc.v2\"\n{shim}");
    text += &format!("{BEGIN}{ours}{runtime}{options}{END}");
    // Settings that are not written as separate tables cannot be extended by appending tables.
    let written: Option<Table> = text.parse().ok();
    let said = written.as_ref().and_then(|table| find(table, &containerd)?.get(DEFAULT)?.as_str());
    if written.is_none() || registration.default && said != Some("husk") {
        let reason = format!("config.toml does not have {name}] as a table; add the runtime by hand");
        return Err(registration.error(&reason));
    }
    Ok(text)
}

fn find<'a>(table: &'a Table, path: &[&str]) -> Option<&'a Table> {
    path.iter().try_fold(table, |table, key| table.get(*key)?.as_table())
}

/// Sets husk as the default in the table of this name, and keeps the previous line in a comment. `None` without that
/// table.
fn with_default(text: &str, table: &str) -> Option<String> {
    let lines: Vec<_> = text.split_inclusive('\n').collect();
    let is_table = |line: &&str| line.trim().replace('\'', "\"").starts_with(table);
    let head = lines.iter().position(is_table)?;
    let inside = lines[head + 1..].iter().take_while(|line| !line.trim_start().starts_with('['));
    let said = inside.clone().position(|line| line.trim_start().starts_with(DEFAULT));
    let (before, was, after) = match said.map(|place| head + 1 + place) {
        Some(place) => (&lines[..place], lines[place], &lines[place + 1..]),
        None => (&lines[..=head], "", &lines[head + 1..]),
    };
    let line = if was.is_empty() { lines[head] } else { was };
    let indent = &line[..line.len() - line.trim_start().len()];
    // The table's header may be the file's last line, without a line break.
    let end = if before.last().is_some_and(|line| line.ends_with('\n')) { "" } else { "\n" };
    let was = was.trim();
    Some(format!("{}{end}{indent}{DEFAULT} = \"husk\"{WAS}{was}\n{}", before.concat(), after.concat()))
}
