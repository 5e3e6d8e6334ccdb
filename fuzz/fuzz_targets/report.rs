//! Sends arbitrary messages from a child to its parent. The parent must decode each as a request or as the output of a
//! hook, or reject it.

#![no_main]

use husk_script::Step;
use husk_script::report::MOST_WORDS;
use husk_script::sys::Fd;
use husk_spawn::Command;
use libfuzzer_sys::fuzz_target;
use std::fs::File;

/// The most messages. They must fit into the socket, because the parent answers only after the child has sent all.
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
        // Tolerated: the child may have ended, or may have sent the number of a closed descriptor.
        drop(child.requested_fd());
        drop(child.go_on());
    }
    assert!(child.failure_output().len() <= MOST_WORDS);
    assert!(child.wait().is_err(), "it becomes no program");
});
