//! Resolves `process`.

use crate::container::{Capabilities, ExecAffinity, NoNewPrivileges, Process, Rlimit, Scheduler, Terminal};
use crate::error::{Error, ErrorKind, Field};
use crate::fields::unread::Unread;
use crate::fields::values::{absolute, cpu_list, id, string, strings};
use oci_spec::runtime::{self as oci, IOPriorityClass, LinuxSchedulerPolicy, PosixRlimitType};
use std::collections::HashMap;
use std::ffi::CString;

/// The default of runc and crun.
const DEFAULT_UMASK: u32 = 0o022;

pub(crate) fn resolve(process: &oci::Process, unread: &Unread) -> Result<Process, Error> {
    let field = Field::new("process");
    let args = strings(process.args().as_deref().unwrap_or_default(), &field.key("args"))?;
    if args.is_empty() {
        return Err(field.key("args").error(ErrorKind::Empty));
    }
    absolute(process.cwd(), &field.key("cwd"))?;
    let user = process.user();
    let [bounding, effective, inheritable, permitted, ambient] = unread.capabilities;
    Ok(Process {
        args,
        env: environment(process.env().as_deref().unwrap_or_default(), &field.key("env"))?,
        cwd: process.cwd().clone(),
        uid: id(user.uid(), &field.key("user").key("uid"))?,
        gid: id(user.gid(), &field.key("user").key("gid"))?,
        additional_gids: additional_gids(user, &field.key("user").key("additionalGids"))?,
        keeps_groups: false,
        umask: user.umask().unwrap_or(DEFAULT_UMASK),
        terminal: terminal(process),
        capabilities: Capabilities { bounding, effective, inheritable, permitted, ambient },
        rlimits: rlimits(process, &field.key("rlimits"))?,
        no_new_privileges: match process.no_new_privileges() {
            Some(true) => NoNewPrivileges::Set,
            _ => NoNewPrivileges::Unset,
        },
        apparmor_profile: named(process.apparmor_profile()),
        selinux_label: named(process.selinux_label()),
        oom_score_adj: process.oom_score_adj(),
        scheduler: process
            .scheduler()
            .as_ref()
            .map(|scheduler| resolve_scheduler(scheduler, unread))
            .transpose()?,
        io_priority: process.io_priority().as_ref().map(|priority| io_priority(*priority)).transpose()?,
        exec_affinity: affinity(process, &field.key("execCPUAffinity"))?,
    })
}

fn additional_gids(user: &oci::User, field: &Field) -> Result<Vec<u32>, Error> {
    let gids = user.additional_gids().iter().flatten().enumerate();
    gids.map(|(index, gid)| id(*gid, &field.index(index))).collect()
}

/// Engines write Go's zero value, which is the empty string for a name.
fn named(name: &Option<String>) -> Option<String> {
    name.clone().filter(|name| !name.is_empty())
}

/// Keeps each variable once, with its last value. A variable without `=` is refused, as in runc.
pub(crate) fn environment(variables: &[String], field: &Field) -> Result<Vec<CString>, Error> {
    let mut kept: Vec<CString> = Vec::with_capacity(variables.len());
    let mut places = HashMap::new();
    for (index, variable) in variables.iter().enumerate() {
        let field = field.index(index);
        let Some((name, _)) = variable.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(field.error(ErrorKind::Conflict("is not of the form NAME=VALUE")));
        };
        let value = string(variable, &field)?;
        match places.get(name) {
            Some(&place) => kept[place] = value,
            None => {
                places.insert(name, kept.len());
                kept.push(value);
            }
        }
    }
    Ok(kept)
}

fn terminal(process: &oci::Process) -> Terminal {
    if process.terminal() != Some(true) {
        return Terminal::No;
    }
    let size = process.console_size().as_ref().and_then(|size| {
        let (rows, columns) = (u16::try_from(size.height()).ok()?, u16::try_from(size.width()).ok()?);
        (rows != 0 && columns != 0).then_some((rows, columns))
    });
    Terminal::Yes(size)
}

fn rlimits(process: &oci::Process, field: &Field) -> Result<Vec<Rlimit>, Error> {
    let mut found: Vec<Rlimit> = Vec::new();
    for (index, limit) in process.rlimits().iter().flatten().enumerate() {
        let resource = resource(limit.typ());
        // config.md: "If `rlimits` contains duplicated entries with same `type`, the runtime MUST generate an
        // error."
        if found.iter().any(|other| other.resource == resource) {
            return Err(field.index(index).error(ErrorKind::Twice(limit.typ().to_string())));
        }
        found.push(Rlimit { resource, soft: limit.soft(), hard: limit.hard() });
    }
    Ok(found)
}

