//! Plots as SVG. They are 480 wide, so that their text can be read on a phone, and take their colours from CSS variables:
//! a page that has them inline sets them, and [`standalone`] has them inside.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::numbers::{Axis, short};
use super::palette;

const WIDTH: f64 = 480.0;

/// A drawing that grows downwards.
struct Drawing {
    body: String,
    height: f64,
}

/// `text` as the content of an element.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Drawing {
    fn new() -> Self {
        Self { body: String::new(), height: 0.0 }
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        self.body.write_fmt(element).expect("writing to a string");
        self.body.push('\n');
    }

    fn text(&mut self, (x, y): (f64, f64), class: &str, anchor: &str, text: &str) {
        let text = escape(text);
        self.add(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" class="{class}" text-anchor="{anchor}">{text}</text>"#
        ));
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        self.add(format_args!(
            r#"<line x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}" class="{class}"/>"#,
            from.0, from.1, to.0, to.1
        ));
    }

    fn end(self, title: &str) -> String {
        let Self { body, height } = self;
        let title = escape(title);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" \
             aria-label=\"{title}\"><title>{title}</title>\n{body}</svg>\n"
        )
    }
}

/// The style of what is in a plot.
pub(crate) const STYLE: &str = "\
svg text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans',sans-serif;fill:var(--ink)}\
svg .soft{fill:var(--soft);font-size:11px}\
svg .head{font-weight:600}\
svg .grid{stroke:var(--grid);stroke-width:1}\
svg .axis{stroke:var(--soft);stroke-width:1}\
svg .range{stroke:var(--ink);stroke-width:1.2}\
svg .study{fill:var(--paper);stroke:var(--ink);stroke-width:1.4}\
svg .course{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}";

/// A plot as a file of its own.
pub(crate) fn standalone(svg: &str) -> String {
    let style = format!("<style>{}{STYLE}svg{{background:var(--paper)}}</style>\n", palette::css());
    match svg.split_once('\n') {
        Some((open, rest)) => format!("{open}\n{style}{rest}"),
        None => svg.to_owned(),
    }
}

/// A bar: how large, with what noise, and what a study had.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Bar {
    pub(crate) group: String,
    pub(crate) label: String,
    pub(crate) system: String,
    pub(crate) value: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    pub(crate) study: Option<f64>,
}

const LEFT: f64 = 10.0;
const RIGHT: f64 = WIDTH - 10.0;

/// Bars below each other, each under its label.
pub(crate) fn bars(title: &str, unit: &str, log: bool, bars: &[Bar]) -> String {
    let mut drawing = Drawing::new();
    let values: Vec<f64> =
        bars.iter().flat_map(|bar| [bar.value, bar.most, bar.study.unwrap_or(bar.value)]).collect();
    let axis = Axis::over(&values, log);
    let axis = with_room_below(axis);
    let x = |value: f64| LEFT + (RIGHT - LEFT) * axis.place(value);
    let mut y = 8.0;
    let mut above: Option<&str> = None;
    let mut rows = Drawing::new();
    for bar in bars {
        if above != Some(&bar.group) {
            above = Some(&bar.group);
            if !bar.group.is_empty() {
                rows.text((LEFT, y + 14.0), "head", "start", &bar.group);
                y += 22.0;
            }
        }
        draw_bar(&mut rows, bar, y, &x);
        y += 32.0;
    }
    for &tick in &axis.ticks {
        drawing.line((x(tick), 4.0), (x(tick), y), "grid");
    }
    drawing.body += &rows.body;
    draw_ticks(&mut drawing, &axis, y, &x);
    let scale = if log { ", by factors of ten" } else { "" };
    drawing.text((LEFT, y + 34.0), "soft", "start", &format!("{unit}{scale}"));
    drawing.height = y + 44.0;
    drawing.end(title)
}

/// A logarithmic axis begins below the least bar, which would have no length otherwise.
fn with_room_below(axis: Axis) -> Axis {
    if !axis.log {
        return axis;
    }
    let from = axis.from / 2.0;
    Axis { from, ..axis }
}

