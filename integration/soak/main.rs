//! Runs many containers, many at a time, and reports what they leave behind: `soak CYCLES WIDTH EXECS LIVE`.
//!
//! It is the first process of a pid namespace and has its own mounts. So a process, a mount or a file below `/run` that
//! exists at the end must have been left behind. Cgroups and keyrings are global; those of its containers are
//! recognized by their names. Counters of the whole machine are printed, but do not decide the result.
//!
//! `RUNTIME_UNDER_TEST` names another runtime than the husk built beside it.

#![expect(clippy::disallowed_macros, reason = "a run that cannot print its results may fail")]

mod bundle;
mod crowd;
mod left;

use bundle::Bundle;
use crowd::crowd;
use husk_spawn::{Namespaces, Signal};
use left::{Count, Left};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{Pid, WaitOptions, waitpid};
use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;
use tempfile::TempDir;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    let done = if std::process::id() == 1 { soak() } else { apart() };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs this program again as the first process of a pid namespace.
fn apart() -> Outcome<bool> {
    let mut command = husk_spawn::Command::new("/proc/self/exe");
    command.args(env::args_os().skip(1)).new_namespaces(Namespaces::PID | Namespaces::MOUNT);
    Ok(command.parent_death_signal(Signal::KILL).status()?.success())
}

fn soak() -> Outcome<bool> {
    let mut numbers = [64, 8, 64, 16];
    for (number, argument) in numbers.iter_mut().zip(env::args().skip(1)) {
        *number = argument.parse()?;
    }
    let [cycles, width, execs, live] = numbers;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    mount("proc", "/proc", "proc", MountFlags::empty(), None)?;
    let runtime = Runtime::new()?;
    mount("tmpfs", "/run", "tmpfs", MountFlags::empty(), None)?;

    // Two cycles first, so that everything that is created only once exists.
    runtime.cycle("first")?;
    runtime.cycle("second")?;
    let nothing_stayed = runtime.compare(&format!("{cycles} containers, {width} at a time"), None, || {
        at_once(cycles, width, |index| runtime.cycle(&index.to_string()))
    })?;

    let title = format!("{live} containers alive at once");
    let nobody_stayed = runtime.compare(&title, None, || crowd(&runtime, live, width))?;

    let pid = runtime.begin(&runtime.lasting, "company")?;
    runtime.exec("company", 0)?;
    runtime.exec("company", 1)?;
    let title = format!("{execs} processes in one container, {width} at a time");
    let nothing_came = runtime
        .compare(&title, Some(pid), || at_once(execs, width, |index| runtime.exec("company", index)))?;
    runtime.call("delete", &["--force", &runtime.id("company")])?;
    Ok(nothing_stayed && nobody_stayed && nothing_came)
}

/// Calls `each` for each number below `count`, in `width` threads.
fn at_once(count: usize, width: usize, each: impl Fn(usize) -> Outcome<()> + Sync) -> Outcome<()> {
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            match next.fetch_add(1, Ordering::Relaxed) {
                index if index < count => each(index)?,
                _ => return Ok(()),
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..width).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })
}

/// The runtime under test and its directory.
struct Runtime {
    program: OsString,
    directory: TempDir,
    /// A unique prefix of its containers' names.
    name: String,
    /// A bundle whose program ends by itself.
    ending: Bundle,
    /// A bundle whose program must be killed.
    lasting: Bundle,
}

impl Runtime {
    fn new() -> Outcome<Self> {
        let directory = TempDir::new()?;
        let built = env::current_exe()?;
        let husk = || built.parent()?.parent().map(|above| above.join("husk").into_os_string());
        let program = env::var_os("RUNTIME_UNDER_TEST").or_else(husk).ok_or("no runtime")?;
        let unique = directory.path().extension().or(directory.path().file_name()).unwrap_or_default();
        let name = format!("husk-soak-{}", unique.to_string_lossy().trim_start_matches(".tmp"));
        fs::create_dir(directory.path().join("state"))?;
        let guest = built.with_file_name("guest");
        let bundle = |name, words: &[&str]| Bundle::new(&directory.path().join(name), &guest, words);
        let (ending, lasting) = (bundle("ending", &["exit", "0"])?, bundle("lasting", &["hang"])?);
        Ok(Self { program, name, ending, lasting, directory })
    }

