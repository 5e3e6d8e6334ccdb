//! The options of husk.toml and of the command line, for each test.

use super::options::Test;
use super::services::{self, ConditionalService};
use super::settings::{Settings, Subject};
use crate::exit::Exit;
use crate::image::Images;
use crate::rare;
use crate::session::Session;
use anyhow::{Result, anyhow};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args as _, Command, FromArgMatches as _};
use husk_hermetic::Profile;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::path::Path;

/// The options of husk.toml and of the command line.
pub(super) struct Configured<'c> {
    /// The options of the command line alone.
    given: Test,
    /// The same as words.
    typed: Vec<OsString>,
    settings: Settings,
    services: Vec<ConditionalService>,
    command: Command,
    images: &'c Images,
    /// The merged options, by the indices of the overrides and services that apply.
    merged: RefCell<BTreeMap<[Vec<usize>; 2], Test>>,
}

impl<'c> Configured<'c> {
    /// Reads the text of the husk.toml at this path.
    pub(super) fn read(
        (text, path): (&str, &Path),
        given: Test,
        matches: &ArgMatches,
        images: &'c Images,
        session: &Session<'_>,
    ) -> Result<Self> {
        // Only now, because building all options takes longer than parsing the command line.
        rare::leave_out(false);
        let command = Test::augment_args(crate::options::program());
        let mut settings = Settings::parse(text, path, &command)?;
        let run = settings.run(&given, (path, text))?;
        let services = settings.prepare(&command, images, session, run)?;
        let typed = typed(matches, &command);
        Ok(Self { given, typed, settings, services, command, images, merged: RefCell::default() })
    }

    /// Returns the options for the named test, or for the whole program if `name` is `None`.
    pub(super) fn test(&self, name: Option<&str>) -> Result<Test> {
        let (is_runner, program) = (self.given.runner, &self.given.program);
        let binary = program.first().map(Path::new).and_then(Path::file_name);
        let binary = binary.unwrap_or_default().to_string_lossy();
        let binary = binary.rsplit_once('-').filter(|_| is_runner).map_or(&*binary, |(name, _hash)| name);
        // nextest runs one test per process, and names it.
        let words = program.iter().skip(1).filter_map(|word| word.to_str());
        let only = env::var_os("NEXTEST_TEST_PHASE")
            .and_then(|_| words.into_iter().find(|word| !word.starts_with('-')));
        let package = env::var("CARGO_PKG_NAME").ok();
        let test = name.or(only.filter(|_| is_runner));
        let subject = Subject { test, binary, package: package.as_deref() };
        let applying = [self.settings.applying(subject), services::applying(&self.services, subject)];
        if let Some(test) = self.merged.borrow().get(&applying) {
            return Ok(test.clone());
        }
        let [overrides, services] = &applying;
        let words = self.settings.words(overrides).into_iter().chain(self.typed.iter().cloned());
        let words = words.chain(["--".into()]).chain(program.iter().cloned());
        let matches = self.command.clone().try_get_matches_from(words);
        let matches = matches.map_err(|error| anyhow!("husk.toml: {}", crate::options::message(&error)))?;
        let mut test = Test::from_arg_matches(&matches)?;
        test.services = services::at(&self.services, services)?;
        self.merged.borrow_mut().insert(applying, test.clone());
        Ok(test)
    }

    /// Whether this is the process that keeps the services of a run.
    pub(super) fn is_keeper(&self) -> bool {
        !self.given.tests.keep_services.is_empty()
    }

    /// Keeps the services until the run ends.
    pub(super) fn keep_services(&self) -> Result<Exit> {
        services::keep(&self.services, &self.given)
    }

    /// Returns the options for the named test, and the profile of its image.
    pub(super) fn named(&self, name: &str) -> Result<(Test, Profile)> {
        let test = self.test(Some(name))?;
        let image = test.rare.image.as_ref().map(|image| self.images.profile(image)).transpose()?;
        Ok((test, image.unwrap_or_default()))
    }
}

/// Returns the options of the command line and of the environment in clap's syntax.
pub(super) fn typed(matches: &ArgMatches, command: &Command) -> Vec<OsString> {
    let is_typed = |option: &&Arg| {
        // Options that were left out are unknown.
        let known = matches.ids().find(|id| *id == option.get_id());
        let source = known.and_then(|id| matches.value_source(id.as_str()));
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
