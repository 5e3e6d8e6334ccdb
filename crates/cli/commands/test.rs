//! `test`.

use super::Perform;
use crate::exit::Exit;
use crate::session::Session;
use anyhow::{Context as _, Result, anyhow};
use husk_hermetic::{Access, Choice, Ended, Error, Image, Kind, Limits, Net, Profile, Run, Show, Variable};
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Write as _, stdout};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub(super) const MORE: &str = "
The program has the host's files, but cannot write to them; /tmp, /var/tmp, /run, /dev and its home directory are its
own and are gone afterwards. It has its own processes and network, the host name localhost, the time zone UTC, and of
the environment what is on a list. What it leaves running is ended, and named. It takes no root and no preparation.

husk ends as the program does: with its code, or by the signal that killed it; with 124 if a limit ended it, and with
125, 126 or 127 if there was no sandbox, or no program that can be run, or none at all.

Examples:
  husk test -- ./check                      a test
  husk test --write target -- make test     with a directory to write to
  husk test --overlay . -- make test        the same, and what is written is thrown away
  husk test --timeout 10s --memory 512m -- ./check
  husk test --rootfs image -- /bin/check    a test in the files of an image
  husk test --bundle bundle                 a bundle's program, in its root file system
  husk test --plan -- ./check               what would be done

Cargo runs each test so, with this in .cargo/config.toml:
  [target.'cfg(target_os = \"linux\")']
  runner = [\"husk\", \"test\", \"--runner\"]
";

/// Run a program that sees nothing of its surroundings and leaves nothing behind
#[derive(Debug, clap::Args)]
pub(super) struct Test {
    /// A directory to be its root file system, in place of the host's: paths are in there
    #[arg(long, value_name = "DIR", conflicts_with_all = ["bundle", "runner"])]
    rootfs: Option<PathBuf>,
    /// An OCI bundle: its root file system, and what its configuration says of the process
    #[arg(long, value_name = "DIR", conflicts_with = "runner")]
    bundle: Option<PathBuf>,
    /// A directory or file that it may write to
    #[arg(long, value_name = "PATH")]
    write: Vec<PathBuf>,
    /// A directory that it may write to; what it writes is thrown away
    #[arg(long, value_name = "PATH")]
    overlay: Vec<PathBuf>,
    /// A path that it sees although it is below a directory of its own
    #[arg(long, value_name = "PATH")]
    read: Vec<PathBuf>,
    /// A path that it does not see
    #[arg(long, value_name = "PATH")]
    hide: Vec<PathBuf>,
    /// A variable: the caller's, or one with this value
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    env: Vec<OsString>,
    /// Its network: none, loopback, or the host's
    #[arg(long, value_name = "NET", default_value = "loopback", hide_possible_values = true)]
    net: Network,
    /// For how long the machine seems to have been up: 0s, 50d
    #[arg(long, value_name = "TIME", value_parser = time)]
    uptime: Option<Duration>,
    /// How long it may take: 10s, 500ms, 2m
    #[arg(long, value_name = "TIME", value_parser = time)]
    timeout: Option<Duration>,
    /// How many seconds of a processor each of its processes may use
    #[arg(long, value_name = "SECONDS")]
    cpu: Option<u64>,
    /// How much memory it may have: 512m
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    memory: Option<u64>,
    /// How many processes and threads it may have
    #[arg(long, value_name = "NUMBER")]
    pids: Option<u64>,
    /// How many files each of its processes may have open
    #[arg(long, value_name = "NUMBER")]
    files: Option<u64>,
    /// How large a file it may write
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    file_size: Option<u64>,
    /// How much it may write to its own directories
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "2g")]
    disk: u64,
    /// Refuse where this machine cannot isolate it completely
    #[arg(long)]
    strict: bool,
    /// Run a test binary as cargo has it run: each of its tests in a sandbox of its own
    #[arg(long, conflicts_with = "plan")]
    runner: bool,
    /// Of such a binary only one part of so many, for machines that share the work: 1/3
    #[arg(long, value_name = "PART/PARTS", value_parser = shard, requires = "runner")]
    shard: Option<(usize, usize)>,
    /// Begin no test of such a binary after one that failed
    #[arg(long, requires = "runner")]
    fail_fast: bool,
    /// Add a line of JSON for each test of such a binary to this file
    #[arg(long, value_name = "FILE", requires = "runner")]
    json: Option<PathBuf>,
    /// Print what would be done, a line a step, and do nothing
    #[arg(long)]
    plan: bool,
    /// The program with its arguments
    #[arg(
        value_name = "PROGRAM",
        required_unless_present = "bundle",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    program: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Network {
    None,
    Loopback,
    Host,
}

