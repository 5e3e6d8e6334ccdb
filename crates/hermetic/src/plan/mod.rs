//! A profile as a list of steps.
//!
//! All that is mounted is the child's alone, and so is what it may do to it: it has made the namespaces. What has
//! to be open before it is covered is opened first.
//!
//! Names are looked up in the host's files and in the program's own file system, which no image can change. Every
//! place in the program's root is found by `RESOLVE_IN_ROOT` below a descriptor of that root, and an image
//! becomes the root when all of it is done: after a change of root nothing is looked up by name but the program.

pub(crate) mod environment;
mod files;
mod filter;
pub(crate) mod image;
mod landlock;
pub(crate) mod layers;
mod view;

pub(crate) use files::PROC;

use crate::host::Host;
use crate::profile::{Image, Net, Profile};
use bumpalo::Bump;
use husk_bundle::container::{Clock, IdMapping};
use husk_plan::{Builder, Error, Plan};
use husk_script::sys::file::Mode;
use husk_script::sys::limits::{Resource, Rlimit};
use husk_script::sys::namespace::Namespaces;
use husk_script::sys::process::Capabilities;
use husk_script::sys::signal::{Signal, SignalSet};
use husk_script::sys::{CArray, Fd};
use husk_script::{Request, Step};
use landlock::LandlockRules;
use layers::Streams;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

/// A name that is the same everywhere and that every machine can resolve.
const HOSTNAME: &[u8] = b"localhost";

/// Signals whose being ignored a caller hands on.
const INHERITED: &[Signal] =
    &[Signal::HUP, Signal::INT, Signal::QUIT, Signal::PIPE, Signal::TERM, Signal::CHLD, Signal::TSTP];

/// All that a plan depends on: it is written where the child finds it, which is freed when the child is gone, and
/// written once more if there is something to say of a step.
#[derive(Clone)]
pub(crate) struct SandboxPlan {
    pub(crate) profile: Profile,
    pub(crate) host: Host,
    pub(crate) streams: Streams,
}

impl SandboxPlan {
    pub(crate) fn plan<'b>(&self, memory: &'b Bump) -> Result<Plan<'b>, Error> {
        plan(&self.profile, &self.host, self.streams, memory)
    }

    pub(crate) fn namespaces(&self) -> Namespaces {
        namespaces(&self.profile, &self.host)
    }
}

