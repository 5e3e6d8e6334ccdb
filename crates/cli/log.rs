//! Errors and warnings, for people and for engines.
//!
//! People read standard error. Engines give a file by `--log`, and read the last JSON object in it:
//! its `level`, `msg` and `time` are those of runc, `code` and `field` are ours and stay as they are.
//! The text form is logrus's, which runc writes.

use crate::args::{Global, LogFormat, Misuse};
use crate::name::{self, NAME};
use anyhow::{Context as _, Result, ensure};
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

pub(crate) struct Log {
    file: Option<File>,
    format: LogFormat,
    debug: bool,
}

impl Log {
    /// Opens the log, and makes it if it is not there: engines look into it whatever happens.
    pub(crate) fn open(global: &Global) -> Result<Self> {
        let Some(said) = &global.log else { return Ok(Self::standard(global)) };
        let text = said.to_str().unwrap_or_default();
        // As crun has it, the kind of log may stand before the place.
        ensure!(
            !text.starts_with("journald:") && !text.starts_with("syslog:"),
            "open --log {text}: husk writes to files only"
        );
        let path = text.strip_prefix("file:").map_or(said.as_path(), Path::new);
        let file = OpenOptions::new().append(true).create(true).open(path);
        let file = file.with_context(|| format!("open --log {}", path.display()))?;
        Ok(Self { file: Some(file), ..Self::standard(global) })
    }

    /// The log where none can be opened.
    pub(crate) fn standard(global: &Global) -> Self {
        Self { file: None, format: global.log_format, debug: global.debug }
    }

    /// Tells of an error, the last thing that is said.
    pub(crate) fn failed(&self, error: &anyhow::Error) {
        let message = in_gos_words(format!("{error:#}"));
        let known = error.downcast_ref::<husk_runtime::Error>();
        let code = known.map_or("failed", husk_runtime::Error::code);
        let field = known.and_then(husk_runtime::Error::field);
        self.error(&message, code, field.as_deref());
        if self.is_for_people() {
            eprintln!("{}: {message}", *NAME);
        }
    }

    /// Tells of arguments that could not be understood.
    pub(crate) fn misused(&self, misuse: &Misuse) {
        self.error(&misuse.message, "usage", None);
        if self.is_for_people() {
            eprintln!("{}: {}\n{}", *NAME, misuse.message, name::in_commands(&misuse.hint));
        }
    }

    pub(crate) fn warning(&self, warning: &impl Display) {
        let warning = in_gos_words(warning.to_string());
        if self.is_for_people() {
            eprintln!("{}: warning: {warning}", *NAME);
        }
        // Not as JSON: podman reads the file as one object and would lose an error after it.
        if self.format == LogFormat::Text && self.file.is_some() {
            self.line("warning", &warning, None);
        }
    }

    /// Has the runtime tell here what it does, if anybody asked.
    pub(crate) fn listen(&'static self) {
        if self.debug && ::log::set_logger(self).is_ok() {
            ::log::set_max_level(::log::LevelFilter::Debug);
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

impl ::log::Log for Log {
    fn enabled(&self, _: &::log::Metadata<'_>) -> bool {
        self.debug
    }

    fn log(&self, record: &::log::Record<'_>) {
        self.line("debug", &record.args().to_string(), None);
    }

    fn flush(&self) {}
}

/// The same with the kernel's errors as Go has them, which engines look for: `permission denied`, where std says
/// `Permission denied (os error 13)`.
fn in_gos_words(mut text: String) -> String {
    const NUMBER: &str = " (os error ";
    let mut seen = 0;
    while let Some(found) = text.get(seen..).and_then(|rest| rest.find(NUMBER)) {
        let begin = seen + found + NUMBER.len();
        let digits = text[begin..].bytes().take_while(u8::is_ascii_digit).count();
        let said = text[begin..begin + digits].parse().map(io::Error::from_raw_os_error);
        let said = said.map(|error| error.to_string()).unwrap_or_default();
        seen = begin + digits;
        let Some(before) = text.get(..=seen).and_then(|until| until.strip_suffix(&said)) else { continue };
        let (place, words) = (before.len(), said.split(NUMBER).next().unwrap_or_default().to_lowercase());
        text.replace_range(place..=seen, &words);
        seen = place + words.len();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::in_gos_words;

    #[test]
    fn the_kernels_errors_are_in_gos_words() {
        let table = [
            ("open /x: No such file or directory (os error 2)", "open /x: no such file or directory"),
            (
                "a: File exists (os error 17): b: Is a directory (os error 21).",
                "a: file exists: b: is a directory.",
            ),
            // Somebody else's, who has other words for it, or none.
            ("Datei fehlt (os error 2)", "Datei fehlt (os error 2)"),
            ("é (os error 99999999999) (os error ", "é (os error 99999999999) (os error "),
            ("é (os error 2", "é (os error 2"),
            ("", ""),
        ];
        for (text, words) in table {
            assert_eq!(in_gos_words(text.to_owned()), words);
        }
    }
}
