//! Turns a profile into a list of steps.
//!
//! The child creates the namespaces, so all mounts belong to it and it may change them. Files that are needed after
//! they are covered are opened first.
//!
//! Names are looked up in the host's files and in the program's own file system, which no image can change. Paths in
//! the program's root are resolved with `RESOLVE_IN_ROOT` below a descriptor of that root. An image becomes the root
//! last: after a change of root, only the program is looked up by name.

pub(crate) mod environment;
mod files;
pub(crate) mod filter;
pub(crate) mod image;
mod inputs;
mod landlock;
pub(crate) mod layers;
pub(crate) mod network;
pub(crate) mod stack;
mod sys;
pub(crate) mod view;

pub(crate) use files::{FIRST_PID, PROC, TOOLS};
pub(crate) use sys::SYS;

use crate::host::Host;
use crate::profile::{Image, Net, PathAccess, Profile};
use bumpalo::Bump;
use husk_bundle::container::{Clock, IdMapping};
use husk_plan::{Builder, Error, Plan, candidates};
use husk_script::sys::file::Mode;
use husk_script::sys::limits::{Resource, Rlimit};
use husk_script::sys::namespace::Namespaces;
use husk_script::sys::process::{Capabilities, SockFilter};
use husk_script::sys::signal::{Signal, SignalSet};
use husk_script::sys::{CArray, Fd};
use husk_script::{Request, Step};
use landlock::LandlockRules;
use layers::Streams;
use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

/// A host name that is the same everywhere and that every machine can resolve.
const HOSTNAME: &[u8] = b"localhost";

/// Signals that a caller may have left ignored, which its children inherit.
const INHERITED: &[Signal] =
    &[Signal::HUP, Signal::INT, Signal::QUIT, Signal::PIPE, Signal::TERM, Signal::CHLD, Signal::TSTP];

/// `CAP_SETFCAP` in the sandbox's user namespace. Without it, root cannot map its id into a user namespace of its own
/// (kernel/user_namespace.c, `verify_root_map`).
const SETFCAP: u64 = 1 << 31;

/// Everything that a plan depends on. A plan is built in memory that is freed when the child ends, and built again to
/// describe a failed step.
pub(crate) struct SandboxPlan {
    pub(crate) profile: Profile,
    pub(crate) host: Host,
    pub(crate) streams: Streams,
}

impl SandboxPlan {
    pub(crate) fn plan<'b>(&self, memory: &'b Bump) -> Result<Plan<'b>, Error> {
        plan(&self.profile, &self.host, self.streams, memory)
    }

    /// Returns the directories of the host that the program's own cover, and their names in its file system.
    pub(crate) fn covers(&self) -> Vec<(&Path, &'static str)> {
        view::covers(&self.host).into_iter().map(|cover| (cover.path, cover.name)).collect()
    }

    /// Returns whether the program can write to a layer above its image.
    pub(crate) fn has_written_layer(&self) -> bool {
        self.profile.image.as_ref().is_some_and(|image| image.access == PathAccess::Overlay)
    }

    pub(crate) fn namespaces(&self) -> Namespaces {
        initial_namespaces(&self.host)
    }
}

/// Returns whether the program cannot see a path of the host or its image.
pub(crate) fn is_hidden(path: &Path, profile: &Profile, host: &Host) -> bool {
    let named = |is_hide| {
        let shown = profile.shown.iter().zip(&host.found);
        shown
            .filter(move |(show, _)| (show.access == PathAccess::Hide) == is_hide)
            .any(|(_, found)| path.starts_with(&found.path))
    };
    let is_covered = view::place(path, &view::covers(host)).is_some() && !path.starts_with(&host.project);
    let is_absent = host.view.as_ref().is_some_and(|view| !view.shows(path));
    named(true) || is_absent || (is_covered && !named(false))
}

