//! The search for tools.

use super::resolve::{Refusal, Resolved, Resolver, is_in};
use super::table::{self, Access, Base, SECRETS, TOOLS, Tool};
use super::{Caller, Tools};
use crate::host::HostFile;
use husk_plan::candidates;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read as _;
use std::mem;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// How many interpreters a script may need: `env`, `python`, and a script in place of `python`.
const MOST_INTERPRETERS: usize = 4;

/// The longest first line of a script that the kernel reads (include/uapi/linux/binfmts.h, `BINPRM_BUF_SIZE`).
const FIRST_LINE: u64 = 256;

/// Describes an environment of Python, and names the Python that it is based on.
const PYVENV: &str = "pyvenv.cfg";

pub(super) struct Search<'c> {
    caller: &'c Caller,
    resolver: Resolver,
    /// Files that are not shown, at their names and without symlinks. Not looked for until there is a path to show.
    secrets: Option<Vec<PathBuf>>,
    has_caches: bool,
    tools: Tools,
}

impl<'c> Search<'c> {
    pub(super) fn of(caller: &'c Caller) -> Self {
        let hidden = caller.home.iter().cloned();
        let hidden = hidden.chain(["/dev", "/run", "/var/tmp", "/tmp"].map(PathBuf::from)).collect();
        let resolver = Resolver::new(hidden, Some(caller.user));
        Self { caller, resolver, secrets: None, has_caches: false, tools: Tools::default() }
    }

    pub(super) fn run(mut self) -> Tools {
        for entry in env::split_paths(self.caller.variable("PATH").unwrap_or_default()) {
            self.directory(&entry);
        }
        self.has_caches = self.caller.wants_caches || self.runs_tools();
        let named = self.name().to_owned();
        let settings =
            table::SETTINGS.iter().filter(|(programs, ..)| programs.iter().any(|program| named == *program));
        self.tools.variables.extend(settings.map(|(_, name, value)| (name.into(), value.into())));
        TOOLS.iter().for_each(|tool| self.tool(tool));
        self.program();
        self.build();
        let mut tools = self.tools;
        // A directory comes before its parts, which need no mount of their own then.
        tools.paths.sort_by(|(one, _), (other, _)| one.path.cmp(&other.path));
        for (file, access) in mem::take(&mut tools.paths) {
            let holds = |(other, kind): &(HostFile, Access)| {
                is_in(&file.path, &other.path) && (access == Access::Install || *kind == access)
            };
            if !tools.paths.iter().any(holds) {
                tools.paths.push((file, access));
            }
        }
        for link in mem::take(&mut tools.links) {
            if !tools.links.contains(&link) && !link.path.starts_with("/dev") {
                tools.links.push(link);
            }
        }
        tools
    }

    /// Returns the hidden paths that the program needs, even if they cannot be trusted.
    pub(super) fn needed(mut self) -> Vec<PathBuf> {
        self.resolver.trust_all();
        self.secrets = Some(Vec::new());
        let program = self.find_program();
        let directory = program.as_deref().and_then(Path::parent).map(Path::to_owned);
        if let Some(found) = directory.and_then(|directory| self.resolver.resolve(&directory).ok()) {
            let file = program.as_deref().and_then(Path::file_name).map(|name| found.path.join(name));
            let is_refused = self.refuse(&found.path).is_some();
            let found = if is_refused { file } else { Some(found.path) };
            let found = found.map(|path| {
                (HostFile { is_directory: !is_refused, ..HostFile::of_host(path) }, Access::Install)
            });
            self.tools.paths.extend(found.filter(|(file, _)| self.resolver.is_hidden(&file.path)));
        }
        self.program();
        let mut paths: Vec<_> = self.tools.paths.into_iter().map(|(file, _)| file.path).collect();
        paths.sort();
        paths.dedup_by(|path, shorter| path.starts_with(shorter));
        paths
    }

    /// Shows a directory of `PATH`, or the installation that it is part of.
    fn directory(&mut self, entry: &Path) {
        // A relative one is below the working directory, which is shown.
        let Some(found) = self.resolve(entry).filter(|found| found.is_directory) else { return };
        self.tools.links.extend(found.links);
        if self.resolver.is_hidden(&found.path) {
            let path = self.prefix(found.path);
            self.show(path, true, Access::Install);
        }
    }

    /// Returns the installation that a directory of programs belongs to, or the directory itself.
    fn prefix(&mut self, directory: PathBuf) -> PathBuf {
        let is_bin = directory.file_name().is_some_and(|name| name == "bin" || name == "sbin");
        let Some(prefix) = directory.parent().filter(|_| is_bin).map(Path::to_owned) else {
            return directory;
        };
        if self.python(&prefix) {
            return prefix;
        }
        // A directory without libraries may hold anything besides programs.
        let is_one = ["lib", "libexec"].iter().any(|part| self.resolver.resolve(&prefix.join(part)).is_ok());
        let is_fine = is_one && self.refuse(&prefix).is_none() && !self.caller.project.starts_with(&prefix);
        if is_fine { prefix } else { directory }
    }

