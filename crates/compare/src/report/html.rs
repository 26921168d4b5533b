//! The report as one page of HTML that needs nothing else: no script, no font, no image from elsewhere.

use std::fmt::Write;

use super::book::{Book, Chapter};
use super::claims::CLAIMS;
use super::svg::{STYLE, escape};
use super::verdict::Verdict;
use super::{cells, counters, judging, palette, plot, words};
use crate::tables::Row;

const LAYOUT: &str = "\
*{box-sizing:border-box}\
body{margin:0 auto;max-width:1340px;padding:24px 18px 60px;background:var(--paper);color:var(--ink);\
font:16px/1.55 system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans',sans-serif}\
h1{font-size:1.9rem;line-height:1.2;margin:.4em 0 .2em}\
h2{font-size:1.4rem;margin:2.2em 0 .3em;padding-top:.6em;border-top:2px solid var(--grid)}\
h3{font-size:1rem;margin:0 0 .4em}\
p{max-width:76ch;margin:.5em 0}\
a{color:inherit}\
nav{display:flex;flex-wrap:wrap;gap:.3em .9em;margin:.8em 0;font-size:.95rem}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15em 1em;margin:.8em 0;max-width:76ch}\
dt{color:var(--soft)}dd{margin:0}\
.soft{color:var(--soft);font-size:.9rem}\
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,440px),1fr));gap:18px;margin:1em 0;align-items:start}\
figure{margin:0;padding:14px 14px 10px;background:var(--raised);border:1px solid var(--grid);border-radius:8px;\
break-inside:avoid}\
figure svg{width:100%;height:auto;display:block}\
figcaption{font-size:.85rem;color:var(--soft);margin-top:.4em}\
.wide{overflow-x:auto;margin:.6em 0 1.2em}\
table{border-collapse:collapse;font-size:.8rem;font-variant-numeric:tabular-nums;min-width:100%}\
caption{text-align:left;font-weight:600;padding:.6em 0 .3em;font-size:.95rem}\
th{color:var(--soft);font-weight:500;text-align:right;white-space:nowrap}\
td,th{padding:.22em .5em;border-bottom:1px solid var(--grid);text-align:right;vertical-align:top}\
td:nth-child(-n+2),th:nth-child(-n+2){text-align:left}\
td:first-child{min-width:11em}td:nth-child(n+3){white-space:nowrap}\
.dot{display:inline-block;width:.7em;height:.7em;border-radius:2px;margin-right:.5em}\
.claims{list-style:none;padding:0;margin:1em 0;display:grid;gap:.5em}\
.claims li{padding:.55em .8em;background:var(--raised);border:1px solid var(--grid);border-left:5px solid var(--soft);border-radius:6px}\
.claims .holds{border-left-color:var(--turbidite-btree)}\
.claims .broken{border-left-color:var(--redb)}\
.verdict{font-weight:600}\
summary{cursor:pointer;margin:.8em 0;color:var(--soft)}\
@media print{body{max-width:none;font-size:11pt}nav{display:none}.wide{overflow:visible}table{font-size:7.5pt}}\n";

/// The page.
pub(crate) fn page(book: &Book) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>\n{}{STYLE}\n{LAYOUT}</style></head>\n<body>\n",
        words::TITLE,
        palette::css(),
    );
    head(&mut page, book);
    claims(&mut page, book);
    for part in &book.chapters {
        chapter(&mut page, book, part);
    }
    page += "</body></html>\n";
    page
}

fn put(page: &mut String, text: std::fmt::Arguments<'_>) {
    page.write_fmt(text).expect("writing to a string");
    page.push('\n');
}

fn head(page: &mut String, book: &Book) {
    put(page, format_args!("<h1>{}</h1>\n<nav><a href=\"#claims\">Claims</a>", words::TITLE));
    for Chapter { table, .. } in &book.chapters {
        put(page, format_args!("<a href=\"#{}\">{}</a>", table.name, escape(table.title)));
    }
    page.push_str("</nav>\n");
    match book.machine() {
        Some(machine) => {
            page.push_str("<dl>\n");
            for (name, value) in words::machine(machine) {
                put(page, format_args!("<dt>{name}</dt><dd>{}</dd>", escape(&value)));
            }
            page.push_str("</dl>\n");
        }
        None => put(page, format_args!("<p>{}</p>", words::MACHINES)),
    }
    put(page, format_args!("<p>{}</p>", words::READING));
}

