//! `husk test`: runs a program or tests with the options of the command line and of husk.toml, and writes reports.

mod cache;
mod directory;
mod durations;
mod excerpt;
mod fetch;
mod init;
mod jobs;
mod keep;
mod merge;
pub(crate) mod options;
mod plans;
mod record;
mod report;
mod run;
mod services;
mod settings;
mod trusted;

use crate::exit::Exit;
use crate::image::Images;
use crate::output::escape;
use crate::output::log::with_causes;
use crate::output::{self, Lasting};
use crate::session::Session;
use anyhow::{Context as _, Result, anyhow, bail};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args as _, Command, FromArgMatches as _};
use husk_hermetic::{
    Attempt, BinaryKind, Cache, Caller, Choice, Division, Ended, Error, Explain, Explanation, Isolation, Net,
    PathAccess, Profile, Root, Screen, Setting, Show, Suite, Tools,
};
use husk_image::Held;
use options::{Test, Tests, What};
use report::{Destinations, Named, Report};
use rustix::io::Errno;
use rustix::termios::tcgetwinsize;
use services::ConditionalService;
use settings::{Settings, Subject};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{LineWriter, Write as _, stdout};
use std::os::unix::process::CommandExt as _;
use std::path::{self, Path, PathBuf};
use std::process;
use std::rc::Rc;
use std::time::Instant;
use std::{env, fs};

/// Runs `husk test` with the options of the command line and of husk.toml, if there is one.
pub(crate) fn perform(matches: &ArgMatches, session: &Session<'_>) -> Result<Exit> {
    let test = Test::from_arg_matches(matches)?;
    if test.tests.merge {
        return merge::perform(&test.tests, &test.program, matches, session);
    }
    if let Some((name, arguments)) = test.program.split_first()
        && name == "init"
        && !env::args_os().any(|word| word == "--")
    {
        return init::perform(arguments);
    }
    if let Some(job) = test.tests.job {
        let command = Test::augment_args(crate::options::program());
        return jobs::print(job, &test, &typed(matches, &command));
    }
    let manifest = env::var_os("CARGO_MANIFEST_DIR").filter(|_| test.tests.runner).map(PathBuf::from);
    let directory = manifest.map_or_else(env::current_dir, Ok).context("find the working directory")?;
    let Some((path, text)) = settings::find(test.config.as_deref(), &directory, session.log)? else {
        return run(test, &|_| Ok(None), &Images::default(), session);
    };
    // Only now, because building the options takes as long as parsing the command line.
    let command = Test::augment_args(crate::options::program());
    let mut settings = Settings::parse(&text, &path, &command)?;
    let images = Images::default();
    let shared = settings.run(&test, (&path, &text))?;
    let services = settings.prepare(&command, &images, session, shared)?;
    if !test.tests.keep_services.is_empty() {
        return services::keep(&services, &test);
    }
    let typed = typed(matches, &command);
    let file = Configured { settings, services, typed, command, read: RefCell::default() };
    let test = file.test(&test, None)?;
    let named = |name: &str| {
        let test = file.test(&test, Some(name))?;
        let image = test.image.as_ref().map(|image| images.profile(image)).transpose()?;
        Ok(Some((test, image.unwrap_or_default())))
    };
    run(test.clone(), &named, &images, session)
}

/// Returns the options of the command line and of the environment in clap's syntax.
fn typed(matches: &ArgMatches, command: &Command) -> Vec<OsString> {
    let is_typed = |option: &&Arg| {
        let source = matches.value_source(option.get_id().as_str());
        matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
    };
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
    services: Vec<ConditionalService>,
    typed: Vec<OsString>,
    command: Command,
    /// The merged options, by the indices of the overrides and services that apply.
    read: RefCell<BTreeMap<[Vec<usize>; 2], Test>>,
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
        let subject = Subject { test, binary, package: package.as_deref() };
        let applying = [self.settings.applying(subject), services::applying(&self.services, subject)];
        if let Some(test) = self.read.borrow().get(&applying) {
            return Ok(test.clone());
        }
        let [overrides, services] = &applying;
        let words = self.settings.words(overrides).into_iter().chain(self.typed.iter().cloned());
        let words = words.chain(["--".into()]).chain(typed.program.iter().cloned());
        let matches = self.command.clone().try_get_matches_from(words);
        let matches = matches.map_err(|error| anyhow!("husk.toml: {}", crate::options::message(&error)))?;
        let mut test = Test::from_arg_matches(&matches)?;
        test.services = services::at(&self.services, services)?;
        self.read.borrow_mut().insert(applying, test.clone());
        Ok(test)
    }
}