/// Builds the plan of a program in `memory`.
///
/// The order of these lines is the order of the system calls. A line that depends on its position says why.
///
/// # Errors
///
/// If a request of the profile cannot be met.
pub fn plan<'b>(
    profile: &Profile,
    host: &Host,
    streams: Streams,
    memory: &'b Bump,
) -> Result<Plan<'b>, Error> {
    let mut plan = Builder::new(memory);
    let makes_net = profile.net != Net::Host && host.network.is_none();
    if makes_net {
        // First, because the kernel needs longer for it than for everything until `JoinNewNet`.
        plan.at("net").push(Step::NewNet { loopback: profile.net == Net::Loopback });
    }
    plan.at("signals");
    INHERITED.iter().copied().for_each(|signal| plan.push(Step::DefaultAction { signal }));
    let sysfs = match host.network {
        Some(joined) => network::join(profile, host, joined, &mut plan)?,
        None => None,
    };
    ids(profile, host, &mut plan)?;
    if host.network.is_some() {
        // Only a new process enters the pid namespace.
        plan.at("init").push(Step::CloneParent { namespaces: Namespaces::EMPTY });
    }
    clocks(profile, host, &mut plan);
    // The sandbox must not outlive us.
    plan.at("init").push(Step::ParentDeathSignal { signal: Signal::KILL, parent: None });
    let container = profile.image.as_ref().and_then(|image| image.bundle.as_ref());
    let said = |name: Option<&String>, plan: &Builder<'b>| name.map(|name| plan.slice(name.as_bytes()));
    let name = said(container.and_then(|container| container.hostname.as_ref()), &plan);
    plan.at("hostname").push(Step::Sethostname { name: name.unwrap_or(HOSTNAME) });
    if let Some(name) = said(container.and_then(|container| container.domainname.as_ref()), &plan) {
        plan.at("domainname").push(Step::Setdomainname { name });
    }
    // Files get exactly the permissions that the steps specify.
    plan.at("files").push(Step::Umask { mask: Mode::empty() });
    // A sysfs shows the network namespace of the process that mounts it.
    let has_sysfs = profile.image.iter().flat_map(image::mounts).any(|(_, mount)| image::is_sysfs(mount));
    if makes_net && has_sysfs {
        plan.at("net").push(Step::JoinNewNet);
        plan.at("files");
    }
    let rules = LandlockRules::new(profile, host, &mut plan)?;
    let null = files::files(profile, host, sysfs, &rules, &mut plan)?;
    // The first process gets our filter too: the kernel takes a while to load it, and here the thread is still busy. The
    // filter refuses no call of the remaining steps. A bundle's filter might, so only the program gets that one. So does an
    // observed program: a filter that refuses calls would hide them from the listener.
    plan.at("capabilities").push(Step::NoNewPrivs);
    if !profile.observed {
        plan.at("seccomp");
        let (flags, program) = filter::usual().map_err(|error| plan.error(error.to_string()))?;
        plan.push(Step::Seccomp { flags: *flags, program: plan.slice(program) });
    }
    if makes_net && !has_sysfs {
        // As late as possible, but before the sysfs, which shows the network of the process that mounts it.
        plan.at("net").push(Step::JoinNewNet);
    }
    sys::mount(profile, host, sysfs, &mut plan)?;
    // After the last mount, since Landlock forbids all mounts, and before the streams are replaced.
    rules.raise(host, streams, &mut plan);
    if host.uid == 0 && !host.null_streams.is_empty() {
        // Through the caller's descriptors root could change the permissions of the host's device.
        plan.at("streams");
        for stream in &host.null_streams {
            plan.push(Step::Dup3 { from: null.into(), to: *stream });
        }
    }
    let process = profile.image.as_ref().and_then(Image::process);
    let mask = process.map_or(0o022, |process| process.umask);
    plan.at("umask").push(Step::Umask { mask: Mode::from_raw_mode(mask) });
    if let Streams::Captured { output, errors } = streams {
        plan.at("streams");
        plan.push(Step::Dup3 { from: null.into(), to: Fd::STDIN });
        plan.push(Step::Dup3 { from: output.into(), to: Fd::STDOUT });
        plan.push(Step::Dup3 { from: errors.into(), to: Fd::STDERR });
    }
    plan.release(null);
    if let Streams::Heard(output) = streams {
        plan.at("streams").push(Step::Dup3 { from: output.into(), to: Fd::STDOUT });
    }
    // Closes everything that the caller has open on the host, except the standard streams.
    plan.at("init").push(Step::CloseOthers { first: Fd::FIRST_EXTRA, keep: None });
    if host.network.is_some() {
        // The parent may have been killed before `ParentDeathSignal`. Then nobody answers, and this fails.
        plan.push(Step::Request { what: Request::Cgroup });
    }

    let has_terminal = matches!(streams, Streams::Terminal | Streams::ForegroundTerminal);
    if has_terminal {
        // Stopping the caller's process group must not stop the process that waits for the program. The waiting process
        // must also be in another group than the program, which the terminal could otherwise not stop.
        plan.push(Step::Setpgid { group: None });
    }
    // Every sandbox has its own /dev, in the file system of all private directories and overlays.
    let space = profile.limits.disk.map(|_| c"/dev");
    // The program does not share our memory in three cases. The cgroup may run short of it, a terminal may stop the
    // child before exec, or it enters a time namespace.
    plan.push(if has_terminal || host.cgroup || has_clocks(profile) {
        Step::CloneAndReap { space }
    } else {
        Step::VforkAndReap { space }
    });
    // The following steps run in the process that becomes the program. Its signals to its process group must not reach
    // the process that started it. Nor may it type into the caller's terminal: it gets its own session, or relies on
    // the filter.
    if has_terminal {
        // The caller may ignore the signals that stop background processes, because it is in the foreground.
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
        // Only after the copy: when that cgroup is short of memory, the kernel must not find a process that shares
        // ours.
        plan.at("limits").push(Step::Request { what: Request::Cgroup });
        plan.push(Step::Unshare { namespaces: Namespaces::CGROUP });
    }
    limits(profile, host, &mut plan);
    if let Some(process) = process {
        for (index, resource, limit) in husk_plan::rlimits(process) {
            plan.at(format!("process.rlimits[{index}]")).push(Step::Setrlimit { resource, limit });
        }
    }
    plan.at("capabilities");
    // An ordinary user's capabilities are lost in exec. Root keeps the permitted ones, but gets no others because of
    // `NoNewPrivs` (security/commoncap.c, `cap_bprm_creds_from_file`).
    if host.program.0 == 0 {
        let kept = if profile.nested && host.user_namespace { SETFCAP } else { 0 };
        plan.push(Step::Capset {
            capabilities: Capabilities { effective: kept, permitted: kept, inheritable: 0 },
        });
    }
    plan.at("seccomp");
    if host.landlock.is_none() && !profile.nested {
        // Only the program gets this filter: the first process itself mounts after it has loaded its own.
        let (flags, program) = seccomp(&filter::without_mounts(), &plan)?;
        plan.push(Step::Seccomp { flags, program });
    }
    if profile.observed {
        let (flags, program) = seccomp(&filter::observed(host), &plan)?;
        plan.push(Step::SeccompListener { flags, program });
    }
    if let Some(theirs) = container.and_then(|container| container.seccomp.as_ref()) {
        let (flags, program) = seccomp(theirs, &plan)?;
        plan.push(Step::Seccomp { flags, program });
    }
    plan.at("signals").push(Step::SignalMask { blocked: SignalSet::EMPTY });
    exec(profile, host, &mut plan)?;
    Ok(plan.finish(initial_namespaces(host)))
}

