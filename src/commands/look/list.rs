//! `husk list`, in runc's format: engines read the JSON, people the table.

use crate::exit::Exit;
use crate::output::terminal::{self, Colour, Painter};
use crate::output::{self, escape};
use crate::session::Session;
use crate::verb::Perform;
use anyhow::Result;
use clap::ValueEnum;
use husk_runtime::{State, Status};

/// List containers
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// Output format: table or json
    #[arg(short, long, value_name = "FORMAT", default_value = "table", hide_possible_values = true)]
    format: Format,
    /// Print only IDs
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

impl Perform for List {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        let mut states = Vec::new();
        for found in session.containers()? {
            match found {
                Ok(state) => states.push(state),
                Err((id, error)) => session.log.warning(&format!("{id}: {error}")),
            }
        }
        match (self.quiet, self.format) {
            (true, _) => {
                output::print(states.iter().map(|state| format!("{}\n", state.id)).collect::<String>())?
            }
            (false, Format::Json) => output::print(json(&states)?)?,
            (false, Format::Table) => terminal::page(&table(&states, Painter::of_standard_output()))?,
        };
        Ok(Exit::Success)
    }
}

/// Formats containers as a JSON array on one line; an empty list is `null`, as Go prints it.
fn json(states: &[State]) -> Result<String> {
    let text = if states.is_empty() { "null".to_owned() } else { serde_json::to_string(states)? };
    Ok(escape::json(text) + "\n")
}

/// Formats containers as a table. Columns are three wider than their widest cell, and at least twelve wide.
fn table(states: &[State], painter: Painter) -> String {
    const COLUMNS: usize = 6;
    const STATUS: usize = 2;
    let head = ["ID", "PID", "STATUS", "BUNDLE", "CREATED", "OWNER"].map(str::to_owned);
    let row = |state: &State| {
        [
            state.id.clone(),
            state.pid.to_string(),
            state.status.to_string(),
            state.bundle.display().to_string(),
            state.created.clone(),
            state.owner.clone(),
        ]
        .map(|cell| escape::cell(&cell).into_owned())
    };
    let rows: Vec<[String; COLUMNS]> = std::iter::once(head).chain(states.iter().map(row)).collect();
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count() + 3).max().unwrap_or(0).max(12);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let colours = std::iter::once(None).chain(states.iter().map(|state| Some(colour(state.status))));
    rows.iter().zip(colours).fold(String::new(), |mut text, (row, colour)| {
        for (index, (cell, width)) in row.iter().zip(widths).enumerate() {
            // The last column is not padded.
            let width = if index + 1 == COLUMNS { 0 } else { width };
            let cell = format!("{cell:width$}");
            match colour.filter(|_| index == STATUS) {
                Some(colour) => text += &painter.paint(&cell, colour),
                None => text += &cell,
            }
        }
        text.push('\n');
        text
    })
}

fn colour(status: Status) -> Colour {
    match status {
        Status::Running => Colour::Green,
        Status::Creating | Status::Created => Colour::Cyan,
        Status::Paused => Colour::Yellow,
        Status::Stopped => Colour::Grey,
    }
}
