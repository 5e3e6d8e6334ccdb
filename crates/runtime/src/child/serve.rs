//! Serves the child's requests.

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

/// How serving a child has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChildReady {
    /// The child has reached the point where it waits, and still needs an answer.
    Ready,
    /// The child failed earlier. Waiting for it returns the step.
    Failed,
}

impl Launched<'_> {
    /// Serves the child's requests until it needs nothing more from this process.
    ///
    /// # Errors
    ///
    /// If a request cannot be served, or a signal arrives. The child then still waits for the answer.
    pub(crate) fn serve(
        &mut self,
        container: &Container,
        record: &mut Record,
        console: &mut Console,
        interrupt: &Interrupt,
    ) -> Result<ChildReady, Error> {
        let mut planned = self.plan.steps.iter().filter_map(Step::request);
        let mut trees = None;
        while let Some(request) = self.next_request(interrupt)? {
            let child = &mut self.child;
            debug!("child process in init(): {}", Line(&Step::Request { what: request }));
            // A process that may trace the child can send requests on its behalf. So each planned request is served
            // once, in order.
            if !planned.any(|planned| planned == request) {
                return Err(Error::State("the container's process made a request that is not in its plan"));
            }
            match request {
                Request::Parked => {
                    // Must not be earlier: the limits could slow down, stop or kill the child during its setup.
                    self.home.as_ref().map_or(Ok(()), ChildCgroup::limit)?;
                    return Ok(ChildReady::Ready);
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
                // `IdMaps` is answered by the code that creates the child. Containers do not use the others.
                Request::IdMaps | Request::RemainingProcesses | Request::Stopped | Request::Files => {
                    return Err(Error::State(
                        "the container's process made a request that containers do not make",
                    ));
                }
            }
            child.go_on()?;
        }
        Ok(ChildReady::Failed)
    }
}

/// Sets the child's scheduling policy and attributes.
fn schedule(child: &Child, container: &Container) -> Result<(), Error> {
    let Some(scheduler) = container.process.as_ref().and_then(|process| process.scheduler) else {
        return Ok(());
    };
    let Scheduler { policy, flags, nice, priority, runtime, deadline, period } = scheduler;
    let attr = SchedAttr { policy, flags, nice, priority, runtime, deadline, period };
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    sched_setattr(pid, &attr).map_err(|errno| Error::kernel("process.scheduler: sched_setattr", errno))
}
