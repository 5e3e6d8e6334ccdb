//! What is tested across the tree, through the command line. The tests of one crate stand beside it.

#![expect(clippy::disallowed_macros, reason = "a test that cannot print may fail")]

/// Profiles of AppArmor.
mod apparmor;
/// What no bundle should be, and some bundle will.
mod bad_input;
/// Cgroups: made, limited, left empty, looked at and changed.
mod cgroups;
/// Containers that are saved and restored.
mod checkpoint;
/// What may be typed, and what is said to it.
mod command_line;
/// Licences, versions and edges of the packages, as deny.toml has them.
mod dependencies;
/// Devices of the host, which a container uses and must not change.
mod devices;
/// What husk says of the machine that it is on.
mod doctor;
/// Files and tests that documents name exist.
mod documents;
/// The very words that engines type.
mod engines;
/// One more process in a container that runs.
mod exec;
/// One more process in a container whose namespaces are not all its own.
mod exec_namespaces;
/// What a runtime says it can do.
mod features;
/// Programs that see nothing of their surroundings, and what they try in order to.
mod hermetic;
/// Tests of cargo's, each in a sandbox of its own.
mod hermetic_cargo;
/// What they could do to their machine by system calls, and to others.
mod hermetic_escapes;
/// The same in the files of images and bundles.
mod hermetic_image;
/// What Landlock forbids in a sandbox.
mod hermetic_landlock;
/// `test --runner`: what libtest says, and what is told to other programs.
mod hermetic_libtest;
/// Sandboxes on machines that do not let one be made, or not completely.
mod hermetic_machines;
/// `husk.toml`: options for all tests, and for some.
mod hermetic_settings;
/// The same at a terminal.
mod hermetic_terminal;
/// The six kinds of hooks: where, when and with what they are run, and what follows if they fail.
mod hooks;
/// Images that attack the host, and volumes that change meanwhile.
mod hostile;
/// The rules of the house that a compiler does not know.
mod house;
/// What a program finds in its container.
mod inside;
/// What is put where by `make install`: manual pages, and what shells complete.
mod install;
/// From create to delete, and what each verb says in each state.
mod lifecycle;
/// Limits beyond those that are inherited.
mod limits;
/// What is mounted in a container, and how.
mod mounts;
/// New namespaces, those of somebody else, and the ids of users in them.
mod namespaces;
/// Network devices that become a container's.
mod network;
/// Containers that say when they are ready.
mod notify;
/// Streams that cannot be written, and text that a terminal would obey.
mod output;
/// Processes that somebody is sent the pidfd of.
mod pidfd;
/// What the process of a container is, and what it has from its caller.
mod process;
/// Programs that cannot be had.
mod program;
/// Engines that are told of husk.
mod register;
/// Limits of each kind: as the kernel has them, and met.
mod resources;
/// Filters of system calls, and agents that decide about them.
mod seccomp;
/// Many containers, and what is left of them.
mod soak;
/// A process that joins, and one that would like to have something of it.
mod spied_upon;
/// Cgroups that systemd makes.
mod systemd;
/// The same, with a systemd that the tests play.
mod systemd_played;
/// Terminals, in the foreground and sent away.
mod terminal;
/// A bundle to build, a runtime to run it, and what is expected of it.
mod util;
/// Waiting for the end of a container, and how it was.
mod wait;