fn draw_bar(drawing: &mut Drawing, bar: &Bar, y: f64, x: &impl Fn(f64) -> f64) {
    let study = bar.study.map_or(String::new(), |study| format!("  (study {})", short(study)));
    drawing.text((LEFT, y + 12.0), "", "start", &bar.label);
    drawing.text((RIGHT, y + 12.0), "", "end", &format!("{}{study}", short(bar.value)));
    let colour = palette::of(&bar.system);
    let width = (x(bar.value) - LEFT).max(1.0);
    drawing.add(format_args!(
        r#"<rect x="{LEFT}" y="{:.1}" width="{width:.1}" height="9" rx="1.5" style="fill:{colour}"/>"#,
        y + 17.0
    ));
    let middle = y + 21.5;
    if bar.most > bar.least {
        drawing.line((x(bar.least), middle), (x(bar.most), middle), "range");
        for end in [bar.least, bar.most] {
            drawing.line((x(end), middle - 3.0), (x(end), middle + 3.0), "range");
        }
    }
    if let Some(study) = bar.study {
        let at = x(study);
        drawing.add(format_args!(
            r#"<path d="M{at:.1} {:.1}l4.5 5.5l-4.5 5.5l-4.5 -5.5z" class="study"/>"#,
            middle - 5.5
        ));
    }
}

/// The numbers below an axis, as many as there is room for.
fn draw_ticks(drawing: &mut Drawing, axis: &Axis, y: f64, x: &impl Fn(f64) -> f64) {
    drawing.line((LEFT, y), (RIGHT, y), "axis");
    let mut free = f64::MIN;
    for &tick in &axis.ticks {
        let text = tick_text(tick);
        let half = 3.5 * text.chars().count() as f64;
        let at = x(tick).clamp(LEFT + half, RIGHT - half);
        if at - half > free {
            drawing.text((at, y + 15.0), "soft", "middle", &text);
            free = at + half + 6.0;
        }
    }
}

/// A round number without the digits that it does not need.
fn tick_text(tick: f64) -> String {
    let (scaled, unit) = match tick.abs() {
        size if size >= 1e9 => (tick / 1e9, "G"),
        size if size >= 1e6 => (tick / 1e6, "M"),
        size if size >= 1e4 => (tick / 1e3, "k"),
        _ => (tick, ""),
    };
    let rounded = (scaled * 1e6).round() / 1e6;
    format!("{rounded}{unit}")
}

/// A line: where its points are, with what noise.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Line {
    pub(crate) label: String,
    pub(crate) system: String,
    /// x, y, the least and the most that y was.
    pub(crate) points: Vec<(f64, f64, f64, f64)>,
    /// Whether its points are marked.
    pub(crate) marked: bool,
}

/// What the axes of lines are.
#[derive(Clone, Debug)]
pub(crate) struct Axes<'a> {
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) x_label: &'a str,
    pub(crate) y_label: &'a str,
    /// What is written at a tick of x, if it is not the number.
    pub(crate) x_text: Option<fn(f64) -> String>,
}

const TOP: f64 = 30.0;
const BOTTOM: f64 = 280.0;
const MARGIN: f64 = 50.0;

/// Lines of one system differ by their dashes and marks.
const DASHES: [&str; 5] = ["", "7 4", "2 4", "10 4 2 4", "4 2"];