    /// Shows the Python that a virtual environment is based on. Returns whether the directory is one.
    fn python(&mut self, environment: &Path) -> bool {
        let file = environment.join(PYVENV);
        let Some(found) = self.resolve(&file).filter(|_| self.refuse(environment).is_none()) else {
            return false;
        };
        let text = fs::read_to_string(found.path).unwrap_or_default();
        let mut settings = text.lines().filter_map(|line| line.split_once('='));
        let base = settings.find(|(key, _)| key.trim() == "home").map(|(_, home)| PathBuf::from(home.trim()));
        if let Some(base) = base.filter(|base| base.parent() != Some(environment)) {
            self.directory(&base);
        }
        true
    }

    /// Shows the parts of a tool.
    fn tool(&mut self, tool: &Tool) {
        let named = tool.variables.iter().find_map(|name| self.caller.variable(name));
        let places: Vec<_> = match named {
            Some(value) => env::split_paths(value).map(|place| (place, false)).collect(),
            None => tool.defaults.iter().filter_map(|(base, path)| self.default(*base, path)).collect(),
        };
        for (place, is_elsewhere) in places {
            let Some(found) = self.resolve(&place).filter(|found| found.is_directory) else { continue };
            self.tools.links.extend(found.links.clone());
            let mut is_found = false;
            for (part, access) in tool.parts {
                is_found |= self.part(&found.path.join(part), *access);
            }
            if is_found {
                self.tools.found.push((tool.name, place.clone()));
                self.python(&found.path);
                let name = tool.variables.first().filter(|_| is_elsewhere);
                self.tools.variables.extend(name.map(|name| (name.into(), place.into())));
            }
        }
    }

    /// Returns a default place, and whether the tool would look elsewhere in the sandbox. The sandbox has the caller's
    /// `HOME` if it is a home directory, and none of the variables `XDG_*_HOME`.
    fn default(&self, base: Base, path: &str) -> Option<(PathBuf, bool)> {
        let named = self.caller.variable("HOME").map(PathBuf::from);
        let home = self.caller.home.clone().or(named).filter(|home| home.is_absolute())?;
        let (variable, usual) = match base {
            Base::Home => (None, ""),
            Base::Cache => (self.caller.variable("XDG_CACHE_HOME"), ".cache"),
            Base::Data => (self.caller.variable("XDG_DATA_HOME"), ".local/share"),
        };
        let is_elsewhere = variable.is_some() || self.caller.home.is_none();
        let base = variable.map_or_else(|| home.join(usual), PathBuf::from);
        Some((base.join(path), is_elsewhere))
    }

    /// Shows a part of a tool. Returns whether it exists and may be shown.
    fn part(&mut self, path: &Path, access: Access) -> bool {
        let Some(found) = self.resolve(path) else { return false };
        if access != Access::Install && !(found.is_directory && self.has_caches) {
            return false;
        }
        self.tools.links.extend(found.links);
        match access == Access::Install && !self.resolver.is_hidden(&found.path) {
            true => true,
            false => self.show(found.path, found.is_directory, access),
        }
    }

    /// Shows what the program itself needs.
    fn program(&mut self) {
        let mut next = self.find_program();
        for _ in 0..MOST_INTERPRETERS {
            let Some(path) = next else { return };
            next = self.executable(&path);
        }
    }

    /// Returns whether the program is a script, or known to build or to run others.
    fn runs_tools(&mut self) -> bool {
        let named = self.name().as_bytes();
        if table::is_build(named) || table::is_runner(named) {
            return true;
        }
        let Some(program) = self.find_program() else { return false };
        let mut begin = [0; 2];
        File::open(program).is_ok_and(|mut file| file.read_exact(&mut begin).is_ok()) && begin == *b"#!"
    }

    /// Returns the program's name without its directory.
    fn name(&self) -> &OsStr {
        let named = self.caller.program.first().and_then(|program| Path::new(program).file_name());
        named.unwrap_or_default()
    }

    fn find_program(&mut self) -> Option<PathBuf> {
        let program = self.caller.program.first()?.clone();
        self.search_path(&program)
    }

    /// Returns the path at which a program is found.
    fn search_path(&mut self, program: &OsStr) -> Option<PathBuf> {
        let path = self.caller.variable("PATH").unwrap_or_default();
        let places = candidates(program, path).into_iter().map(|place| self.caller.cwd.join(place));
        places.into_iter().find(|place| self.resolver.resolve(place).is_ok_and(|found| !found.is_directory))
    }

