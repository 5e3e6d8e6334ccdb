//! The waterfall as a picture.

use super::{Micros, Waterfall};
use husk_hermetic::Escaped;
use husk_runtime::Lane;
use std::fmt::Write as _;

const ROW: usize = 16;
/// The space for the labels, and for the bars beside them.
const LEFT: f64 = 420.0;
const BARS: f64 = 600.0;
const RIGHT: f64 = 90.0;
/// The lines above the bars: a title, the legend and the axis.
const HEAD: usize = 4;
const HUSK: &str = "#888888";
const CHILD: &str = "#2a6fb0";

impl Waterfall {
    /// Returns a self-contained SVG.
    pub(crate) fn svg(&self) -> String {
        let mut svg = String::new();
        let drawn = self.draw(&mut svg);
        // Writing to a `String` cannot fail.
        debug_assert!(drawn.is_ok());
        svg
    }

    fn draw(&self, svg: &mut String) -> std::fmt::Result {
        let bottom = ROW * (self.rows.len() + HEAD + 1);
        writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{bottom}\" font-family=\"monospace\" font-size=\"11\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"8\" y=\"18\" font-weight=\"bold\">{} µs from the start of husk to the program</text>\n\
             <rect x=\"8\" y=\"26\" width=\"10\" height=\"10\" fill=\"{HUSK}\"/><text x=\"24\" y=\"35\">husk</text>\n\
             <rect x=\"72\" y=\"26\" width=\"10\" height=\"10\" fill=\"{CHILD}\"/><text x=\"88\" y=\"35\">the container's first process</text>",
            LEFT + BARS + RIGHT,
            Micros(self.last - self.first),
        )?;
        let whole = self.last - self.first;
        let top = ROW * HEAD - 4;
        for tick in (0..=whole / interval(whole)).map(|count| count * interval(whole)) {
            let x = LEFT + self.place(self.first + tick) * BARS;
            writeln!(
                svg,
                "<line x1=\"{x:.2}\" y1=\"{top}\" x2=\"{x:.2}\" y2=\"{bottom}\" stroke=\"#dddddd\"/>\
                 <text x=\"{x:.2}\" y=\"{}\" text-anchor=\"middle\" fill=\"#666666\">{} µs</text>",
                top - 4,
                tick / 1000,
            )?;
        }
        for (number, row) in self.rows.iter().enumerate() {
            let y = ROW * (number + HEAD);
            let begin = LEFT + self.place(row.begin) * BARS;
            let width = row.end.map_or(0.0, |end| (self.place(end) - self.place(row.begin)) * BARS);
            let colour = match row.lane {
                Lane::Husk => HUSK,
                Lane::Child => CHILD,
            };
            let label = Escaped(&row.text).to_string();
            let took = row.end.map_or_else(String::new, |_| Micros(row.took()).to_string());
            writeln!(
                svg,
                "<text x=\"8\" y=\"{}\">{label}</text>\
                 <rect class=\"bar\" x=\"{begin:.2}\" y=\"{y}\" width=\"{:.2}\" height=\"10\" fill=\"{colour}\"/>\
                 <text x=\"{:.2}\" y=\"{}\" fill=\"#666666\">{took}</text>",
                y + 9,
                width.max(1.0),
                begin + width + 4.0,
                y + 9,
            )?;
        }
        writeln!(svg, "</svg>")
    }
}

/// Returns the distance between the marks of an axis of this length: 1, 2 or 5 times a power of ten, in whole
/// microseconds, for at most ten marks.
fn interval(whole: u64) -> u64 {
    let mut power: u64 = 1000;
    loop {
        for factor in [1, 2, 5] {
            if whole / (power * factor) <= 10 {
                return power * factor;
            }
        }
        power = power.saturating_mul(10);
    }
}

#[cfg(test)]
mod tests {
    use super::interval;

    #[test]
    fn axis_has_at_most_ten_marks_at_round_numbers() {
        let micros = |whole: u64| interval(whole * 1000) / 1000;
        assert_eq!([1, 10, 11, 45, 2_300, 45_417].map(micros), [1, 1, 2, 5, 500, 5_000]);
        assert!(interval(u64::MAX) >= u64::MAX / 11);
    }
}
