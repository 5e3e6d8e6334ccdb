//! Device programs in the kernel: loaded, attached to a cgroup, put in each other's place.

use super::program::Program;
use crate::error::Error;
use husk_sys::bpf::{self, Instruction};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

/// More than can be attached (`BPF_CGROUP_MAX_PROGS` in kernel/bpf/cgroup.c).
const MOST_PROGRAMS: usize = 64;

/// Attaches the program of a cgroup that has none yet.
pub(crate) fn attach(cgroup: &OwnedFd, program: &Program) -> Result<(), Error> {
    match program {
        Program::Everything => Ok(()),
        Program::Instructions(instructions) => {
            let program = load(instructions)?;
            bpf::prog_attach_cgroup_device(cgroup, &program, None).map_err(failed("attach the device filter"))
        }
    }
}

/// Puts the program in the place of whatever is attached to this cgroup. There is no moment at which
/// less is denied than by the one or the other.
pub(crate) fn replace(cgroup: &OwnedFd, program: &Program) -> Result<(), Error> {
    let old = attached(cgroup)?;
    let attach = failed("attach the device filter");
    let detach = |program| {
        bpf::prog_detach_cgroup_device(cgroup, program).map_err(failed("detach the old device filter"))
    };
    match (program, old.as_slice()) {
        (Program::Everything, old) => old.iter().try_for_each(detach),
        (Program::Instructions(instructions), [old]) => {
            bpf::prog_attach_cgroup_device(cgroup, &load(instructions)?, Some(old)).map_err(attach)
        }
        (Program::Instructions(instructions), old) => {
            bpf::prog_attach_cgroup_device(cgroup, &load(instructions)?, None).map_err(attach)?;
            old.iter().try_for_each(detach)
        }
    }
}

/// The programs that are attached, but for those that are not for us to see: each of them can only
/// deny more.
fn attached(cgroup: &OwnedFd) -> Result<Vec<OwnedFd>, Error> {
    let mut ids = [0; MOST_PROGRAMS];
    let query = failed("query the device filters");
    let count = bpf::prog_query_cgroup_device(cgroup, &mut ids).map_err(query)?;
    let mut programs = Vec::with_capacity(count);
    for id in ids.into_iter().take(count) {
        match bpf::prog_get_fd_by_id(id) {
            Ok(program) => programs.push(program),
            // Tolerated: gone since, or hidden by a security module.
            Err(Errno::NOENT | Errno::PERM | Errno::ACCESS) => {}
            Err(errno) => return Err(failed("open an attached device filter")(errno)),
        }
    }
    Ok(programs)
}

fn load(instructions: &[Instruction]) -> Result<OwnedFd, Error> {
    // It calls no function of the kernel's, so any licence will do.
    bpf::prog_load_cgroup_device(instructions, c"Apache-2.0", &mut [])
        .map_err(failed("load the device filter"))
}

fn failed(act: &'static str) -> impl Fn(Errno) -> Error {
    move |source| Error::Devices { act, source }
}