    /// Shows the installation of an executable file. Returns the path of its interpreter.
    fn executable(&mut self, path: &Path) -> Option<PathBuf> {
        let found = self.resolve(path)?;
        let directory = path.parent()?;
        if let Some(prefix) = directory.parent().filter(|_| directory.ends_with("bin")) {
            // A script's first line may name it with `.` or double slashes.
            self.python(&prefix.components().collect::<PathBuf>());
        }
        self.tools.links.extend(found.links);
        if self.resolver.is_hidden(&found.path) {
            let directory = found.path.parent()?.to_owned();
            match self.refuse(&directory) {
                Some(_) => self.show(found.path.clone(), false, Access::Install),
                None => {
                    let prefix = self.prefix(directory);
                    self.show(prefix, true, Access::Install)
                }
            };
        } else if found.path.starts_with("/usr") {
            // The interpreters of the system's scripts belong to the system.
            return None;
        }
        self.interpreter(&found.path)
    }

    /// Returns the interpreter that the first line of a script names; for `env`, the program that it would run.
    fn interpreter(&mut self, script: &Path) -> Option<PathBuf> {
        let mut line = Vec::new();
        File::open(script).ok()?.take(FIRST_LINE).read_to_end(&mut line).ok()?;
        let line = line.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let interpreter = Path::new(OsStr::from_bytes(words.next()?)).to_owned();
        if interpreter.file_name() != Some(OsStr::new("env")) {
            return Some(interpreter);
        }
        let program = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='))?;
        self.search_path(OsStr::from_bytes(program))
    }

    /// Lets a program that builds write to the project, and to cargo's other build directory.
    fn build(&mut self) {
        if !is_build(&self.caller.program) {
            return;
        }
        let target = self.caller.variable("CARGO_TARGET_DIR").map(|target| self.caller.cwd.join(target));
        for directory in [Some(self.caller.project.clone()), target].into_iter().flatten() {
            let Ok(found) = self.resolver.resolve(&directory) else { continue };
            let is_root = found.path.components().count() < 2 || self.resolver.holds_hidden(&found.path);
            if found.is_directory && !is_root {
                let file = HostFile::of_host(found.path);
                self.tools.paths.push((file, Access::Build));
            }
        }
    }

    /// Follows a path, and records why it cannot be used.
    fn resolve(&mut self, path: &Path) -> Option<Resolved> {
        if !path.is_absolute() {
            return None;
        }
        match self.resolver.resolve(path) {
            Ok(found) => Some(found),
            Err(Refusal::Missing) => None,
            Err(Refusal::Distrusted(why)) => {
                self.refused(path, why);
                None
            }
        }
    }

    fn refused(&mut self, path: &Path, why: String) {
        if !self.tools.refused.iter().any(|(known, _)| known == path) {
            self.tools.refused.push((path.to_owned(), why));
        }
    }

    /// Shows a path without symlinks. Returns whether it may be shown.
    fn show(&mut self, path: PathBuf, is_directory: bool, access: Access) -> bool {
        if let Some(why) = self.refuse(&path) {
            self.refused(&path, why);
            return false;
        }
        let is_seen = access == Access::Install && is_in(&path, &self.caller.project);
        if !is_seen {
            self.tools.paths.push((HostFile { is_directory, ..HostFile::of_host(path) }, access));
        }
        true
    }

    /// Returns why a path may not be shown.
    fn refuse(&mut self, path: &Path) -> Option<String> {
        if self.resolver.holds_hidden(path) {
            return Some("it holds more than tools".to_owned());
        }
        let meets = |secret: &&PathBuf| is_in(path, secret) || is_in(secret, path);
        let secret = self.secrets().iter().find(meets)?;
        Some(format!("{} must stay hidden", secret.display()))
    }

    fn secrets(&mut self) -> &[PathBuf] {
        let (home, resolver) = (self.caller.home.as_deref(), &mut self.resolver);
        self.secrets.get_or_insert_with(|| {
            let named = home.into_iter().flat_map(|home| SECRETS.iter().map(|secret| home.join(secret)));
            let mut secrets: Vec<_> = named.collect();
            let real = secrets
                .iter()
                .filter_map(|named| Some(resolver.resolve(named).ok()?.path).filter(|real| real != named));
            let real: Vec<_> = real.collect();
            secrets.extend(real);
            secrets
        })
    }
}

/// Returns whether the program is known to build. Python runs modules as programs.
fn is_build(program: &[OsString]) -> bool {
    let mut words = program.iter();
    let Some(name) = words.next().and_then(|program| Path::new(program).file_name()) else { return false };
    let module = words.skip_while(|word| *word != "-m").nth(1);
    let module = module.filter(|_| name.as_bytes().starts_with(b"python")).map(OsString::as_os_str);
    table::is_build(module.unwrap_or(name).as_bytes())
}
