//! Plans a container as a list of steps.
//!
//! [`create`] turns a configuration ([`Container`]) and the facts of a machine ([`Host`]) into a [`Plan`]. A plan
//! is a flat list of steps that a child performs, each with the field of config.json that it comes from. The list
//! also prints as text, which serves as the dry run, the golden test and the error message.
//!
//! This crate is pure: it makes no system call. Everything that depends on the machine is in [`Host`], so the plan
//! for another machine can be written, read and compared on this one.

#![forbid(unsafe_code)]

mod builder;
pub mod hooks;
mod host;
mod invocation;
mod mounts;
mod namespaces;
mod origin;
mod program;
pub mod users;
mod words;

pub use builder::{Builder, Error, FailureMeaning, Plan};
pub use host::{AppArmor, CgroupEntry, CgroupMount, Host, JoinedIds, NamespacePath, Resctrl, Selinux};
pub use invocation::{Invocation, Keyring, NewRoot, ProgramStart};
pub use mounts::attach::options;
pub use mounts::devices::{DEVICE_LINKS, default_devices, makes_nodes};
pub use mounts::places::places;
pub use namespaces::apart;
pub use origin::{Origin, Part};
pub use program::exec::{JoinTarget, cpu_mask, exec};
pub use program::process::{candidates, keeps_null_streams, program_candidates, rlimits};
pub use program::seccomp::decisions;
pub use words::not_begun;

use bumpalo::Bump;
use husk_bundle::Container;
use husk_bundle::container::{Access, NamespaceKind, NoNewPrivileges};
use husk_script::Step;
use mounts::{attach, devices, masks, rootfs};
use namespaces::kernel::Writer;
use namespaces::{ids, kernel, procfs};
use program::seccomp::When;
use program::terminal::Shown;
use program::{identity, keyring, lsm, process, seccomp, terminal};

