//! Loads device programs into the kernel, attaches them to a cgroup and replaces them.

use super::program::DeviceProgram;
use crate::error::Error;
use husk_sys::bpf::{self, EbpfInstruction};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

/// The most programs that can be attached (`BPF_CGROUP_MAX_PROGS` in kernel/bpf/cgroup.c).
const MOST_PROGRAMS: usize = 64;

/// Attaches the program to a cgroup that does not have one.
pub(crate) fn attach(cgroup: &OwnedFd, program: &DeviceProgram) -> Result<(), Error> {
    match program {
        DeviceProgram::Everything => Ok(()),
        DeviceProgram::Instructions(instructions) => {
            let program = load(instructions)?;
            bpf::prog_attach_cgroup_device(cgroup, &program, None).map_err(failed("attach the device filter"))
        }
    }
}

/// Replaces the programs that are attached to this cgroup. At every moment, the old rules, the new rules or
/// both are in force.
pub(crate) fn replace(cgroup: &OwnedFd, program: &DeviceProgram) -> Result<(), Error> {
    let old = attached(cgroup)?;
    let attach = failed("attach the device filter");
    let detach = |program| {
        bpf::prog_detach_cgroup_device(cgroup, program).map_err(failed("detach the old device filter"))
    };
    match (program, old.as_slice()) {
        (DeviceProgram::Everything, old) => old.iter().try_for_each(detach),
        (DeviceProgram::Instructions(instructions), [old]) => {
            bpf::prog_attach_cgroup_device(cgroup, &load(instructions)?, Some(old)).map_err(attach)
        }
        (DeviceProgram::Instructions(instructions), old) => {
            bpf::prog_attach_cgroup_device(cgroup, &load(instructions)?, None).map_err(attach)?;
            old.iter().try_for_each(detach)
        }
    }
}

/// Returns the attached programs, except those that are hidden from us. A hidden program can only deny more.
fn attached(cgroup: &OwnedFd) -> Result<Vec<OwnedFd>, Error> {
    let mut ids = [0; MOST_PROGRAMS];
    let query = failed("query the device filters");
    let count = bpf::prog_query_cgroup_device(cgroup, &mut ids).map_err(query)?;
    let mut programs = Vec::with_capacity(count);
    for id in ids.into_iter().take(count) {
        match bpf::prog_get_fd_by_id(id) {
            Ok(program) => programs.push(program),
            // Tolerated: detached since, or hidden by a security module.
            Err(Errno::NOENT | Errno::PERM | Errno::ACCESS) => {}
            Err(errno) => return Err(failed("open an attached device filter")(errno)),
        }
    }
    Ok(programs)
}

fn load(instructions: &[EbpfInstruction]) -> Result<OwnedFd, Error> {
    // The program calls no kernel function, so any licence is accepted.
    bpf::prog_load_cgroup_device(instructions, c"Apache-2.0", &mut [])
        .map_err(failed("load the device filter"))
}

fn failed(act: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::Devices { act, errno }
}
