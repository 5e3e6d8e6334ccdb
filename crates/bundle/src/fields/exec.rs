//! Resolves the process of an `exec`, from a file of its own or from the container's process with changes.

use crate::container::{NoNewPrivileges, Process, Terminal};
use crate::error::{Error, ErrorKind, Field, Warning};
use crate::fields::process::{environment, resolve};
use crate::fields::unread;
use crate::fields::values::{absolute, strings};
use crate::json::typed;
use caps::Capability;
use serde_json::json;
use std::path::PathBuf;
use std::str::FromStr;

/// The settings of an `exec` command line for its process.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// The program and its arguments.
    pub args: Vec<String>,
    /// Variables that are added to those of the container's process or replace them.
    pub env: Vec<String>,
    /// The working directory; `None` keeps that of the container's process.
    pub cwd: Option<PathBuf>,
    /// Whether it has a terminal. The terminal setting of the container's process does not apply.
    pub terminal: bool,
    /// The user and optionally the group; `None` keeps those of the container's process.
    pub user: Option<(u32, Option<u32>)>,
    /// Supplementary groups to add.
    pub additional_gids: Vec<u32>,
    /// Names of capabilities to add.
    pub capabilities: Vec<String>,
    /// The AppArmor profile; `None` keeps that of the container's process.
    pub apparmor_profile: Option<String>,
    /// The SELinux label; `None` keeps that of the container's process.
    pub selinux_label: Option<String>,
    /// Whether it may gain privileges; `None` leaves the setting unchanged.
    pub no_new_privileges: Option<NoNewPrivileges>,
}

/// Reads a file with the contents of a `process` object in config.json. Confinement and scheduling that the file
/// does not set are taken from the container's `own` process.
///
/// # Errors
///
/// Fails if it asks for something that no machine can do.
pub fn process(bytes: &[u8], own: &Process) -> Result<(Process, Vec<Warning>), Error> {
    let file = Field::new("process");
    let process: serde_json::Value =
        serde_json::from_slice(bytes).map_err(|error| file.error(ErrorKind::Json(error.to_string())))?;
    let is_said = |name: &str| process.get(name).is_some_and(|value| !value.is_null());
    let (has_capabilities, has_affinity) = (is_said("capabilities"), is_said("execCPUAffinity"));
    let mut warnings = Vec::new();
    let mut config = json!({ "process": process });
    let unread = unread::take(&mut config, &mut warnings)?;
    let process = typed::read(config["process"].take(), &file)?;
    let mut process = resolve(&process, &unread)?;
    // Takes these settings from the container, as runc does. Limits and `noNewPrivileges` are not inherited, because
    // Go's encoder omits false values.
    if !has_capabilities {
        process.capabilities = own.capabilities;
    }
    if !has_affinity {
        process.exec_affinity.clone_from(&own.exec_affinity);
    }
    process.apparmor_profile = process.apparmor_profile.or_else(|| own.apparmor_profile.clone());
    process.selinux_label = process.selinux_label.or_else(|| own.selinux_label.clone());
    process.oom_score_adj = process.oom_score_adj.or(own.oom_score_adj);
    process.scheduler = process.scheduler.or(own.scheduler);
    process.io_priority = process.io_priority.or(own.io_priority);
    Ok((process, warnings))
}

impl Changes {
    /// Returns the container's process with these changes.
    ///
    /// # Errors
    ///
    /// Fails if a change is invalid.
    pub fn apply(&self, mut process: Process) -> Result<Process, Error> {
        process.args = strings(&self.args, &Field::new("args"))?;
        if process.args.is_empty() {
            return Err(Field::new("PROGRAM").error(ErrorKind::Missing));
        }
        let mut env =
            process.env.iter().map(|variable| variable.to_string_lossy().into_owned()).collect::<Vec<_>>();
        env.extend_from_slice(&self.env);
        process.env = environment(&env, &Field::new("--env"))?;
        if let Some(cwd) = &self.cwd {
            absolute(cwd, &Field::new("--cwd"))?;
            process.cwd.clone_from(cwd);
        }
        process.terminal = match (self.terminal, process.terminal) {
            (false, _) => Terminal::No,
            (true, Terminal::Yes(size)) => Terminal::Yes(size),
            (true, Terminal::No) => Terminal::Yes(None),
        };
        if let Some((uid, gid)) = self.user {
            process.uid = uid;
            process.gid = gid.unwrap_or(process.gid);
        }
        process.additional_gids.extend_from_slice(&self.additional_gids);
        self.add_capabilities(&mut process)?;
        if let Some(profile) = &self.apparmor_profile {
            process.apparmor_profile = Some(profile.clone());
        }
        if let Some(label) = &self.selinux_label {
            process.selinux_label = Some(label.clone());
        }
        if let Some(wanted) = self.no_new_privileges {
            process.no_new_privileges = wanted;
        }
        Ok(process)
    }

