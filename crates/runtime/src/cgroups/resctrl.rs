//! `linux.intelRdt`: a group of processes that shares part of the processor's caches and memory bandwidth
//! (Documentation/filesystems/resctrl.rst).
//!
//! Groups are directories. A group that existed before the container was made by others and is not removed.

use crate::error::Error;
use crate::host::probe;
use crate::store::Entry;
use crate::store::record::{Membership, Record};
use husk_bundle::Container;
use husk_bundle::container::{IntelRdt, Monitoring};
use husk_listing::Cause;
use husk_plan::Resctrl;
use std::fs;
use std::io;
use std::path::Path;

/// Moves the container's process into its group and records the group.
pub(crate) fn join(container: &Container, pid: u32, record: &mut Record, entry: &Entry) -> Result<(), Error> {
    let Some(asked) = &container.intel_rdt else { return Ok(()) };
    let failed = |failure: String| Error::step("linux.intelRdt", failure);
    let Resctrl { root, .. } =
        probe::resctrl().ok_or_else(|| failed("the resctrl file system has been unmounted".to_owned()))?;
    let membership = Membership::planned(asked, &root, &record.id).map_err(failed)?;
    // Recorded before anything is made, so that the group can be removed even if husk is killed.
    record.resctrl = Some(membership.clone());
    entry.write(record)?;
    membership.join(asked, pid).map_err(|(act, reason)| {
        // The kernel explains the error number in this file.
        let words = fs::read_to_string(root.join("info/last_cmd_status")).unwrap_or_default();
        let words = words.trim();
        let more = if words.is_empty() || words == "ok" { String::new() } else { format!(" ({words})") };
        failed(format!("{act}: {reason}{more}"))
    })
}

/// Changes a container's share of the L3 cache and of the memory bandwidth.
///
/// # Errors
///
/// If the kernel does not partition them, or the container has no group.
pub(crate) fn update(record: &Record, [l3, bandwidth]: [Option<&str>; 2]) -> Result<(), Error> {
    if l3.is_none() && bandwidth.is_none() {
        return Ok(());
    }
    let probed = probe::resctrl();
    if l3.is_some() && !probed.as_ref().is_some_and(|resctrl| resctrl.l3) {
        return Err(Error::State("Intel RDT/CAT: l3 cache schema is not enabled"));
    }
    if bandwidth.is_some() && !probed.as_ref().is_some_and(|resctrl| resctrl.mb) {
        return Err(Error::State("Intel RDT/MBA: memory bandwidth schema is not enabled"));
    }
    let Some(membership) = &record.resctrl else {
        return Err(Error::State("updating a non-existent Intel RDT configuration is not supported"));
    };
    let lines: String = [l3, bandwidth].into_iter().flatten().map(|line| format!("{line}\n")).collect();
    let file = membership.group.join("schemata");
    fs::write(&file, lines).map_err(|reason| Error::file("write", file, reason))
}

impl Membership {
    /// Determines the groups and which of them have to be made.
    fn planned(asked: &IntelRdt, root: &Path, id: &str) -> Result<Self, String> {
        let group = match asked.clos_id.as_deref() {
            // The root group, with every process that is in no other group.
            Some("/") => root.to_owned(),
            Some(shared) => root.join(shared),
            None => root.join(id),
        };
        let exists = group.exists();
        if !exists && asked.clos_id.is_some() && schemata(asked).is_empty() {
            return Err(format!(
                "closID: {} does not exist; create it, or give it a schema",
                group.display()
            ));
        }
        let monitoring = match asked.monitoring {
            Monitoring::Own => Some(group.join("mon_groups").join(id)),
            Monitoring::None => None,
        };
        let mut made = Vec::new();
        if let Some(monitoring) = monitoring.as_ref().filter(|path| !path.exists()) {
            made.push(monitoring.clone());
        }
        // A named group outlives the container, so that others can join it.
        if !exists && asked.clos_id.is_none() {
            made.push(group.clone());
        }
        Ok(Self { group, monitoring, made })
    }

