//! containerd: tables at the end of its own file, between two lines that say whose they are.
//!
//! Not in a file that it imports: what that says of a plugin takes the place of all that the first file says of it
//! (containerd 1.6, services/server/config/config.go, `mergeConfig`).

use super::{Change, Registration};
use crate::error::Error;

const BEGIN: &str = "\n# Written by 'husk register', which also takes it away ('--undo').\n";
const END: &str = "# The end of what 'husk register' wrote.\n";

/// What there has to be for tables to be of a version.
const EMPTY: &str = "version = 2\n";

pub(super) fn change(registration: &Registration, program: Option<&str>) -> Result<Change, Error> {
    Change::new(&registration.etc, "containerd/config.toml", |before| {
        let others = match before {
            Some(before) => without(before),
            None if program.is_none() => return Ok(None),
            None => EMPTY.to_owned(),
        };
        match program {
            Some(program) => tables(registration, program, &others).map(|tables| Some(others + &tables)),
            None => Ok((others != EMPTY).then_some(others)),
        }
    })
}

/// The configuration without what is ours.
fn without(text: &str) -> String {
    let ours = text.split_once(BEGIN).and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
    ours.map_or_else(|| text.to_owned(), |(head, tail)| head.to_owned() + tail)
}

fn tables(registration: &Registration, program: &str, others: &str) -> Result<String, Error> {
    let Some(version) = version(others) else {
        let reason = "config.toml is of version 1: write 'containerd config migrate' of it there first";
        return Err(registration.error(reason));
    };
    let plugin = if version == 2 { "io.containerd.grpc.v1.cri" } else { "io.containerd.cri.v1.runtime" };
    let table = format!("[plugins.\"{plugin}\".containerd]");
    let begins = |with: &str| others.lines().any(|line| line.trim().replace('\'', "\"").starts_with(with));
    let is_there = begins(&table);
    if registration.default && is_there {
        let reason = format!("config.toml has {table}: write default_runtime_name = \"husk\" there yourself");
        return Err(registration.error(&reason));
    }
    let default = if registration.default {
        table.clone() + "\ndefault_runtime_name = \"husk\"\n"
    } else {
        String::new()
    };
    let runtime = table.replace(']', ".runtimes.husk]");
    let options = table.replace(']', ".runtimes.husk.options]");
    // A list of runtimes takes the place of the one that is built in, which has the default (containerd 1.6 does not
    // serve Kubernetes without it).
    let builtin = if begins(&table.replace(']', ".runtimes")) {
        String::new()
    } else {
        table.replace(']', ".runtimes.runc]") + "\nruntime_type = \"io.containerd.runc.v2\"\n"
    };
    let systemd = if registration.systemd_cgroup { "SystemdCgroup = true\n" } else { "" };
    Ok(format!(
        "{BEGIN}{default}{builtin}{runtime}\nruntime_type = \"io.containerd.runc.v2\"\n{options}\nBinaryName = {program}\n{systemd}{END}"
    ))
}

/// The version that a configuration is of, if it is one that we write.
fn version(text: &str) -> Option<u32> {
    let mut top = text.lines().map(str::trim).take_while(|line| !line.starts_with('['));
    let line = top.find_map(|line| line.strip_prefix("version"))?;
    let number = line.trim_start().strip_prefix('=')?.split('#').next()?.trim().parse().ok()?;
    (number >= 2).then_some(number)
}