    fn id(&self, name: &str) -> String {
        format!("{}-{name}", self.name)
    }

    fn command(&self, verb: &str, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--root").arg(self.directory.path().join("state")).arg(verb).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    fn call(&self, verb: &str, words: &[&str]) -> Outcome<()> {
        let status = self.command(verb, words).status()?;
        if status.success() { Ok(()) } else { Err(format!("{verb} {words:?}: {status}").into()) }
    }

    /// Creates and starts a container. Returns its first process.
    fn begin(&self, bundle: &Bundle, name: &str) -> Outcome<Pid> {
        let (id, file) = (self.id(name), self.directory.path().join(name));
        let (bundle, path) = (bundle.path().to_string_lossy(), file.to_string_lossy());
        self.call("create", &["--bundle", &bundle, "--pid-file", &path, &id])?;
        self.call("start", &[&id])?;
        pid_in(&file)
    }

    /// Runs a container until it ends by itself or is killed.
    fn cycle(&self, name: &str) -> Outcome<()> {
        let id = self.id(name);
        if name.ends_with(|last: char| "02468t".contains(last)) {
            // As process 1 we adopt its process and must reap it.
            wait_for(self.begin(&self.ending, name)?)?;
            self.call("delete", &[&id])
        } else {
            let pid = self.begin(&self.lasting, name)?;
            self.call("delete", &["--force", &id])?;
            wait_for(pid)
        }
    }

    /// Runs another process in a container, in the foreground or detached.
    fn exec(&self, name: &str, index: usize) -> Outcome<()> {
        let id = self.id(name);
        if index.is_multiple_of(2) {
            let status = self.command("exec", &[&id, "/guest", "exit", "7"]).status()?;
            return if status.code() == Some(7) { Ok(()) } else { Err(format!("exec: {status}").into()) };
        }
        let file = self.directory.path().join(format!("exec-{index}"));
        let path = file.to_string_lossy();
        self.call("exec", &["--detach", "--pid-file", &path, &id, "/guest", "exit", "0"])?;
        wait_for(pid_in(&file)?)
    }

    /// Returns whether nothing is left after `work`. Prints what is left.
    fn compare(&self, title: &str, inside: Option<Pid>, work: impl FnOnce() -> Outcome<()>) -> Outcome<bool> {
        let places = [Path::new("/run"), self.directory.path()];
        let look = || -> Outcome<_> { Ok((Left::find(&self.name, &places, inside)?, Count::all()?)) };
        let before = look()?;
        let begun = Instant::now();
        work()?;
        let took = begun.elapsed();
        let after = look()?;
        println!("{title}, in {:.1} s", took.as_secs_f64());
        println!("{:<28}{:>12}{:>12}", "", "before", "after");
        let stayed = before.0.show(&after.0);
        before.1.show(&after.1);
        stayed.iter().for_each(|name| println!("stayed: {name}"));
        println!();
        Ok(stayed.is_empty())
    }
}

/// Deletes the containers that remain after an error, because others use the machine too.
impl Drop for Runtime {
    fn drop(&mut self) {
        for entry in fs::read_dir(self.directory.path().join("state")).into_iter().flatten().flatten() {
            if let Err(error) = self.call("delete", &["--force", &entry.file_name().to_string_lossy()]) {
                eprintln!("soak: {error}");
            }
        }
    }
}

/// Returns the pid in a file, and removes the file.
fn pid_in(file: &Path) -> Outcome<Pid> {
    let pid = fs::read_to_string(file)?.parse()?;
    fs::remove_file(file)?;
    Ok(Pid::from_raw(pid).ok_or("no pid")?)
}

fn wait_for(pid: Pid) -> Outcome<()> {
    waitpid(Some(pid), WaitOptions::empty())?;
    Ok(())
}
