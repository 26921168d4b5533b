//! What the file layer and the engines counted themselves in the table of engines and file layers, beside what its study
//! published of direct I/O through a page cache.

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
            [
                format!("the study, {engine}, a million operations"),
                step.to_owned(),
                a,
                b,
                c,
                d,
                e,
                f,
            ]
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
    let name = row.id.replace("/turbidite", "");
    let (reads, writes) = (short(count("reads")), short(count("writes")));
    Some([name, step.to_owned(), short(requests), hits, reads, writes, engine, nodes])
}
