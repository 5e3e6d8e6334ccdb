//! Lists the contenders of each experiment, with their names and colours.

use crate::record::Experiment;

/// A way to start a process.
pub(crate) struct Contender {
    /// Its name in the protocol and in the results.
    pub(crate) name: &'static str,
    /// Its description for people.
    pub(crate) title: &'static str,
    /// The program that contains it.
    pub(crate) side: Side,
    /// The line or bar style in plots.
    pub(crate) style: Style,
}

/// The program that contains a contender.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// competitors.c
    C,
    /// This program.
    Rust,
}

/// The style of a contender in plots.
#[derive(Clone, Copy)]
pub(crate) struct Style {
    /// An SVG colour.
    pub(crate) colour: &'static str,
    /// A value of SVG's `stroke-dasharray`.
    pub(crate) dash: &'static str,
}

const fn c(name: &'static str, title: &'static str, colour: &'static str, dash: &'static str) -> Contender {
    Contender { name, title, side: Side::C, style: Style { colour, dash } }
}

const fn rust(
    name: &'static str,
    title: &'static str,
    colour: &'static str,
    dash: &'static str,
) -> Contender {
    Contender { name, title, side: Side::Rust, style: Style { colour, dash } }
}

const SOLID: &str = "none";
const DASHED: &str = "6 3";
const DOTTED: &str = "2 3";

const START: [Contender; 12] = [
    c("fork", "fork, exec", "#b2182b", SOLID),
    c("vfork", "vfork, exec", "#7b5ea7", SOLID),
    c("posix_spawn", "posix_spawn", "#2166ac", SOLID),
    c("clone-vm", "clone(VM)", "#7b5ea7", DOTTED),
    c("clone-vm-vfork", "clone(VM, VFORK)", "#7b5ea7", DASHED),
    c("bare", "bare clone3(VM, VFORK)", "#222222", SOLID),
    rust("std-status", "std status", "#d9820f", DASHED),
    rust("std-spawn", "std spawn", "#d9820f", SOLID),
    rust("std-pre-exec", "std pre_exec", "#b2182b", DASHED),
    rust("husk-status", "husk status", "#1a9850", DASHED),
    rust("husk-spawn", "husk spawn", "#1a9850", DOTTED),
    rust("husk-spawn-and-exec", "husk spawn_and_exec", "#1a9850", SOLID),
];

const ISOLATION: [Contender; 6] = [
    c("bare", "bare, no namespaces", "#222222", SOLID),
    rust("husk-spawn-and-exec", "husk, no namespaces", "#1a9850", SOLID),
    c("bare-isolated", "bare, five namespaces", "#222222", DASHED),
    rust("husk-isolated", "husk, five namespaces", "#1a9850", DASHED),
    c("bare-isolated-net", "bare, six with net", "#222222", DOTTED),
    rust("husk-isolated-net", "husk, six with net", "#1a9850", DOTTED),
];

const OUTPUT: [Contender; 9] = [
    c("popen", "popen(3)", "#2166ac", SOLID),
    c("system", "system(3)", "#2166ac", SOLID),
    c("fork", "fork, pipe", "#b2182b", SOLID),
    c("vfork", "vfork, pipe", "#7b5ea7", SOLID),
    c("posix_spawn", "posix_spawn, pipe", "#2166ac", SOLID),
    c("bare", "bare clone3, pipe", "#222222", SOLID),
    rust("std-output", "std output()", "#d9820f", SOLID),
    rust("husk-output", "husk output()", "#1a9850", SOLID),
    rust("husk-spawn", "husk spawn(), pipe", "#1a9850", SOLID),
];

const BATCH: [Contender; 7] = [
    c("fork-close-all", "fork, close 3 to 1023, exec", "#b2182b", SOLID),
    c("vfork", "vfork, exec", "#7b5ea7", SOLID),
    c("posix_spawn", "posix_spawn", "#2166ac", SOLID),
    c("bare", "bare clone3(VM, VFORK)", "#222222", SOLID),
    rust("std-status", "std status", "#d9820f", SOLID),
    rust("husk-status", "husk status", "#1a9850", SOLID),
    rust("husk-spawn-and-exec", "husk spawn_and_exec", "#1a9850", SOLID),
];

/// Returns whether the contender's call returns before the process ends, so that this time can be shown.
pub(crate) fn returns_early(contender: &Contender) -> bool {
    !contender.name.ends_with("-status")
}

/// Returns the contenders of an experiment, in the order of the tables.
pub(crate) fn contenders(experiment: Experiment) -> &'static [Contender] {
    match experiment {
        Experiment::Start => &START,
        Experiment::Isolation => &ISOLATION,
        Experiment::Output => &OUTPUT,
        Experiment::Batch => &BATCH,
    }
}
