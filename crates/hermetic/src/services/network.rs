//! Creates a network that sandboxes share.

use crate::error::{self, Error};
use crate::host::JoinedNetwork;
use crate::plan::network;
use crate::sandbox::Machine;
use husk_script::Request;
use husk_script::sys::namespace::Namespaces;
use husk_script::sys::{Errno, Fd};
use husk_spawn::{Child, Command, Reason};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// A network namespace with the loopback device up, which exists as long as this value or a process in it.
pub(super) struct Network {
    user: Option<OwnedFd>,
    net: OwnedFd,
}

impl Network {
    /// Creates a network in a child that ends at once.
    pub(super) fn new(machine: &mut Machine) -> Result<Self, Error> {
        loop {
            let host = machine.host.clone();
            let user_namespace = host.user_namespace;
            let mut command = Command::of_steps(move |writer| match network::plan(&host, writer.memory()) {
                Ok(plan) => {
                    plan.steps.iter().for_each(|step| writer.push(*step));
                    Ok(())
                }
                Err(_) => Err(husk_spawn::Error::new("plan", Errno::INVAL)),
            });
            let user = if user_namespace { Namespaces::USER } else { Namespaces::EMPTY };
            command.kill_on_drop().new_namespaces(user);
            match command.spawn().and_then(|child| Self::of(child, user_namespace)) {
                Ok(network) => return Ok(network),
                Err(error) if machine.does_without_users(&error)? => {}
                Err(error) => return Err(refused(&error)),
            }
        }
    }

    /// Takes the descriptors that the child sends. The child is then killed.
    fn of(mut child: Child, user_namespace: bool) -> Result<Self, husk_spawn::Error> {
        let user = if user_namespace {
            let user = next(&mut child)?;
            child.go_on()?;
            Some(user)
        } else {
            None
        };
        Ok(Self { user, net: next(&mut child)? })
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.user.iter().chain([&self.net]).map(|fd| fd.as_fd())
    }

    pub(super) fn joined(&self) -> JoinedNetwork {
        JoinedNetwork { user: self.user.as_ref().map(Fd::of), net: Fd::of(&self.net) }
    }
}

fn next(child: &mut Child) -> Result<OwnedFd, husk_spawn::Error> {
    match child.next_request()? {
        Some(Request::Files) => child.requested_fd(),
        _ => {
            child.wait()?;
            Err(husk_spawn::Error::new("create a network", Errno::PROTO))
        }
    }
}

fn refused(error: &husk_spawn::Error) -> Error {
    let errno = match error.reason() {
        Reason::Errno(errno) => errno,
        _ => Errno::PROTO,
    };
    let hint = if error.step().is_some() { error::no_net(errno) } else { error::switched_off(errno) };
    Error::Namespaces { act: error.act().to_owned(), reason: error.reason().into(), hint }
}