/// The `RLIMIT_*` numbers of asm-generic/resource.h, which are the same on x86_64 and aarch64.
fn resource(limit: PosixRlimitType) -> u32 {
    match limit {
        PosixRlimitType::RlimitCpu => 0,
        PosixRlimitType::RlimitFsize => 1,
        PosixRlimitType::RlimitData => 2,
        PosixRlimitType::RlimitStack => 3,
        PosixRlimitType::RlimitCore => 4,
        PosixRlimitType::RlimitRss => 5,
        PosixRlimitType::RlimitNproc => 6,
        PosixRlimitType::RlimitNofile => 7,
        PosixRlimitType::RlimitMemlock => 8,
        PosixRlimitType::RlimitAs => 9,
        PosixRlimitType::RlimitLocks => 10,
        PosixRlimitType::RlimitSigpending => 11,
        PosixRlimitType::RlimitMsgqueue => 12,
        PosixRlimitType::RlimitNice => 13,
        PosixRlimitType::RlimitRtprio => 14,
        PosixRlimitType::RlimitRttime => 15,
    }
}

fn resolve_scheduler(scheduler: &oci::Scheduler, unread: &Unread) -> Result<Scheduler, Error> {
    let field = Field::new("process.scheduler");
    let priority = scheduler.priority().unwrap_or_default();
    check_scheduler(scheduler, &field)?;
    Ok(Scheduler {
        // Numbers from linux/sched.h.
        policy: match scheduler.policy() {
            LinuxSchedulerPolicy::SchedOther => 0,
            LinuxSchedulerPolicy::SchedFifo => 1,
            LinuxSchedulerPolicy::SchedRr => 2,
            LinuxSchedulerPolicy::SchedBatch => 3,
            LinuxSchedulerPolicy::SchedIso => 4,
            LinuxSchedulerPolicy::SchedIdle => 5,
            LinuxSchedulerPolicy::SchedDeadline => 6,
        },
        flags: unread.scheduler_flags,
        nice: scheduler.nice().unwrap_or_default(),
        priority: u32::try_from(priority)
            .map_err(|_| field.key("priority").error(ErrorKind::Range(priority.into())))?,
        runtime: scheduler.runtime().unwrap_or_default(),
        deadline: scheduler.deadline().unwrap_or_default(),
        period: scheduler.period().unwrap_or_default(),
    })
}

/// Refuses settings of another policy, as runc does. The kernel would accept and ignore them.
fn check_scheduler(scheduler: &oci::Scheduler, field: &Field) -> Result<(), Error> {
    let policy = scheduler.policy();
    let nice = scheduler.nice().unwrap_or_default();
    let is_ordinary = matches!(policy, LinuxSchedulerPolicy::SchedOther | LinuxSchedulerPolicy::SchedBatch);
    if is_ordinary && !(-20..=19).contains(&nice) {
        return Err(field.key("nice").error(ErrorKind::Range(nice.into())));
    }
    let is_real_time = matches!(policy, LinuxSchedulerPolicy::SchedFifo | LinuxSchedulerPolicy::SchedRr);
    if !is_real_time && scheduler.priority().is_some_and(|priority| priority != 0) {
        return Err(field
            .key("priority")
            .error(ErrorKind::Conflict("is only valid for SCHED_FIFO and SCHED_RR")));
    }
    let times = [
        ("runtime", scheduler.runtime()),
        ("deadline", scheduler.deadline()),
        ("period", scheduler.period()),
    ];
    let said = times.into_iter().find(|(_, time)| time.is_some_and(|time| time != 0));
    match said {
        Some((name, _)) if *policy != LinuxSchedulerPolicy::SchedDeadline => {
            Err(field.key(name).error(ErrorKind::Conflict("is only valid for SCHED_DEADLINE")))
        }
        _ => Ok(()),
    }
}

fn io_priority(priority: oci::LinuxIOPriority) -> Result<(u8, u8), Error> {
    let class = match priority.class() {
        IOPriorityClass::IoprioClassRt => 1,
        IOPriorityClass::IoprioClassBe => 2,
        IOPriorityClass::IoprioClassIdle => 3,
    };
    let level = priority.priority();
    match u8::try_from(level) {
        Ok(level @ 0..=7) => Ok((class, level)),
        _ => Err(Field::new("process.ioPriority.priority").error(ErrorKind::Range(level.into()))),
    }
}

fn affinity(process: &oci::Process, field: &Field) -> Result<ExecAffinity, Error> {
    let Some(affinity) = process.exec_cpu_affinity() else { return Ok(ExecAffinity::default()) };
    let list =
        |list: &Option<String>, key| list.as_deref().map(|list| cpu_list(list, &field.key(key))).transpose();
    Ok(ExecAffinity {
        initial: list(affinity.initial(), "initial")?,
        finally: list(affinity.cpu_affinity_final(), "final")?,
    })
}
