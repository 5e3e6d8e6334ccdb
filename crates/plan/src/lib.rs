//! A container as a list of steps.
//!
//! What was asked ([`Container`]) and what this machine is ([`Host`]) become what will be done
//! ([`Plan`]): a flat list that a child performs, with the field of config.json that each step comes
//! from beside it. The list is text too; that text is the dry run, the golden test and the error
//! message.
//!
//! This crate is pure. It makes no system call: what depends on the machine stands in [`Host`], so
//! the plan for another machine can be written, read and compared on this one.

#![forbid(unsafe_code)]

mod builder;
pub mod hooks;
mod host;
mod invocation;
mod mounts;
mod namespaces;
mod program;
mod words;

pub use builder::{Builder, Error, Meaning, Plan};
pub use host::{AppArmor, CgroupEntry, CgroupMount, Host, JoinedIds, NamespacePath, Resctrl, Selinux};
pub use invocation::{Invocation, Keyring, NewRoot, Start};
pub use mounts::attach::options;
pub use mounts::devices::{default_devices, makes_nodes};
pub use mounts::places::places;
pub use namespaces::apart;
pub use program::exec::{JoinTarget, cpu_mask, exec};
pub use program::process::{keeps_null_streams, rlimits};
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
/// The order of these lines is the order of the system calls. A line that must stand where it stands
/// says why.
///
/// # Errors
///
/// If the container asks for something that cannot be done, or not yet, on this machine.
pub fn create<'b>(
    container: &Container,
    host: &Host,
    invocation: &Invocation<'_>,
    memory: &'b Bump,
) -> Result<Plan<'b>, Error> {
    let start = invocation.start;
    let mut plan = Builder::new(memory);
    let Some(process) = &container.process else {
        // The specification lets `create` do without one, and refuses `start` then (runtime.md, "Start"). As
        // with runc a container is made around its program, so it is said at once and not at the second step.
        return Err(plan
            .at("process")
            .error("must not be empty: a container is created together with its program"));
    };
    refuse_on_host(container, &mut plan)?;

    host::check_resctrl(container, host, &mut plan)?;
    process::detach(invocation, host, None, &mut plan);
    namespaces::lead_session(container, host, &mut plan);
    let streams = hooks::open_streams(container, &mut plan)?;
    // The caller's, before there is another.
    let needs_procfs = lsm::needs_procfs(container).or_else(|| kernel::needs_procfs(container));
    let proc = procfs::open(needs_procfs, &mut plan)?;
    // A lower score needs a privilege that is gone in a user namespace.
    process::oom_score(container, &mut plan);
    let offsets = kernel::open_offsets(container, proc, &mut plan)?;
    namespaces::enter(container, host, start, &mut plan)?;
    // Before anything that needs an id: until ids are mapped the child has none.
    ids::map(container, host, &mut plan)?;
    // Before anything is made that the container's limits should count, and before another process is born.
    namespaces::settle(container, host, &mut plan);
    // Before kernel parameters, some of which are of a device.
    kernel::net_devices(container, host, &mut plan)?;
    keyring::join(container, invocation, proc, &mut plan)?;
    kernel::names(container, &mut plan)?;
    kernel::sysctl(container, host, proc, Writer::Caller, &mut plan)?;
    // Before another process is born, which would enter a new time namespace.
    kernel::clocks(container, proc, offsets, &mut plan)?;
    kernel::loopback(container, &mut plan);
    namespaces::be_born(container, host, start, &mut plan);
    // Of the process that is to be the program.
    let label = lsm::open(container, host, proc, &mut plan)?;

    let root = rootfs::attach(container, &mut plan)?;
    // After the root file system was found, which may be where only the caller may look; and before
    // anything is made, which has to belong to somebody. Another identity may not write to /proc/self.
    ids::become_root(container, host, start, &mut plan);
    kernel::sysctl(container, host, proc, Writer::Root, &mut plan)?;
    // Before anything of the image is looked at.
    procfs::close(proc, &mut plan);
    // What is made is made with the permissions that are asked for.
    plan.at("process.user.umask").push(Step::Umask { mask: builder::mode(0) });
    let late = mounts::attach(&attach::Around { container, host, root }, &mut plan)?;
    devices::create(container, host, root, &mut plan)?;
    // "After the runtime environment has been created" and "before the `pivot_root`" (config.md); and while
    // they can still change what is covered or made read-only below.
    hooks::before_pivot(container, invocation.id, root, streams, &mut plan)?;
    process::make_cwd(container, root, &mut plan)?;
    // While the host's null device can still be mounted; and on descriptors below the new root, so it
    // makes no difference that it is not yet the root.
    masks::cover(container, root, &mut plan)?;
    // On what the container's mounts are by now; after what must not be seen is covered, and before what
    // must not be written, for `/dev/console` is made.
    terminal::open(container, root, Shown::AsConsole, &mut plan)?;
    // Now that devices, mounts and the console are in them.
    late.seal(&mut plan);
    masks::read_only(container, root, &mut plan)?;
    rootfs::enter(container, host, invocation.new_root, root, &mut plan)?;
    process::null_streams(container, host, &mut plan)?;

    // After everything that is run for the container and not in it, which would be confined too.
    lsm::confine(label, &mut plan);
    process::limits(container, &mut plan);
    if !namespaces::appears_last(container, host) {
        process::scheduler(container, &mut plan);
    }
    identity::assume(container, host, invocation, &mut plan)?;
    // Everything that needs privilege is done.
    namespaces::appear(container, host, start, &mut plan);
    if namespaces::appears_last(container, host) {
        process::request_scheduler(container, &mut plan);
    }
    terminal::control(container, &mut plan);
    // The kernel forgets this signal when ids change.
    namespaces::die_with_creator(start, &mut plan);
    if process.no_new_privileges == NoNewPrivileges::Set {
        plan.at("process.noNewPrivileges").push(Step::NoNewPrivs);
    }
    // Not later: nobody may be left to hand its listener over.
    seccomp::load(container, host, When::Attended, &mut plan)?;
    // Not earlier: what the steps before refer to is given up too. Not later: when it waits, others may come into
    // the container.
    process::forget_memory(container, host, start, &mut plan);
    // Not earlier: a caller without privileges maps ids and fetches the listener through `/proc`, whose files
    // of an undumpable process belong to root. Not later: when it waits, others may come into the container.
    process::hide_memory(&mut plan);
    process::wait(start, &mut plan);
    seccomp::load(container, host, When::Last, &mut plan)?;
    let environment = process::environment(process, host, invocation, &mut plan)?;
    hooks::before_exec(container, invocation.id, environment, &mut plan)?;
    process::exec(process, environment, &mut plan)?;
    Ok(plan.finish(namespaces::born_in(container, host)))
}

/// Refuses what would be done to the host's own file system tree, without a mount namespace.
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