fn claims(page: &mut String, book: &Book) {
    put(
        page,
        format_args!(
            "<h2 id=\"claims\">What the studies claim</h2>\n<p>{}</p>\n<ul class=\"claims\">",
            escape(judging::RULE)
        ),
    );
    for claim in &CLAIMS {
        let verdict = claim.verdict(book);
        let class = match verdict {
            Verdict::Holds(_) => "holds",
            Verdict::DoesNotHold(_) => "broken",
            Verdict::CannotBeTold(_)
            | Verdict::Smaller(_)
            | Verdict::OtherMachines
            | Verdict::NotRun => "open",
        };
        put(
            page,
            format_args!(
                "<li class=\"{class}\">{} <span class=\"soft\">(study {})</span><br><span class=\"verdict\">{}</span>: {}.</li>",
                escape(claim.text),
                claim.study,
                verdict.name(),
                escape(verdict.figures())
            ),
        );
    }
    page.push_str("</ul>\n");
}

fn chapter(page: &mut String, book: &Book, chapter: &Chapter) {
    let Chapter { table, summary, .. } = chapter;
    put(page, format_args!("<h2 id=\"{}\">{}</h2>", table.name, escape(table.title)));
    put(page, format_args!("<p>{}</p>", escape(table.about)));
    put(
        page,
        format_args!(
            "<p class=\"soft\">{}</p>\n<div class=\"figures\">",
            escape(&words::worth(book, chapter))
        ),
    );
    for figure in &table.figures {
        let Some(svg) = plot::draw(figure, table, summary) else { continue };
        put(page, format_args!("<figure><h3>{}</h3>\n{svg}", escape(&figure.title)));
        let caption = plot::caption(figure, table, summary);
        if !caption.is_empty() {
            put(page, format_args!("<figcaption>{}</figcaption>", escape(&caption)));
        }
        page.push_str("</figure>\n");
    }
    page.push_str("</div>\n");
    let rows = table.rows.len();
    put(page, format_args!("<details><summary>All figures of {rows} rows</summary>"));
    for group in table.rows.chunk_by(|a, b| a.workload == b.workload) {
        figures(page, chapter, group);
    }
    counted(page, chapter);
    page.push_str("</details>\n");
}

/// What was counted, if the chapter has that.
fn counted(page: &mut String, chapter: &Chapter) {
    let lines = counters::lines(chapter);
    if lines.is_empty() {
        return;
    }
    page.push_str(
        "<div class=\"wide\"><table><caption>What engines and file layers counted</caption><tr>",
    );
    for column in counters::COLUMNS {
        put(page, format_args!("<th>{column}</th>"));
    }
    page.push_str("</tr>\n");
    for line in lines {
        page.push_str("<tr>");
        for cell in line {
            put(page, format_args!("<td>{}</td>", escape(&cell)));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
}

/// The rows of one workload.
fn figures(page: &mut String, chapter: &Chapter, group: &[Row]) {
    put(
        page,
        format_args!(
            "<div class=\"wide\"><table><caption>{}</caption><tr>",
            escape(&group[0].workload)
        ),
    );
    for column in cells::COLUMNS {
        put(page, format_args!("<th>{column}</th>"));
    }
    page.push_str("</tr>\n");
    for row in group {
        let colour = palette::of(row.job.system());
        if let Some(trouble) = chapter.summary.trouble(&row.id) {
            put(
                page,
                format_args!(
                    "<tr><td><span class=\"dot\" style=\"background:{colour}\"></span>{}</td><td colspan=\"{}\">{}</td></tr>",
                    escape(&row.label),
                    cells::COLUMNS.len() - 1,
                    escape(&trouble)
                ),
            );
            continue;
        }
        for (i, step) in row.steps().into_iter().enumerate() {
            let [label, rest @ ..] = cells::cells(&chapter.summary, row, step);
            let first = if i == 0 {
                format!(
                    "<span class=\"dot\" style=\"background:{colour}\"></span>{}<br><span class=\"soft\">{}</span>",
                    escape(&label),
                    escape(&cells::setting(&chapter.summary, row))
                )
            } else {
                String::new()
            };
            put(page, format_args!("<tr><td>{first}</td>"));
            for cell in rest {
                put(page, format_args!("<td>{}</td>", escape(&cell)));
            }
            page.push_str("</tr>\n");
        }
    }
    page.push_str("</table></div>\n");
}
