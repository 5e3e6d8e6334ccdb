//! `ps`: lists a container's processes as the host sees them.

use crate::cgroups;
use crate::error::Error;
use crate::store::Store;
use crate::store::process::ProcessId;
use husk_spawn::{Command, find_program};

/// Returns the pids of a container's processes.
///
/// # Errors
///
/// If it runs without a cgroup.
pub fn pids(store: &Store, id: &str) -> Result<Vec<i32>, Error> {
    let record = store.entry(id)?.read()?;
    match cgroups::find(&record)? {
        Some(cgroup) => Ok(cgroup.pids()?),
        None if !record.process.map_or(Ok(false), ProcessId::is_alive)? => Ok(Vec::new()),
        None => Err(cgroups::no_cgroup(&record)),
    }
}

/// Runs the host's ps(1) with these arguments and keeps only the lines about these processes.
///
/// # Errors
///
/// If ps fails, or prints no pids.
pub fn table(pids: &[i32], arguments: &[String]) -> Result<String, Error> {
    let wrong = |reason| Error::Argument { option: "ps", reason };
    let program = find_program("ps").ok_or_else(|| wrong("was not found: install procps".to_owned()))?;
    let output = Command::new(program).arg0("ps").args(arguments).output()?;
    if !output.status.success() {
        let (said, more) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
        return Err(wrong(format!("{}: {}{}", output.status, said.trim(), more.trim())));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines();
    let title = lines.next().unwrap_or_default();
    let column = title.split_whitespace().position(|name| name == "PID");
    let column = column.ok_or_else(|| wrong("couldn't find PID field in ps output".to_owned()))?;
    let mut table = format!("{title}\n");
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let pid = line.split_whitespace().nth(column).unwrap_or_default();
        let pid: i32 = pid.parse().map_err(|_| wrong(format!("unable to parse pid: {pid:?}")))?;
        if pids.contains(&pid) {
            table.push_str(line);
            table.push('\n');
        }
    }
    Ok(table)
}
