//! `husk features`, in the format that engines read.

use crate::exit::Exit;
use crate::help;
use crate::output;
use crate::session::Session;
use crate::verb::Perform;
use anyhow::Result;
use serde::Serialize as _;
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::{Value, json};
use std::ffi::OsStr;

/// Print the features that husk supports, as JSON
#[derive(Debug, clap::Args)]
pub(crate) struct Features {}

impl Perform for Features {
    fn perform(self, _session: &Session<'_>) -> Result<Exit> {
        let mut features = husk_runtime::features();
        features["annotations"] = annotations();
        let mut text = Vec::new();
        let formatter = PrettyFormatter::with_indent(b"    ");
        features.serialize(&mut Serializer::with_formatter(&mut text, formatter))?;
        text.push(b'\n');
        output::print(text)?;
        Ok(Exit::Success)
    }
}

/// Returns further facts about husk. Engines look up the first under runc's name. runc's other annotations are
/// omitted: a version would have to be one of runc's.
fn annotations() -> Value {
    let has_checkpoint = crate::commands::find(OsStr::new("checkpoint")).is_some();
    let mut annotations = json!({
        "org.opencontainers.runc.checkpoint.enabled": has_checkpoint.to_string(),
        "husk.version": help::VERSION,
    });
    if let Some(commit) = help::COMMIT {
        annotations["husk.commit"] = commit.into();
    }
    annotations
}
