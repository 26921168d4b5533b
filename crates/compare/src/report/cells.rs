//! The figures of a step as the cells of a line, and how its row is set up.

use super::numbers::{short, times};
use super::summary::Summary;
use super::{latency, plot};
use crate::tables::{Measure, Row};

/// The columns of a table of figures.
pub(crate) const COLUMNS: [&str; 15] = [
    "system",
    "step",
    "runs",
    "ops/s",
    "least–most",
    "until settled",
    "study",
    "to study",
    "p50 µs",
    "p99.9 µs",
    "longest µs",
    "latency is of",
    "written/put",
    "disk/live",
    "peak MiB",
];

/// The cells of a step of a row; empty where there is nothing to say.
pub(crate) fn cells(summary: &Summary, row: &Row, step: &str) -> [String; 15] {
    let spread = |measure| summary.spread(&row.id, step, measure);
    let of = |measure| spread(measure).map_or(String::new(), |found| short(found.median));
    let latency = |share| {
        summary.latency(&row.id, step, share).map_or(String::new(), |found| short(found.median))
    };
    let [typical, runs] = pace(summary, row, step);
    let shared = latency::shared(row, step).filter(|_| !latency(0.5).is_empty());
    let study = row.seed_of(step);
    let ratio = spread(Measure::OperationsPerSecond)
        .zip(study)
        .map(|(ours, study)| plot::ratio(Measure::OperationsPerSecond, ours.median, study));
    let only = |wanted: bool, text: String| if wanted { text } else { String::new() };
    [
        row.label.clone(),
        step.to_owned(),
        tries(summary, row),
        typical,
        runs,
        only(row.settles(step), of(Measure::SettledPerSecond)),
        study.map_or(String::new(), short),
        ratio.map_or(String::new(), times),
        latency(0.5),
        latency(0.999),
        latency(1.0),
        shared.map_or(String::new(), |count| match count {
            ..=1 => "1".to_owned(),
            _ => format!("mean of {count}"),
        }),
        of(Measure::WriteAmplification),
        only(row.tells_live_bytes(), of(Measure::SpaceAmplification)),
        of(Measure::Resident),
    ]
}

/// How many operations a second a step did, or how many milliseconds it took if it is done once: the median, and the least and
/// the most.
fn pace(summary: &Summary, row: &Row, step: &str) -> [String; 2] {
    let (measure, times, unit) = match row.is_once(step) {
        true => (Measure::Seconds, 1e3, " ms"),
        false => (Measure::OperationsPerSecond, 1.0, ""),
    };
    let Some(spread) = summary.spread(&row.id, step, measure) else {
        return ["–".to_owned(), String::new()];
    };
    let of = |value: f64| short(times * value);
    let runs = match spread.runs {
        ..=1 => String::new(),
        _ => format!("{}–{}{unit}", of(spread.least), of(spread.most)),
    };
    [format!("{}{unit}", of(spread.median)), runs]
}

/// How many runs of a row succeeded, and of how many if some failed.
fn tries(summary: &Summary, row: &Row) -> String {
    let succeeded = summary.succeeded(&row.id);
    match summary.failures(&row.id).len() {
        0 => succeeded.to_string(),
        failed => format!("{succeeded} of {}", succeeded + failed),
    }
}

