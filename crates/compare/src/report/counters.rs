//! What the file layer and the engines counted themselves in the table of engines and file layers, beside what its study
//! published of direct I/O through a page cache. Counts go by the operations, of which the study has a million: each line
//! says of how many it is.

use super::book::Chapter;
use super::numbers::short;
use crate::tables::Row;

/// The columns.
pub(crate) const COLUMNS: [&str; 8] = [
    "system",
    "step",
    "page requests",
    "page hits",
    "reads",
    "writes",
    "node or block hits",
    "nodes",
];

/// What the study counted for a million operations: the engine, the step, and its figures in the order of the columns.
const STUDY: [(&str, &str, [&str; 6]); 6] = [
    ("hash", "set", ["1.52M", "0.84M", "0.66M", "0.54M", "", ""]),
    ("hash", "get", ["0.84M", "512", "", "", "", ""]),
    (
        "tree",
        "set",
        ["11.64M", "4.92M", "3.77M", "0.95M", "", "258 inner, 50,354 leaves of 12.5 records"],
    ),
    ("tree", "get", ["4.31M", "0.96M", "3.35M", "", "", ""]),
    ("skip", "set", ["1.17M", "1.06M", "", "", "", ""]),
    ("skip", "get", ["9.48M", "7.54M", "", "", "", ""]),
];

/// The lines of the table, if the chapter has any.
pub(crate) fn lines(chapter: &Chapter) -> Vec<[String; 8]> {
    if chapter.table.name != "files" {
        return Vec::new();
    }
    let ours = chapter.table.rows.iter().filter(|row| row.job.system() != "tkrzw");
    let mut lines = Vec::new();
    for row in ours {
        for step in row.steps().into_iter().filter(|&step| step != "reopen") {
            lines.extend(line(chapter, row, step));
        }
        let study = STUDY
            .iter()
            .filter(|study| row.id == format!("{}-pos-direct-cache/turbidite", study.0));
        lines.extend(study.map(|&(engine, step, figures)| {
            let [a, b, c, d, e, f] = figures.map(str::to_owned);
            [format!("the study, {engine}, 1.00M operations"), step.to_owned(), a, b, c, d, e, f]
        }));
    }
    lines
}

/// The counters of a step; of a layer without a page cache the requests are those to the files.
fn line(chapter: &Chapter, row: &Row, step: &str) -> Option<[String; 8]> {
    let count = |name| chapter.summary.counter(&row.id, step, name).unwrap_or(0.0);
    let any = |names: [&'static str; 2]| names.into_iter().map(count).fold(0.0, f64::max);
    // A step that was not measured has no counters.
    chapter.summary.counter(&row.id, step, "requests")?;
    let cached = count("page requests") > 0.0;
    let requests = if cached { count("page requests") } else { count("requests") };
    let hits = if cached { short(count("page hits")) } else { String::new() };
    let asked = any(["node requests", "block requests"]);
    let found = any(["node hits", "block hits"]);
    let engine =
        if asked > 0.0 { format!("{} of {}", short(found), short(asked)) } else { String::new() };
    let leaves = count("leaf nodes");
    let nodes = if leaves > 0.0 {
        let each = count("tree records") / leaves;
        format!("{} inner, {} leaves of {each:.1} records", count("inner nodes"), leaves)
    } else {
        String::new()
    };
    let operations = short(row.job.records() as f64);
    let name = format!("{}, {operations} operations", row.id.replace("/turbidite", ""));
    let (reads, writes) = (short(count("reads")), short(count("writes")));
    Some([name, step.to_owned(), short(requests), hits, reads, writes, engine, nodes])
}

#[cfg(test)]
mod tests {
    use super::super::book::made::{Made, book, step};
    use super::*;

    /// The lines that a step with these counters gives.
    fn of(row: &str, name: &str, counters: &[(&str, f64)]) -> Vec<[String; 8]> {
        let mut step = step(name, 1000.0);
        step.counters = counters.iter().map(|&(name, count)| (name.to_owned(), count)).collect();
        let book = book(&[Made { table: "files", row: row.to_owned(), step }]);
        let mut lines = lines(&book.chapters[0]);
        lines.retain(|line| !line[0].starts_with("the study"));
        lines
    }

    #[test]
    fn requests_are_those_to_pages_where_there_are_pages() {
        let counters = [
            ("requests", 10.0),
            ("reads", 3.0),
            ("writes", 2.0),
            ("page requests", 1_520_000.0),
            ("page hits", 840_000.0),
        ];
        let cached = of("hash-pos-direct-cache/turbidite", "set", &counters);
        assert_eq!(
            cached,
            [[
                "hash-pos-direct-cache, 20.0k operations",
                "set",
                "1.52M",
                "840k",
                "3.00",
                "2.00",
                "",
                ""
            ]
            .map(str::to_owned)]
        );
        let plain = of("hash-pos/turbidite", "set", &counters[..3]);
        assert_eq!(
            plain,
            [["hash-pos, 200k operations", "set", "10.0", "", "3.00", "2.00", "", ""]
                .map(str::to_owned)]
        );
    }

    #[test]
    fn nodes_are_told_with_their_records() {
        let counters = [
            ("requests", 10.0),
            ("node requests", 8.0),
            ("node hits", 6.0),
            ("leaf nodes", 4.0),
            ("inner nodes", 1.0),
            ("tree records", 50.0),
        ];
        let lines = of("tree-mmap/turbidite", "get", &counters);
        assert_eq!(lines[0][6..], ["6.00 of 8.00", "1 inner, 4 leaves of 12.5 records"]);
    }

    #[test]
    fn the_study_stands_beside_direct_files_with_a_page_cache() {
        let book = book(&[Made {
            table: "files",
            row: "tree-mmap/turbidite".to_owned(),
            step: step("set", 1000.0),
        }]);
        // What has no counters has no line.
        let lines = lines(&book.chapters[0]);
        assert!(lines.iter().all(|line| line[0].starts_with("the study")), "{lines:?}");
        assert_eq!(lines.len(), STUDY.len());
    }
}
