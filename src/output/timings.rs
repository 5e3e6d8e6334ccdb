//! `--timings`: shows how long each step took, as a waterfall in the terminal or an SVG.
//!
//! Each row is a span: its start, its duration, a bar, the process, and the action.

use husk_hermetic::Escaped;
use husk_runtime::{Lane, Span};
use std::fmt::{self, Display, Formatter, Write as _};

/// The spans of one container, on a time axis that starts with the first span.
pub(crate) struct Waterfall {
    spans: Vec<Span>,
    first: u64,
    last: u64,
}

impl Waterfall {
    /// Sorts the spans by their start. For the child's spans, this is the order of the plan.
    pub(crate) fn new(mut spans: Vec<Span>) -> Self {
        spans.sort_by_key(|span| span.begin);
        let first = spans.iter().map(|span| span.begin).min().unwrap_or_default();
        let ends = spans.iter().map(|span| span.end.unwrap_or(span.begin));
        Self { first, last: ends.max().unwrap_or_default().max(first + 1), spans }
    }

    /// Returns a moment's position on the axis, from 0 to 1.
    fn place(&self, moment: u64) -> f64 {
        (moment - self.first) as f64 / (self.last - self.first) as f64
    }

    /// Returns a self-contained SVG.
    pub(crate) fn svg(&self) -> String {
        const ROW: usize = 16;
        const LEFT: f64 = 420.0;
        const BARS: f64 = 600.0;
        let height = ROW * (self.spans.len() + 3);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{height}\" font-family=\"monospace\" font-size=\"11\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"8\" y=\"18\" font-weight=\"bold\">{} µs from the start of husk to the program</text>\n",
            LEFT + BARS + 90.0,
            Micros(self.last - self.first),
        );
        for (row, span) in self.spans.iter().enumerate() {
            let y = ROW * (row + 2);
            let begin = LEFT + self.place(span.begin) * BARS;
            let width = span.end.map_or(0.0, |end| (self.place(end) - self.place(span.begin)) * BARS);
            let colour = match span.lane {
                Lane::Husk => "#888888",
                Lane::Child => "#2a6fb0",
            };
            let label = Escaped(&label(span)).to_string();
            let took = span.end.map_or_else(String::new, |end| Micros(end - span.begin).to_string());
            let line = writeln!(
                svg,
                "<text x=\"8\" y=\"{}\">{label}</text>\
                 <rect x=\"{begin:.2}\" y=\"{}\" width=\"{:.2}\" height=\"10\" fill=\"{colour}\"/>\
                 <text x=\"{:.2}\" y=\"{}\" fill=\"#666666\">{took}</text>",
                y + 9,
                y,
                width.max(1.0),
                begin + width + 4.0,
                y + 9,
            );
            // Writing to a `String` cannot fail.
            debug_assert!(line.is_ok());
        }
        svg.push_str("</svg>\n");
        svg
    }
}

impl Display for Waterfall {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        const BAR: usize = 32;
        writeln!(f, "{:>9} {:>9}", "at µs", "took µs")?;
        for span in &self.spans {
            let place = |moment| (self.place(moment) * BAR as f64) as usize;
            let begin = place(span.begin).min(BAR - 1);
            let end = span.end.map_or(begin, place).clamp(begin, BAR);
            let bar = match span.end {
                Some(_) => "#".repeat((end - begin).max(1)),
                None => String::new(),
            };
            let took = span.end.map_or_else(|| "?".to_owned(), |end| Micros(end - span.begin).to_string());
            let at = Micros(span.begin - self.first).to_string();
            let bar = format!("{}{bar}", " ".repeat(begin));
            writeln!(f, "{at:>9} {took:>9}  {bar:BAR$}  {}", label(span))?;
        }
        writeln!(f, "{:>9}            from the start of husk to the program", Micros(self.last - self.first))
    }
}

fn label(span: &Span) -> String {
    match span.lane {
        Lane::Husk => format!("husk: {}", span.text),
        Lane::Child => format!("{}: {}", span.origin, span.text),
    }
}

/// A duration, displayed in microseconds with one decimal.
struct Micros(u64);

impl Display for Micros {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{}", self.0 / 1000, self.0 % 1000 / 100))
    }
}

#[cfg(test)]
mod tests {
    use super::Waterfall;
    use husk_runtime::{Lane, Span};

    #[test]
    fn spans_are_listed_in_the_order_of_their_start() {
        let span = |lane, text: &str, begin, end| Span {
            lane,
            origin: "process.args[0]".to_owned(),
            text: text.to_owned(),
            begin,
            end,
        };
        let waterfall = Waterfall::new(vec![
            span(Lane::Husk, "clone", 1_000_000, Some(1_400_000)),
            span(Lane::Husk, "wait", 1_400_000, Some(1_800_000)),
            span(Lane::Child, "find <&>", 1_200_000, Some(1_800_000)),
            span(Lane::Child, "exec", 1_800_000, None),
        ]);
        let wanted = "    at µs   took µs
      0.0     400.0  ################                  husk: clone
    200.0     600.0          ########################  process.args[0]: find <&>
    400.0     400.0                  ################  husk: wait
    800.0         ?                                    process.args[0]: exec
    800.0            from the start of husk to the program
";
        assert_eq!(waterfall.to_string(), wanted);
        let svg = waterfall.svg();
        assert_eq!(svg.matches("<rect x=").count(), 4);
        assert!(svg.contains("find &lt;&amp;&gt;"));
    }
}
