//! Errors and warnings, for people and for engines.
//!
//! People read standard error. Engines name a file with `--log` and read its last JSON object. Its `level`,
//! `msg` and `time` are as in runc; `code`, `field` and `warnings` are husk's additions and stay stable. The
//! text format is that of logrus, which runc uses.

use crate::options::{Global, LogFormat, LogLevel, Misuse};
use crate::output::name::{NAME, with_name};
use crate::output::{self, escape};
use anyhow::{Context as _, Error, Result};
use husk_runtime::{Cause, tolerate};
use rustix::io::Errno;
use std::error::Error as StdError;
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) struct Log {
    place: LogTarget,
    format: LogFormat,
    level: LogLevel,
    /// Warnings to write when the verb has ended.
    held: Mutex<Vec<String>>,
}

/// The destination of log lines.
enum LogTarget {
    /// Standard error, which people read too.
    Standard,
    File(File),
    /// syslog(3): one datagram per line, with the sender's name.
    Syslog(UnixDatagram, String),
    /// journald's native protocol: one datagram per line, with the sender's name.
    Journal(UnixDatagram, String),
}

impl LogTarget {
    /// Opens a destination. As in crun, its kind may precede the path.
    fn open(said: &Path) -> Result<Self> {
        let kind = said.to_str().and_then(|text| text.split_once(':'));
        match kind {
            Some(("syslog", who)) => Ok(Self::Syslog(connect("/dev/log")?, named(who))),
            Some(("journald", who)) => Ok(Self::Journal(connect("/run/systemd/journal/socket")?, named(who))),
            Some(("file", path)) => append(Path::new(path)),
            _ => append(said),
        }
    }
}

fn append(path: &Path) -> Result<LogTarget> {
    Ok(LogTarget::File(OpenOptions::new().append(true).create(true).open(path)?))
}

fn connect(path: &str) -> Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path).with_context(|| format!("connect {path}"))?;
    Ok(socket)
}

fn named(who: &str) -> String {
    if who.is_empty() { NAME.clone() } else { who.to_owned() }
}

impl Log {
    /// Opens the log and creates the file if it is missing, because engines always read it.
    pub(crate) fn open(global: &Global) -> Result<Self> {
        let Some(said) = &global.log else { return Ok(Self::standard(global)) };
        let place = LogTarget::open(said).with_context(|| format!("open --log {}", said.display()))?;
        Ok(Self { place, ..Self::standard(global) })
    }

    /// Creates a log on standard error, for use without `--log` or if that cannot be opened.
    pub(crate) fn standard(global: &Global) -> Self {
        let level =
            if global.rare.debug { LogLevel::Debug } else { global.rare.log_level.unwrap_or_default() };
        let format = global.log_format.unwrap_or_default();
        Self { place: LogTarget::Standard, format, level, held: Mutex::default() }
    }

    /// Reports an error. Nothing is written after it.
    pub(crate) fn failed(&self, error: &Error) {
        let message = with_causes(error);
        let known = error.downcast_ref::<husk_runtime::Error>();
        let code = known.map_or("failed", husk_runtime::Error::code);
        let field = known.and_then(husk_runtime::Error::field);
        self.error(&message, code, field.as_deref());
        if self.is_for_people() {
            output::tell(&format!("{}: {}\n", *NAME, escape::line(&message)));
        }
    }

    /// Reports arguments that could not be parsed.
    pub(crate) fn misused(&self, misuse: &Misuse) {
        self.error(&misuse.message, "usage", None);
        if self.is_for_people() {
            let message = escape::cell(&misuse.message);
            output::tell(&format!("{}: {message}\n{}\n", *NAME, escape::text(&misuse.hint)));
        }
    }

    /// Tells people about an action.
    pub(crate) fn note(&self, note: &impl Display) {
        if self.level >= LogLevel::Warning && self.is_for_people() {
            output::tell(&format!("{}: {}\n", *NAME, escape::line(&note.to_string())));
        }
    }

    /// Reports a warning to `--log` if given, otherwise to standard error. Under an engine, standard error
    /// belongs to the container, and a warning there would look like its output.
    pub(crate) fn warning(&self, warning: &impl Display) {
        if self.level < LogLevel::Warning {
            return;
        }
        let warning = warning.to_string();
        match (&self.place, self.format) {
            (LogTarget::Standard, LogFormat::Text) => {
                output::tell(&format!("{}: warning: {}\n", *NAME, escape::line(&warning)));
            }
            // A program that reads JSON from standard error expects an error.
            (LogTarget::Standard, LogFormat::Json) => {}
            // podman reads the file as one object, and would miss an error after a warning.
            (LogTarget::File(_), LogFormat::Json) => self.held().push(warning),
            _ => self.line(LogLevel::Warning, &warning, None),
        }
    }

    /// Writes the warnings of a verb that succeeded.
    pub(crate) fn finish(&self) {
        self.held().drain(..).for_each(|warning| self.line(LogLevel::Warning, &warning, None));
    }