    /// Adds capabilities except to the inheritable set, through which a program's file could grant unrequested
    /// ones (CVE-2022-29162). Ambient capabilities must be inheritable, so they are added only where that is so
    /// already.
    fn add_capabilities(&self, process: &mut Process) -> Result<(), Error> {
        for (index, name) in self.capabilities.iter().enumerate() {
            let unknown = || Field::new("--cap").index(index).error(ErrorKind::Unknown(name.clone()));
            let upper = name.to_ascii_uppercase();
            let full = if upper.starts_with("CAP_") { upper } else { format!("CAP_{upper}") };
            let bit = Capability::from_str(&full).map_err(|_| unknown())?.bitmask();
            let sets = &mut process.capabilities;
            sets.bounding |= bit;
            sets.effective |= bit;
            sets.permitted |= bit;
            if sets.inheritable & bit != 0 {
                sets.ambient |= bit;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::Capabilities;

    fn base() -> Process {
        let text = br#"{ "args": ["sh"], "cwd": "/", "user": { "uid": 0, "gid": 0 }, "env": ["A=1", "B=2"], "terminal": true,
            "capabilities": { "bounding": ["CAP_CHOWN"], "inheritable": ["CAP_KILL"] } }"#;
        let config: oci_spec::runtime::Process =
            serde_json::from_slice(br#"{ "args": ["sh"], "cwd": "/", "user": { "uid": 0, "gid": 0 } }"#)
                .unwrap();
        let nothing = resolve(&config, &unread::Unread::default()).unwrap();
        process(text, &nothing).unwrap().0
    }

    #[test]
    fn process_file_without_confinement_inherits_the_containers() {
        let own = Process {
            apparmor_profile: Some("confined".to_owned()),
            selinux_label: Some("label".to_owned()),
            oom_score_adj: Some(7),
            io_priority: Some((2, 3)),
            no_new_privileges: NoNewPrivileges::Set,
            ..base()
        };
        let read = |text: &str| process(text.as_bytes(), &own).unwrap().0;
        let silent =
            read(r#"{ "args": ["sh"], "cwd": "/", "user": { "uid": 1, "gid": 0 }, "capabilities": null }"#);
        let wanted = Process {
            uid: 1,
            env: Vec::new(),
            terminal: Terminal::No,
            no_new_privileges: NoNewPrivileges::Unset,
            ..own.clone()
        };
        assert_eq!(format!("{silent:?}"), format!("{wanted:?}"));
        let said = read(
            r#"{ "args": ["sh"], "cwd": "/", "user": { "uid": 0, "gid": 0 }, "capabilities": {},
            "apparmorProfile": "unconfined", "selinuxLabel": "other", "oomScoreAdj": 0 }"#,
        );
        assert_eq!(said.capabilities, Capabilities::default());
        assert_eq!(
            (said.apparmor_profile.as_deref(), said.selinux_label.as_deref()),
            (Some("unconfined"), Some("other"))
        );
        assert_eq!(said.oom_score_adj, Some(0));
    }

    #[test]
    fn unset_fields_come_from_the_container() {
        let changed = Changes { args: vec!["ls".to_owned()], ..Changes::default() }.apply(base()).unwrap();
        assert_eq!(changed.args, [c"ls".to_owned()]);
        assert_eq!(changed.env, base().env);
        assert_eq!(changed.capabilities, base().capabilities);
        assert_eq!(changed.terminal, Terminal::No);
    }

    #[test]
    fn given_fields_replace_the_containers() {
        let changes = Changes {
            args: vec!["ls".to_owned()],
            env: vec!["B=3".to_owned(), "C=4".to_owned()],
            user: Some((7, None)),
            capabilities: vec!["CAP_KILL".to_owned(), "net_admin".to_owned()],
            ..Changes::default()
        };
        let changed = changes.apply(base()).unwrap();
        assert_eq!(changed.env, [c"A=1".to_owned(), c"B=3".to_owned(), c"C=4".to_owned()]);
        assert_eq!((changed.uid, changed.gid), (7, 0));
        let (kill, admin) = (Capability::CAP_KILL.bitmask(), Capability::CAP_NET_ADMIN.bitmask());
        assert_eq!(changed.capabilities.permitted, kill | admin);
        assert_eq!(changed.capabilities.inheritable, kill, "inheritable capabilities are not added");
        assert_eq!(changed.capabilities.ambient, kill);
    }

    #[test]
    fn invalid_changes_are_refused() {
        let refused = |changes: Changes| changes.apply(base()).unwrap_err().to_string();
        let args = vec!["ls".to_owned()];
        assert_eq!(refused(Changes::default()), "PROGRAM: is missing");
        let env = vec!["B".to_owned()];
        assert!(refused(Changes { args: args.clone(), env, ..Changes::default() }).contains("NAME=VALUE"));
        let capabilities = vec!["CAP_X".to_owned()];
        assert!(
            refused(Changes { args, capabilities, ..Changes::default() }).contains("\"CAP_X\" is unknown")
        );
        assert_eq!(process(b"{}", &base()).unwrap_err().to_string(), "process.cwd: is missing");
        assert!(process(b"[", &base()).is_err());
    }
}