/// Writes the plan of a program into `memory`.
///
/// The order of these lines is the order of the system calls. A line that must stand where it stands says
/// why.
///
/// # Errors
///
/// If something that is asked for cannot be done.
pub fn plan<'b>(
    profile: &Profile,
    host: &Host,
    streams: Streams,
    memory: &'b Bump,
) -> Result<Plan<'b>, Error> {
    let mut plan = Builder::new(memory);
    plan.at("signals");
    INHERITED.iter().copied().for_each(|signal| plan.push(Step::DefaultAction { signal }));
    ids(profile, host, &mut plan)?;
    clocks(profile, host, &mut plan);
    // Nothing of it outlives us.
    plan.at("init").push(Step::ParentDeathSignal { signal: Signal::KILL, parent: None });
    let container = profile.image.as_ref().and_then(|image| image.bundle.as_ref());
    let said = |name: Option<&String>, plan: &Builder<'b>| name.map(|name| plan.slice(name.as_bytes()));
    let name = said(container.and_then(|container| container.hostname.as_ref()), &plan);
    plan.at("hostname").push(Step::Sethostname { name: name.unwrap_or(HOSTNAME) });
    if let Some(name) = said(container.and_then(|container| container.domainname.as_ref()), &plan) {
        plan.at("domainname").push(Step::Setdomainname { name });
    }
    if profile.net == Net::Loopback {
        plan.at("net").push(Step::LoopbackUp);
    }
    // What is made is made with the permissions that are asked for.
    plan.at("files").push(Step::Umask { mask: Mode::empty() });
    let rules = LandlockRules::new(profile, host, &mut plan)?;
    let null = files::files(profile, host, &rules, &mut plan)?;
    // After the last mount: Landlock forbids all of them. Before the streams become others.
    rules.raise(host, streams, &mut plan);
    if host.uid == 0 && !host.null_streams.is_empty() {
        // The caller's are open for root to change the device's permissions through them.
        plan.at("streams");
        for stream in &host.null_streams {
            plan.push(Step::Dup3 { from: null.into(), to: *stream });
        }
    }
    let process = profile.image.as_ref().and_then(Image::process);
    let mask = process.map_or(0o022, |process| process.umask);
    plan.at("umask").push(Step::Umask { mask: Mode::from_raw_mode(mask) });
    if let Streams::Captured(output) = streams {
        plan.at("streams");
        plan.push(Step::Dup3 { from: null.into(), to: Fd::STDIN });
        plan.push(Step::Dup3 { from: output.into(), to: Fd::STDOUT });
        plan.push(Step::Dup3 { from: output.into(), to: Fd::STDERR });
    }
    plan.release(null);
    if let Streams::Heard(output) = streams {
        plan.at("streams").push(Step::Dup3 { from: output.into(), to: Fd::STDOUT });
    }
    // What the caller has open is the host's, but for the standard streams.
    plan.at("init").push(Step::CloseOthers { first: Fd::FIRST_EXTRA, keep: None });

    let has_terminal = matches!(streams, Streams::Terminal | Streams::ForegroundTerminal);
    if has_terminal {
        // What stops the caller's process group does not reach who waits for the program; and who waits is in
        // another group than the program is, whom the terminal may else not stop.
        plan.push(Step::Setpgid { group: None });
    }
    // In a copy of our memory if that may be short where it goes, if a terminal may stop it before it is the program, or if
    // it enters a time namespace.
    plan.push(if has_terminal || host.cgroup || has_clocks(profile) {
        Step::CloneAndReap
    } else {
        Step::VforkAndReap
    });
    // From here on in the process that becomes the program. A signal to its process group does not reach who
    // started it, and what it types does not reach their terminal: it has a session of its own, or there is a
    // filter for that.
    if has_terminal {
        // A caller may ignore what stops those who use a terminal that is not theirs: it is in front of it.
        plan.at("terminal").push(Step::DefaultAction { signal: Signal::TTIN });
        plan.push(Step::DefaultAction { signal: Signal::TTOU });
        plan.push(Step::Setpgid { group: None });
        if matches!(streams, Streams::ForegroundTerminal) {
            plan.push(Step::Tcsetpgrp { terminal: Fd::STDIN });
        }
    } else {
        plan.at("session").push(Step::Setsid);
    }
    if host.cgroup {
        // Not before: when memory is short there, the kernel must not come upon a process that shares ours.
        plan.at("limits").push(Step::Request { what: Request::Cgroup });
        plan.push(Step::Unshare { namespaces: Namespaces::CGROUP });
    }
    limits(profile, host, &mut plan);
    if let Some(process) = process {
        for (index, resource, limit) in husk_plan::rlimits(process) {
            plan.at(format!("process.rlimits[{index}]")).push(Step::Setrlimit { resource, limit });
        }
    }
    plan.at("capabilities").push(Step::NoNewPrivs);
    // An ordinary user's are lost in exec. Root's would be there again, but for the line above
    // (security/commoncap.c, `cap_bprm_creds_from_file`).
    if host.program.0 == 0 {
        plan.push(Step::Capset { capabilities: Capabilities { effective: 0, permitted: 0, inheritable: 0 } });
    }
    plan.at("seccomp");
    let own = filter::profile();
    let theirs = container.and_then(|container| container.seccomp.as_ref());
    for filter in [Some(&own), theirs].into_iter().flatten() {
        seccomp(filter, &mut plan)?;
    }
    plan.at("signals").push(Step::SignalMask { blocked: SignalSet::EMPTY });
    exec(profile, host, &mut plan)?;
    Ok(plan.finish(namespaces(profile, host)))
}

fn namespaces(profile: &Profile, host: &Host) -> Namespaces {
    let always = Namespaces::MOUNT | Namespaces::PID | Namespaces::IPC | Namespaces::UTS;
    // One has the cgroup as its root that its maker is in.
    let cgroup = if host.cgroup { Namespaces::EMPTY } else { Namespaces::CGROUP };
    let user = if host.user_namespace { Namespaces::USER } else { Namespaces::EMPTY };
    let net = if profile.net == Net::Host { Namespaces::EMPTY } else { Namespaces::NET };
    always | cgroup | user | net
}

/// The caller's ids and no other, which takes no privilege: files that the program writes are the caller's,
/// whatever they are called in an image.
fn ids(profile: &Profile, host: &Host, plan: &mut Builder<'_>) -> Result<(), Error> {
    let container = profile.image.as_ref().and_then(|image| image.bundle.as_ref());
    for (field, program, caller, mappings) in [
        ("linux.uidMappings", host.program.0, host.uid, container.map(|container| &container.uid_mappings)),
        ("linux.gidMappings", host.program.1, host.gid, container.map(|container| &container.gid_mappings)),
    ] {
        let ours = IdMapping { container_id: program, host_id: caller, size: 1 };
        if mappings.is_some_and(|mappings| mappings.iter().any(|mapping| *mapping != ours)) {
            return Err(plan.at(field).error(format!("can only be of {caller}, the caller, to {program}")));
        }
    }
    if !host.user_namespace {
        if host.program != (host.uid, host.gid) {
            return Err(plan.at("process.user").error("takes a user namespace, and none can be made here"));
        }
        return Ok(());
    }
    plan.at("ids");
    let mut write = |path, text: &str| {
        let bytes = plan.slice(text.as_bytes());
        plan.push(Step::WriteFile { path, bytes, tolerate: None });
    };
    let (uid, gid) = host.program;
    write(c"/proc/self/uid_map", &format!("{uid} {} 1", host.uid));
    // The price of a map without privileges (user_namespaces(7)).
    write(c"/proc/self/setgroups", "deny");
    write(c"/proc/self/gid_map", &format!("{gid} {} 1", host.gid));
    Ok(())
}

