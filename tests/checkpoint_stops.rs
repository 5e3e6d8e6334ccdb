//! Checkpoints: how long the processes stand still, and that they go on.

use crate::cgroups::is_version_2;
use crate::checkpoint::{Images, StandIn};
use crate::hostile::Said;
use crate::util::{Bundle, Runtime, is_husk, is_root, need};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::Read as _;

// If CRIU looks too early, the container stands still for another 100 ms.
#[test]
fn criu_finds_the_processes_frozen_and_they_go_on_afterwards() {
    need!(is_root(), "needs root, because CRIU does");
    need!(is_husk(), "runc leaves it to CRIU");
    need!(is_version_2(), "in version 1, CRIU freezes the processes itself");
    let bundle = Bundle::running("wait");
    let runtime = Runtime::started(&bundle);
    let looks = |criu: &StandIn, options: &[&str]| {
        let images = Images::new();
        let arguments = [options, &["--image-path", images.text(), "c"]].concat();
        (criu.call(&runtime, "checkpoint", &arguments), criu.read("frozen"))
    };
    let save = |criu: &StandIn, options: &[&str]| {
        let (seen, state) = looks(criu, options);
        assert!(state.contains("frozen 1\n"), "{options:?}: {state}");
        seen
    };
    save(&StandIn::new(), &["--leave-running"]).succeeds();
    assert_eq!(runtime.status(), "running");
    // Otherwise the processes would stand still while CRIU writes the memory, or serves it.
    for option in ["--pre-dump", "--lazy-pages"] {
        let (seen, state) = looks(&StandIn::new(), &[option, "--leave-running"]);
        seen.succeeds();
        assert!(state.contains("frozen 0\n"), "{option}: {state}");
        assert_eq!(runtime.status(), "running");
    }
    let failing = StandIn::new().says("fails", "");
    save(&failing, &[]).fails(1, "criu failed: type DUMP errno 16");
    assert_eq!(runtime.status(), "running");

    // A container that `pause` has frozen stays frozen.
    runtime.call("pause", &["c"]).succeeds();
    save(&StandIn::new(), &["--leave-running"]).succeeds();
    save(&failing, &[]).fails(1, "criu failed: type DUMP errno 16");
    assert_eq!(runtime.status(), "paused");
    runtime.call("resume", &["c"]).succeeds();
    save(&StandIn::new(), &[]).succeeds();
    assert!(runtime.is_empty());
}

#[test]
fn container_goes_on_if_a_signal_ends_its_checkpoint() {
    need!(is_root(), "needs root, because CRIU does");
    need!(is_husk(), "the message is husk's");
    let (bundle, criu, images) = (Bundle::running("wait"), StandIn::new(), Images::new());
    let runtime = Runtime::started(&bundle);
    let hangs = criu.hangs();
    let mut save = runtime.command("checkpoint");
    save.args(["--image-path", images.text(), "c"]);
    let save = Said::new(criu.found_by(&mut save));
    File::open(&hangs).unwrap().read_exact(&mut [0]).unwrap();
    kill_process(Pid::from_child(&save.process), Signal::TERM).unwrap();
    let (status, words) = save.ended();
    assert_eq!(status.code(), Some(1), "{words}");
    assert!(words.contains("ended by signal 15"), "{words}");
    assert_eq!(runtime.status(), "running");
}
