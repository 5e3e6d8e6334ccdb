//! `[[service]]` in husk.toml: programs that run beside tests.
//!
//! ```toml
//! [[service]]
//! name = "db"
//! command = ["/usr/lib/postgresql/15/bin/postgres", "-D", "/srv/template"]
//! overlay = ["/srv/template"]
//! ready = { log = "ready to accept connections" }
//! ```
//!
//! Besides the keys of a service, a table has options of `husk test`, which apply to the sandbox of the service, and the
//! conditions of an override. The options of tests do not apply to services.

use super::options::{self, Test};
use super::run::of_bundle;
use super::settings::{
    CONDITIONS, Key, Patterns, SetOption, Settings, SettingsReader, Subject, Table, Value, in_order,
};
use super::shared_run::SharedRun;
use crate::exit::Exit;
use crate::image::Images;
use crate::session::Session;
use anyhow::{Context as _, Result, anyhow, bail};
use clap::{Command, FromArgMatches as _};
use husk_hermetic::{Caller, Isolation, Per, Ready, Service, Tools};
use husk_image::Held;
use std::ffi::OsString;
use std::fs;
use std::io::{stdin, stdout};
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use toml::de::{DeTable, DeValue};

/// The keys of a service that are not options.
const KEYS: [&str; 6] = ["name", "command", "user", "per", "ready", "timeout"];

/// The options of `husk test` that a service may have.
const OPTIONS: [&str; 17] = [
    "image",
    "bundle",
    "rootfs",
    "read",
    "write",
    "overlay",
    "hide",
    "env",
    "keep-caches",
    "uptime",
    "cpu",
    "memory",
    "pids",
    "files",
    "file-size",
    "disk",
    "nested",
];

/// How long a service may take to become ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns all keys of a service except conditions.
pub(super) fn keys() -> impl Iterator<Item = &'static str> {
    KEYS.into_iter().chain(OPTIONS)
}

/// A service as it is written in the file.
#[derive(Debug)]
pub(crate) struct ServiceTable {
    name: String,
    command: Vec<OsString>,
    user: Option<(u32, u32)>,
    per: Per,
    ready: Ready,
    timeout: Duration,
    patterns: Patterns,
    options: Vec<SetOption>,
}

/// A service, and the conditions under which it runs.
pub(crate) struct ConditionalService {
    service: Service,
    patterns: Patterns,
    /// The run, if the husks of a run share the service.
    run: Option<Rc<SharedRun>>,
    /// Keeps a bundle's layers in the store.
    _held: Option<Held>,
}

/// Reads a table.
pub(super) fn read(
    reader: &SettingsReader<'_>,
    table: &DeTable<'_>,
    place: Range<usize>,
    before: &[ServiceTable],
) -> Result<ServiceTable> {
    let mut patterns = Patterns::default();
    let (mut name, mut command, mut user, mut ready) = (None, None, None, None);
    let (mut per, mut timeout, mut options) = (Per::Test, PATIENCE, Vec::new());
    let (mut has_program, mut has_files) = (false, false);
    for (key, value) in in_order(table) {
        let word = key.get_ref().as_ref();
        match word {
            "name" => name = Some(read_name(reader, value, before)?),
            "command" => command = Some(words(reader, "command", value)?),
            "user" => user = Some(read_user(reader, value)?),
            "per" => per = read_per(reader, value)?,
            "ready" => ready = Some(read_ready(reader, value)?),
            "timeout" => {
                let text = text(reader, "timeout", value)?;
                timeout = options::time(&text).map_err(|why| reader.wrong(value.span(), why))?;
            }
            word if CONDITIONS.contains(&word) => {
                let place = CONDITIONS.iter().zip(&mut patterns).find(|(condition, _)| **condition == word);
                if let Some((_, patterns)) = place {
                    *patterns = Some(reader.patterns(word, value)?);
                }
            }
            word if OPTIONS.contains(&word) => {
                has_program |= ["bundle", "image"].contains(&word);
                has_files |= ["bundle", "image", "rootfs"].contains(&word);
                options.push(reader.option(Table::Service, key, value)?);
            }
            _ => return Err(unknown(reader, key)),
        }
    }
    let missing = |what: &str| reader.wrong(place.clone(), format!("this [[service]] has no {what}"));
    let name = name.ok_or_else(|| missing("name"))?;
    if command.is_none() && !has_program {
        return Err(missing("command; add command = [\"program\", \"argument\"], image or bundle"));
    }
    let how = "ready; add ready = { port = 5432 }, { log = \"text\" } or { command = [\"program\"] }";
    let mut ready = ready.ok_or_else(|| missing(how))?;
    let mut command: Vec<_> = command.unwrap_or_default().into_iter().map(OsString::from).collect();
    if !has_files {
        command.iter_mut().for_each(|word| beside(reader.path, word));
        if let Ready::Command(words) = &mut ready {
            words.iter_mut().for_each(|word| beside(reader.path, word));
        }
    }
    Ok(ServiceTable { name, command, user, per, ready, timeout, patterns, options })
}