/// What clocks that begin with the machine say.
fn clocks(profile: &Profile, host: &Host, plan: &mut Builder<'_>) {
    let container = profile.image.as_ref().and_then(|image| image.bundle.as_ref());
    let offsets = container.iter().flat_map(|container| &container.time_offsets);
    let line = |clock: Clock, secs: i64, nanosecs: u32| match clock {
        Clock::Monotonic => format!("monotonic {secs} {nanosecs}\n"),
        Clock::Boottime => format!("boottime {secs} {nanosecs}\n"),
    };
    let mut lines: String = offsets.map(|offset| line(offset.clock, offset.secs, offset.nanosecs)).collect();
    let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    if let Some(uptime) = profile.uptime {
        // The clocks run meanwhile, and none may be behind its beginning.
        let offset = |clock| seconds(uptime).saturating_sub(seconds(clock));
        let (monotonic, boottime) = host.clocks;
        lines = line(Clock::Monotonic, offset(monotonic), 0) + &line(Clock::Boottime, offset(boottime), 0);
    }
    if !lines.is_empty() {
        let bytes = plan.slice(lines.as_bytes());
        let path = c"/proc/self/timens_offsets";
        // Before Linux 6.2 who is born in a time namespace can set no clock any more, and nobody enters one at exec: who is
        // born next does.
        plan.at("clocks").push(Step::Unshare { namespaces: Namespaces::TIME });
        plan.push(Step::WriteFile { path, bytes, tolerate: None });
    }
}

/// Whether it has clocks of its own.
fn has_clocks(profile: &Profile) -> bool {
    let container = profile.image.as_ref().and_then(|image| image.bundle.as_ref());
    profile.uptime.is_some() || container.is_some_and(|container| !container.time_offsets.is_empty())
}

/// What the kernel counts for each process, or in the user namespace. None is above what the caller may have.
fn limits(profile: &Profile, host: &Host, plan: &mut Builder<'_>) {
    plan.at("limits");
    let within = |asked: u64, most: Option<u64>| most.map_or(asked, |most| asked.min(most));
    for ((resource, asked), most) in profile.limits.resources().into_iter().zip(host.most) {
        let is_cgroups = host.cgroup && matches!(resource, Resource::As | Resource::Nproc);
        let Some(asked) = asked.filter(|_| !is_cgroups) else { continue };
        // The first signal says why, the second does not.
        let maximum = if resource == Resource::Cpu { asked.saturating_add(1) } else { asked };
        let limit = Rlimit { current: Some(within(asked, most)), maximum: Some(within(maximum, most)) };
        plan.push(Step::Setrlimit { resource, limit });
    }
    // A core file is a trace, and so is what a program makes of a core that the kernel gives it; that it does
    // with a limit of 0 too, and with 1 neither (core(5)).
    plan.push(Step::Setrlimit {
        resource: Resource::Core,
        limit: Rlimit { current: Some(1), maximum: Some(1) },
    });
}

fn seccomp(profile: &husk_seccomp::Profile, plan: &mut Builder<'_>) -> Result<(), Error> {
    let (flags, program) = filter::compile(profile).map_err(|error| plan.error(error.to_string()))?;
    let program = plan.slice(&program);
    plan.push(Step::Seccomp { flags, program });
    Ok(())
}

fn exec(profile: &Profile, host: &Host, plan: &mut Builder<'_>) -> Result<(), Error> {
    plan.at("environment");
    let variables = environment::variables(profile, host);
    let strings = variables.iter().map(|(name, value)| {
        let mut variable = name.clone();
        variable.push("=");
        variable.push(value);
        plan.text(variable)
    });
    let strings = strings.collect::<Result<Vec<_>, _>>()?;
    let envp = plan.array(strings);
    plan.at("program");
    let Some(program) = profile.args.first() else {
        return Err(plan.error("is missing"));
    };
    let args = profile.args.iter().map(|argument| plan.text(argument)).collect::<Result<Vec<_>, _>>()?;
    let argv: CArray<'_> = plan.array(args);
    let path = variables.get(OsStr::new("PATH")).map_or(OsStr::new("/usr/bin:/bin"), |path| path);
    let places = candidates(program, path);
    let places = places.iter().map(|place| plan.text(place)).collect::<Result<Vec<_>, _>>()?;
    let candidates = plan.slice(&places);
    plan.push(Step::ExecveFirst { candidates, argv, envp });
    Ok(())
}

/// Returns the paths at which a program may be: its own if it has a slash, otherwise one in each directory of PATH. An
/// empty name is kept, and execve(2) does not find it.
pub(crate) fn candidates(program: &OsStr, path: &OsStr) -> Vec<OsString> {
    if program.is_empty() || program.as_bytes().contains(&b'/') {
        return vec![program.to_owned()];
    }
    let directories = path.as_bytes().split(|byte| *byte == b':');
    let directories = directories.map(|directory| if directory.is_empty() { b"." } else { directory });
    directories.map(|directory| Path::new(OsStr::from_bytes(directory)).join(program).into()).collect()
}
