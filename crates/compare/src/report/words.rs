//! What both kinds of pages say in words.

use super::book::{Book, Chapter, Part};
use super::summary::Builds;
use crate::run::results::Machine;
use crate::tables::Scale;

pub(crate) const TITLE: &str = "Turbidite and its studies, side by side";

/// How to read the figures.
pub(crate) const READING: &str = "Each system ran in a process of its own, and the systems of a workload took turns, but for rows that were added \
later. A figure is \
the median of its runs; behind it, or as a thin line, are the least and the most. A diamond is the figure that a study gave \
for its own machine: it is there to compare shapes with, not machines. Operations that were done together, or that share one \
look at the clock, are each taken to have lasted as long as their mean: latencies that are such means say so, and are no \
latencies of single operations; the longest is the median of the longest of each run. What is done once, opening and closing, has \
its time in place of a rate. Until settled, the time counts until all that was put is in the files of the store, and it has nothing \
left to do in the background: what returns early may only leave more work behind. It is empty for what does not write, and for \
what cannot be waited for, as Tkrzw. Bytes written are the pages that a process made dirty, as Linux counts them: where the file \
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
        Scale::Quick => format!("A quick run, of sizes that take minutes: {runs}."),
        Scale::Full => format!("A full run, {}: {runs}.", chapter.table.sizes),
    };
    let Part { rows, of, .. } = chapter.part();
    if rows < of {
        words += &format!(" Of its {of} rows {rows} were run.");
    }
    words += &builds(chapter.summary.builds());
    for Part { scale, rows, of } in &chapter.begun {
        let name = scale.name();
        words +=
            &format!(" A {name} run was begun, with {rows} of its {of} rows, and is not shown.");
    }
    words
}

/// Which builds of this program runs are of, if that is not one.
fn builds(Builds { known, unrecorded }: Builds) -> String {
    match (known, unrecorded) {
        (..=1, 0) => String::new(),
        (0, _) => " Of which builds of this program its runs are was not recorded.".to_owned(),
        (1, runs) => format!(
            " Of {runs} of its runs the build of this program was not recorded, and the others are of one: they may differ for that."
        ),
        (known, 0) => {
            format!(" Its runs are of {known} builds of this program, and may differ for that.")
        }
        (known, runs) => format!(
            " Of {runs} of its runs the build of this program was not recorded, and the others are of {known}: they may differ for \
             that."
        ),
    }
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

#[cfg(test)]
mod tests {
    use super::super::book::made::{Making, book_of, measured, step};
    use super::super::{html, markdown};
    use super::*;

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
    fn builds_that_were_not_recorded_are_not_one_build() {
        let mut making = Making::new();
        making.build.clear();
        making.add_all(Scale::Quick, "peers", 1000.0);
        let told = |making: &Making| scale(&making.book().chapters[0]);
        assert!(
            told(&making)
                .ends_with(" Of which builds of this program its runs are was not recorded.")
        );
        making.build = "one".to_owned();
        making.add(Scale::Quick, "peers", "redb", measured(vec![step("put", 1000.0)]));
        let both = " Of 8 of its runs the build of this program was not recorded, and the others are of one: they may differ for that.";
        assert!(told(&making).ends_with(both), "{}", told(&making));
    }

    #[test]
    fn a_full_run_says_how_large_it_is_beside_its_study() {
        let making = Making::new();
        making.add_all(Scale::Full, "files", 1000.0);
        let told = scale(&making.book().chapters[0]);
        assert!(told.starts_with("A full run, the study's million operations: "), "{told}");
    }

    #[test]
    fn medians_are_of_as_many_runs_as_there_were() {
        let making = Making::new();
        let words = || scale(&making.book().chapters[0]);
        making.add_all(Scale::Quick, "peers", 1000.0);
        assert_eq!(words(), "A quick run, of sizes that take minutes: one run of each row.");
        making.add_all(Scale::Quick, "peers", 1000.0);
        assert_eq!(words(), "A quick run, of sizes that take minutes: medians of 2 runs.");
        making.add(Scale::Quick, "peers", "redb", measured(vec![step("put", 1000.0)]));
        assert!(words().ends_with("medians of 2 to 3 runs, as each row says."), "{}", words());
        making.add(Scale::Full, "peers", "redb", measured(vec![step("put", 1000.0)]));
        let begun = " A full run was begun, with 1 of its 8 rows, and is not shown.";
        assert!(words().ends_with(begun), "{}", words());
    }
}
