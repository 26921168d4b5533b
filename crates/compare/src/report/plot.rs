//! Draws the figures of a table from what was measured.

use super::latency;
use super::numbers::Axis;
use super::summary::Summary;
use super::svg::{self, Axes, Bar, Block, Line};
use crate::tables::{Figure, Kind, Measure, Point, Row, Table, X};

/// How many parts of a step one value of its course is a mean of: an eighth.
const WINDOW: usize = 8;

/// The figure as SVG; `None` if nothing of it was measured.
pub(crate) fn draw(figure: &Figure, table: &Table, summary: &Summary) -> Option<String> {
    match figure.kind {
        Kind::Bars => bars(figure, table, summary),
        Kind::Lines => {
            let lines = series(figure, table, summary);
            let xs = lines.iter().flat_map(|line| &line.points).map(|point| point.0).collect();
            draw_lines(figure, Axis::at(xs, figure.log_x), &lines, None)
        }
        Kind::Course => {
            let lines = each(figure, table, |point| course(summary, point));
            let xs = lines.iter().flat_map(|line| &line.points).map(|point| point.0);
            draw_lines(figure, Axis::over(&xs.collect::<Vec<_>>(), false), &lines, None)
        }
        Kind::Latencies => {
            let left_out = left_out(figure, table, summary);
            let lines = each(figure, table, |point| match left_out.contains(&point) {
                true => Vec::new(),
                false => latencies(summary, point),
            });
            let most = lines.iter().flat_map(|line| &line.points).map(|point| point.0);
            let most = most.fold(1.0, f64::max);
            let ticks: Vec<f64> = std::iter::once(0.301)
                .chain((1..=5).map(f64::from))
                .filter(|&tick| tick <= most)
                .collect();
            let axis = Axis { from: 0.0, to: most, log: false, ticks };
            draw_lines(figure, axis, &lines, Some(share_text))
        }
        Kind::Compactions => compactions(figure, table, summary),
    }
}

/// The compactions of the figure's first point that was measured.
fn compactions(figure: &Figure, table: &Table, summary: &Summary) -> Option<String> {
    let measured = figure.points.iter().find_map(|point| {
        let step = summary.middle(&point.row, &point.step)?;
        (!step.compactions.is_empty()).then_some((row_of(table, &point.row)?, step))
    });
    let (row, step) = measured?;
    let mut blocks = Vec::new();
    for compaction in &step.compactions {
        let extents = [(&compaction.inputs, false), (&compaction.outputs, true)];
        for (extent, is_made) in extents
            .into_iter()
            .flat_map(|(extents, is_made)| extents.iter().map(move |extent| (extent, is_made)))
        {
            blocks.push(Block {
                lane: extent.level,
                x: (compaction.start, compaction.end),
                y: (extent.from, extent.to),
                is_strong: is_made,
            });
        }
    }
    Some(svg::blocks(&figure.title, figure.x, row.job.system(), &blocks))
}

fn row_of<'a>(table: &'a Table, id: &str) -> Option<&'a Row> {
    table.rows.iter().find(|row| row.id == id)
}

fn bars(figure: &Figure, table: &Table, summary: &Summary) -> Option<String> {
    let mut bars: Vec<Bar> = Vec::new();
    for point in &figure.points {
        let Some(spread) = summary.spread(&point.row, &point.step, figure.measure) else {
            continue;
        };
        let row = row_of(table, &point.row)?;
        let study = row.seed_of(&point.step);
        let study = study.and_then(|seed| figure.measure.of_seed(seed, row.record_bytes()));
        bars.push(Bar {
            group: match &point.x {
                X::Name(name) => name.clone(),
                X::Number(number) => number.to_string(),
            },
            label: point.series.clone(),
            system: row.job.system().to_owned(),
            value: spread.median,
            least: spread.least,
            most: spread.most,
            study,
        });
    }
    // Points come system by system; groups are drawn together, in the order in which they first come.
    let mut order: Vec<String> = Vec::new();
    for bar in &bars {
        if !order.contains(&bar.group) {
            order.push(bar.group.clone());
        }
    }
    bars.sort_by_key(|bar| order.iter().position(|group| *group == bar.group));
    (!bars.is_empty()).then(|| svg::bars(&figure.title, figure.measure.label(), figure.log, &bars))
}

/// The lines of a figure over numbers.
fn series(figure: &Figure, table: &Table, summary: &Summary) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for point in &figure.points {
        let X::Number(x) = point.x else { continue };
        let Some(row) = row_of(table, &point.row) else { continue };
        let Some(spread) = summary.spread(&point.row, &point.step, figure.measure) else {
            continue;
        };
        let value = (x, spread.median, spread.least, spread.most);
        match lines.iter_mut().find(|line| line.label == point.series) {
            Some(line) => line.points.push(value),
            None => lines.push(Line {
                label: point.series.clone(),
                system: row.job.system().to_owned(),
                points: vec![value],
                marked: true,
            }),
        }
    }
    lines
}

/// A line for each point of a figure.
fn each(figure: &Figure, table: &Table, points: impl Fn(&Point) -> Vec<(f64, f64)>) -> Vec<Line> {
    let line = |point: &Point| {
        let row = row_of(table, &point.row)?;
        let points: Vec<_> = points(point).into_iter().map(|(x, y)| (x, y, y, y)).collect();
        let (label, system) = (point.series.clone(), row.job.system().to_owned());
        (!points.is_empty()).then_some(Line { label, system, points, marked: false })
    };
    figure.points.iter().filter_map(line).collect()
}

