//! `plan`.

use super::Perform;
use crate::exit::Exit;
use crate::session::{Session, absolute};
use anyhow::Result;
use std::path::PathBuf;

pub(super) const MORE: &str = "
A line has its number, the field of config.json that it comes from, and what is done.

Examples:
  husk plan                    of the bundle in this directory
  husk plan web | grep mounts  what is done for its mounts
";

/// Print what 'run' would do, a line a step, and do nothing
#[derive(Debug, clap::Args)]
pub(super) struct Plan {
    /// The bundle's directory
    #[arg(value_name = "BUNDLE", default_value = ".")]
    bundle: PathBuf,
}

impl Perform for Plan {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        let (listing, warnings) = husk_runtime::plan(&absolute(&self.bundle)?)?;
        session.warn(&warnings);
        print!("{listing}");
        Ok(Exit::Success)
    }
}
