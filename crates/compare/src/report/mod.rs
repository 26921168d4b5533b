//! Reports: the results of directories as pages of HTML and Markdown, with plots and the studies' claims.

mod book;
mod cells;
mod claims;
mod counters;
mod html;
mod judging;
mod latency;
mod markdown;
mod numbers;
mod palette;
mod plot;
pub(crate) mod summary;
mod svg;
mod verdict;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};
use crate::run::results::Results;

/// Writes `report.html`, `report.md` and the plots that it refers to into `path`, and gives the pages.
pub(crate) fn write(results: &[Results], path: &Path) -> Result<[PathBuf; 2]> {
    let book = book::Book::of(results)?;
    if book.chapters.is_empty() {
        let paths = results.iter().map(|results| results.path().display().to_string());
        let paths = paths.collect::<Vec<_>>();
        return Err(Failure::usage(format!(
            "there are no results yet in {}: `turbidite-compare run all --dir {}` makes some",
            paths.join(" and "),
            paths[0]
        )));
    }
    let plots = path.join("plots");
    fs::create_dir_all(&plots).map_err(|error| Failure::io("create", &plots, &error))?;
    let (text, drawn) = markdown::page(&book);
    for (name, svg) in drawn {
        save(&plots.join(name), &svg)?;
    }
    let pages = [path.join("report.html"), path.join("report.md")];
    save(&pages[0], &html::page(&book))?;
    save(&pages[1], &text)?;
    Ok(pages)
}

fn save(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| Failure::io("write", path, &error))
}
