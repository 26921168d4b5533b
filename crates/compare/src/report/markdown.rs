//! The report in Markdown, with its plots as files beside it.

use std::fmt::Write;

use super::book::{Book, Chapter};
use super::claims::CLAIMS;
use super::{cells, counters, judging, plot, svg, words};
use crate::tables::Row;

/// A plot: the name of its file, and what is in it.
pub(crate) type Plot = (String, String);

/// The page, and the plots that it refers to in the directory `plots`.
pub(crate) fn page(book: &Book) -> (String, Vec<Plot>) {
    let mut page = format!("# {}\n\n", words::TITLE);
    match book.machine() {
        Some(machine) => {
            for (name, value) in words::machine(machine) {
                put(&mut page, format_args!("- {name}: {value}"));
            }
        }
        None => put(&mut page, format_args!("{}", words::MACHINES)),
    }
    put(&mut page, format_args!("\n{}\n\n## What the studies claim\n", words::READING));
    put(&mut page, format_args!("{}\n", judging::RULE));
    put(&mut page, format_args!("| study | claim | here |\n|---|---|---|"));
    for claim in &CLAIMS {
        let verdict = claim.verdict(book);
        let verdict = format!("**{}**: {}", verdict.name().to_lowercase(), verdict.figures());
        put(
            &mut page,
            format_args!("| {} | {} | {} |", claim.study, cell(claim.text), cell(&verdict)),
        );
    }
    let mut plots = Vec::new();
    for part in &book.chapters {
        chapter(&mut page, book, part, &mut plots);
    }
    (page, plots)
}

fn put(page: &mut String, text: std::fmt::Arguments<'_>) {
    page.write_fmt(text).expect("writing to a string");
    page.push('\n');
}

/// Text that does not end a cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn chapter(page: &mut String, book: &Book, chapter: &Chapter, plots: &mut Vec<Plot>) {
    let Chapter { table, summary, .. } = chapter;
    put(
        page,
        format_args!(
            "\n## {}\n\n{}\n\n{}\n",
            table.title,
            table.about,
            words::worth(book, chapter)
        ),
    );
    for figure in &table.figures {
        let Some(drawn) = plot::draw(figure, table, summary) else { continue };
        let file = format!("{}-{}.svg", table.name, slug(&figure.title));
        put(page, format_args!("![{}](plots/{file})\n", figure.title));
        let caption = plot::caption(figure, table, summary);
        if !caption.is_empty() {
            put(page, format_args!("{caption}\n"));
        }
        plots.push((file, svg::standalone(&drawn)));
    }
    for group in table.rows.chunk_by(|a, b| a.workload == b.workload) {
        put(
            page,
            format_args!(
                "### {}\n\n| {} | set up with |",
                cell(&group[0].workload),
                cells::COLUMNS.join(" | ")
            ),
        );
        put(page, format_args!("|---|---|{}---|", "---:|".repeat(cells::COLUMNS.len() - 2)));
        for row in group {
            figures(page, chapter, row);
        }
        page.push('\n');
    }
    let lines = counters::lines(chapter);
    if !lines.is_empty() {
        put(
            page,
            format_args!(
                "### What engines and file layers counted\n\n| {} |",
                counters::COLUMNS.join(" | ")
            ),
        );
        put(page, format_args!("|{}", "---|".repeat(counters::COLUMNS.len())));
        for line in lines {
            put(page, format_args!("| {} |", line.map(|text| cell(&text)).join(" | ")));
        }
    }
}

fn figures(page: &mut String, chapter: &Chapter, row: &Row) {
    if let Some(trouble) = chapter.summary.trouble(&row.id) {
        let empty = " |".repeat(cells::COLUMNS.len() - 1);
        put(page, format_args!("| {} |{empty} {} |", cell(&row.label), cell(&trouble)));
        return;
    }
    for step in row.steps() {
        let cells = cells::cells(&chapter.summary, row, step).map(|text| cell(&text));
        put(
            page,
            format_args!(
                "| {} | {} |",
                cells.join(" | "),
                cell(&cells::setting(&chapter.summary, row))
            ),
        );
    }
}

/// The words of a title as part of a file's name.
fn slug(title: &str) -> String {
    let lower = title.to_lowercase();
    let words = lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::{self, Scale};

    #[test]
    fn plots_have_files_of_their_own() {
        for name in tables::NAMES {
            let table = tables::table(name, Scale::Full).unwrap();
            let mut slugs: Vec<_> =
                table.figures.iter().map(|figure| slug(&figure.title)).collect();
            let count = slugs.len();
            slugs.sort();
            slugs.dedup();
            assert_eq!(slugs.len(), count, "{name}");
        }
        assert_eq!(slug("Puts, gets & scans (1 KiB)"), "puts-gets-scans-1-kib");
    }
}
