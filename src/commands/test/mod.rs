//! `husk test`: its options, its file husk.toml, and the files that it writes.

mod directory;
mod excerpt;
mod fetch;
mod init;
mod keep;
mod plans;
mod report;
mod settings;
mod trusted;

use crate::exit::Exit;
use crate::options;
use crate::output::escape;
use crate::output::log::with_causes;
use crate::output::{self, Lasting};
use crate::session::Session;
use anyhow::{Context as _, Result, anyhow, bail};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args as _, Command, FromArgMatches as _};
use husk_hermetic::{
    Attempt, BinaryKind, Caches, Caller, Choice, Each, Ended, Error, Explain, Explanation, Image, Isolation,
    Limits, Net, PathAccess, Profile, Screen, Setting, Show, Suite, Tools, Variable,
};
use report::{Destinations, Named, Report};
use rustix::io::Errno;
use rustix::termios::tcgetwinsize;
use settings::{Settings, Subject};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{LineWriter, Write as _, stdout};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{self, Path, PathBuf};
use std::process;
use std::rc::Rc;
use std::time::{Duration, Instant};
use std::{env, fs};

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
  {husk} test --shell -- ./check              open a shell in the sandbox of a test
  {husk} test --keep files -- ./check         copy what a test wrote to /tmp and other private directories
  {husk} test --junit out.xml -- ./check      write a report for continuous integration
  {husk} test --each -- pytest                give each file of pytest a sandbox
  {husk} test --each -- go test ./...         give each test of go a sandbox
  {husk} test --tap --each -- t/*.t           run programs that print TAP
  {husk} test --plan -- ./check               print the steps
  {husk} test --plan --runner -- BINARY       list the tests of a binary with their steps

--each gives the tests of another tool sandboxes of their own, as many at a time as there are processors. For pytest
these are files, or tests with --each=test; for 'go test' they are tests, or packages with --each=package. The tool
itself lists the tests, and reads its own arguments. With --tap, husk reads a result for each test point that the
program prints; with --each as well, each argument is such a program. husk prints the results as cargo does, and exits
with 101 if a test failed. Without --each and --tap, a program is one test: --retries and the reports work for it too.

--shell opens $SHELL, or /bin/sh if the sandbox hides that, and prints the program's command line. For a failed test of
a test binary, use '{husk} test --shell -- BINARY --exact NAME'. gdb and strace work in the shell unless
kernel.yama.ptrace_scope is 2 or 3. perf does not count events there, because the sandbox refuses perf_event_open.

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

'{husk} test init' makes cargo run each test of a project in a sandbox. It asks before it adds these lines to
.cargo/config.toml; --yes skips the question, and --print only prints them. For a program named 'init', use '--'.
  [target.'cfg(target_os = \"linux\")']
  runner = [\"husk\", \"test\", \"--runner\"]
";

/// Run a program or test in a throwaway sandbox
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Test {
    /// Root file system instead of the host's files; paths are relative to it
    #[arg(long, value_name = "DIR", conflicts_with_all = ["bundle", "runner"])]
    rootfs: Option<PathBuf>,
    /// OCI bundle that provides the root file system and the process
    #[arg(long, value_name = "DIR", conflicts_with = "runner")]
    bundle: Option<PathBuf>,
    /// Make a file or directory writable
    #[arg(long, value_name = "PATH")]
    write: Vec<PathBuf>,
    /// Make a directory writable, and discard the changes
    #[arg(long, value_name = "PATH")]
    overlay: Vec<PathBuf>,
    /// Show a path that a private directory such as /tmp would hide
    #[arg(long, value_name = "PATH")]
    read: Vec<PathBuf>,
    /// Hide a path
    #[arg(long, value_name = "PATH")]
    hide: Vec<PathBuf>,
    /// Keep what tools write to their caches, such as ~/.cargo/registry
    #[arg(long)]
    keep_caches: bool,
    /// Pass or set an environment variable
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    env: Vec<OsString>,
    /// Network: none, loopback or host
    #[arg(long, value_name = "NET", default_value = "loopback", hide_possible_values = true)]
    net: Network,
    /// Uptime that the program sees: 0s, 50d
    #[arg(long, value_name = "TIME", value_parser = time)]
    uptime: Option<Duration>,
    /// Time limit: 10s, 500ms, 2m
    #[arg(long, value_name = "TIME", value_parser = time)]
    timeout: Option<Duration>,
    /// CPU time limit of each process, in seconds
    #[arg(long, value_name = "SECONDS")]
    cpu: Option<u64>,
    /// Memory limit: 512m
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    memory: Option<u64>,
    /// Limit of processes and threads
    #[arg(long, value_name = "NUMBER")]
    pids: Option<u64>,
    /// Limit of open files of each process
    #[arg(long, value_name = "NUMBER")]
    files: Option<u64>,
    /// Size limit of each file that is written
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    file_size: Option<u64>,
    /// Limit of data in the private directories
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "2g")]
    disk: u64,
    /// Allow mounts in nested namespaces, which turns off Landlock
    #[arg(long)]
    nested: bool,
    /// Run a failed program again to tell what it was denied: off, auto, always
    #[arg(long, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    explain: When,
    /// Fail if this machine cannot isolate the program completely
    #[arg(long)]
    strict: bool,
    /// Open a shell in the sandbox instead of running the program
    #[arg(long, conflicts_with = "runner")]
    shell: bool,
    /// Copy what the program wrote to private directories and overlays here
    #[arg(long, value_name = "DIR", conflicts_with = "runner")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    tests: Tests,
    /// File with options [default: husk.toml here or in a directory above]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the steps without performing them
    #[arg(long)]
    plan: bool,
    /// Program and its arguments
    #[arg(value_name = "PROGRAM", required_unless_present = "bundle", trailing_var_arg = true)]
    program: Vec<OsString>,
}

/// Options for tests: those of a test binary, or a program that is one test.
#[derive(Clone, Debug, clap::Args)]
struct Tests {
    /// Run each test of a test binary in its own sandbox, as a runner for cargo
    #[arg(long)]
    runner: bool,
    /// Give each test of pytest or go its own sandbox: test, file, package
    #[arg(
        long,
        value_name = "WHAT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "usual",
        hide_possible_values = true,
        conflicts_with_all = ["runner", "bundle", "plan", "shell", "keep"]
    )]
    each: Option<What>,
    /// Read TAP, with a result for each point; with --each, from each argument
    #[arg(long, conflicts_with_all = ["runner", "bundle", "plan", "shell", "keep"])]
    tap: bool,
    /// Run one part of the tests: 1/3 is the first of three
    #[arg(long, value_name = "PART/PARTS", value_parser = shard)]
    shard: Option<(usize, usize)>,
    /// Start no more tests after a failure
    #[arg(long)]
    fail_fast: bool,
    /// Run a failed test again up to this often; if it passes, it is flaky
    #[arg(long, value_name = "NUMBER", default_value = "0", hide_default_value = true)]
    retries: usize,
    /// Append a line of JSON for each test to this file; '-' is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write results as JUnit XML to this file; '-' is standard output
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write results as a page for a browser to this file; '-' is standard output
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Network {
    None,
    Loopback,
    Host,
}

/// The tests that share a sandbox.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum What {
    Usual,
    Test,
    File,
    Package,
}

impl What {
    fn each(self) -> Each {
        match self {
            Self::Usual => Each::Usual,
            Self::Test => Each::Test,
            Self::File => Each::File,
            Self::Package => Each::Package,
        }
    }
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum When {
    Off,
    Auto,
    Always,
}

impl When {
    fn explain(self) -> Explain {
        match self {
            Self::Off => Explain::Off,
            Self::Auto => Explain::Auto,
            Self::Always => Explain::Always,
        }
    }
}

/// Runs `husk test` with the options of the command line and of husk.toml, if there is one.
pub(crate) fn perform(matches: &ArgMatches, session: &Session<'_>) -> Result<Exit> {
    let test = Test::from_arg_matches(matches)?;
    if let Some((name, arguments)) = test.program.split_first()
        && name == "init"
        && !env::args_os().any(|word| word == "--")
    {
        return init::perform(arguments);
    }
    let manifest = env::var_os("CARGO_MANIFEST_DIR").filter(|_| test.tests.runner).map(PathBuf::from);
    let directory = manifest.map_or_else(env::current_dir, Ok).context("find the working directory")?;
    let Some((path, text)) = settings::find(test.config.as_deref(), &directory, session.log)? else {
        return run(test, &|_| Ok(None), session);
    };
    // Only now, because building the options takes as long as parsing the command line.
    let command = Test::augment_args(options::program());
    let settings = Settings::parse(&text, &path, &command)?;
    let file = Configured { settings, typed: typed(matches, &command), command, read: RefCell::default() };
    let test = file.test(&test, None)?;
    run(test.clone(), &|name| file.test(&test, Some(name)).map(Some), session)
}

/// Returns the options of the command line in clap's syntax.
fn typed(matches: &ArgMatches, command: &Command) -> Vec<OsString> {
    let is_typed =
        |option: &&Arg| matches.value_source(option.get_id().as_str()) == Some(ValueSource::CommandLine);
    let mut words = Vec::new();
    for option in command.get_arguments().filter(is_typed) {
        let Some(long) = option.get_long() else { continue };
        if !option.get_action().takes_values() {
            words.push(format!("--{long}").into());
        }
        for value in matches
            .get_raw(option.get_id().as_str())
            .into_iter()
            .flatten()
            .filter(|_| option.get_action().takes_values())
        {
            let mut word = OsString::from(format!("--{long}="));
            word.push(value);
            words.push(word);
        }
    }
    words
}

/// The options of husk.toml and of the command line.
struct Configured {
    settings: Settings,
    typed: Vec<OsString>,
    command: Command,
    /// The merged options, by the indices of the overrides that apply.
    read: RefCell<BTreeMap<Vec<usize>, Test>>,
}

impl Configured {
    /// Returns the options for the named test, or for the whole program if `name` is `None`.
    fn test(&self, typed: &Test, name: Option<&str>) -> Result<Test> {
        let is_runner = typed.tests.runner;
        let binary = typed.program.first().map(Path::new).and_then(Path::file_name);
        let binary = binary.unwrap_or_default().to_string_lossy();
        let binary = binary.rsplit_once('-').filter(|_| is_runner).map_or(&*binary, |(name, _hash)| name);
        // nextest runs one test per process, and names it.
        let words = typed.program.iter().skip(1).filter_map(|word| word.to_str());
        let only = env::var_os("NEXTEST_TEST_PHASE")
            .and_then(|_| words.into_iter().find(|word| !word.starts_with('-')));
        let package = env::var("CARGO_PKG_NAME").ok();
        let test = name.or(only.filter(|_| is_runner));
        let overrides = self.settings.applying(Subject { test, binary, package: package.as_deref() });
        if let Some(test) = self.read.borrow().get(&overrides) {
            return Ok(test.clone());
        }
        let words = self.settings.words(&overrides).into_iter().chain(self.typed.iter().cloned());
        let words = words.chain(["--".into()]).chain(typed.program.iter().cloned());
        let matches = self.command.clone().try_get_matches_from(words);
        let matches = matches.map_err(|error| anyhow!("husk.toml: {}", options::message(&error)))?;
        let test = Test::from_arg_matches(&matches)?;
        self.read.borrow_mut().insert(overrides, test.clone());
        Ok(test)
    }
}

/// Returns the options for the named test; `None` if husk.toml does not exist.
type Options<'a> = &'a dyn Fn(&str) -> Result<Option<Test>>;

fn run(test: Test, named: Options<'_>, session: &Session<'_>) -> Result<Exit> {
    let how = if test.strict { Isolation::Strict } else { Isolation::Possible };
    let (is_plan, tests, explain) = (test.plan, test.tests.clone(), test.explain.explain());
    let (is_shell, keep) = (test.shell, test.keep.clone().filter(|_| !is_plan));
    let mut of_bundle = Profile::default();
    if let Some(directory) = &test.bundle {
        let warnings;
        (of_bundle, warnings) = husk_hermetic::bundle(directory)?;
        warnings.iter().for_each(|warning| session.log.warning(warning));
    }
    // An image has its own tools.
    let has_image = test.rootfs.is_some() || of_bundle.image.is_some();
    let caller = || Caller { wants_caches: test.keep_caches, ..Caller::of(&test.program) };
    let tools = if has_image { Tools::default() } else { Tools::find(&caller()) };
    let mut profile = test.profile(of_bundle, &tools);
    if !is_plan {
        husk_hermetic::create_outputs(&profile);
    }
    husk_hermetic::show_outputs(&mut profile).iter().for_each(|warning| session.log.warning(warning));
    let mut report = None;
    if tests.runner {
        let kind = husk_hermetic::binary_kind(&profile);
        if is_plan {
            return plans::print(profile, kind, &tests, how, (named, &tools));
        }
        if kind == BinaryKind::Other {
            return as_it_is(&profile);
        }
        husk_hermetic::show(&mut profile);
        tests.refuse_reports(&profile)?;
        let mut told = Report::begin(Named::binary(&profile, tests.shard), tests.reports())?;
        if kind == BinaryKind::Tests
            && let Some(done) = run_tests(&profile, how, &tests, explain, None, (named, &tools), &mut told)?
        {
            return report_tests(done, told, session);
        }
        report = Some(told);
    }
    if tests.each.is_some() || tests.tap {
        let suite = Suite::of(&profile, tests.each.map(What::each), tests.tap).map_err(Error::Setting)?;
        tests.refuse_reports(&profile)?;
        let named_so = if tests.tap && tests.each.is_some() { Named::programs } else { Named::command };
        let mut told = Report::begin(named_so(&profile, tests.shard), tests.reports())?;
        if let Some(done) =
            run_tests(&profile, how, &tests, explain, Some(&suite), (named, &tools), &mut told)?
        {
            return report_tests(done, told, session);
        }
    }
    if is_shell {
        if husk_hermetic::binary_kind(&profile) != BinaryKind::Other {
            husk_hermetic::show(&mut profile);
        }
        let program = husk_hermetic::open_shell(&mut profile)?;
        session.log.note(&format!("shell in the sandbox; run: {program}"));
    }
    let keep = keep.map(|directory| keep::open(directory, &profile)).transpose()?;
    if is_plan {
        let listing = found(&tools) + &husk_hermetic::listing(&profile)?;
        output::print(&*escape::text(&listing))?;
        return Ok(Exit::Success);
    }
    let is_test = !tests.runner && !is_shell;
    if is_test {
        tests.refuse_reports(&profile)?;
        report = Some(Report::begin(Named::command(&profile, None), tests.reports())?);
        if let Some((part, parts)) = tests.shard.filter(|(part, _)| *part != 1) {
            session.log.note(&format!(
                "not run: the program is one test, and so in shard 1/{parts}, not {part}/{parts}"
            ));
            report.map_or(Ok(()), |report| report.finish(0))?;
            return Ok(Exit::Success);
        }
    }
    match attempts(&profile, how, if is_test { tests.retries } else { 0 }, session) {
        Ok((attempts, ended)) => {
            if let Some(keep) = &keep {
                session.log.note(&keep.keep(&ended)?);
            }
            let explanation = explain.is_due(&ended).then(|| husk_hermetic::explain(&profile, &ended, how));
            if let Some(mut report) = report {
                report.add_program(attempts, explanation.clone());
                report.finish(0)?;
            }
            let command =
                fetch::missing(&profile.args).filter(|_| !ended.status.success() && profile.net != Net::Host);
            if let Some(command) = command.filter(|_| profile.image.is_none()) {
                session.log.warning(&format!(
                    "dependencies may be missing, and the sandbox has no network; run '{command}' first, or use --net host"
                ));
            }
            Ok(tell(&ended, explanation.as_ref(), session))
        }
        Err(error @ Error::Program { .. }) => {
            let Error::Program { reason, .. } = &error else { return Err(error.into()) };
            let exit = if reason.errno() == Some(Errno::NOENT) { Exit::NotFound } else { Exit::NoProgram };
            session.log.failed(&anyhow!(error));
            Ok(exit)
        }
        Err(error) => Err(error.into()),
    }
}

/// Runs a program until it succeeds, or until it has been run again this often. Returns all attempts, and the last one's
/// end.
fn attempts(
    profile: &Profile,
    how: Isolation,
    retries: usize,
    session: &Session<'_>,
) -> Result<(Vec<Attempt>, Ended), Error> {
    let began = Instant::now();
    let mut attempts = Vec::new();
    loop {
        let start = began.elapsed();
        let ended = husk_hermetic::run(profile, how)?;
        let is_over = ended.status.success() || ended.was_signalled || attempts.len() == retries;
        // The caller has seen the program's output.
        attempts.push(Attempt { start, ended: ended.clone(), reported: None, said: String::new() });
        let count = attempts.len();
        if !is_over {
            let why = ended.reached.map_or(ended.status.to_string(), |reached| reached.to_string());
            session.log.note(&format!("attempt {count} failed ({why}); running it again"));
            continue;
        }
        if ended.status.success() && count > 1 {
            session.log.note(&format!("flaky: passed at attempt {count}"));
        }
        return Ok((attempts, ended));
    }
}

/// Writes the reports on tests that have ended.
fn report_tests(
    (done, written): (husk_hermetic::Tests, Result<()>),
    report: Report,
    session: &Session<'_>,
) -> Result<Exit> {
    done.losses.iter().for_each(|loss| session.log.warning(loss));
    report.finish(done.not_run)?;
    written?;
    Ok(if done.success { Exit::Success } else { Exit::Tests })
}

/// Runs each test of a suite, or of a libtest binary; `None` for other programs. Also returns whether the results could be
/// written: tests run and are reported even if not.
fn run_tests(
    profile: &Profile,
    how: Isolation,
    tests: &Tests,
    explain: Explain,
    suite: Option<&Suite>,
    (named, tools): (Options<'_>, &Tools),
    report: &mut Report,
) -> Result<Option<(husk_hermetic::Tests, Result<()>)>> {
    let usual = Setting { profile: profile.clone(), retries: tests.retries, explain };
    let setting = setting(usual, tests, suite.is_none(), (named, tools));
    let mut choice = Choice {
        shard: tests.shard,
        fails_fast: tests.fail_fast,
        setting: &setting,
        screen: tcgetwinsize(stdout()).ok().map(|size| screen(size.ws_col.into())),
        record: &mut |tested| report.add(tested),
    };
    let mut results = LineWriter::new(Lasting::default());
    let done = match suite {
        Some(suite) => Some(husk_hermetic::run_suite(profile, how, suite, &mut choice, &mut results)?),
        None => husk_hermetic::run_tests(profile, how, &mut choice, &mut results)?,
    };
    results.flush()?;
    Ok(done.map(|done| (done, results.get_ref().finish())))
}

/// Returns a function that returns how to run the named test. Few tests have options of their own; each distinct set of
/// options gets its own plan.
fn setting<'s>(
    usual: Setting,
    tests: &'s Tests,
    is_binary: bool,
    (named, tools): (Options<'s>, &'s Tools),
) -> impl Fn(&str) -> Result<Rc<Setting>, Error> + 's {
    let usual = Rc::new(usual);
    let known = RefCell::new(vec![usual.clone()]);
    move |name: &str| {
        let wrong = |error: anyhow::Error| Error::Setting(with_causes(&error));
        let setting = match named(name).map_err(wrong)? {
            Some(test) => {
                let (retries, explain) = (test.tests.retries, test.explain.explain());
                let mut profile = test.profile(Profile::default(), tools);
                // The warnings are the same for each test.
                drop(husk_hermetic::show_outputs(&mut profile));
                if is_binary {
                    husk_hermetic::show(&mut profile);
                }
                tests.refuse_reports(&profile).map_err(wrong)?;
                Some(Setting { profile, retries, explain })
            }
            None => None,
        };
        let mut known = known.borrow_mut();
        let is_known = known.iter().find(|known| setting.as_ref().is_none_or(|setting| *setting == ***known));
        Ok(match (is_known.cloned(), setting) {
            (None, Some(setting)) => {
                let setting = Rc::new(setting);
                known.push(setting.clone());
                setting
            }
            (is_known, _) => is_known.unwrap_or_else(|| usual.clone()),
        })
    }
}

impl Tests {
    fn reports(&self) -> Destinations<'_> {
        let Self { json, junit, html, .. } = self;
        Destinations { json: json.as_deref(), junit: junit.as_deref(), html: html.as_deref() }
    }

    /// Rejects reports in a directory that tests may write to. A test could replace or change them there.
    fn refuse_reports(&self, profile: &Profile) -> Result<()> {
        if self.json.is_none() && self.junit.is_none() && self.html.is_none() {
            return Ok(());
        }
        let written = written(profile)?;
        for (option, report) in [("--json", &self.json), ("--junit", &self.junit), ("--html", &self.html)] {
            let Some(report) = report.as_ref().filter(|report| report::descriptor(report).is_none()) else {
                continue;
            };
            // The existing part of the path; the rest will be created.
            let there = path::absolute(report).with_context(|| format!("find {}", report.display()))?;
            let there = there.ancestors().skip(1).find_map(|above| fs::canonicalize(above).ok());
            let place = there.zip(report.file_name()).map(|(there, name)| there.join(name));
            if let Some(within) =
                written.iter().find(|path| place.iter().any(|place| place.starts_with(path)))
            {
                let by = if profile.image.is_some() { "" } else { "--write " };
                bail!(
                    "{option} {}: is in {by}{}, where a test could change it; choose another directory",
                    report.display(),
                    within.display()
                );
            }
        }
        Ok(())
    }
}

/// Returns the paths that the program may write to.
fn written(profile: &Profile) -> Result<Vec<PathBuf>> {
    if let Some(image) = &profile.image {
        // The paths that --write names are in the image.
        let directory = &image.directory;
        let found = fs::canonicalize(directory).with_context(|| format!("open {}", directory.display()))?;
        return Ok(vec![found]);
    }
    let written = profile.shown.iter().filter(|show| show.access == PathAccess::Write);
    let canonical =
        |show: &Show| fs::canonicalize(&show.path).with_context(|| format!("find {}", show.path.display()));
    written.map(canonical).collect()
}

impl Test {
    /// Converts the options to a profile; they take precedence over the bundle.
    fn profile(self, of_bundle: Profile, tools: &Tools) -> Profile {
        let mut image = of_bundle.image.or(self.rootfs.map(Image::of));
        let shown = [
            (self.write, PathAccess::Write),
            (self.overlay, PathAccess::Overlay),
            (self.read, PathAccess::Read),
            (self.hide, PathAccess::Hide),
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
        } else {
            // The program is made visible.
            let program = self.program.first().map(PathBuf::from);
            let program = program.filter(|program| program.components().count() > 1 && program.is_file());
            shown.extend(program.map(|path| Show { path, access: PathAccess::Read }));
        }
        let mut profile = Profile {
            args: if self.program.is_empty() { of_bundle.args } else { self.program },
            env: self.env.into_iter().map(variable).collect(),
            shown,
            uptime: self.uptime,
            nested: self.nested,
            keeps_files: self.keep.is_some(),
            observed: false,
            image,
            net: match self.net {
                Network::None => Net::None,
                Network::Loopback => Net::Loopback,
                Network::Host => Net::Host,
            },
            limits: Limits {
                wall: self.timeout,
                cpu_seconds: self.cpu,
                memory: self.memory.or(of_bundle.limits.memory),
                processes: self.pids.or(of_bundle.limits.processes),
                files: self.files,
                file_size: self.file_size,
                disk: Some(self.disk),
            },
            ..Profile::default()
        };
        tools.add_to(&mut profile, if self.keep_caches { Caches::Keep } else { Caches::Discard });
        profile
    }
}

/// Returns the lines that name the tools that were found, and what is not shown.
fn found(tools: &Tools) -> String {
    let mut text = String::new();
    if !tools.found.is_empty() {
        text = format!("tools: {tools}\n");
    }
    for (path, why) in &tools.refused {
        text += &format!("hidden: {} ({why})\n", path.display());
    }
    text
}

/// Assumes 80 columns if the terminal does not report its width.
fn screen(columns: usize) -> Screen {
    Screen { columns: if columns == 0 { 80 } else { columns } }
}

/// Replaces this process with the program, without a sandbox.
fn as_it_is(profile: &Profile) -> Result<Exit> {
    let (program, arguments) = profile.args.split_first().context("no program given")?;
    let error = process::Command::new(program).args(arguments).exec();
    Err(error).with_context(|| program.display().to_string())
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

/// Prints warnings and the explanation, and returns the exit code.
fn tell(ended: &Ended, explanation: Option<&Explanation>, session: &Session<'_>) -> Exit {
    for loss in &ended.losses {
        session.log.warning(loss);
    }
    for process in &ended.remaining {
        session.log.warning(&format!(
            "killed a process that was left running: {} (pid {})",
            process.command, process.pid
        ));
    }
    if let Some(explanation) = explanation {
        if explanation.is_flaky(ended) {
            session.log.note(&"flaky: the program passed when it was run again to explain its failure");
        }
        explanation.lines().iter().for_each(|line| session.log.note(line));
    }
    if let Some(full) = ended.full.filter(|_| !explanation.is_some_and(Explanation::names_disk)) {
        session.log.note(&format!("the private directories are full: {full} (--disk)"));
    }
    if let Some(reached) = &ended.reached {
        session.log.failed(&anyhow!("killed: {reached}"));
        return Exit::Limit;
    }
    husk_hermetic::end_alike(ended);
    Exit::Program(ended.status)
}

fn time(text: &str) -> Result<Duration, String> {
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
    let parts = parts.filter(|(part, parts)| (1..=*parts).contains(part));
    parts.ok_or_else(|| "not a part such as 1/3, the first of three".to_owned())
}

/// Splits a number from its unit, and returns the unit's factor.
fn with_unit<'t, T: Copy>(text: &'t str, units: &[(&str, T)]) -> Option<(&'t str, T)> {
    let number = text.trim_end_matches(|char: char| char.is_ascii_alphabetic());
    let unit = text.strip_prefix(number)?.to_ascii_lowercase();
    units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| (number, *factor))
}