/// How a row is set up: memory, durability, what else was chosen and what else is in its clock; and which of its runs failed.
pub(crate) fn setting(summary: &Summary, row: &Row) -> String {
    let mut words = format!("memory: {}; durability: {}", row.memory(), row.durability());
    let options = row.options();
    for (name, text) in [("options: ", options.as_str()), ("", row.inside())] {
        if !text.is_empty() {
            words += &format!("; {name}{text}");
        }
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
    use super::super::book::Chapter;
    use super::super::book::made::{Making, measured, step};
    use super::*;
    use crate::run::outcome::Measured;
    use crate::run::results::End;
    use crate::tables::Scale;

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
            cells(summary, row, step)[11].clone()
        };
        assert_eq!(said(0, "redb", "put"), "mean of 1000");
        assert_eq!(said(0, "rocksdb", "put"), "1");
        assert_eq!(said(0, "rocksdb", "get"), "", "it was not measured");
        assert_eq!(said(1, "1M/rocksdb", "put"), "mean of 16");
    }

    /// The cells of a step of a row that was measured once.
    fn of(table: &'static str, id: &str, measured_step: &Measured) -> [String; 15] {
        let making = Making::new();
        making.add(Scale::Quick, table, id, measured(vec![measured_step.clone()]));
        let Chapter { table, summary, .. } = &making.book().chapters[0];
        let row = table.rows.iter().find(|row| row.id == id).unwrap();
        cells(summary, row, &measured_step.name)
    }

    #[test]
    fn what_is_left_to_do_is_told_of_steps_that_write() {
        let slow = |name| Measured { settle_seconds: 3.0, ..step(name, 1e6) };
        assert_eq!(of("peers", "rocksdb", &slow("put"))[3..6], ["1.00M", "", "250k"]);
        assert_eq!(of("peers", "rocksdb", &slow("get"))[5], "");
        assert_eq!(of("peers", "rocksdb", &slow("YCSB C"))[5], "");
        assert_eq!(of("peers", "rocksdb", &slow("YCSB A"))[5], "250k");
        assert_eq!(of("raw", "true-shuffle-600k/vec", &slow("put"))[5], "");
        assert_eq!(of("raw", "true-shuffle-600k/tagged", &slow("put"))[5], "250k");
        assert_eq!(of("files", "hash-mmap/tkrzw", &slow("set"))[5], "");
        let study = of("write-path", "study-random-600k/rocksdb-wal", &slow("put"));
        assert_eq!(study[5], "", "it is closed inside the clock");
    }

    #[test]
    fn what_is_done_once_has_its_time() {
        let once = |name: &str| Measured { operations: 1, ..step(name, 102.0 * 1e6) };
        assert_eq!(of("scale", "1M/rocksdb", &once("open"))[3], "9.80 ms");
        assert_eq!(of("scale", "1M/rocksdb", &once("close"))[3], "9.80 ms");
        assert_eq!(of("files", "hash-pos/turbidite", &once("reopen"))[3], "9.80 ms");
        let making = Making::new();
        for rate in [100.0, 200.0] {
            let runs = measured(vec![step("open", rate * 1e6)]);
            making.add(Scale::Quick, "scale", "1M/redb", runs);
        }
        let Chapter { table, summary, .. } = &making.book().chapters[0];
        let row = table.rows.iter().find(|row| row.id == "1M/redb").unwrap();
        assert_eq!(cells(summary, row, "open")[3..5], ["7.50 ms", "5.00–10.0 ms"]);
    }

    #[test]
    fn the_longest_is_that_of_the_runs() {
        let mut run = step("put", 1e6);
        run.latency.mean = 1.0;
        run.latency.curve = vec![(0.5, 1.0), (0.999, 2.0), (1.0, 119_000.0)];
        assert_eq!(of("peers", "rocksdb", &run)[8..11], ["1.00", "2.00", "119k"]);
    }

    #[test]
    fn space_is_told_where_live_bytes_are() {
        let sized = Measured { disk_bytes: 300, live_bytes: 200, ..step("set", 1e6) };
        assert_eq!(of("files", "tree-pos/tkrzw", &sized)[13], "1.50");
        assert_eq!(of("files", "skip-pos/tkrzw", &sized)[13], "");
        assert_eq!(of("files", "skip-pos/turbidite", &sized)[13], "1.50");
    }

    #[test]
    fn a_row_says_what_was_chosen_for_it() {
        let making = Making::new();
        let run = || measured(vec![step("put", 1e6)]);
        making.add(Scale::Quick, "write-path", "shuffled-600k/rocksdb-wal", run());
        making.add(Scale::Quick, "files", "hash-mmap/tkrzw", measured(vec![step("set", 1e6)]));
        let book = making.book();
        let said = |chapter: usize, id: &str| {
            let Chapter { table, summary, .. } = &book.chapters[chapter];
            setting(summary, table.rows.iter().find(|row| row.id == id).unwrap())
        };
        let options = "; options: auto-compactions false, buffers 3";
        assert!(said(0, "shuffled-600k/rocksdb-wal").ends_with(options));
        assert!(!said(0, "shuffled-600k/fjall").contains("options"));
        assert!(
            said(1, "hash-mmap/tkrzw")
                .contains("; options: --set_only --get_only --file mmap-para ")
        );
    }
}
