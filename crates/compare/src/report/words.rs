//! What both kinds of pages say in words.

use super::book::{Book, Chapter, Part};
use super::numbers::{short, times};
use super::summary::Summary;
use super::{latency, plot};
use crate::run::results::Machine;
use crate::tables::{Measure, Row, Scale};

pub(crate) const TITLE: &str = "Turbidite and its studies, side by side";

/// How to read the figures.
pub(crate) const READING: &str = "Each system ran in a process of its own, and the systems of a workload took turns. A figure is \
the median of its runs; behind it, or as a thin line, are the least and the most. A diamond is the figure that a study gave \
for its own machine: it is there to compare shapes with, not machines. Operations that were done together, or that share one \
look at the clock, are each taken to have lasted as long as their mean: latencies that are such means say so, and are no \
latencies of single operations. Bytes written are the pages that a process made dirty, as Linux counts them: where the file \
system keeps pages in large folios, as ext4 and XFS of newer kernels do, a small write counts as the whole folio, so that \
engines that write single pages here and there show several times what reaches the device. Figures that are worse than a peer's are shown like all others.";

/// What to know if tables are of different machines.
pub(crate) const MACHINES: &str = "The tables were run on different machines, which each of them names: figures of one table \
may be compared with each other, those of two tables may not.";

/// The machine, as names and values.
pub(crate) fn machine(machine: &Machine) -> Vec<(&'static str, String)> {
    let Machine {
        processor,
        cores,
        memory_bytes,
        kernel,
        file_system,
        version,
        optimised,
        compiled,
    } = machine;
    let build = if *optimised { "optimised" } else { "not optimised: its figures mean nothing" };
    let compiled = compiled.as_deref().unwrap_or("the flags were not recorded");
    vec![
        ("Processor", format!("{processor}, {cores} threads")),
        ("Memory", format!("{:.1} GiB", *memory_bytes as f64 / f64::from(1 << 30))),
        ("System", format!("Linux {kernel}, {file_system}")),
        ("Turbidite", format!("{version}, {build}")),
        ("Compiled with", compiled.to_owned()),
    ]
}

/// What the figures of a chapter are worth, with the machine if not all chapters are of the same.
pub(crate) fn worth(book: &Book, chapter: &Chapter) -> String {
    let words = scale(chapter);
    if book.machine().is_some() {
        return words;
    }
    let machine = machine(&chapter.machine).into_iter();
    let machine: Vec<_> = machine.map(|(name, value)| format!("{name}: {value}")).collect();
    format!("{words} {}.", machine.join("; "))
}

/// What a run is worth: its scale, how often its rows were run, and what of it was not.
fn scale(chapter: &Chapter) -> String {
    let runs = runs(chapter);
    let mut words = match chapter.scale {
        Scale::Smoke => {
            "A smoke run: it shows that everything runs, and its figures mean nothing.".to_owned()
        }
        Scale::Quick => format!("A quick run: smaller than the study, {runs}."),
        Scale::Full => format!("A full run: the sizes of the study, {runs}."),
    };
    let Part { rows, of, .. } = chapter.part();
    if rows < of {
        words += &format!(" Of its {of} rows {rows} were run.");
    }
    let builds = chapter.summary.builds();
    if builds > 1 {
        words +=
            &format!(" Its runs are of {builds} builds of this program, and may differ for that.");
    }
    for Part { scale, rows, of } in &chapter.begun {
        let name = scale.name();
        words +=
            &format!(" A {name} run was begun, with {rows} of its {of} rows, and is not shown.");
    }
    words
}

/// How many runs medians are of.
fn runs(chapter: &Chapter) -> String {
    let rows = chapter.table.rows.iter();
    let counts = rows.map(|row| chapter.summary.succeeded(&row.id)).filter(|&count| count > 0);
    let (least, most) =
        counts.fold((usize::MAX, 0), |(least, most), count| (least.min(count), most.max(count)));
    match (least, most) {
        (_, 0 | 1) => "one run of each row".to_owned(),
        (least, most) if least == most => format!("medians of {most} runs"),
        (least, most) => format!("medians of {least} to {most} runs, as each row says"),
    }
}

