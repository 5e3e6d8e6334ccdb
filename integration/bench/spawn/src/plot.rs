//! Draws plots as self-contained SVG: lines that grow with a quantity, and bars.

use crate::contenders::Style;
use std::fmt::Write as _;

/// A plot area. All panels of a plot have axes of the same meaning.
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) series: Vec<Series>,
}

/// A line of a panel.
pub(crate) struct Series {
    pub(crate) label: &'static str,
    pub(crate) style: Style,
    /// Microseconds for each size, or `None` if that was not measured.
    pub(crate) points: Vec<Option<f64>>,
}

/// Bars with a common title.
pub(crate) struct Group {
    pub(crate) title: String,
    pub(crate) bars: Vec<Bar>,
}

/// A bar, with a line for the range of most of its measurements.
pub(crate) struct Bar {
    pub(crate) label: &'static str,
    pub(crate) colour: &'static str,
    pub(crate) value: f64,
    pub(crate) spread: Option<(f64, f64)>,
}

const WIDTH: f64 = 950.0;
const MARGIN: f64 = 24.0;
/// The height of the title and two lines below it.
const HEAD: f64 = 84.0;
const GREY: &str = "#666666";
const PALE: &str = "#dddddd";

/// Draws lines over memory or another quantity, with both axes logarithmic. Such an axis has no zero, so that size stands
/// apart, left of a gap.
pub(crate) fn growth(
    title: &str,
    subtitle: &str,
    axis: &str,
    sizes: &[(u64, String)],
    panels: &[Panel],
) -> String {
    const AREA: f64 = 300.0;
    const PANEL: f64 = AREA + 90.0;
    let left = MARGIN + 70.0;
    let right = WIDTH - 280.0;
    let mut svg = Svg::new(title, subtitle, HEAD + PANEL * panels.len() as f64);
    let places = places(sizes, left + 30.0, right - 20.0);
    for (index, panel) in panels.iter().enumerate() {
        let top = HEAD + 30.0 + PANEL * index as f64;
        let bottom = top + AREA;
        svg.text(left, top - 10.0, Anchor::Start, &panel.title, "bold 13px", "black");

        let values = panel.series.iter().flat_map(|series| series.points.iter().flatten());
        let (low, high) = bounds(values.copied());
        let height = |value: f64| bottom - (value / low).log10() / (high / low).log10() * AREA;
        for tick in ticks(low, high) {
            svg.line((left, height(tick)), (right, height(tick)), PALE, 1.0, "none");
            svg.text(left - 8.0, height(tick) + 4.0, Anchor::End, &microseconds(tick), "12px", GREY);
        }
        let (x, y) = (left - 62.0, f64::midpoint(top, bottom));
        svg.rotated(x, y, "microseconds (log scale)");
        svg.line((left, bottom), (right, bottom), GREY, 1.0, "none");
        for ((_, label), x) in sizes.iter().zip(&places) {
            svg.line((*x, bottom), (*x, bottom + 5.0), GREY, 1.0, "none");
            svg.text(*x, bottom + 20.0, Anchor::Middle, label, "12px", GREY);
        }
        if let [(0, _), _, ..] = sizes {
            let gap = f64::midpoint(places[0], places[1]);
            svg.line((gap - 7.0, bottom + 6.0), (gap - 1.0, bottom - 6.0), GREY, 1.0, "none");
            svg.line((gap + 1.0, bottom + 6.0), (gap + 7.0, bottom - 6.0), GREY, 1.0, "none");
        }
        let middle = f64::midpoint(left, right);
        svg.text(middle, bottom + 40.0, Anchor::Middle, axis, "12px", GREY);

        let mut labels = Vec::new();
        for series in &panel.series {
            let points: Vec<(f64, f64)> = places
                .iter()
                .zip(&series.points)
                .filter_map(|(x, value)| Some((*x, height((*value)?))))
                .collect();
            for pair in points.windows(2) {
                svg.line(pair[0], pair[1], series.style.colour, 2.0, series.style.dash);
            }
            for point in &points {
                svg.dot(*point, series.style.colour);
            }
            if let Some(last) = points.last() {
                labels.push((*last, series));
            }
        }
        svg.labels(labels, right + 24.0, top, bottom);
    }
    svg.finish()
}