    fn join(&self, asked: &IntelRdt, pid: u32) -> Result<(), (String, Cause)> {
        let at = |act: &str, path: &Path| {
            let act = format!("{act} {}", path.display());
            move |error: io::Error| (act, error.into())
        };
        make(&self.group).map_err(at("mkdir", &self.group))?;
        let schemata = schemata(asked);
        if !schemata.is_empty() {
            let file = self.group.join("schemata");
            fs::write(&file, schemata).map_err(at("write", &file))?;
        }
        if let Some(monitoring) = &self.monitoring {
            make(monitoring).map_err(at("mkdir", monitoring))?;
        }
        for group in [Some(&self.group), self.monitoring.as_ref()].into_iter().flatten() {
            let file = group.join("tasks");
            fs::write(&file, pid.to_string()).map_err(at("write", &file))?;
        }
        Ok(())
    }

    /// Removes the groups that were made for the container. A group that is already gone is not an error.
    pub(crate) fn leave(&self) -> Result<(), Error> {
        for path in &self.made {
            match fs::remove_dir(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::file("remove", path, error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn make(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Writes each schema on a line. `schemata` comes last and so overrides the others.
fn schemata(asked: &IntelRdt) -> String {
    let lines = asked.l3_cache_schema.iter().chain(&asked.mem_bw_schema).chain(&asked.schemata);
    lines.filter(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use husk_script::sys::tolerate;
    use std::path::PathBuf;

    const ASKED: IntelRdt = IntelRdt {
        clos_id: None,
        l3_cache_schema: None,
        mem_bw_schema: None,
        schemata: Vec::new(),
        monitoring: Monitoring::None,
    };

    fn root() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("mon_groups")).unwrap();
        root
    }

    fn read(path: PathBuf) -> String {
        fs::read_to_string(path).unwrap()
    }

    /// Removes a group's files, as the kernel does when the group is removed.
    fn empty(path: &Path) {
        for name in ["tasks", "schemata"] {
            tolerate(fs::remove_file(path.join(name)), "the files exist only once they were written");
        }
    }

    #[test]
    fn own_group_is_removed_with_the_container() {
        let root = root();
        let schemata = vec!["L3:0=f".to_owned()];
        let asked = IntelRdt { mem_bw_schema: Some("MB:0=20".to_owned()), schemata, ..ASKED };
        let membership = Membership::planned(&asked, root.path(), "c").unwrap();
        membership.join(&asked, 71).unwrap();
        let group = root.path().join("c");
        assert_eq!(read(group.join("schemata")), "MB:0=20\nL3:0=f\n");
        assert_eq!(read(group.join("tasks")), "71");
        empty(&group);
        membership.leave().unwrap();
        membership.leave().unwrap();
        assert!(!group.exists());
    }

    #[test]
    fn shared_group_is_kept() {
        let root = root();
        let asked = IntelRdt { clos_id: Some("shared".to_owned()), ..ASKED };
        let refused = Membership::planned(&asked, root.path(), "c").unwrap_err();
        assert!(refused.contains("does not exist"), "{refused}");
        let group = root.path().join("shared");
        fs::create_dir_all(group.join("mon_groups")).unwrap();
        let asked = IntelRdt { monitoring: Monitoring::Own, ..asked };
        let membership = Membership::planned(&asked, root.path(), "c").unwrap();
        membership.join(&asked, 71).unwrap();
        let monitoring = group.join("mon_groups/c");
        assert_eq!([read(group.join("tasks")), read(monitoring.join("tasks"))], ["71", "71"]);
        assert!(!group.join("schemata").exists(), "no group was requested");
        empty(&monitoring);
        membership.leave().unwrap();
        assert!(group.exists() && !monitoring.exists());
    }

    #[test]
    fn named_group_is_created_if_its_schema_is_given() {
        let root = root();
        let l3_cache_schema = Some("L3:0=f".to_owned());
        let asked = IntelRdt { clos_id: Some("named".to_owned()), l3_cache_schema, ..ASKED };
        let membership = Membership::planned(&asked, root.path(), "c").unwrap();
        membership.join(&asked, 71).unwrap();
        membership.leave().unwrap();
        assert_eq!(read(root.path().join("named/schemata")), "L3:0=f\n");
        let whole = IntelRdt { clos_id: Some("/".to_owned()), ..ASKED };
        let membership = Membership::planned(&whole, root.path(), "c").unwrap();
        assert_eq!((membership.group.as_path(), membership.made.len()), (root.path(), 0));
    }
}
