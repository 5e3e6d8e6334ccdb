//! Opens the mount sources that only this process can open: those out of reach of the container's root, and those with
//! ID mappings.
//!
//! Each source is opened in the container's mount namespace, when the child asks for it. Not earlier, because an
//! earlier mount may contain the source of a later one. Not in this process's namespace either: the kernel locks mounts
//! and their attributes together only when it copies them into a less privileged namespace (mount_namespaces(7)). The
//! container could unmount parts of a copy made here, and see what is beneath.

use crate::error::Error;
use crate::host::nodes;
use husk_bundle::Container;
use husk_bundle::container::{IdMapping, Mount, MountIdMapping, NamespaceKind, Source};
use husk_listing::Cause;
use husk_plan::Origin;
use husk_script::sys::mount::{Extent, mount_setattr_idmap};
use husk_script::sys::namespace::{setns, unshare_fs};
use husk_script::sys::{Errno, Fd};
use husk_spawn::{Child, Command, IdMap, Namespaces, Request, Signal, Step};
use rustix::fs::CWD;
use rustix::mount::{OpenTreeFlags, open_tree};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;

pub(crate) struct Trees {
    mounts: Vec<Mount>,
    own: MountIdMapping,
    joined: Option<PathBuf>,
    made: Vec<(Maps, File)>,
    /// The nodes of `linux.devices`, made when the first one is requested.
    nodes: Option<Vec<OwnedFd>>,
}

/// The ID mappings of users and of groups.
type Maps = (Vec<IdMapping>, Vec<IdMapping>);

impl Trees {
    pub(crate) fn of(container: &Container) -> Self {
        let own = MountIdMapping {
            extent: Extent::Top,
            uids: container.uid_mappings.clone(),
            gids: container.gid_mappings.clone(),
        };
        let mut namespaces = container.namespaces.iter();
        let user = namespaces.find(|namespace| namespace.kind == NamespaceKind::User);
        let joined = user.and_then(|namespace| namespace.path.clone());
        Self { mounts: container.mounts.clone(), own, joined, made: Vec::new(), nodes: None }
    }

    /// Opens the source that the child requests, and answers with its descriptor.
    pub(crate) fn send(&mut self, child: &mut Child, container: &Container) -> Result<(), Error> {
        // The indexes of devices follow those of mounts.
        let device = child.about().and_then(|index| index.checked_sub(self.mounts.len()));
        if let Some(index) = device.filter(|index| *index < container.devices.len()) {
            let nodes = match &mut self.nodes {
                Some(nodes) => nodes,
                nodes @ None => nodes.insert(nodes::make(container)?),
            };
            let node = nodes
                .get(index)
                .ok_or(Error::State("the container's process requested a device that does not exist"))?;
            return Ok(child.go_on_with(node.as_fd())?);
        }
        let tree = self.open(child)?;
        Ok(child.go_on_with(tree.as_fd())?)
    }

    fn open(&mut self, child: &Child) -> Result<OwnedFd, Error> {
        let index = child.about().unwrap_or(usize::MAX);
        let Some(Mount { destination, source: Source::Bind { path, extent }, id_mapping, .. }) =
            self.mounts.get(index).cloned()
        else {
            return Err(Error::State("the container's process requested a mount that does not exist"));
        };
        let failed = |act: String, reason: Cause| {
            Error::step(Origin::mount(index, &destination), format!("{act}: {reason}"))
        };
        let tree = open_in(child, &path, extent)
            .map_err(|error| failed(format!("open-tree {}", path.display()), error.into()))?;
        if let Some(ids) = &id_mapping {
            let users = self.user_namespace(ids).map_err(|reason| {
                failed(format!("make a user namespace for the ids of {}", path.display()), reason)
            })?;
            mount_setattr_idmap(Fd::of(&tree), ids.extent, Fd::of(users)).map_err(|errno| {
                let hint = match errno {
                    Errno::INVAL => " (maybe the filesystem does not support it)",
                    _ => "",
                };
                failed(format!("failed to set MOUNT_ATTR_IDMAP on {}{hint}", path.display()), errno.into())
            })?;
        }
        Ok(tree)
    }

    /// Returns a user namespace with the mount's ID mappings, or with the container's if the mount has none.
    fn user_namespace(&mut self, ids: &MountIdMapping) -> Result<&File, Cause> {
        let said = if ids.uids.is_empty() { &self.own } else { ids };
        let maps = (said.uids.clone(), said.gids.clone());
        let index = match self.made.iter().position(|(other, _)| *other == maps) {
            Some(index) => index,
            None => {
                let users = match &self.joined {
                    Some(path) if ids.uids.is_empty() => File::open(path)?,
                    _ => make(&maps)?,
                };
                self.made.push((maps, users));
                self.made.len() - 1
            }
        };
        Ok(&self.made[index].1)
    }
}

/// Opens a source in the child's mount namespace, with this process's privileges.
fn open_in(child: &Child, path: &Path, extent: Extent) -> io::Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if extent == Extent::All {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    let pidfd = child.as_fd();
    // In a thread of its own, which stays in that namespace until it ends.
    thread::scope(|scope| {
        let open = scope.spawn(|| {
            unshare_fs()?;
            setns(Fd::of(&pidfd), Namespaces::MOUNT)?;
            Ok(open_tree(CWD, path, flags)?)
        });
        open.join().unwrap_or_else(|_| Err(io::Error::other("a thread failed")))
    })
}

pub(crate) fn make(maps: &Maps) -> Result<File, Cause> {
    user_namespace(&id_maps(&maps.0), &id_maps(&maps.1))
}

/// Makes a user namespace with these maps. The process that is created for it does not outlive this call.
///
/// # Errors
///
/// If the process cannot be created, or may not have these maps.
pub fn user_namespace(uids: &[IdMap], gids: &[IdMap]) -> Result<File, Cause> {
    let mut command = Command::of_steps(|writer| {
        writer.push(Step::ParentDeathSignal { signal: Signal::KILL, parent: None });
        // Also closes the child's copy of this process's end of the channel, so that the child ends when this process
        // does.
        writer.push(Step::CloseOthers { first: Fd::FIRST_EXTRA, keep: None });
        writer.push(Step::Request { what: Request::IdMaps });
        // The parent never answers: the child waits until its namespace has been opened, and is then killed.
        writer.push(Step::Request { what: Request::Parked });
        Ok(())
    });
    command.kill_on_drop().new_namespaces(Namespaces::USER).uid_map(uids).gid_map(gids);
    let child = command.spawn().map_err(|error| Cause::Phrase(Error::Spawn(error).to_string()))?;
    Ok(File::open(format!("/proc/{}/ns/user", child.id()))?)
}

/// Converts ID mappings to the form that the kernel is given.
pub(crate) fn id_maps(mappings: &[IdMapping]) -> Vec<IdMap> {
    let map = |mapping: &IdMapping| IdMap {
        inside: mapping.container_id,
        outside: mapping.host_id,
        count: mapping.size,
    };
    mappings.iter().map(map).collect()
}
