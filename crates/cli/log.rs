//! Errors and warnings, for people and for engines.
//!
//! People read standard error. Engines give a file by `--log`, and read the last JSON object in it:
//! its `level`, `msg` and `time` are those of runc, `code` and `field` are ours and stay as they are.
//! The text form is logrus's, which runc writes.

use crate::args::{Global, LogFormat, Misuse};
use crate::exit::Exit;
use anyhow::{Context as _, Result};
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::Write as _;

pub(crate) struct Log {
    file: Option<File>,
    format: LogFormat,
    debug: bool,
}

impl Log {
    /// Opens the log, and makes it if it is not there: engines look into it whatever happens.
    pub(crate) fn open(global: &Global) -> Result<Self> {
        let open = |path| OpenOptions::new().append(true).create(true).open(path);
        let file = match &global.log {
            Some(path) => Some(open(path).with_context(|| format!("open --log {}", path.display()))?),
            None => None,
        };
        Ok(Self { file, ..Self::standard(global) })
    }

    /// The log where none can be opened.
    pub(crate) fn standard(global: &Global) -> Self {
        Self { file: None, format: global.log_format, debug: global.debug }
    }

    /// Tells of an error, the last thing that is said.
    pub(crate) fn failed(&self, error: &anyhow::Error) -> Exit {
        let message = format!("{error:#}");
        let known = error.downcast_ref::<husk_runtime::Error>();
        let code = known.map_or("failed", husk_runtime::Error::code);
        let field = known.and_then(husk_runtime::Error::field);
        self.error(&message, code, field.as_deref());
        if self.is_for_people() {
            eprintln!("husk: {message}");
        }
        Exit::Failed
    }

    /// Tells of arguments that could not be understood.
    pub(crate) fn misused(&self, misuse: &Misuse) {
        self.error(&misuse.message, "usage", None);
        if self.is_for_people() {
            eprintln!("husk: {}\n{}", misuse.message, misuse.hint);
        }
    }

    pub(crate) fn warning(&self, warning: &impl Display) {
        if self.is_for_people() {
            eprintln!("husk: warning: {warning}");
        }
        // Not as JSON: podman reads the file as one object and would lose an error after it.
        if self.format == LogFormat::Text && self.file.is_some() {
            self.line("warning", &warning.to_string(), None);
        }
    }

    /// Tells what is being done, if anybody asked.
    pub(crate) fn debug(&self, text: impl FnOnce() -> String) {
        if self.debug {
            self.line("debug", &text(), None);
        }
    }

    /// Whether standard error is read by people: always, but where JSON was asked for and no file to
    /// write it to.
    fn is_for_people(&self) -> bool {
        self.file.is_some() || self.format == LogFormat::Text
    }

    fn error(&self, message: &str, code: &'static str, field: Option<&str>) {
        if self.file.is_some() || self.format == LogFormat::Json {
            self.line("error", message, Some((code, field)));
        }
    }

    fn line(&self, level: &str, message: &str, what: Option<(&'static str, Option<&str>)>) {
        let time = husk_runtime::now();
        let line = match self.format {
            // logrus quotes as Go does; JSON's quotes are read by whatever reads those.
            LogFormat::Text => format!("time=\"{time}\" level={level} msg={}\n", serde_json::json!(message)),
            LogFormat::Json => {
                let mut object = serde_json::json!({ "level": level, "msg": message, "time": time });
                if let Some((code, field)) = what {
                    object["code"] = code.into();
                    if let Some(field) = field {
                        object["field"] = field.into();
                    }
                }
                format!("{object}\n")
            }
        };
        let written = match self.file.as_ref() {
            Some(mut file) => file.write_all(line.as_bytes()),
            None => std::io::stderr().write_all(line.as_bytes()),
        };
        // Tolerated: there is nowhere left to say that it failed.
        written.unwrap_or(());
    }
}