/// Returns the namespaces that the child is created in. It creates that of the network itself. A child that joins a
/// network creates all of them itself, because it must be in the network's user namespace before.
fn initial_namespaces(host: &Host) -> Namespaces {
    if host.network.is_some() { Namespaces::EMPTY } else { namespaces(host) }
}

/// Returns the namespaces of a sandbox besides that of the network.
fn namespaces(host: &Host) -> Namespaces {
    let always = Namespaces::MOUNT | Namespaces::PID | Namespaces::IPC | Namespaces::UTS;
    // A cgroup namespace is rooted at its creator's cgroup, so with a cgroup it is created after the move.
    let cgroup = if host.cgroup { Namespaces::EMPTY } else { Namespaces::CGROUP };
    let user = if host.user_namespace { Namespaces::USER } else { Namespaces::EMPTY };
    always | cgroup | user
}

/// Maps only the caller's ids, which needs no privilege. Files that the program writes belong to the caller, whatever
/// its ids are in an image.
fn ids(profile: &Profile, host: &Host, plan: &mut Builder<'_>) -> Result<(), Error> {
    let container = profile.image.as_ref().and_then(|image| image.bundle.as_ref());
    for (field, program, caller, mappings) in [
        ("linux.uidMappings", host.program.0, host.uid, container.map(|container| &container.uid_mappings)),
        ("linux.gidMappings", host.program.1, host.gid, container.map(|container| &container.gid_mappings)),
    ] {
        let ours = IdMapping { container_id: program, host_id: caller, size: 1 };
        if mappings.is_some_and(|mappings| mappings.iter().any(|mapping| *mapping != ours)) {
            return Err(plan.at(field).error(format!("may only map the caller's id {caller} to {program}")));
        }
    }
    if !host.user_namespace {
        if host.program != (host.uid, host.gid) {
            return Err(plan
                .at("process.user")
                .error("needs a user namespace, and none can be created here"));
        }
        return Ok(());
    }
    map_ids(host.program, (host.uid, host.gid), plan);
    Ok(())
}

