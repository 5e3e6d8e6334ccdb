//! Steps that hide and empty the memory of a child.

use super::{failure, list};
use crate::support::Held;
use husk_spawn::{Command, Stdio, Step};
use rustix::process::geteuid;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

#[test]
pub(super) fn undumpable() {
    let mut command = Command::new("true");
    command.final_steps(list([Step::Undumpable]));
    let held = Held::before_exec(&mut command);
    let mut child = command.kill_on_drop().spawn().unwrap();
    held.wait(&child);
    // The `/proc` files of an undumpable process belong to root.
    let owner = |id: u32| fs::metadata(format!("/proc/{id}/environ")).unwrap().uid();
    assert_eq!(owner(child.id()), 0);
    held.release();
    child.wait().unwrap();
    let own = fs::metadata("/proc/self/environ").unwrap().uid();
    assert_eq!(own, geteuid().as_raw(), "the parent keeps its identity");
}

#[test]
pub(super) fn forget_memory() {
    let secret = String::from("only for the parent").into_boxed_str();
    let read = |steps: &'static [Step<'static>]| {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $0 $VARIABLE", "an argument"]).env("VARIABLE", "and a variable");
        command.own_memory().stdout(Stdio::piped()).final_steps(|writer| {
            steps.iter().for_each(|step| writer.push(*step));
            Ok(())
        });
        let held = Held::before_exec(&mut command);
        let mut child = command.kill_on_drop().spawn().unwrap();
        held.wait(&child);
        let mut found = vec![1; secret.len()];
        let memory = File::open(format!("/proc/{}/mem", child.id())).unwrap();
        memory.read_exact_at(&mut found, secret.as_ptr().addr() as u64).unwrap();
        let environment = fs::read(format!("/proc/{}/environ", child.id())).unwrap();
        held.release();
        let mut printed = String::new();
        child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(printed, "an argument and a variable\n", "the rest of the list is intact");
        (found, environment.iter().any(|byte| *byte != 0))
    };
    assert_eq!(read(&[]), (secret.as_bytes().to_vec(), true));
    assert_eq!(read(&[Step::ForgetMemory]), (vec![0; secret.len()], false));
    assert_eq!(&*secret, "only for the parent");
}

#[test]
pub(super) fn forget_memory_is_refused_where_memory_is_shared() {
    let why = "forget-memory: would empty the memory of this process too without Command::own_memory";
    assert_eq!(failure([Step::ForgetMemory]), why);
}

#[test]
pub(super) fn forget_memory_is_refused_before_steps_that_refer_to_forgotten_memory() {
    let mut command = Command::new("true");
    command.own_memory().final_steps(list([Step::ForgetMemory, Step::Chdir { path: c"/" }]));
    let error = command.status().unwrap_err().to_string();
    assert_eq!(error, "cwd /: cannot follow a step that forgets memory");
}