/// Lines over a common x, with a legend below.
pub(crate) fn lines(title: &str, axes: &Axes<'_>, lines: &[Line]) -> String {
    let mut drawing = Drawing::new();
    let x = |value: f64| MARGIN + (RIGHT - 8.0 - MARGIN) * axes.x.place(value);
    let y = |value: f64| BOTTOM - (BOTTOM - TOP) * axes.y.place(value);
    let scale = if axes.y.log { ", by factors" } else { "" };
    drawing.text((LEFT, 14.0), "soft", "start", &format!("{}{scale}", axes.y_label));
    for &tick in &axes.y.ticks {
        drawing.line((MARGIN, y(tick)), (RIGHT, y(tick)), "grid");
        drawing.text((MARGIN - 6.0, y(tick) + 4.0), "soft", "end", &tick_text(tick));
    }
    drawing.line((MARGIN, BOTTOM), (RIGHT, BOTTOM), "axis");
    let mut free = f64::MIN;
    for &tick in &axes.x.ticks {
        let text = axes.x_text.map_or_else(|| tick_text(tick), |text| text(tick));
        let half = 3.5 * text.chars().count() as f64;
        if x(tick) - half > free {
            drawing.line((x(tick), BOTTOM), (x(tick), BOTTOM + 4.0), "axis");
            drawing.text((x(tick).min(RIGHT - half), BOTTOM + 17.0), "soft", "middle", &text);
            free = x(tick) + half + 6.0;
        }
    }
    drawing.text(((MARGIN + RIGHT) / 2.0, BOTTOM + 34.0), "soft", "middle", axes.x_label);
    let mut legend = BOTTOM + 54.0;
    // Two beside each other if they are short.
    let columns = if lines.iter().all(|line| line.label.chars().count() <= 30) { 2 } else { 1 };
    for (i, line) in lines.iter().enumerate() {
        let variant = lines[..i].iter().filter(|other| other.system == line.system).count();
        draw_line(&mut drawing, line, variant, &x, &y);
        let left = if i % columns == 0 { LEFT } else { WIDTH / 2.0 + 4.0 };
        let sample = [(left, legend), (left + 26.0, legend)];
        draw_path(&mut drawing, &sample, line, variant);
        if line.marked {
            draw_mark(&mut drawing, (left + 13.0, legend), &palette::of(&line.system), variant);
        }
        drawing.text((left + 32.0, legend + 4.0), "", "start", &line.label);
        if i % columns == columns - 1 || i + 1 == lines.len() {
            legend += 19.0;
        }
    }
    drawing.height = legend;
    drawing.end(title)
}

/// A rectangle in one of several lanes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Block {
    pub(crate) lane: u32,
    pub(crate) x: (f64, f64),
    /// Shares of the lane's height, from below.
    pub(crate) y: (f64, f64),
    pub(crate) is_strong: bool,
}

const LANE: f64 = 52.0;

/// Compactions in lanes, one for each level, over time.
pub(crate) fn blocks(title: &str, x_label: &str, system: &str, blocks: &[Block]) -> String {
    let mut drawing = Drawing::new();
    let ends: Vec<f64> = blocks.iter().map(|block| block.x.1).collect();
    let axis = Axis::over(&ends, false);
    let left = LEFT + 26.0;
    let x = |value: f64| left + (RIGHT - left) * axis.place(value);
    // Lanes that have nothing are left out.
    let lanes: Vec<u32> =
        BTreeSet::from_iter(blocks.iter().map(|block| block.lane)).into_iter().collect();
    let top = |at: usize| 8.0 + at as f64 * (LANE + 6.0);
    let bottom = top(lanes.len());
    for &tick in &axis.ticks {
        drawing.line((x(tick), 4.0), (x(tick), bottom), "grid");
    }
    for (at, lane) in lanes.iter().enumerate() {
        drawing.text((LEFT, top(at) + LANE / 2.0 + 4.0), "soft", "start", &format!("L{lane}"));
        drawing.line((left, top(at) + LANE + 3.0), (RIGHT, top(at) + LANE + 3.0), "grid");
    }
    let colour = palette::of(system);
    for block in blocks {
        // However short and narrow, it can be seen.
        let (from, width) = (x(block.x.0), (x(block.x.1) - x(block.x.0)).max(0.8));
        let height = (LANE * (block.y.1 - block.y.0)).max(1.0);
        let at = lanes.partition_point(|&lane| lane < block.lane);
        let above = top(at) + LANE * (1.0 - block.y.1.clamp(0.0, 1.0));
        draw_block(&mut drawing, (from, above), (width, height), block.is_strong, &colour);
    }
    draw_ticks(&mut drawing, &axis, bottom, &x);
    drawing.text((LEFT, bottom + 34.0), "soft", "start", x_label);
    let legend = bottom + 54.0;
    for (at, is_strong, text) in [(LEFT, false, "takes"), (LEFT + 90.0, true, "makes")] {
        draw_block(&mut drawing, (at, legend - 9.0), (14.0, 10.0), is_strong, &colour);
        drawing.text((at + 20.0, legend), "", "start", text);
    }
    drawing.height = legend + 10.0;
    drawing.end(title)
}

fn draw_block(
    drawing: &mut Drawing,
    (x, y): (f64, f64),
    (width, height): (f64, f64),
    is_strong: bool,
    colour: &str,
) {
    let opacity = if is_strong { 0.9 } else { 0.3 };
    drawing.add(format_args!(
        r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" style="fill:{colour};fill-opacity:{opacity}"/>"#
    ));
}

