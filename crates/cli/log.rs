//! Errors and warnings, for people and for engines.
//!
//! People read standard error. Engines give a file by `--log`, and read the last JSON object in it:
//! its `level`, `msg` and `time` are those of runc.

use crate::args::{Args, LogFormat};
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::Write as _;

pub(crate) struct Log {
    file: Option<File>,
    format: LogFormat,
}

impl Log {
    /// A log that cannot be opened is left out: the error it would hold is the one to hear of.
    pub(crate) fn new(args: &Args) -> Self {
        let open = |path| OpenOptions::new().append(true).create(true).open(path);
        let file = args.log.as_ref().and_then(|path| match open(path) {
            Ok(file) => Some(file),
            Err(error) => {
                eprintln!("husk: {}: {error}", path.display());
                None
            }
        });
        Self { file, format: args.log_format }
    }

    pub(crate) fn error(&self, error: &anyhow::Error) {
        eprintln!("husk: {error:#}");
        self.write("error", &format!("{error:#}"));
    }

    pub(crate) fn warning(&self, warning: &impl Display) {
        eprintln!("husk: warning: {warning}");
        // Not to a JSON log: podman reads the file as one object and would lose an error after it.
        if self.format == LogFormat::Text {
            self.write("warning", &warning.to_string());
        }
    }

    fn write(&self, level: &str, message: &str) {
        let Some(mut file) = self.file.as_ref() else { return };
        let time = husk_runtime::now();
        let line = match self.format {
            LogFormat::Text => format!("time={time:?} level={level} msg={message:?}\n"),
            LogFormat::Json => {
                format!("{}\n", serde_json::json!({ "level": level, "msg": message, "time": time }))
            }
        };
        // Tolerated: standard error has it too, and there is nowhere else to say that it failed.
        file.write_all(line.as_bytes()).unwrap_or(());
    }
}
