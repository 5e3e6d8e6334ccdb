//! `husk test`: runs a program or tests with the options of the command line and of husk.toml, and writes reports.

mod cache;
mod configured;
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
mod program;
mod report;
mod run;
mod services;
mod settings;
mod shared_run;
mod suite;
mod trusted;
mod writable;

use crate::exit::Exit;
use crate::image::Images;
use crate::session::Session;
use anyhow::{Context as _, Result};
use clap::{ArgMatches, Args as _, FromArgMatches as _};
use configured::Configured;
use options::Test;
use run::Run;
use std::env;
use std::path::PathBuf;

/// Runs `husk test` with the options of the command line and of husk.toml, if there is one.
pub(crate) fn perform(matches: &ArgMatches, session: &Session<'_>) -> Result<Exit> {
    let test = Test::from_arg_matches(matches)?;
    if test.tests.merge {
        return merge::perform(&test.tests, &test.program, matches, session);
    }
    if let Some((name, arguments)) = test.program.split_first()
        && name == "init"
        && !husk_runtime::arguments().iter().any(|word| word == "--")
    {
        return init::perform(arguments);
    }
    if let Some(job) = test.tests.job {
        let command = Test::augment_args(crate::options::program());
        return jobs::print(job, &test, &configured::typed(matches, &command));
    }
    let manifest = env::var_os("CARGO_MANIFEST_DIR").filter(|_| test.runner).map(PathBuf::from);
    let directory = manifest.map_or_else(env::current_dir, Ok).context("find the working directory")?;
    let images = Images::default();
    let Some((path, text)) = settings::find(test.rare.config.as_deref(), &directory, session.log)? else {
        return Run::prepare(test, None, &images, session)?.perform();
    };
    let configured = Configured::read((&text, &path), test, matches, &images, session)?;
    if configured.is_keeper() {
        return configured.keep_services();
    }
    Run::prepare(configured.test(None)?, Some(&configured), &images, session)?.perform()
}