/// Returns the options for the named test and the profile of its image; `None` if husk.toml does not exist.
type Options<'a> = &'a dyn Fn(&str) -> Result<Option<(Test, Profile)>>;

fn run(test: Test, named: Options<'_>, images: &Images, session: &Session<'_>) -> Result<Exit> {
    let how = if test.strict { Isolation::Strict } else { Isolation::Possible };
    let (is_plan, tests, explain) = (test.plan, test.tests.clone(), test.explain.explain());
    let (is_shell, keep) = (test.shell, test.keep.clone().filter(|_| !is_plan));
    // Before the profile, which excludes the store's directory.
    let mut cache = cache::open(&test, session)?;
    let (of_bundle, _held) = of_bundle(&test, images, session)?;
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
    let is_test = !tests.runner && !is_shell;
    let durations = tests.durations(session)?;
    if tests.runner {
        let kind = husk_hermetic::binary_kind(&profile);
        let names = tests.names(Named::binary, &profile, durations.as_ref());
        let suite = names.suite.clone();
        let division = tests.division(&suite, durations.as_ref());
        if is_plan {
            return plans::print(profile, kind, &tests, division, how, (named, &tools));
        }
        if kind == BinaryKind::Other {
            return as_it_is(&profile);
        }
        husk_hermetic::show(&mut profile);
        tests.refuse_reports(&profile)?;
        let mut told = Report::begin(names, tests.reports())?;
        if kind == BinaryKind::Tests
            && let Some(done) = run_tests(
                &profile,
                how,
                (&tests, division, cache.as_mut()),
                explain,
                None,
                (named, &tools),
                &mut told,
            )?
        {
            cache::finish(cache.as_mut(), session);
            return report_tests(done, told, session);
        }
        report = Some(told);
    }
    if tests.each.is_some() || tests.tap {
        let suite = Suite::of(&profile, tests.each.map(What::each), tests.tap).map_err(Error::Setting)?;
        tests.refuse_reports(&profile)?;
        let named_so = if tests.tap && tests.each.is_some() { Named::programs } else { Named::command };
        let names = tests.names(named_so, &profile, durations.as_ref());
        let name = names.suite.clone();
        let division = tests.division(&name, durations.as_ref());
        let mut told = Report::begin(names, tests.reports())?;
        let suite = Some(&suite);
        if let Some(done) =
            run_tests(&profile, how, (&tests, division, None), explain, suite, (named, &tools), &mut told)?
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
    if is_test {
        tests.refuse_reports(&profile)?;
        report = Some(Report::begin(Named::command(&profile, tests.shard), tests.reports())?);
    }
    if is_test || tests.runner && husk_hermetic::is_in_first_shard(&profile) {
        report.iter_mut().for_each(Report::list_program);
        if let Some((part, parts)) = tests.shard.filter(|(part, _)| *part != 1) {
            session.log.note(&format!(
                "not run: the program is one test, and so in shard 1/{parts}, not {part}/{parts}"
            ));
            report.map_or(Ok(()), |report| report.finish(0, Vec::new()))?;
            return Ok(Exit::Success);
        }
    }
    let found = attempts((&profile, cache.as_mut()), how, if is_test { tests.retries } else { 0 }, session);
    cache::finish(cache.as_mut(), session);
    match found {
        Ok((attempts, ended)) => {
            if let Some(keep) = &keep {
                session.log.note(&keep.keep(&ended)?);
            }
            let explanation = explain.is_due(&ended).then(|| husk_hermetic::explain(&profile, &ended, how));
            if let Some(mut report) = report {
                report.add_program(attempts, explanation.clone());
                report.finish(0, Vec::new())?;
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

/// Returns the profile of the options' bundle or image, and a lock that keeps a bundle's layers in the store.
fn of_bundle(test: &Test, images: &Images, session: &Session<'_>) -> Result<(Profile, Option<Held>)> {
    if let Some(image) = &test.image {
        let profile = images.profile(image)?;
        if test.program.is_empty() && profile.args.is_empty() {
            bail!("image {}: names no program; give one after '--'", image.display());
        }
        return Ok((profile, None));
    }
    let Some(directory) = &test.bundle else { return Ok(Default::default()) };
    let (profile, warnings) = husk_hermetic::bundle(directory)?;
    warnings.iter().for_each(|warning| session.log.warning(warning));
    let held = match profile.image.as_ref().map(|image| &image.root) {
        Some(Root::Layers(layers)) => husk_image::hold(layers)?,
        _ => None,
    };
    Ok((profile, held))
}

/// Runs a program until it succeeds, or until it has been run again this often. Returns all attempts, and the last one's
/// end.
fn attempts(
    (profile, mut cache): (&Profile, Option<&mut Cache>),
    how: Isolation,
    retries: usize,
    session: &Session<'_>,
) -> Result<(Vec<Attempt>, Ended), Error> {
    let began = Instant::now();
    let mut attempts = Vec::new();
    loop {
        let start = began.elapsed();
        let ended = match cache.take() {
            // One that passes at a later attempt is flaky, and is not remembered.
            Some(cache) => cache.run(profile, how)?,
            None => husk_hermetic::run(profile, how)?,
        };
        ended.recalled.iter().for_each(|recalled| session.log.note(recalled));
        let is_over = ended.status.success() || ended.was_signalled || attempts.len() == retries;
        // The caller has seen the program's output.
        let said = if ended.status.success() { String::new() } else { ended.service_output() };
        attempts.push(Attempt { start, ended: ended.clone(), reported: None, said });
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
    done.notes.iter().for_each(|note| session.log.warning(note));
    report.finish(done.not_run, done.not_begun)?;
    written?;
    Ok(if done.success { Exit::Success } else { Exit::Tests })
}

/// Runs each test of a suite, or of a libtest binary; `None` for other programs. Also returns whether the results could be
/// written: tests run and are reported even if not.
fn run_tests(
    profile: &Profile,
    how: Isolation,
    (tests, division, cache): (&Tests, Division<'_>, Option<&mut Cache>),
    explain: Explain,
    suite: Option<&Suite>,
    (named, tools): (Options<'_>, &Tools),
    report: &mut Report,
) -> Result<Option<(husk_hermetic::Tests, Result<()>)>> {
    let usual = Setting { profile: profile.clone(), retries: tests.retries, explain };
    let setting = setting(usual, tests, suite.is_none(), (named, tools));
    let mut choice = Choice {
        division,
        fails_fast: tests.fail_fast,
        setting: &setting,
        screen: tcgetwinsize(stdout()).ok().map(|size| screen(size.ws_col.into())),
        cache,
        record: &mut |event| report.record(event),
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
            Some((test, image)) => {
                let (retries, explain) = (test.tests.retries, test.explain.explain());
                let mut profile = test.profile(image, tools);
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
        if [&self.json, &self.junit, &self.html, &self.cache].iter().all(|report| report.is_none()) {
            return Ok(());
        }
        let written = written(profile)?;
        let reports = [
            ("--json", &self.json),
            ("--junit", &self.junit),
            ("--html", &self.html),
            ("--cache", &self.cache),
        ];
        for (option, report) in reports {
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
        let Root::Directory(directory) = &image.root else { return Ok(Vec::new()) };
        let found = fs::canonicalize(directory).with_context(|| format!("open {}", directory.display()))?;
        return Ok(vec![found]);
    }
    let written = profile.shown.iter().filter(|show| show.access == PathAccess::Write);
    let canonical =
        |show: &Show| fs::canonicalize(&show.path).with_context(|| format!("find {}", show.path.display()));
    written.map(canonical).collect()
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

/// Prints warnings and the explanation, and returns the exit code.
fn tell(ended: &Ended, explanation: Option<&Explanation>, session: &Session<'_>) -> Exit {
    for loss in &ended.losses {
        session.log.warning(loss);
    }
    for note in ended.service_notes() {
        session.log.warning(&note);
    }
    if !ended.status.success() {
        ended.service_output().lines().for_each(|line| session.log.note(&line));
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