fn draw_line(
    drawing: &mut Drawing,
    line: &Line,
    variant: usize,
    x: &impl Fn(f64) -> f64,
    y: &impl Fn(f64) -> f64,
) {
    let points: Vec<_> = line.points.iter().map(|point| (x(point.0), y(point.1))).collect();
    draw_path(drawing, &points, line, variant);
    let colour = palette::of(&line.system);
    for (&at, &(_, _, least, most)) in points.iter().zip(&line.points) {
        if most > least {
            drawing.add(format_args!(
                r#"<line x1="{0:.1}" y1="{1:.1}" x2="{0:.1}" y2="{2:.1}" style="stroke:{colour};stroke-width:1.2"/>"#,
                at.0,
                y(least),
                y(most)
            ));
        }
        if line.marked {
            draw_mark(drawing, at, &colour, variant);
        }
    }
}

fn draw_path(drawing: &mut Drawing, points: &[(f64, f64)], line: &Line, variant: usize) {
    let mut path = String::new();
    for (i, (x, y)) in points.iter().enumerate() {
        let step = if i == 0 { 'M' } else { 'L' };
        write!(path, "{step}{x:.1} {y:.1}").expect("writing to a string");
    }
    let (colour, dash) = (palette::of(&line.system), DASHES[variant % DASHES.len()]);
    drawing.add(format_args!(
        r#"<path d="{path}" class="course" style="stroke:{colour}" stroke-dasharray="{dash}"/>"#
    ));
}

fn draw_mark(drawing: &mut Drawing, (x, y): (f64, f64), colour: &str, variant: usize) {
    let style = format!("fill:{colour};stroke:var(--paper);stroke-width:1");
    match variant % 4 {
        0 => {
            drawing.add(format_args!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="4" style="{style}"/>"#))
        }
        1 => drawing.add(format_args!(
            r#"<rect x="{:.1}" y="{:.1}" width="7.5" height="7.5" style="{style}"/>"#,
            x - 3.75,
            y - 3.75
        )),
        2 => drawing
            .add(format_args!(r#"<path d="M{x:.1} {:.1}l5 9h-10z" style="{style}"/>"#, y - 5.5)),
        _ => drawing.add(format_args!(
            r#"<path d="M{x:.1} {:.1}l5 5l-5 5l-5 -5z" style="{style}"/>"#,
            y - 5.0
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_does_not_end_an_element() {
        let bar = Bar {
            group: "<g>".into(),
            label: "a & b".into(),
            system: "rocksdb".into(),
            value: 5.0,
            least: 4.0,
            most: 6.0,
            study: Some(3.0),
        };
        let svg = bars("\"x\"", "operations", true, &[bar]);
        assert!(
            svg.contains("&lt;g&gt;") && svg.contains("a &amp; b") && svg.contains("&quot;x&quot;")
        );
        assert!(svg.contains("(study 3.00)") && !svg.contains("NaN"));
        assert!(standalone(&svg).contains("prefers-color-scheme"));
    }

    #[test]
    fn nothing_to_draw_is_drawn() {
        let axes = Axes {
            x: Axis::at(vec![], false),
            y: Axis::over(&[], true),
            x_label: "x",
            y_label: "y",
            x_text: None,
        };
        assert!(!lines("none", &axes, &[]).contains("NaN"));
        assert!(!bars("none", "y", false, &[]).contains("NaN"));
        assert!(!blocks("none", "x", "rocksdb", &[]).contains("NaN"));
    }

    #[test]
    fn blocks_lie_in_their_lanes() {
        let block = |lane, is_strong| Block { lane, x: (1.0, 2.0), y: (0.25, 0.75), is_strong };
        let svg =
            blocks("compactions", "seconds", "turbidite-lsm", &[block(0, false), block(2, true)]);
        // A quarter of the lane is above and below, in the first lane and in the second.
        let quarter = LANE / 4.0;
        for at in [0.0, 1.0] {
            let y = 8.0 + at * (LANE + 6.0) + quarter;
            let height = 2.0 * quarter;
            assert!(svg.contains(&format!("y=\"{y:.1}\"")), "{svg}");
            assert!(svg.contains(&format!("height=\"{height:.1}\"")));
        }
        assert!(["L0", "L2"].iter().all(|lane| svg.contains(lane)) && !svg.contains("L1"));
    }
}
