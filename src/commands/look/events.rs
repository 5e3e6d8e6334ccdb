//! `husk events`.

use super::usage::Usage;
use crate::exit::Exit;
use crate::output::escape;
use crate::output::{self, StdoutReader};
use crate::session::Session;
use crate::verb::Perform;
use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use husk_runtime::Event;
use rustix::stdio::stdout;
use rustix::termios::isatty;
use std::io::ErrorKind;
use std::time::Duration;

pub(crate) const MORE: &str = "
Prints one JSON object per line, until the container stops. On a terminal, --stats prints words instead.

EXAMPLES:
  {husk} events --stats web-1             print the current resource usage
  {husk} events --interval 1m30s web-1    print it every 90 seconds
";

/// Print a container's resource usage and out-of-memory events
#[derive(Debug, clap::Args)]
pub(crate) struct Events {
    /// Time between reports of resource usage
    #[arg(long, value_name = "TIME", default_value = "5s")]
    interval: String,
    /// Print the resource usage once, and exit
    #[arg(long)]
    stats: bool,
    /// Output format of --stats: text or json [default: text on a terminal]
    #[arg(long, value_name = "FORMAT", hide_possible_values = true, requires = "stats")]
    format: Option<Format>,
    /// ID of the container
    id: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

impl Perform for Events {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        let interval = duration(&self.interval);
        let interval = interval.context("--interval: not a duration such as 5s or 1m30s")?;
        ensure!(!interval.is_zero(), "duration interval must be greater than 0");
        if self.stats {
            let event = husk_runtime::stats(&session.store, &self.id)?;
            let usual = if isatty(stdout()) { Format::Text } else { Format::Json };
            match &event {
                Event::Stats { data, .. } if self.format.unwrap_or(usual) == Format::Text => {
                    output::print(escape::text(&Usage(&data.cgroup).to_string()).as_bytes())?
                }
                _ => print(&event)?,
            };
            return Ok(Exit::Success);
        }
        // The reason why nothing more can be written, if that ends the loop.
        let mut end = None;
        let told = husk_runtime::events(&session.store, &self.id, interval, |event| match print(event) {
            Ok(StdoutReader::There) => Ok(()),
            printed => {
                end = Some(printed);
                Err(ErrorKind::BrokenPipe.into())
            }
        });
        match end {
            Some(printed) => printed.map(|_| Exit::Success),
            None => Ok(told.map(|()| Exit::Success)?),
        }
    }
}

fn print(event: &Event) -> Result<StdoutReader> {
    output::print(escape::json(serde_json::to_string(event)?) + "\n")
}

/// Parses a duration in Go's format: `5s`, `1m30s`, `100ms`, `1.5h`.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let number = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
        let (number, after) = rest.split_at(number);
        let unit = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let unit = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * unit;
        rest = after;
    }
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::duration;
    use std::time::Duration;

    #[test]
    fn durations_are_parsed_as_in_go() {
        let table = [("5s", 5000), ("1m30s", 90_000), ("100ms", 100), ("1.5h", 5_400_000), ("0s", 0)];
        for (text, millis) in table {
            assert_eq!(duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["5", "s", "5x", "-1s", "1..5s"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