/// The columns of a table of figures.
pub(crate) const COLUMNS: [&str; 13] = [
    "system",
    "step",
    "runs",
    "ops/s",
    "least–most",
    "study",
    "to study",
    "p50 µs",
    "p99.9 µs",
    "latency is of",
    "written/put",
    "disk/live",
    "peak MiB",
];

/// The cells of a step of a row; empty where there is nothing to say.
pub(crate) fn cells(summary: &Summary, row: &Row, step: &str) -> [String; 13] {
    let spread = summary.spread(&row.id, step, Measure::OperationsPerSecond);
    let of = |measure| {
        summary.spread(&row.id, step, measure).map_or(String::new(), |found| short(found.median))
    };
    let latency = |share| {
        summary.latency(&row.id, step, share).map_or(String::new(), |found| short(found.median))
    };
    let shared = latency::shared(row, step).filter(|_| !latency(0.5).is_empty());
    let study = row.seed_of(step);
    let ratio = spread
        .zip(study)
        .map(|(ours, study)| plot::ratio(Measure::OperationsPerSecond, ours.median, study));
    [
        row.label.clone(),
        step.to_owned(),
        tries(summary, row),
        spread.map_or_else(|| "–".to_owned(), |found| short(found.median)),
        spread
            .filter(|found| found.runs > 1)
            .map_or(String::new(), |found| format!("{}–{}", short(found.least), short(found.most))),
        study.map_or(String::new(), short),
        ratio.map_or(String::new(), times),
        latency(0.5),
        latency(0.999),
        shared.map_or(String::new(), |count| match count {
            ..=1 => "1".to_owned(),
            _ => format!("mean of {count}"),
        }),
        of(Measure::WriteAmplification),
        of(Measure::SpaceAmplification),
        of(Measure::Resident),
    ]
}

/// How many runs of a row succeeded, and of how many if some failed.
fn tries(summary: &Summary, row: &Row) -> String {
    let succeeded = summary.succeeded(&row.id);
    match summary.failures(&row.id).len() {
        0 => succeeded.to_string(),
        failed => format!("{succeeded} of {}", succeeded + failed),
    }
}

/// How a row is set up: memory, durability and what else is in its clock; and which of its runs failed.
pub(crate) fn setting(summary: &Summary, row: &Row) -> String {
    let mut words = format!("memory: {}; durability: {}", row.memory(), row.durability());
    if !row.inside().is_empty() {
        words += "; ";
        words += row.inside();
    }
    let failures = summary.failures(&row.id);
    if let Some(first) = failures.first() {
        let (failed, all) = (failures.len(), failures.len() + summary.succeeded(&row.id));
        words += &format!("; {failed} of {all} runs failed, the first with: {first}");
    }
    words
}

#[cfg(test)]
mod tests {
    use super::super::book::made::{Making, book_of, measured, step};
    use super::super::{html, markdown};
    use super::*;
    use crate::run::results::End;

    #[test]
    fn a_row_says_which_of_its_runs_failed() {
        let making = Making::new();
        let run = || measured(vec![step("put", 1000.0)]);
        for end in
            [run(), End::Failed("no space".to_owned()), End::Failed("lost".to_owned()), run()]
        {
            making.add(Scale::Quick, "peers", "redb", end);
        }
        making.add(Scale::Quick, "peers", "lmdb", End::Failed("no space".to_owned()));
        let chapter = making.book().chapters.remove(0);
        let row = |id| chapter.table.rows.iter().find(|row| row.id == id).unwrap();
        let cells = cells(&chapter.summary, row("redb"), "put");
        assert_eq!(cells[2], "2 of 4");
        let words = setting(&chapter.summary, row("redb"));
        assert!(words.ends_with("; 2 of 4 runs failed, the first with: no space"), "{words}");
        assert_eq!(chapter.summary.trouble("redb"), None);
        let trouble = chapter.summary.trouble("lmdb").unwrap();
        assert_eq!(trouble, "1 of 1 runs failed, the first with: no space");
    }