/// Makes a word absolute that begins with `./` or `../`. Like other paths, it is relative to the file's directory.
fn beside(path: &Path, word: &mut OsString) {
    let is_relative = word.to_str().is_some_and(|word| word.starts_with("./") || word.starts_with("../"));
    if let Some(directory) = path.parent().filter(|_| is_relative) {
        *word = directory.join(&*word).into_os_string();
    }
}

fn unknown(reader: &SettingsReader<'_>, key: &Key<'_>) -> anyhow::Error {
    reader.unknown(Table::Service, key, std::iter::empty())
}

fn read_name(reader: &SettingsReader<'_>, value: &Value<'_>, before: &[ServiceTable]) -> Result<String> {
    let name = text(reader, "name", value)?;
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_.".contains(char);
    if name.is_empty() || !name.chars().all(is_plain) {
        return Err(reader.wrong(value.span(), "name may only have letters, digits, '-', '_' and '.'"));
    }
    if before.iter().any(|other| other.name == name) {
        return Err(reader.wrong(value.span(), format!("another service is named '{name}'")));
    }
    Ok(name)
}

fn text(reader: &SettingsReader<'_>, name: &str, value: &Value<'_>) -> Result<String> {
    match value.get_ref() {
        DeValue::String(text) if !text.contains('\0') => Ok(text.clone().into_owned()),
        DeValue::Integer(number) => Ok(number.to_string()),
        _ => Err(reader.wrong(value.span(), format!("{name} must be a string"))),
    }
}

/// Reads a command line, which is an array, so that nobody has to quote.
fn words(reader: &SettingsReader<'_>, name: &str, value: &Value<'_>) -> Result<Vec<String>> {
    let wrong =
        || reader.wrong(value.span(), format!("{name} must be an array such as [\"program\", \"argument\"]"));
    let values = value.get_ref().as_array().filter(|values| !values.is_empty()).ok_or_else(wrong)?;
    values.iter().map(|value| text(reader, name, value)).collect()
}

fn read_per(reader: &SettingsReader<'_>, value: &Value<'_>) -> Result<Per> {
    match text(reader, "per", value)?.as_str() {
        "test" => Ok(Per::Test),
        "binary" => Ok(Per::Binary),
        "run" => Ok(Per::Run),
        _ => Err(reader.wrong(value.span(), "per must be \"test\", \"binary\" or \"run\"")),
    }
}

fn read_ready(reader: &SettingsReader<'_>, value: &Value<'_>) -> Result<Ready> {
    let wrong = || {
        let forms = "{ port = 5432 }, { log = \"text\" } or { command = [\"program\"] }";
        reader.wrong(value.span(), format!("ready must be one of {forms}"))
    };
    let table = value.get_ref().as_table().ok_or_else(wrong)?;
    let [(key, value)] = in_order(table)[..] else { return Err(wrong()) };
    match key.get_ref().as_ref() {
        "port" => {
            let port = text(reader, "port", value)?.parse().ok().filter(|port| *port != 0);
            port.map(Ready::Port).ok_or_else(|| reader.wrong(value.span(), "port must be from 1 to 65535"))
        }
        "log" => {
            let text = text(reader, "log", value)?;
            if text.is_empty() || text.contains('\n') {
                return Err(reader.wrong(value.span(), "log must be a part of one line"));
            }
            Ok(Ready::Log(text))
        }
        "command" => {
            let words = words(reader, "command", value)?;
            Ok(Ready::Command(words.into_iter().map(OsString::from).collect()))
        }
        _ => Err(wrong()),
    }
}

/// Reads the ids that the service sees as its own: numbers, or a user of this machine.
fn read_user(reader: &SettingsReader<'_>, value: &Value<'_>) -> Result<(u32, u32)> {
    let name = text(reader, "user", value)?;
    let (uid, gid) = name.split_once(':').unwrap_or((&name, &name));
    if let (Ok(uid), Ok(gid)) = (uid.parse(), gid.parse()) {
        return Ok((uid, gid));
    }
    let list = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut users = list.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let ids = users.find(|fields| fields.first() == Some(&name.as_str()));
    let ids = ids.and_then(|fields| Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?)));
    ids.ok_or_else(|| reader.wrong(value.span(), format!("'{name}' is neither UID:GID nor a user here")))
}

