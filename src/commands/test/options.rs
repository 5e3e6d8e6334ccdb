//! The options of `husk test`, and the profile that they describe.

use super::jobs::Job;
use crate::rare::{self, Rare};
use husk_hermetic::record::MOST_SHARDS;
use husk_hermetic::{
    Caches, Each, Explain, Image, Limits, Net, PathAccess, Profile, Service, Show, Tools, Variable,
};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) const MORE: &str = "
The program can read the host's files but not write to them. Private, temporary directories replace /tmp, /var/tmp,
/run, /dev and the home directory. The program also has its own processes and network, the host name localhost, the
time zone UTC, and only a few environment variables of the caller. /sys shows only the devices of that network, and none
of the file systems that the host mounts there; --read /sys shows the host's. husk kills the processes that the program
leaves running, and reports them. This needs no root privileges.

A program that fails is run once more under observation, without input. husk then names the paths, connections,
system calls and variables that the sandbox denied to it, each with the option that allows it. The exit code is that of
the first run. '--explain off' runs the program once.

Tools in the home directory are shown read-only: those of PATH, of rustup, cargo, pyenv, virtual environments, Go, nvm
and others, but never credentials. Build tools, shells and scripts may write to the tools' caches. A build tool, such as
cargo, go, make, npm or pytest, may also write to the project. husk discards these changes; --write keeps those to the
project, and --keep-caches those to existing caches. --plan lists the tools that were found.

husk exits with the program's exit code, or ends by the signal that killed the program. It exits with 124 if the
program reached a limit, and with 125 if the sandbox could not be created. It exits with 126 if the program cannot
be run, and with 127 if the program does not exist.

