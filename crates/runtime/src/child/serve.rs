//! What the child asks of us on its way.

use crate::cgroups::ChildCgroup;
use crate::child::hooks;
use crate::child::launch::Launched;
use crate::child::net_devices;
use crate::child::terminal::Console;
use crate::child::trees::Trees;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::sockets::listener;
use crate::store::record::Record;
use husk_bundle::Container;
use husk_bundle::container::Scheduler;
use husk_listing::Line;
use husk_script::Step;
use husk_script::sys::limits::{SchedAttr, sched_setattr};
use husk_spawn::{Child, Request};
use log::debug;
use rustix::process::Pid;

/// Whether a child has come to where it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It has, and waits for an answer to that.
    Ready,
    /// It failed before; its wait says at what.
    Failed,
}

impl Launched<'_> {
    /// Does what the child asks for until all is done that it needs us for.
    ///
    /// # Errors
    ///
    /// If something cannot be done, or a signal has come. The child still waits for the answer.
    pub(crate) fn serve(
        &mut self,
        container: &Container,
        record: &mut Record,
        console: &mut Console,
        interrupt: &Interrupt,
    ) -> Result<Arrival, Error> {
        let mut planned = self.plan.steps.iter().filter_map(Step::request);
        let mut trees = None;
        while let Some(request) = self.next_request(interrupt)? {
            let child = &mut self.child;
            debug!("child process in init(): {}", Line(&Step::Request { what: request }));
            // Who may trace the child may speak in its name: it gets what the list asks for, in that order, once.
            if !planned.any(|planned| planned == request) {
                return Err(Error::State("the container's process asks for what its plan does not"));
            }
            match request {
                Request::Parked => {
                    // Not before: they could slow down, stop or kill it on its way.
                    self.home.as_ref().map_or(Ok(()), ChildCgroup::limit)?;
                    return Ok(Arrival::Ready);
                }
                Request::Hooks => hooks::before_pivot(container, record, child.id(), interrupt)?,
                Request::Listener => listener::hand_over(child, container, record, interrupt)?,
                Request::NetDevices => net_devices::hand_over(child, &container.net_devices)?,
                Request::Cgroup => {
                    self.home.as_mut().map_or(Ok(()), |home| home.join(child.id(), record))?;
                }
                Request::Tree => {
                    trees.get_or_insert_with(|| Trees::of(container)).send(child, container)?;
                    continue;
                }
                Request::Terminal => console.receive(child.requested_fd()?, interrupt)?,
                Request::Scheduler => schedule(child, container)?,
                // Answered by whoever made the child; and of no container.
                Request::IdMaps | Request::Leftovers | Request::Stopped => {
                    return Err(Error::State("the container's process asks for what it has"));
                }
            }
            child.go_on()?;
        }
        Ok(Arrival::Failed)
    }
}

/// Sets how the child is scheduled.
fn schedule(child: &Child, container: &Container) -> Result<(), Error> {
    let Some(scheduler) = container.process.as_ref().and_then(|process| process.scheduler) else {
        return Ok(());
    };
    let Scheduler { policy, flags, nice, priority, runtime, deadline, period } = scheduler;
    let attr = SchedAttr { policy, flags, nice, priority, runtime, deadline, period };
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    sched_setattr(pid, &attr).map_err(|errno| Error::kernel("process.scheduler: sched_setattr", errno))
}
