//! Plans the ids of a user namespace.

use crate::builder::{Builder, Error};
use crate::host::Host;
use crate::invocation::ProgramStart;
use crate::namespaces;
use husk_bundle::Container;
use husk_bundle::container::IdMapping;
use husk_script::sys::namespace::Namespaces;
use husk_script::sys::{Gid, Uid};
use husk_script::{Request, Step};

/// Returns the user and group ids that the container's user namespace maps, if it has one. A new namespace has
/// those of the configuration; a joined one has its own.
fn mappings<'a>(container: &'a Container, host: &'a Host) -> Option<[&'a [IdMapping]; 2]> {
    if namespaces::joined(container).contains(Namespaces::USER) {
        return host.joined_ids.as_ref().map(|joined| [&*joined.uids, &*joined.gids]);
    }
    let is_new = namespaces::new(container).contains(Namespaces::USER);
    is_new.then_some([&*container.uid_mappings, &*container.gid_mappings])
}

/// Asks the parent to map the ids of a new user namespace, after checking the mappings.
pub(crate) fn map(container: &Container, host: &Host, plan: &mut Builder<'_>) -> Result<(), Error> {
    let is_new = namespaces::new(container).contains(Namespaces::USER);
    let is_joined = namespaces::joined(container).contains(Namespaces::USER);
    if host.euid != 0 && !is_new && !is_joined {
        let why = "rootless container requires user namespaces: add one of type \"user\"";
        return Err(plan.at("linux.namespaces").error(why));
    }
    let joined = mappings(container, host).filter(|_| is_joined);
    let maps = [
        ("linux.uidMappings", "uid", &container.uid_mappings),
        ("linux.gidMappings", "gid", &container.gid_mappings),
    ];
    for (index, (field, id, mappings)) in maps.into_iter().enumerate() {
        plan.at(field);
        if is_new && mappings.is_empty() {
            let hint = "containerID 0, hostID your own, size 1";
            let why =
                format!("is missing: a new user namespace needs at least one {id} (for example {hint})");
            return Err(plan.error(why));
        }
        if !is_new && !is_joined && !mappings.is_empty() {
            return Err(
                plan.error("needs a new user namespace: add one of type \"user\" to linux.namespaces")
            );
        }
        // Engines set both a path and mappings; that is accepted if they agree.
        let found = joined.and_then(|joined| joined.get(index).copied());
        if let Some(found) = found.filter(|found| !mappings.is_empty() && !same(found, mappings)) {
            let list = found.iter().map(|map| format!("{} {} {}", map.container_id, map.host_id, map.size));
            let list = list.collect::<Vec<_>>().join(", ");
            let phrase =
                "user namespaces enabled, but both namespace path and non-matching mapping specified";
            return Err(plan.error(format!("{phrase} -- that namespace has {list}")));
        }
    }
    if is_new {
        plan.at("linux.uidMappings").push(Step::Request { what: Request::IdMaps });
    }
    Ok(())
}

/// Whether two mappings are equal, in any order.
fn same(one: &[IdMapping], other: &[IdMapping]) -> bool {
    let sorted = |maps: &[IdMapping]| {
        let mut maps = maps.to_vec();
        maps.sort_by_key(|map| map.container_id);
        maps
    };
    sorted(one) == sorted(other)
}

/// Becomes root of the user namespace, so that new files belong to an id that is mapped there. Until then the
/// process has the caller's id, which may not be mapped.
pub(crate) fn become_root(container: &Container, host: &Host, start: ProgramStart, plan: &mut Builder<'_>) {
    let Some([uids, gids]) = mappings(container, host) else { return };
    let is_new = namespaces::new(container).contains(Namespaces::USER);
    // A caller without privileges that maps only its own id is already root, or no id can be root.
    let is_needed = |maps: &[IdMapping]| {
        let own_alone = is_new && host.euid != 0 && matches!(maps, [map] if map.size == 1);
        !own_alone && maps.iter().any(|map| map.container_id == 0)
    };
    if is_needed(gids) {
        plan.at("linux.gidMappings").push(Step::Setresgid { gid: Gid::from_raw(0) });
    }
    if is_needed(uids) {
        plan.at("linux.uidMappings").push(Step::Setresuid { uid: Uid::from_raw(0) });
        // The kernel clears the parent-death signal when ids change.
        namespaces::die_with_creator(start, plan);
    }
}

/// Whether the container's processes may change their groups (user_namespaces(7)).
pub(crate) fn may_set_groups(container: &Container, host: &Host) -> bool {
    if let Some(joined) = &host.joined_ids {
        return joined.may_set_groups;
    }
    if namespaces::joined(container).contains(Namespaces::USER) {
        return true;
    }
    // An unprivileged user who maps only their own group must give up setgroups to do so.
    let gives_up = namespaces::new(container).contains(Namespaces::USER)
        && host.euid != 0
        && matches!(&*container.gid_mappings, [mapping] if mapping.size == 1 && mapping.host_id == host.egid);
    host.may_set_groups && !gives_up
}