impl Perform for Test {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        let how = if self.strict { Run::Strict } else { Run::Possible };
        let is_plan = self.plan;
        let (is_runner, shard, fails_fast, json) =
            (self.runner, self.shard, self.fail_fast, self.json.clone());
        let mut profile = self.profile(session)?;
        if is_runner {
            match husk_hermetic::kind(&profile) {
                Kind::Other => return as_it_is(&profile),
                Kind::Test => husk_hermetic::show(&mut profile),
                Kind::Tests => {
                    husk_hermetic::show(&mut profile);
                    let mut lines = Lines::open(json.as_deref(), &profile)?;
                    let mut record = |name: &str, ended: &Ended| lines.add(name, ended);
                    let mut choice = Choice { shard, fails_fast, record: &mut record };
                    let tests = husk_hermetic::run_tests(&profile, how, &mut choice, &mut stdout())?;
                    lines.written?;
                    if let Some(tests) = tests {
                        tests.losses.iter().for_each(|loss| session.log.warning(loss));
                        return Ok(if tests.success { Exit::Success } else { Exit::Tests });
                    }
                }
            }
        }
        if is_plan {
            print!("{}", husk_hermetic::listing(&profile)?);
            return Ok(Exit::Success);
        }
        match husk_hermetic::run(&profile, how) {
            Ok(ended) => Ok(report(&ended, session)),
            Err(error @ Error::Program { .. }) => {
                let Error::Program { reason, .. } = &error else { return Err(error.into()) };
                let exit =
                    if reason.kind() == ErrorKind::NotFound { Exit::NotFound } else { Exit::NoProgram };
                session.log.failed(&anyhow!(error));
                Ok(exit)
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Test {
    fn profile(self, session: &Session<'_>) -> Result<Profile> {
        let mut of_bundle = Profile::default();
        if let Some(directory) = &self.bundle {
            let warnings;
            (of_bundle, warnings) = husk_hermetic::bundle(directory)?;
            warnings.iter().for_each(|warning| session.log.warning(warning));
        }
        let mut image = of_bundle.image.or(self.rootfs.map(Image::of));
        let shown = [
            (self.write, Access::Write),
            (self.overlay, Access::Overlay),
            (self.read, Access::Read),
            (self.hide, Access::Hide),
        ];
        let shown = shown.into_iter();
        let shown =
            shown.flat_map(|(paths, access)| paths.into_iter().map(move |path| Show { path, access }));
        let mut shown: Vec<_> = shown.collect();
        if let Some(image) = &mut image {
            // The root itself is no place in it.
            let (roots, others): (Vec<_>, _) =
                shown.into_iter().partition(|show| show.path == Path::new("/"));
            image.access = roots.last().map_or(image.access, |show| show.access);
            shown = others;
        } else {
            // What is named is not hidden.
            let program = self.program.first().map(PathBuf::from);
            let program = program.filter(|program| program.components().count() > 1 && program.is_file());
            shown.extend(program.map(|path| Show { path, access: Access::Read }));
        }
        Ok(Profile {
            args: if self.program.is_empty() { of_bundle.args } else { self.program },
            env: self.env.into_iter().map(variable).collect(),
            shown,
            uptime: self.uptime,
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
        })
    }
}

/// A file with a line for each test. Binaries that run at the same time may share it.
struct Lines {
    file: Option<File>,
    binary: String,
    written: Result<()>,
}

impl Lines {
    fn open(path: Option<&Path>, profile: &Profile) -> Result<Self> {
        let open = |path: &Path| {
            let file = File::options().append(true).create(true).open(path);
            file.with_context(|| format!("open {}", path.display()))
        };
        let binary = profile.args.first().map(|binary| binary.to_string_lossy().into_owned());
        Ok(Self { file: path.map(open).transpose()?, binary: binary.unwrap_or_default(), written: Ok(()) })
    }

    fn add(&mut self, name: &str, ended: &Ended) {
        let Some(file) = &mut self.file else { return };
        let leftovers: Vec<_> = ended.leftovers.iter().map(|process| &process.command).collect();
        let line = serde_json::json!({
            "binary": self.binary,
            "test": name,
            "passed": ended.status.success(),
            "status": ended.status.to_string(),
            "limit": ended.reached.map(|reached| reached.to_string()),
            "wall_ms": ended.wall.as_secs_f64() * 1000.0,
            "cpu_ms": ended.usage.cpu_micros as f64 / 1000.0,
            "peak_kib": ended.usage.peak_kib,
            "left_running": leftovers,
        });
        let written = file.write_all(format!("{line}\n").as_bytes());
        if self.written.is_ok() {
            self.written = written.context("write JSON");
        }
    }
}

/// Becomes the program, without a sandbox.
fn as_it_is(profile: &Profile) -> Result<Exit> {
    let (program, arguments) = profile.args.split_first().context("no program")?;
    let error = Command::new(program).args(arguments).exec();
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

/// Says what is worth a word, and how husk ends.
fn report(ended: &Ended, session: &Session<'_>) -> Exit {
    for loss in &ended.losses {
        session.log.warning(loss);
    }
    for process in &ended.leftovers {
        session.log.warning(&format!("left running, and ended: {} (pid {})", process.command, process.pid));
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
    time.ok_or_else(|| "is no time: 10s, 500ms, 2m".to_owned())
}

fn bytes(text: &str) -> Result<u64, String> {
    let units = [("", 1), ("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30), ("t", 1 << 40)];
    let bytes =
        with_unit(text, &units).and_then(|(number, factor)| number.parse::<u64>().ok()?.checked_mul(factor));
    bytes.ok_or_else(|| "is no number of bytes: 4096, 512k, 64m, 2g".to_owned())
}

fn shard(text: &str) -> Result<(usize, usize), String> {
    let parts =
        text.split_once('/').and_then(|(part, parts)| Some((part.parse().ok()?, parts.parse().ok()?)));
    let parts = parts.filter(|(part, parts)| (1..=*parts).contains(part));
    parts.ok_or_else(|| "is no part: 1/3 is the first of three".to_owned())
}

/// A number and the factor that the letters behind it stand for.
fn with_unit<'t, T: Copy>(text: &'t str, units: &[(&str, T)]) -> Option<(&'t str, T)> {
    let number = text.trim_end_matches(|char: char| char.is_ascii_alphabetic());
    let unit = text.strip_prefix(number)?.to_ascii_lowercase();
    units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| (number, *factor))
}