    #[test]
    fn tables_of_different_machines_name_theirs() {
        let (mut one, mut two) = (Making::new(), Making::new());
        one.results.machine.processor = "Processor One".to_owned();
        two.results.machine.processor = "Processor Two".to_owned();
        one.add_all(Scale::Quick, "raw", 1000.0);
        two.add_all(Scale::Quick, "peers", 1000.0);
        let same = one.book();
        assert!(!worth(&same, &same.chapters[0]).contains("Processor"));
        assert!(markdown::page(&same).0.contains("- Processor: Processor One, "));
        let book = book_of(&[&one, &two]);
        let words: Vec<_> = book.chapters.iter().map(|chapter| worth(&book, chapter)).collect();
        assert!(words[0].contains("Processor: Processor One, ") && !words[0].contains("Two"));
        assert!(words[1].contains("Processor: Processor Two, ") && !words[1].contains("One"));
        for page in [markdown::page(&book).0, html::page(&book)] {
            assert!(page.contains(MACHINES) && page.contains("Processor One"), "{page}");
        }
    }

    #[test]
    fn runs_of_several_builds_are_told() {
        let mut making = Making::new();
        for (build, words) in [("one", "each row."), ("one", "2 runs."), ("another", "for that.")] {
            making.build = build.to_owned();
            making.add_all(Scale::Quick, "peers", 1000.0);
            let told = scale(&making.book().chapters[0]);
            assert!(told.ends_with(words), "{told}");
            assert_eq!(told.contains(" Its runs are of 2 builds "), build == "another", "{told}");
        }
    }

    #[test]
    fn medians_are_of_as_many_runs_as_there_were() {
        let making = Making::new();
        let words = || scale(&making.book().chapters[0]);
        making.add_all(Scale::Quick, "peers", 1000.0);
        assert_eq!(words(), "A quick run: smaller than the study, one run of each row.");
        making.add_all(Scale::Quick, "peers", 1000.0);
        assert_eq!(words(), "A quick run: smaller than the study, medians of 2 runs.");
        making.add(Scale::Quick, "peers", "redb", measured(vec![step("put", 1000.0)]));
        assert!(words().ends_with("medians of 2 to 3 runs, as each row says."), "{}", words());
        making.add(Scale::Full, "peers", "redb", measured(vec![step("put", 1000.0)]));
        let begun = " A full run was begun, with 1 of its 8 rows, and is not shown.";
        assert!(words().ends_with(begun), "{}", words());
    }

    #[test]
    fn latencies_that_are_means_say_so() {
        let making = Making::new();
        let mut run = step("put", 1000.0);
        run.latency.mean = 1.0;
        run.latency.curve = vec![(0.5, 1.0), (0.999, 2.0)];
        for (table, id) in [("peers", "redb"), ("peers", "rocksdb"), ("scale", "1M/rocksdb")] {
            making.add(Scale::Quick, table, id, measured(vec![run.clone()]));
        }
        let book = making.book();
        let said = |chapter: usize, id: &str, step| {
            let Chapter { table, summary, .. } = &book.chapters[chapter];
            let row = table.rows.iter().find(|row| row.id == id).unwrap();
            cells(summary, row, step)[9].clone()
        };
        assert_eq!(said(0, "redb", "put"), "mean of 1000");
        assert_eq!(said(0, "rocksdb", "put"), "1");
        assert_eq!(said(0, "rocksdb", "get"), "", "it was not measured");
        assert_eq!(said(1, "1M/rocksdb", "put"), "mean of 16");
    }
}