    fn held(&self) -> MutexGuard<'_, Vec<String>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// At debug level, makes this the logger of the runtime's messages.
    pub(crate) fn listen(&'static self) {
        if self.level == LogLevel::Debug && ::log::set_logger(self).is_ok() {
            ::log::set_max_level(::log::LevelFilter::Debug);
        }
    }

    /// Whether people read standard error: always, except if JSON was requested without a log file.
    fn is_for_people(&self) -> bool {
        self.is_elsewhere() || self.format == LogFormat::Text
    }

    fn is_elsewhere(&self) -> bool {
        !matches!(self.place, LogTarget::Standard)
    }

    fn error(&self, message: &str, code: &'static str, field: Option<&str>) {
        if self.is_elsewhere() || self.format == LogFormat::Json {
            self.line(LogLevel::Error, message, Some((code, field)));
        }
    }

    fn line(&self, level: LogLevel, message: &str, what: Option<(&'static str, Option<&str>)>) {
        // Severities as in syslog(3).
        let (name, severity) = match level {
            LogLevel::Error => ("error", 3),
            LogLevel::Warning => ("warning", 4),
            LogLevel::Debug => ("debug", 7),
        };
        let time = husk_runtime::now();
        let line = match (self.format, &self.place) {
            // syslog and journald add the time and the level themselves.
            (LogFormat::Text, LogTarget::Syslog(..) | LogTarget::Journal(..)) => {
                escape::line(message).into_owned()
            }
            // logrus quotes as Go does; programs that parse Go's quotes accept JSON's.
            (LogFormat::Text, _) => {
                let message = escape::json(serde_json::json!(message).to_string());
                format!("time=\"{time}\" level={name} msg={message}")
            }
            (LogFormat::Json, _) => {
                let mut object = serde_json::json!({ "level": name, "msg": message, "time": time });
                if let Some((code, field)) = what {
                    object["code"] = code.into();
                    if let Some(field) = field {
                        object["field"] = field.into();
                    }
                    let held = std::mem::take(&mut *self.held());
                    if !held.is_empty() {
                        object["warnings"] = held.into();
                    }
                }
                escape::json(object.to_string())
            }
        };
        let written = match &self.place {
            LogTarget::Standard => return output::tell(&format!("{line}\n")),
            // Writes the line in one write, because other processes may append too.
            LogTarget::File(file) => (&*file).write_all(format!("{line}\n").as_bytes()),
            LogTarget::Syslog(socket, who) => {
                // LOG_USER.
                let (facility, pid) = (1 << 3, std::process::id());
                send(socket, format!("<{}>{who}[{pid}]: {line}", facility | severity).as_bytes())
            }
            LogTarget::Journal(socket, who) => send(socket, &entry(severity, who, &line)),
        };
        tolerate(written, "there is no other place to report it");
    }
}

fn send(socket: &UnixDatagram, datagram: &[u8]) -> io::Result<()> {
    socket.send(datagram).map(drop)
}

/// Returns a journal entry: fields with their lengths, because values may contain line breaks (systemd's
/// "Journal Native Protocol").
fn entry(severity: u8, who: &str, message: &str) -> Vec<u8> {
    let priority = severity.to_string();
    let fields = [("PRIORITY", &*priority), ("SYSLOG_IDENTIFIER", who), ("MESSAGE", message)];
    let field = |(name, value): (&str, &str)| {
        [name.as_bytes(), b"\n", &(value.len() as u64).to_le_bytes(), value.as_bytes(), b"\n"].concat()
    };
    fields.into_iter().flat_map(field).collect()
}

impl ::log::Log for Log {
    fn enabled(&self, _: &::log::Metadata<'_>) -> bool {
        self.level == LogLevel::Debug
    }

    fn log(&self, record: &::log::Record<'_>) {
        self.line(LogLevel::Debug, &record.args().to_string(), None);
    }

    fn flush(&self) {}
}

/// Formats an error and its causes, with the kernel's errors in the words that engines look for.
pub(crate) fn with_causes(error: &Error) -> String {
    let words = |error: &(dyn StdError + 'static)| {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            Cause::from(error).to_string()
        } else if let Some(errno) = error.downcast_ref::<Errno>() {
            Cause::from(*errno).to_string()
        } else if let Some(error) = error.downcast_ref::<husk_runtime::Error>() {
            with_name(error, &NAME)
        } else {
            error.to_string()
        }
    };
    error.chain().map(words).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::with_causes;
    use anyhow::Context as _;
    use rustix::io::Errno;
    use std::io;

    #[test]
    fn kernel_errors_use_gos_words() {
        let missing = || io::Error::from_raw_os_error(2);
        let opened = Err::<(), _>(missing()).context("open /x");
        assert_eq!(with_causes(&opened.unwrap_err()), "open /x: no such file or directory");
        let locked = Err::<(), _>(Errno::EXIST).context("b").context("a");
        assert_eq!(with_causes(&locked.unwrap_err()), "a: b: file exists");
        assert_eq!(with_causes(&missing().into()), "no such file or directory");
    }
}
