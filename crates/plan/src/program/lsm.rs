//! Plans `process.apparmorProfile` and `process.selinuxLabel`, which confine the program from exec on.
//!
//! The profile or label is written to procfs. A container that could redirect the write would escape confinement:
//! see `namespaces/procfs.rs`.

use crate::builder::{Builder, Error};
use crate::host::{AppArmor, Host, Selinux};
use husk_bundle::Container;
use husk_script::sys::file::OFlags;
use husk_script::{Reg, Step};

/// An open file in procfs and the profile or label to write to it.
pub(crate) struct Label<'b> {
    origin: &'static str,
    file: Reg,
    bytes: &'b [u8],
}

/// Returns the field that needs procfs, if the program is to be confined.
pub(crate) fn needs_procfs(container: &Container) -> Option<&'static str> {
    let process = container.process.as_ref()?;
    let apparmor = process.apparmor_profile.as_ref().map(|_| "process.apparmorProfile");
    apparmor.or(process.selinux_label.as_ref().map(|_| "process.selinuxLabel"))
}

/// Opens the label files of the process that becomes the program. They must be opened in that process, because a
/// process can write only its own (fs/proc/base.c, `proc_pid_attr_write`).
pub(crate) fn open<'b>(
    container: &Container,
    host: &Host,
    proc: Option<Reg>,
    plan: &mut Builder<'b>,
) -> Result<Vec<Label<'b>>, Error> {
    let mut labels = Vec::new();
    let (Some(process), Some(proc)) = (&container.process, proc) else { return Ok(labels) };
    let flags = OFlags::WRONLY;
    if let Some(profile) = &process.apparmor_profile {
        let origin = "process.apparmorProfile";
        plan.at(origin);
        let path = match host.apparmor {
            AppArmor::Off => {
                return Err(plan.error("apparmor: config provided but apparmor not supported"));
            }
            AppArmor::Alone => c"thread-self/attr/exec",
            AppArmor::Apart => c"thread-self/attr/apparmor/exec",
        };
        let file = plan.register()?;
        plan.push(Step::OpenInProc { proc: proc.into(), path, flags, out: file });
        labels.push(Label { origin, file, bytes: plan.slice(format!("exec {profile}").as_bytes()) });
    }
    if let Some(label) = &process.selinux_label {
        let origin = "process.selinuxLabel";
        plan.at(origin);
        if host.selinux == Selinux::Off {
            let reason = "selinux label is specified in config, but selinux is disabled or not supported";
            return Err(plan.error(reason));
        }
        let file = plan.register()?;
        let path = c"thread-self/attr/exec";
        plan.push(Step::OpenInProc { proc: proc.into(), path, flags, out: file });
        labels.push(Label { origin, file, bytes: plan.slice(label.as_bytes()) });
    }
    Ok(labels)
}

/// Writes the labels and closes the files.
pub(crate) fn confine<'b>(labels: Vec<Label<'b>>, plan: &mut Builder<'b>) {
    for Label { origin, file, bytes } in labels {
        plan.at(origin).push(Step::Write { fd: file.into(), bytes });
        plan.push(Step::Close { fd: file.into() });
        plan.release(file);
    }
}