/// Returns the horizontal position of each size between two edges.
fn places(sizes: &[(u64, String)], left: f64, right: f64) -> Vec<f64> {
    const GAP: f64 = 110.0;
    let logarithms: Vec<f64> =
        sizes.iter().filter(|(mib, _)| *mib > 0).map(|(mib, _)| (*mib as f64).ln()).collect();
    let begin = if sizes.len() > logarithms.len() { left + GAP } else { left };
    let (first, last) = match logarithms[..] {
        [first, .., last] => (first, last),
        [only] => (only - 1.0, only),
        [] => (0.0, 1.0),
    };
    let scaled = |mib: u64| begin + ((mib as f64).ln() - first) / (last - first) * (right - begin);
    sizes.iter().map(|(mib, _)| if *mib == 0 { left } else { scaled(*mib) }).collect()
}

/// Draws groups of horizontal bars over a linear axis that begins at zero.
pub(crate) fn bars(title: &str, subtitle: &str, axis: &str, groups: &[Group]) -> String {
    const ROW: f64 = 19.0;
    const GROUP: f64 = 40.0;
    let rows: usize = groups.iter().map(|group| group.bars.len()).sum();
    let area = rows as f64 * ROW + groups.len() as f64 * GROUP;
    let (left, right) = (MARGIN + 170.0, WIDTH - 90.0);
    let (top, bottom) = (HEAD, HEAD + area + 10.0);
    let mut svg = Svg::new(title, subtitle, bottom + 60.0);

    let all = || groups.iter().flat_map(|group| &group.bars);
    let most =
        all().map(|bar| bar.spread.map_or(bar.value, |(_, p90)| p90.max(bar.value))).fold(1.0, f64::max);
    let step = step(most);
    let end = (most / step).ceil() * step;
    let x = |value: f64| left + value / end * (right - left);
    let mut tick = 0.0;
    while tick <= end {
        svg.line((x(tick), top), (x(tick), bottom), PALE, 1.0, "none");
        svg.text(x(tick), bottom + 18.0, Anchor::Middle, &microseconds(tick), "12px", GREY);
        tick += step;
    }
    svg.text(f64::midpoint(left, right), bottom + 40.0, Anchor::Middle, axis, "12px", GREY);

    let mut y = top;
    for group in groups {
        y += GROUP;
        svg.text(MARGIN, y - 10.0, Anchor::Start, &group.title, "bold 13px", "black");
        for bar in &group.bars {
            let middle = y + ROW / 2.0;
            svg.text(left - 8.0, middle + 4.0, Anchor::End, bar.label, "12px", "black");
            svg.bar(left, y + 2.0, x(bar.value) - left, ROW - 4.0, bar.colour);
            let mut reach = bar.value;
            if let Some((p10, p90)) = bar.spread {
                svg.line((x(p10), middle), (x(p90), middle), "black", 1.5, "none");
                reach = reach.max(p90);
            }
            svg.text(x(reach) + 6.0, middle + 4.0, Anchor::Start, &microseconds(bar.value), "12px", GREY);
            y += ROW;
        }
    }
    svg.line((left, top), (left, bottom), GREY, 1.0, "none");
    svg.finish()
}

/// Returns two bounds around all values, each 1, 2 or 5 times a power of ten.
fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values
        .filter(|value| *value > 0.0)
        .fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    if high == 0.0 {
        return (1.0, 10.0);
    }
    let mut steps = steps(low / 10.0, high * 10.0);
    let above = steps.clone().find(|step| *step >= high * 1.05).unwrap_or(high * 2.0);
    let below = steps.clone().take_while(|step| *step <= low * 0.95).last();
    (below.or_else(|| steps.next()).unwrap_or(low / 2.0), above)
}

/// Returns 1, 2 and 5 times each power of ten from `low` to `high`.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    steps(low, high).filter(|step| *step >= low * 0.999 && *step <= high * 1.001).collect()
}