EXAMPLES:
  {husk} test -- ./check                      run a test
  {husk} test --write target -- make test     make a directory writable
  {husk} test --overlay . -- make test        discard the changes to a directory
  {husk} test --timeout 10s -- ./check        limit the time
  {husk} test --memory 512m -- ./check        limit the memory
  {husk} test --rootfs image -- /bin/check    use the files of an image
  {husk} test --bundle bundle                 run the program of a bundle
  {husk} test --image oci:image -- /bin/check use a container image
  {husk} test --shell -- ./check              open a shell in the sandbox of a test
  {husk} test --keep files -- ./check         copy what a test wrote to /tmp and other private directories
  {husk} test --junit out.xml -- ./check      write a report for continuous integration
  {husk} test --each -- pytest                give each file of pytest a sandbox
  {husk} test --each -- go test ./...         give each test of go a sandbox
  {husk} test --tap --each -- t/*.t           run programs that print TAP
  {husk} test --merge --junit out.xml *.json  join the reports of shards
  {husk} test --job github -- cargo test      print a workflow for 4 machines
  {husk} test --inputs 'data/**' --cache ~/.cache/results -- ./check
                                            run a test again only if an input has changed
  {husk} test --plan -- ./check               print the steps
  {husk} test --plan --runner -- BINARY       list the tests of a binary with their steps

--each gives the tests of another tool sandboxes of their own, as many at a time as there are processors. For pytest
these are files, or tests with --each=test; for 'go test' they are tests, or packages with --each=package. The tool
itself lists the tests, and reads its own arguments. With --tap, husk reads a result for each test point that the
program prints; with --each as well, each argument is such a program. husk prints the results as cargo does, and exits
with 101 if a test failed. Without --each and --tap, a program is one test: --retries and the reports work for it too.

On many machines, each runs --shard PART/PARTS with a --json of its own. --merge joins these reports, and exits with
101 if a test failed, ran twice or never, or if a shard is missing. Its --json is the --durations of the next run;
all machines need the same file. The variables HUSK_TEST_SHARD, HUSK_TEST_JSON and HUSK_TEST_DURATIONS stand for the
options, also for the husks that cargo starts, which need absolute paths. --job prints all of this for an engine.

--image names a container image as 'husk bundle' does. husk unpacks it once, into the same store. The image determines
the environment, working directory, user, and without PROGRAM also the program. All of its files are writable, and
husk discards the changes. With --runner, the image also shows the repository and the test binary, read-only. The
binary must find its loader and libraries in the image.

With --inputs, the program sees only the files that the globs match, its own file, its libraries and the system's
files; nothing else of the host exists for it. With --cache too, husk remembers that it passed. husk does not run it
again until one of these files, the environment, the options, husk or the kernel changes, and never remembers failures
and flaky tests. --cache-verify runs all tests, and fails those that passed before with the same inputs and now fail.
With --image, --cache needs no inputs: the image's files and settings are what the program sees. With --each and --tap,
husk remembers each file, test or program that ran alone in its sandbox, except the tests of 'go test'.
A user who can write to the directory of --cache can make tests appear to have passed.

--shell opens $SHELL, or /bin/sh if the sandbox hides that, and prints the program's command line. For a failed test of
a test binary, use '{husk} test --shell -- BINARY --exact NAME'. With --each or --tap, husk runs the tests until one
fails, and opens the shell in a sandbox like that of this test. With --keep, each test then has a directory of its
name. gdb and strace work in the shell unless kernel.yama.ptrace_scope is 2 or 3. perf does not count events there,
because the sandbox refuses perf_event_open.

If the caller sets LLVM_PROFILE_FILE, GCOV_PREFIX, GOCOVERDIR or COVERAGE_FILE, the program gets the variable and can
write to its directory. husk adds the sandbox to each %p in LLVM_PROFILE_FILE, because pids are the same in all
sandboxes. With INSTA_UPDATE=new, always, unseen or force, tests can write to their package.

Options can be set in husk.toml, in the directory of the package or above it. husk stops searching at the first
directory that other users can write to. Keys are names of options. [[override]] applies to the named tests, binaries or
packages; '*' matches any text:
  timeout = \"60s\"
  [[override]]
  test = \"slow::*\"
  timeout = \"10m\"

[[service]] starts a program beside each test, in a sandbox of its own and in the network of the test. The test starts
when the service is ready, and ends with it. 'ready' is a port, a text in its output or a command that succeeds. With
per = \"binary\", tests share it. Options such as overlay and memory apply to its sandbox, and conditions of an override
choose the tests. 'user' is the user that it runs as, and timeout how long it may take to become ready:
  [[service]]
  name = \"cache\"
  command = [\"redis-server\"]
  ready = { port = 6379 }

'{husk} test init' makes cargo run each test of a project in a sandbox. It asks before it adds these lines to
.cargo/config.toml; --yes skips the question, and --print only prints them. For a program named 'init', use '--'.
  [target.'cfg(target_os = \"linux\")']
  runner = [\"husk\", \"test\", \"--runner\"]
";

pub(crate) const COMMON: &[&str] = &["--write", "--overlay", "--timeout", "--runner"];

/// The usual limit of data in the private directories, as the help says.
const DISK: u64 = 2 << 30;

/// Variables that stand for rare options.
pub(crate) const VARIABLES: &[&str] = &["HUSK_TEST_SHARD", "HUSK_TEST_DURATIONS", "HUSK_TEST_JSON"];

/// Run a program or test in a throwaway sandbox
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Test {
    /// Make a file or directory writable
    #[arg(long, value_name = "PATH")]
    pub(super) write: Vec<PathBuf>,
    /// Make a directory writable, and discard the changes
    #[arg(long, value_name = "PATH")]
    pub(super) overlay: Vec<PathBuf>,
    /// Time limit: 10s, 500ms, 2m
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(super) timeout: Option<Duration>,
    /// Run each test of a test binary in its own sandbox, as a runner for cargo
    #[arg(long)]
    pub(super) runner: bool,
    #[command(flatten)]
    pub(super) rare: Rare<RareTest>,
    #[command(flatten)]
    pub(super) tests: Rare<Tests>,
    /// Set in husk.toml only.
    #[arg(skip)]
    pub(super) services: Vec<Service>,
    /// Program and its arguments
    #[arg(
        value_name = "PROGRAM",
        required = rare::are_left_out(),
        required_unless_present_any = rare::unless_left_out(&["bundle", "image"]),
        trailing_var_arg = true
    )]
    pub(super) program: Vec<OsString>,
}

/// Options that few programs need.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct RareTest {
    /// Root file system instead of the host's files; paths are relative to it
    #[arg(long, value_name = "DIR", conflicts_with_all = ["bundle", "runner"])]
    pub(super) rootfs: Option<PathBuf>,
    /// OCI bundle that provides the root file system and the process
    #[arg(long, value_name = "DIR", conflicts_with = "runner")]
    pub(super) bundle: Option<PathBuf>,
    /// Image whose files and program to use, named as in 'husk bundle'
    #[arg(long, conflicts_with_all = ["rootfs", "bundle"])]
    pub(super) image: Option<OsString>,
    /// Show a path that a private directory such as /tmp would hide
    #[arg(long, value_name = "PATH")]
    pub(super) read: Vec<PathBuf>,
    /// Hide a path
    #[arg(long, value_name = "PATH")]
    pub(super) hide: Vec<PathBuf>,
    /// Show only these files and the system's; '**' is any directory
    #[arg(long, value_name = "GLOB", conflicts_with_all = ["rootfs", "bundle", "image"])]
    pub(super) inputs: Vec<PathBuf>,
    /// Keep what tools write to their caches, such as ~/.cargo/registry
    #[arg(long)]
    pub(super) keep_caches: bool,
    /// Pass or set an environment variable
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    pub(super) env: Vec<OsString>,
    /// Network: none, loopback or host [default: loopback]
    #[arg(long, value_name = "NET", hide_possible_values = true)]
    pub(super) net: Option<Network>,
    /// Uptime that the program sees: 0s, 50d
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(super) uptime: Option<Duration>,
    /// CPU time limit of each process, in seconds
    #[arg(long, value_name = "SECONDS")]
    pub(super) cpu: Option<u64>,
    /// Memory limit: 512m
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(super) memory: Option<u64>,
    /// Limit of processes and threads
    #[arg(long, value_name = "NUMBER")]
    pub(super) pids: Option<u64>,
    /// Limit of open files of each process
    #[arg(long, value_name = "NUMBER")]
    pub(super) files: Option<u64>,
    /// Size limit of each file that is written
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(super) file_size: Option<u64>,
    /// Limit of data in the private directories [default: 2g]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(super) disk: Option<u64>,
    /// Allow mounts in nested namespaces, which turns off Landlock
    #[arg(long)]
    pub(super) nested: bool,
    /// Run a failure again to tell what was denied: off, auto, always [default: auto]
    #[arg(long, value_name = "WHEN", hide_possible_values = true)]
    pub(super) explain: Option<When>,
    /// Fail if this machine cannot isolate the program completely
    #[arg(long)]
    pub(super) strict: bool,
    /// Open a shell in the sandbox instead of running the program
    #[arg(long, conflicts_with = "runner")]
    pub(super) shell: bool,
    /// Copy what the program wrote to private directories and overlays here
    #[arg(long, value_name = "DIR", conflicts_with = "runner")]
    pub(super) keep: Option<PathBuf>,
    /// File with options [default: husk.toml here or in a directory above]
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Print the steps without performing them
    #[arg(long)]
    pub(super) plan: bool,
}

impl RareTest {
    pub(super) fn explain(&self) -> Explain {
        match self.explain {
            Some(When::Off) => Explain::Off,
            None | Some(When::Auto) => Explain::Auto,
            Some(When::Always) => Explain::Always,
        }
    }
}

/// Options for tests: those of a test binary, or a program that is one test.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Tests {
    /// Give each test of pytest or go its own sandbox: test, file, package
    #[arg(
        long,
        value_name = "WHAT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "usual",
        hide_possible_values = true,
        conflicts_with_all = ["runner", "bundle"]
    )]
    pub(super) each: Option<What>,
    /// Read TAP, with a result for each point; with --each, from each argument
    #[arg(long, conflicts_with_all = ["runner", "bundle"])]
    pub(super) tap: bool,
    /// Run one part of the tests: 1/3 is the first of three
    #[arg(
        long,
        value_name = "PART/PARTS",
        value_parser = shard,
        env = "HUSK_TEST_SHARD",
        hide_env = true
    )]
    pub(super) shard: Option<(usize, usize)>,
    /// Divide tests by their times in an earlier --json, so that shards end together
    #[arg(long, value_name = "FILE", env = "HUSK_TEST_DURATIONS", hide_env = true)]
    pub(super) durations: Option<PathBuf>,
    /// Join reports that --json has written with --shard; they are the arguments
    #[arg(long, conflicts_with_all = ["runner", "each", "tap", "bundle", "plan", "shell", "keep"])]
    pub(super) merge: bool,
    /// Print a job that divides the tests of the program: kubernetes, github, gitlab
    #[arg(
        long,
        value_name = "ENGINE",
        hide_possible_values = true,
        conflicts_with_all = ["runner", "merge", "bundle", "plan", "shell", "keep"]
    )]
    pub(super) job: Option<Job>,
    /// Number of shards of a job [default: 4]
    #[arg(long, value_name = "NUMBER")]
    pub(super) shards: Option<usize>,
    /// Image of the job's containers
    #[arg(long, value_name = "IMAGE")]
    pub(super) job_image: Option<String>,
    /// Keep these services of husk.toml for a run; husk itself passes this
    #[arg(long, hide = true, value_name = "NAME", value_delimiter = ',')]
    pub(super) keep_services: Vec<String>,
    /// Start no more tests after a failure
    #[arg(long)]
    pub(super) fail_fast: bool,
    /// Run a failed test again up to this often; if it passes, it is flaky
    #[arg(long, value_name = "NUMBER", default_value = "0", hide_default_value = true)]
    pub(super) retries: usize,
    /// Remember which tests passed, and run them again only if what they see changes
    #[arg(long, value_name = "DIR", conflicts_with_all = ["rootfs", "bundle"])]
    pub(super) cache: Option<PathBuf>,
    /// Run tests even if --cache has their results, and compare
    #[arg(long)]
    pub(super) cache_verify: bool,
    /// Append a line of JSON for each test to this file; '-' is standard output
    #[arg(long, value_name = "FILE", env = "HUSK_TEST_JSON", hide_env = true)]
    pub(super) json: Option<PathBuf>,
    /// Write results as JUnit XML to this file; '-' is standard output
    #[arg(long, value_name = "FILE")]
    pub(super) junit: Option<PathBuf>,
    /// Write results as a page for a browser to this file; '-' is standard output
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Network {
    None,
    Loopback,
    Host,
}

/// The tests that share a sandbox.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum What {
    Usual,
    Test,
    File,
    Package,
}

impl What {
    pub(super) fn each(self) -> Each {
        match self {
            Self::Usual => Each::Usual,
            Self::Test => Each::Test,
            Self::File => Each::File,
            Self::Package => Each::Package,
        }
    }
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum When {
    Off,
    Auto,
    Always,
}

impl Test {
    /// Converts the options to a profile; they take precedence over the bundle.
    pub(super) fn profile(self, of_bundle: Profile, tools: &Tools) -> Profile {
        let (rare, tests) = (self.rare.into_inner(), self.tests.into_inner());
        let mut image = of_bundle.image.or(rare.rootfs.map(Image::of));
        let shown = [
            (self.write, PathAccess::Write),
            (self.overlay, PathAccess::Overlay),
            (rare.read, PathAccess::Read),
            (rare.hide, PathAccess::Hide),
        ];
        let shown = shown.into_iter();
        let shown =
            shown.flat_map(|(paths, access)| paths.into_iter().map(move |path| Show { path, access }));
        let mut shown: Vec<_> = shown.collect();
        if let Some(image) = &mut image {
            // `/` sets the access to the image itself, not to a path in it.
            let (roots, others): (Vec<_>, _) =
                shown.into_iter().partition(|show| show.path == Path::new("/"));
            image.access = roots.last().map_or(image.access, |show| show.access);
            shown = others;
        } else if rare.inputs.is_empty() {
            // The program is made visible. Among inputs it is anyway.
            let program = self.program.first().map(PathBuf::from);
            let program = program.filter(|program| program.components().count() > 1 && program.is_file());
            shown.extend(program.map(|path| Show { path, access: PathAccess::Read }));
        }
        let mut profile = Profile {
            args: if self.program.is_empty() { of_bundle.args } else { self.program },
            env: rare.env.into_iter().map(variable).collect(),
            shown,
            uptime: rare.uptime,
            nested: rare.nested,
            keeps_files: rare.keep.is_some(),
            observed: false,
            image,
            inputs: rare.inputs,
            excluded: tests.cache.iter().filter_map(|cache| fs::canonicalize(cache).ok()).collect(),
            net: match rare.net {
                Some(Network::None) => Net::None,
                None | Some(Network::Loopback) => Net::Loopback,
                Some(Network::Host) => Net::Host,
            },
            limits: Limits {
                wall: self.timeout,
                cpu_seconds: rare.cpu,
                memory: rare.memory.or(of_bundle.limits.memory),
                processes: rare.pids.or(of_bundle.limits.processes),
                files: rare.files,
                file_size: rare.file_size,
                disk: Some(rare.disk.unwrap_or(DISK)),
            },
            services: self.services,
            ..Profile::default()
        };
        tools.add_to(&mut profile, if rare.keep_caches { Caches::Keep } else { Caches::Discard });
        profile
    }
}

fn variable(text: OsString) -> Variable {
    let bytes = text.as_bytes();
    match bytes.iter().position(|byte| *byte == b'=') {
        Some(place) => {
            let (name, value) = (bytes[..place].to_vec(), bytes[place + 1..].to_vec());
            Variable::Set(OsString::from_vec(name), OsString::from_vec(value))
        }
        None => Variable::Pass(text),
    }
}

pub(super) fn time(text: &str) -> Result<Duration, String> {
    let units = [("", 1.0), ("s", 1.0), ("ms", 0.001), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0)];
    let time = with_unit(text, &units).and_then(|(number, factor)| {
        let seconds = number.parse::<f64>().ok()? * factor;
        Duration::try_from_secs_f64(seconds).ok()
    });
    time.ok_or_else(|| "not a time such as 10s, 500ms or 2m".to_owned())
}

fn bytes(text: &str) -> Result<u64, String> {
    let units = [("", 1), ("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30), ("t", 1 << 40)];
    let bytes =
        with_unit(text, &units).and_then(|(number, factor)| number.parse::<u64>().ok()?.checked_mul(factor));
    bytes.ok_or_else(|| "not a number of bytes such as 4096, 512k, 64m or 2g".to_owned())
}

fn shard(text: &str) -> Result<(usize, usize), String> {
    let parts =
        text.split_once('/').and_then(|(part, parts)| Some((part.parse().ok()?, parts.parse().ok()?)));
    let parts = parts.filter(|(part, parts)| (1..=*parts).contains(part) && *parts <= MOST_SHARDS);
    parts.ok_or_else(|| "not a part such as 1/3, the first of three".to_owned())
}

/// Splits a number from its unit, and returns the unit's factor.
fn with_unit<'t, T: Copy>(text: &'t str, units: &[(&str, T)]) -> Option<(&'t str, T)> {
    let number = text.trim_end_matches(|char: char| char.is_ascii_alphabetic());
    let unit = text.strip_prefix(number)?.to_ascii_lowercase();
    units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| (number, *factor))
}