/// Maps one uid and one gid in the user namespace of this process.
fn map_ids((uid, gid): (u32, u32), (host_uid, host_gid): (u32, u32), plan: &mut Builder<'_>) {
    plan.at("ids");
    let mut write = |path, text: &str| {
        let bytes = plan.slice(text.as_bytes());
        plan.push(Step::WriteFile { path, bytes, tolerate: None });
    };
    write(c"/proc/self/uid_map", &format!("{uid} {host_uid} 1"));
    // An unprivileged process may write `gid_map` only after this (user_namespaces(7)).
    write(c"/proc/self/setgroups", "deny");
    write(c"/proc/self/gid_map", &format!("{gid} {host_gid} 1"));
}

/// Sets the clocks that start with the machine.
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
        // Rounds down: the clocks advance until then, and an offset must not make one negative.
        let offset = |clock| seconds(uptime).saturating_sub(seconds(clock));
        let (monotonic, boottime) = host.clocks;
        lines = line(Clock::Monotonic, offset(monotonic), 0) + &line(Clock::Boottime, offset(boottime), 0);
    }
    if !lines.is_empty() {
        let bytes = plan.slice(lines.as_bytes());
        let path = c"/proc/self/timens_offsets";
        // Before Linux 6.2, a process that is created in a time namespace can no longer set its clocks, and exec does
        // not enter one. So we unshare it, and the next child enters it.
        plan.at("clocks").push(Step::Unshare { namespaces: Namespaces::TIME });
        plan.push(Step::WriteFile { path, bytes, tolerate: None });
    }
}

/// Returns whether the program has clocks of its own.
fn has_clocks(profile: &Profile) -> bool {
    let container = profile.image.as_ref().and_then(|image| image.bundle.as_ref());
    profile.uptime.is_some() || container.is_some_and(|container| !container.time_offsets.is_empty())
}

/// Sets the limits that the kernel counts per process or in the user namespace. None exceeds the caller's.
fn limits(profile: &Profile, host: &Host, plan: &mut Builder<'_>) {
    plan.at("limits");
    let within = |asked: u64, most: Option<u64>| most.map_or(asked, |most| asked.min(most));
    for ((resource, asked), most) in profile.limits.resources().into_iter().zip(host.most) {
        let is_cgroups = host.cgroup && matches!(resource, Resource::As | Resource::Nproc);
        let Some(asked) = asked.filter(|_| !is_cgroups) else { continue };
        // SIGXCPU at the soft limit identifies the reason; SIGKILL at the hard limit does not.
        let maximum = if resource == Resource::Cpu { asked.saturating_add(1) } else { asked };
        let limit = Rlimit { current: Some(within(asked, most)), maximum: Some(within(maximum, most)) };
        plan.push(Step::Setrlimit { resource, limit });
    }
    // RLIMIT_CORE of 1 disables core files and core handlers; 0 would still run handlers (core(5)).
    plan.push(Step::Setrlimit {
        resource: Resource::Core,
        limit: Rlimit { current: Some(1), maximum: Some(1) },
    });
}

fn seccomp<'b>(
    profile: &husk_seccomp::Profile,
    plan: &Builder<'b>,
) -> Result<(u32, &'b [SockFilter]), Error> {
    let (flags, program) = filter::compile(profile).map_err(|error| plan.error(error.to_string()))?;
    Ok((flags, plan.slice(&program)))
}

fn exec(profile: &Profile, host: &Host, plan: &mut Builder<'_>) -> Result<(), Error> {
    plan.at("environment");
    let variables = environment::variables(profile, host);
    let strings = variables.iter().map(|(name, value)| plan.joined(&[name, OsStr::new("="), value]));
    let strings = strings.collect::<Result<Vec<_>, _>>()?;
    let envp = plan.array(strings);
    plan.at("program");
    let Some(program) = profile.args.first() else {
        return Err(plan.error("is missing"));
    };
    let args = profile.args.iter().map(|argument| plan.text(argument)).collect::<Result<Vec<_>, _>>()?;
    let argv: CArray<'_> = plan.array(args);
    let path = variables.get(OsStr::new("PATH")).map_or(OsStr::new("/usr/bin:/bin"), |path| path.as_ref());
    let places = candidates(program, path);
    let places = places.iter().map(|place| plan.text(place)).collect::<Result<Vec<_>, _>>()?;
    let candidates = plan.slice(&places);
    plan.push(Step::ExecveFirst { candidates, argv, envp });
    Ok(())
}
