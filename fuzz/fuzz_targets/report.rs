//! Messages of a child that claim to be requests, or the output of a hook: its parent takes each for what it is, or for an error.

#![no_main]

use husk_script::Step;
use husk_script::report::MOST_WORDS;
use husk_script::sys::Fd;
use husk_spawn::Command;
use libfuzzer_sys::fuzz_target;
use std::fs::File;

/// As many as fit into the socket, for nobody answers before the child has said all.
const MOST: usize = 64;

fuzz_target!(|messages: Vec<Vec<u8>>| {
    // The next two descriptors are the socket's ends, and the second is the child's.
    let next = Fd::of(&File::open("/dev/null").unwrap()).number();
    let channel = Fd::new(next + 1).unwrap();
    let command = Command::of_steps(move |list| {
        for message in messages.iter().take(MOST) {
            let bytes = list.slice(message.get(..128).unwrap_or(message));
            list.push(Step::Write { fd: channel.into(), bytes });
        }
        Ok(())
    });
    let mut child = command.spawn().unwrap();
    while let Ok(Some(_)) = child.next_request() {
        // Tolerated: it may be gone, or have named a descriptor that it has not.
        drop(child.requested_fd());
        drop(child.go_on());
    }
    assert!(child.failure_output().len() <= MOST_WORDS);
    assert!(child.wait().is_err(), "it becomes no program");
});