/// The throughput of a step over what it had put, as a moving mean.
fn course(summary: &Summary, point: &Point) -> Vec<(f64, f64)> {
    let Some(step) = summary.middle(&point.row, &point.step) else { return Vec::new() };
    let marks = &step.marks;
    let window = (marks.len() / WINDOW).max(1);
    let part = step.operations as f64 / marks.len() as f64;
    let put = step.user_bytes as f64 / marks.len() as f64 / f64::from(1 << 20);
    let value = |i: usize| {
        let from = i.saturating_sub(window);
        let start = if from == 0 { 0.0 } else { marks[from - 1] };
        let seconds = marks[i] - start;
        ((i + 1) as f64 * put, part * (i + 1 - from) as f64 / seconds.max(1e-9))
    };
    (0..marks.len()).map(value).collect()
}

/// The latencies of a step over how rare they are.
fn latencies(summary: &Summary, point: &Point) -> Vec<(f64, f64)> {
    let Some(step) = summary.middle(&point.row, &point.step) else { return Vec::new() };
    let rare = |share: f64| -(1.0 - share).log10();
    let known = step.latency.curve.iter().filter(|&&(share, _)| (0.0..1.0).contains(&share));
    // What fewer than two operations had says nothing.
    let known = known.filter(|&&(share, _)| (1.0 - share) * step.operations as f64 >= 2.0);
    known.map(|&(share, latency)| (rare(share), latency)).filter(|point| point.1 > 0.0).collect()
}

/// The points of a figure of latencies that are means of several operations, where others are of single ones.
fn left_out<'a>(figure: &'a Figure, table: &Table, summary: &Summary) -> Vec<&'a Point> {
    if figure.kind != Kind::Latencies {
        return Vec::new();
    }
    let known = figure.points.iter().filter(|point| !latencies(summary, point).is_empty());
    let is_single = |point: &&Point| {
        let row = row_of(table, &point.row);
        row.and_then(|row| latency::shared(row, &point.step)).is_none_or(|count| count == 1)
    };
    let (single, means): (Vec<_>, Vec<_>) = known.partition(is_single);
    if single.is_empty() { Vec::new() } else { means }
}

/// What to see in a figure, and what is not in it.
pub(crate) fn caption(figure: &Figure, table: &Table, summary: &Summary) -> String {
    let left_out = left_out(figure, table, summary);
    if left_out.is_empty() {
        return figure.caption.clone();
    }
    let names: Vec<_> = left_out.into_iter().map(|point| point.series.as_str()).collect();
    let note = format!(
        "Left out, as their latencies are means of several operations: {}.",
        names.join("; ")
    );
    format!("{} {note}", figure.caption).trim_start().to_owned()
}

fn share_text(rare: f64) -> String {
    match rare {
        ..0.5 => "half".to_owned(),
        ..1.5 => "90 %".to_owned(),
        ..2.5 => "99 %".to_owned(),
        _ => format!("99.{} %", "9".repeat(rare.round() as usize - 2)),
    }
}

fn draw_lines(
    figure: &Figure,
    x: Axis,
    lines: &[Line],
    x_text: Option<fn(f64) -> String>,
) -> Option<String> {
    let values = lines.iter().flat_map(|line| &line.points);
    let ys: Vec<f64> = values.flat_map(|&(_, y, least, most)| [y, least, most]).collect();
    let log = figure.log || figure.kind == Kind::Latencies;
    let y_label = match figure.kind {
        Kind::Latencies => "µs per operation",
        _ => figure.measure.label(),
    };
    let axes = Axes { x, y: Axis::over(&ys, log), x_label: figure.x, y_label, x_text };
    (!lines.is_empty()).then(|| svg::lines(&figure.title, &axes, lines))
}

/// How a figure of ours stands to one of a study or a peer, in words: more than one is better than it.
pub(crate) fn ratio(measure: Measure, ours: f64, theirs: f64) -> f64 {
    if measure.more_is_better() { ours / theirs } else { theirs / ours }
}

#[cfg(test)]
mod tests {
    use super::super::book::made::{Making, measured, step};
    use super::*;
    use crate::tables::Scale;

    #[test]
    fn figures_of_the_studies_are_drawn_in_the_unit_of_ours() {
        let making = Making::new();
        making.add(Scale::Quick, "raw", "true-shuffle-600k/vec", measured(vec![step("put", 1e6)]));
        let chapter = making.book().chapters.remove(0);
        let mut figures = chapter.table.figures.iter();
        let figure = figures.find(|figure| figure.title.starts_with("In memory, true shuffle"));
        let svg = draw(figure.unwrap(), &chapter.table, &chapter.summary).unwrap();
        assert!(svg.contains("(study 541)") && svg.contains("class=\"study\""), "{svg}");
    }

    #[test]
    fn latencies_of_batches_are_not_drawn_beside_those_of_single_operations() {
        let making = Making::new();
        let mut run = step("put", 1000.0);
        run.latency.curve = vec![(0.5, 1.0), (0.999, 2.0)];
        making.add(Scale::Quick, "peers", "redb", measured(vec![run.clone()]));
        let draw_puts = || {
            let chapter = making.book().chapters.remove(0);
            let mut figures = chapter.table.figures.iter();
            let figure = figures.find(|figure| figure.title == "How long puts take").unwrap();
            let svg = draw(figure, &chapter.table, &chapter.summary).unwrap();
            (svg, caption(figure, &chapter.table, &chapter.summary))
        };
        let (svg, words) = draw_puts();
        assert!(svg.contains("redb") && words.is_empty(), "it is alone: {words}");
        making.add(Scale::Quick, "peers", "rocksdb", measured(vec![run]));
        let (svg, words) = draw_puts();
        assert!(svg.contains("RocksDB") && !svg.contains("redb"), "{svg}");
        assert!(words.starts_with("Left out") && words.ends_with(": redb, 1000 a transaction."));
    }
}