fn steps(low: f64, high: f64) -> impl Iterator<Item = f64> + Clone {
    #[expect(clippy::cast_possible_truncation, reason = "some decades")]
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    (first..=last).flat_map(|decade| [1.0, 2.0, 5.0].map(|digit| digit * 10.0_f64.powi(decade)))
}

/// Returns a round step that divides a linear axis into about six parts.
fn step(most: f64) -> f64 {
    steps(most / 100.0, most).find(|step| most / step <= 7.0).unwrap_or(most)
}

/// Formats microseconds with no more digits than they need.
fn microseconds(value: f64) -> String {
    let decimals = if value == 0.0 || value >= 20.0 { 0 } else { 1 };
    let text = format!("{value:.decimals$}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

#[derive(Clone, Copy)]
enum Anchor {
    Start,
    Middle,
    End,
}

/// An SVG document under construction.
struct Svg {
    text: String,
}

impl Svg {
    fn new(title: &str, subtitle: &str, height: f64) -> Self {
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        let mut svg = Self { text };
        svg.text(MARGIN, 30.0, Anchor::Start, title, "bold 17px", "black");
        for (y, line) in [50.0, 66.0].into_iter().zip(subtitle.lines()) {
            svg.text(MARGIN, y, Anchor::Start, line, "11px", GREY);
        }
        svg
    }

    fn finish(self) -> String {
        self.text + "</svg>\n"
    }

    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        let written = writeln!(self.text, "{element}");
        // Writing to a string does not fail.
        debug_assert!(written.is_ok());
    }

    fn text(&mut self, x: f64, y: f64, anchor: Anchor, text: &str, font: &str, colour: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escaped(text);
        self.push(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\" \
             style=\"font: {font} sans-serif\">{text}</text>"
        ));
    }

    fn rotated(&mut self, x: f64, y: f64, text: &str) {
        self.push(format_args!(
            "<text transform=\"translate({x:.1} {y:.1}) rotate(-90)\" text-anchor=\"middle\" fill=\"{GREY}\" \
             style=\"font: 12px sans-serif\">{text}</text>"
        ));
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, width: f64, dash: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.push(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\" \
             stroke-width=\"{width}\" stroke-dasharray=\"{dash}\"/>"
        ));
    }

    fn dot(&mut self, (x, y): (f64, f64), colour: &str) {
        self.push(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"));
    }

    fn bar(&mut self, x: f64, y: f64, width: f64, height: f64, colour: &str) {
        self.push(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\" \
             fill-opacity=\"0.75\"/>"
        ));
    }

    /// Labels lines at their right ends with their last values, in the order of the lines, and moves labels apart that
    /// would overlap.
    fn labels(&mut self, mut labels: Vec<((f64, f64), &Series)>, x: f64, top: f64, bottom: f64) {
        const APART: f64 = 15.0;
        labels.sort_by(|((_, a), _), ((_, b), _)| a.total_cmp(b));
        let mut heights: Vec<f64> = labels.iter().map(|((_, y), _)| *y).collect();
        for index in 1..heights.len() {
            heights[index] = heights[index].max(heights[index - 1] + APART);
        }
        // Labels that were pushed below the bottom are pushed up again, as far as there is room.
        let mut lowest = bottom;
        for height in heights.iter_mut().rev() {
            *height = height.min(lowest).max(top);
            lowest = *height - APART;
        }
        for (((end_x, end_y), series), y) in labels.iter().zip(heights) {
            let Style { colour, dash } = series.style;
            self.line((end_x + 5.0, *end_y), (x, y), PALE, 1.0, "none");
            self.line((x, y), (x + 24.0, y), colour, 2.0, dash);
            self.text(x + 30.0, y + 4.0, Anchor::Start, series.label, "12px", "black");
            let last = series.points.iter().rev().find_map(|point| *point).unwrap_or_default();
            self.text(
                WIDTH - MARGIN,
                y + 4.0,
                Anchor::End,
                &format!("{} µs", microseconds(last)),
                "12px",
                GREY,
            );
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
