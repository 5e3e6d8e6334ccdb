//! Tests of the whole tree, through the command line. The tests of a single crate are in that crate.

#![expect(clippy::disallowed_macros, reason = "a test that cannot print may fail")]

/// AppArmor profiles.
mod apparmor;
/// Malformed and unusual bundles.
mod bad_input;
/// Cgroups: created, limited, empty, inspected and updated.
mod cgroups;
/// Checkpoint and restore.
mod checkpoint;
mod checkpoint_pages;
mod checkpoint_stops;
/// Arguments, and the answers to them.
mod command_line;
/// Licences, versions and dependencies of the packages, compared with deny.toml.
mod dependencies;
/// Devices of the host that a container uses and must not change.
mod devices;
/// The report of `doctor` about the machine.
mod doctor;
/// Files and tests that documents name exist.
mod documents;
/// The exact command lines of engines.
mod engines;
/// Additional processes in a running container.
mod exec;
/// Additional processes in a container that shares namespaces.
mod exec_namespaces;
/// The features that a runtime reports.
mod features;
/// Sandboxes that hide their surroundings, and programs that try to look out.
mod hermetic;
/// Tests with declared inputs, whose results are remembered.
mod hermetic_cache;
/// Remembered results of tests that other tools list.
mod hermetic_cache_suites;
/// Tests that cargo and nextest run, each in its own sandbox.
mod hermetic_cargo;
/// Plans, shells and files of tests that other tools list.
mod hermetic_each;
/// System calls by which a sandboxed program could harm its machine or other programs.
mod hermetic_escapes;
/// Explanations of failures in a sandbox, and options that prevent them.
mod hermetic_explain;
/// Sandboxes whose files come from an image or a bundle.
mod hermetic_image;
/// A shell in a sandbox, and the files that a program leaves in one.
mod hermetic_inside;
/// Jobs that divide tests among machines.
mod hermetic_jobs;
/// Accesses that Landlock forbids in a sandbox.
mod hermetic_landlock;
/// The output of libtest under `test --runner`, and the environment of other programs.
mod hermetic_libtest;
/// Sandboxes on machines that permit none, or only incomplete ones.
mod hermetic_machines;
/// Coverage, profiles and snapshots that leave a sandbox.
mod hermetic_outputs;
/// The page about a run of `test --runner`, in a browser.
mod hermetic_page;
/// Services that all husks of a run share.
mod hermetic_runs;
/// Services that are often tested with: PostgreSQL and Redis.
mod hermetic_servers;
/// Services beside tests: started, ready, shared and ended.
mod hermetic_services;
/// `husk.toml`: options for all tests, and for some.
mod hermetic_settings;
/// Tests that several machines share, and their joined reports.
mod hermetic_shards;
/// Reports on any program, and tests that an adapter for another test tool lists.
mod hermetic_suites;
/// Sandboxes at a terminal.
mod hermetic_terminal;
/// Tools in the home directory, and secrets beside them.
mod hermetic_tools;
/// `test`: what a program sees of the machine.
mod hermetic_view;
/// The six kinds of hooks: where, when and with what input they run, and what follows if they fail.
mod hooks;
/// Images that attack the host, and volumes that change meanwhile.
mod hostile;
/// Rules of this repository that the compiler does not check.
mod house;
/// Bundles of container images.
mod image;
/// Remembered results of tests in images.
mod image_cache;
/// Sandboxes whose files come from a container image.
mod image_sandbox;
/// The surroundings of a program in its container.
mod inside;
/// Files of `make install`: manual pages and shell completions.
mod install;
/// Each verb in each state of a container, from create to delete.
mod lifecycle;
/// Limits above the inherited ones.
mod limits;
/// Every message of the command line, in one list.
mod messages;
/// Mounts in a container, and their attributes.
mod mounts;
/// New and joined namespaces, and the ids of users in them.
mod namespaces;
/// Network devices that are moved into a container.
mod network;
/// Containers that report readiness.
mod notify;
/// Streams that cannot be written, and text that a terminal would interpret.
mod output;
/// Processes whose pidfd is sent to the caller.
mod pidfd;
/// Attributes of a container's process, and what it inherits from its caller.
mod process;
/// Programs that cannot be executed.
mod program;
/// Processes that join a container in which another spies on them.
mod ptrace_attacks;
/// Registration with engines.
mod register;
/// Limits of each kind, as the kernel reports and enforces them.
mod resources;
/// Filters of system calls, and agents that decide about them.
mod seccomp;
/// Many containers, which must not leave anything behind.
mod soak;
/// The directory for containers, if the command line names none.
mod state_directory;
/// Cgroups that systemd creates.
mod systemd;
/// Cgroups that a systemd creates which the tests play.
mod systemd_played;
/// Terminals, in the foreground and sent to another process.
mod terminal;
/// Colours and the pager.
mod terminal_output;
/// Containers that another version created.
mod upgrade;
/// Builds bundles, runs a runtime on them, and checks the results.
mod util;
/// `validate`: everything that is wrong with a configuration.
mod validate;
/// Waiting for the end of a container, and its exit status.
mod wait;