/// Writes the plan of a container into `memory`.
///
/// The order of these lines is the order of the system calls. Comments say why a line cannot move.
///
/// # Errors
///
/// Fails if the container asks for something that cannot be done on this machine, or that husk cannot do yet.
pub fn create<'b>(
    container: &Container,
    host: &Host,
    invocation: &Invocation<'_>,
    memory: &'b Bump,
) -> Result<Plan<'b>, Error> {
    let start = invocation.start;
    let mut plan = Builder::new(memory);
    let Some(process) = &container.process else {
        // The specification lets `create` succeed without a process and makes `start` fail (runtime.md, "Start").
        // husk, like runc, creates a container around its program, so `create` fails already.
        return Err(plan
            .at("process")
            .error("must not be empty: a container is created together with its program"));
    };
    refuse_on_host(container, &mut plan)?;

    host::check_resctrl(container, host, &mut plan)?;
    process::detach(invocation, host, None, &mut plan);
    namespaces::lead_session(container, host, &mut plan);
    // Must precede joining a mount namespace, in which the cgroups may be elsewhere.
    namespaces::enter_cgroups(host, &mut plan)?;
    let streams = hooks::open_streams(container, &mut plan)?;
    // Opens the caller's procfs, before the container mounts another one.
    let needs_procfs = lsm::needs_procfs(container).or_else(|| kernel::needs_procfs(container));
    let proc = procfs::open(needs_procfs, &mut plan)?;
    // Lowering the score needs a privilege that the child loses in a user namespace.
    process::oom_score(container, &mut plan);
    let offsets = kernel::open_offsets(container, proc, &mut plan)?;
    namespaces::enter(container, host, start, &mut plan)?;
    // Must precede every step that needs an id: the child has no id in its user namespace until ids are mapped.
    ids::map(container, host, &mut plan)?;
    // Must precede everything that counts against the container's limits, and the creation of another process.
    namespaces::settle(container, host, &mut plan);
    // Must precede kernel parameters, because some belong to a network device.
    kernel::net_devices(container, host, &mut plan)?;
    keyring::join(container, invocation, proc, &mut plan)?;
    kernel::names(container, &mut plan)?;
    kernel::sysctl(container, host, proc, Writer::Caller, &mut plan)?;
    // Must precede the creation of another process, which would enter a new time namespace.
    kernel::clocks(container, proc, offsets, &mut plan)?;
    kernel::loopback(container, &mut plan);
    namespaces::fork_here(container, host, start, &mut plan);
    // The process that becomes the program opens the file, because a process can write only its own label.
    let label = lsm::open(container, host, proc, &mut plan)?;

    let root = rootfs::attach(container, &mut plan)?;
    // Must follow the root file system, whose path may be accessible to the caller only. Must precede files, which
    // must belong to an id that is mapped. Another identity may not write to /proc/self.
    ids::become_root(container, host, start, &mut plan);
    kernel::sysctl(container, host, proc, Writer::Root, &mut plan)?;
    // Must precede the first path of the image that is resolved.
    procfs::close(proc, &mut plan);
    // Clears the umask, so that files and directories get exactly the permissions that the configuration gives.
    plan.at("process.user.umask").push(Step::Umask { mask: builder::mode(0) });
    let late = mounts::attach(&attach::Around { container, host, root }, &mut plan)?;
    devices::create(container, host, root, &mut plan)?;
    // config.md: "after the runtime environment has been created" and "before the `pivot_root`". At this point
    // hooks can still change files that are masked or made read-only below.
    hooks::before_pivot(container, invocation.id, root, streams, &mut plan)?;
    process::make_cwd(container, root, &mut plan)?;
    // Must happen while the host's null device can still be mounted. Paths are resolved below the new root's
    // descriptor, so it need not be the root yet.
    masks::cover(container, root, &mut plan)?;
    // Must follow the container's mounts, because it needs their devpts. Must follow masking and precede read-only
    // paths, because it creates `/dev/console`.
    terminal::open(container, root, Shown::AsConsole, &mut plan)?;
    // Must follow devices, mounts and the console, which are created in these mounts.
    late.seal(&mut plan);
    masks::read_only(container, root, &mut plan)?;
    rootfs::enter(container, host, invocation.new_root, root, &mut plan)?;
    process::null_streams(container, host, &mut plan)?;

    // Must follow everything that runs on behalf of the container but outside it. The label would confine that too.
    lsm::confine(label, &mut plan);
    process::limits(container, &mut plan);
    if !namespaces::appears_last(container, host) {
        process::scheduler(container, &mut plan);
    }
    identity::assume(container, host, invocation, &mut plan)?;
    // Must follow the last step that needs a privilege.
    namespaces::appear(container, host, start, &mut plan);
    if namespaces::appears_last(container, host) {
        process::request_scheduler(container, &mut plan);
    }
    terminal::control(container, &mut plan);
    // The kernel clears the parent-death signal when ids change.
    namespaces::die_with_creator(start, &mut plan);
    if process.no_new_privileges == NoNewPrivileges::Set {
        plan.at("process.noNewPrivileges").push(Step::NoNewPrivs);
    }
    // Must not be later: the parent must still be there to hand over the filter's listener.
    seccomp::load(container, host, When::Attended, &mut plan)?;
    // Must not be earlier: it also frees the memory that earlier steps refer to. Must not be later: once the
    // process waits for `start`, other processes may enter the container.
    process::forget_memory(container, host, start, &mut plan);
    // Must not be earlier: a caller without privileges maps ids and fetches the listener through `/proc`. Root
    // owns the `/proc` files of an undumpable process. Must not be later: once the process waits, others may enter
    // the container.
    process::hide_memory(&mut plan);
    process::wait(start, &mut plan);
    seccomp::load(container, host, When::Last, &mut plan)?;
    let environment = process::environment(process, host, invocation, &mut plan)?;
    hooks::before_exec(container, invocation.id, environment, &mut plan)?;
    process::exec(process, environment, &mut plan)?;
    Ok(plan.finish(namespaces::initial_namespaces(container, host)))
}

/// Refuses settings that would change the host's own file system tree if the container has no mount namespace.
fn refuse_on_host(container: &Container, plan: &mut Builder<'_>) -> Result<(), Error> {
    if namespaces::has(container, NamespaceKind::Mount) {
        return Ok(());
    }
    let asked = [
        ("mounts", !container.mounts.is_empty()),
        ("linux.maskedPaths", !container.masked_paths.is_empty()),
        ("linux.readonlyPaths", !container.readonly_paths.is_empty()),
        ("linux.rootfsPropagation", container.rootfs_propagation.is_some()),
        ("root.readonly", container.rootfs_access == Access::ReadOnly),
    ];
    match asked.into_iter().find(|(_, asked)| *asked) {
        Some((name, _)) => Err(plan.at(name).error("is not possible without a private MNT namespace")),
        None => Ok(()),
    }
}