impl Settings {
    /// Prepares all services of the file.
    pub(crate) fn prepare(
        &mut self,
        command: &Command,
        images: &Images,
        session: &Session<'_>,
        run: Option<SharedRun>,
    ) -> Result<Vec<ConditionalService>> {
        let (tables, run) = (std::mem::take(&mut self.services), run.map(Rc::new));
        let prepared = tables.into_iter().map(|table| {
            let name = format!("service {}", table.name);
            let run = run.clone().filter(|_| table.per == Per::Run);
            let prepared = table.prepare(command, images, session).context(name)?;
            Ok(ConditionalService { run, ..prepared })
        });
        prepared.collect()
    }

    /// Returns the run that this husk is part of, if it needs one.
    pub(crate) fn run(&self, test: &Test, (path, text): (&Path, &str)) -> Result<Option<SharedRun>> {
        let is_shared = self.services.iter().any(|service| service.per == Per::Run);
        if !is_shared || !test.runner { Ok(None) } else { SharedRun::of(test, path, text) }
    }
}

impl ServiceTable {
    fn prepare(
        self,
        command: &Command,
        images: &Images,
        session: &Session<'_>,
    ) -> Result<ConditionalService> {
        let words = self.options.iter().flat_map(|option| option.words.iter().cloned());
        let words = words.chain(["--".into()]).chain(self.command);
        let matches = command.clone().try_get_matches_from(words);
        let matches = matches.map_err(|error| anyhow!("husk.toml: {}", crate::options::message(&error)))?;
        let test = Test::from_arg_matches(&matches)?;
        let (of_bundle, held) = of_bundle(&test, images, session)?;
        let has_image = test.rare.rootfs.is_some() || of_bundle.image.is_some();
        if of_bundle.image.is_some() && self.user.is_some() {
            bail!("user: the bundle says who the program runs as");
        }
        let tools = if has_image { Tools::default() } else { Tools::find(&Caller::of(&test.program)) };
        let mut profile = test.profile(of_bundle, &tools);
        profile.user = self.user;
        let Self { name, per, ready, timeout, patterns, .. } = self;
        Ok(ConditionalService {
            service: Service { name, profile, per, ready, timeout, run: None },
            patterns,
            run: None,
            _held: held,
        })
    }
}

/// Returns the indices of the services that apply.
pub(super) fn applying(services: &[ConditionalService], subject: Subject<'_>) -> Vec<usize> {
    let all = services.iter().enumerate();
    all.filter(|(_, one)| subject.meets(&one.patterns)).map(|(place, _)| place).collect()
}

/// Returns the services with these indices.
pub(super) fn at(services: &[ConditionalService], places: &[usize]) -> Result<Vec<Service>> {
    let found: Vec<_> = places.iter().filter_map(|place| services.get(*place)).collect();
    let run = found.iter().find_map(|one| one.run.as_ref());
    let run = run.map(|run| run.with(found.iter().map(|one| one.service.name.as_str())));
    let found: Vec<_> =
        found.into_iter().map(|one| Service { run: run.clone(), ..one.service.clone() }).collect();
    let Some((first, rest)) = found.split_first() else { return Ok(found) };
    if let Some(other) = rest.iter().find(|other| other.per != first.per) {
        let (own, shared) = if first.per == Per::Test { (first, other) } else { (other, first) };
        let [own_per, shared_per] = [own, shared].map(|service| match service.per {
            Per::Test => "test",
            Per::Binary => "binary",
            Per::Run => "run",
        });
        let (own, shared) = (&own.name, &shared.name);
        if own_per == "test" {
            bail!(
                "husk.toml: tests that share service {shared} (per = \"{shared_per}\") share a network, in which each \
                 would start {own} (per = \"test\") on the same port; give both the same 'per'"
            );
        }
        bail!(
            "husk.toml: a test can be in one network only, and services {own} (per = \"{own_per}\") and {shared} (per = \
             \"{shared_per}\") have different ones; give both the same 'per'"
        );
    }
    Ok(found)
}

/// Keeps the services that `--keep-services` names, as the process that the first husk of a run has started.
pub(super) fn keep(services: &[ConditionalService], test: &Test) -> Result<Exit> {
    let is_named = |one: &&ConditionalService| test.tests.keep_services.contains(&one.service.name);
    let services: Vec<_> = services.iter().filter(is_named).map(|one| one.service.clone()).collect();
    let how = if test.rare.strict { Isolation::Strict } else { Isolation::Possible };
    let (listener, process) = (stdin().as_fd().try_clone_to_owned()?, stdout().as_fd().try_clone_to_owned()?);
    husk_hermetic::keep_services(&services, how, listener, process)?;
    Ok(Exit::Success)
}
