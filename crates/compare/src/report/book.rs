//! The results of all tables, as claims look them up.

use super::summary::{Spread, Summary};
use crate::failure::Result;
use crate::run::results::{Machine, Results};
use crate::tables::{self, Measure, Row, Scale, Table};

/// A table with the results that one directory has of it.
#[derive(Debug)]
pub(crate) struct Chapter {
    pub(crate) table: Table,
    pub(crate) scale: Scale,
    pub(crate) summary: Summary,
    /// What they were measured on.
    pub(crate) machine: Machine,
    /// The larger scales that were begun.
    pub(crate) begun: Vec<Part>,
}

/// How many rows of a table were run at a scale.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Part {
    pub(crate) scale: Scale,
    pub(crate) rows: usize,
    /// How many there are, but for those whose systems are missing.
    pub(crate) of: usize,
}

impl Part {
    fn share(self) -> f64 {
        self.rows as f64 / self.of.max(1) as f64
    }
}

impl Chapter {
    /// How much of the table was run.
    pub(crate) fn part(&self) -> Part {
        let Self { table, scale, summary, .. } = self;
        let of = table.rows.iter().filter(|row| !summary.is_missing(&row.id)).count();
        let was_run =
            |row: &&Row| summary.succeeded(&row.id) > 0 || !summary.failures(&row.id).is_empty();
        Part { scale: *scale, rows: table.rows.iter().filter(was_run).count(), of }
    }
}

/// All tables that were run.
#[derive(Debug)]
pub(crate) struct Book {
    pub(crate) chapters: Vec<Chapter>,
}

impl Book {
    /// What is kept in directories: each table as one of them has it, at one of the scales that it was run at.
    pub(crate) fn of(directories: &[Results]) -> Result<Self> {
        let mut chapters = Vec::new();
        for name in tables::NAMES {
            let mut known = Vec::new();
            for scale in [Scale::Smoke, Scale::Quick, Scale::Full] {
                for results in directories {
                    let table = tables::table(name, scale)?;
                    let summary = Summary::of(&table, results, scale)?;
                    if !summary.is_empty() {
                        let machine = results.machine.clone();
                        known.push(Chapter { table, scale, summary, machine, begun: Vec::new() });
                    }
                }
            }
            chapters.extend(chosen(known));
        }
        Ok(Self { chapters })
    }

    /// What all tables were measured on; `None` if they were run on different machines.
    pub(crate) fn machine(&self) -> Option<&Machine> {
        let first = &self.chapters.first()?.machine;
        self.chapters.iter().all(|chapter| chapter.machine == *first).then_some(first)
    }

    /// Whether those of `tables` that were run were run on one machine: only then their figures may be compared.
    pub(crate) fn is_of_one_machine(&self, tables: &[&str]) -> bool {
        let mut chapters = tables.iter().filter_map(|table| self.chapter(table));
        let Some(first) = chapters.next() else { return true };
        chapters.all(|chapter| chapter.machine == first.machine)
    }

    /// The chapter of `table`, unless its figures mean nothing.
    fn chapter(&self, table: &str) -> Option<&Chapter> {
        let mut measured = self.chapters.iter().filter(|chapter| chapter.scale > Scale::Smoke);
        measured.find(|chapter| chapter.table.name == table)
    }

    /// How many records those rows of `table` have whose names begin like this: the least of them.
    pub(crate) fn records(&self, table: &str, starts: &str) -> Option<u64> {
        let rows = self.chapter(table)?.table.rows.iter();
        rows.filter(|row| row.id.starts_with(starts)).map(|row| row.job.records()).min()
    }

    fn spread(&self, table: &str, row: &str, step: &str, measure: Measure) -> Option<Spread> {
        self.chapter(table)?.summary.spread(row, step, measure)
    }

    /// Operations per second of the last row of `table`, which is the largest, whose name begins and ends like this and
    /// that has figures.
    pub(crate) fn rate(&self, table: &str, starts: &str, ends: &str, step: &str) -> Option<Spread> {
        self.rates(table, starts, [ends], step).map(|[rate]| rate)
    }

    /// The same of rows that are compared: their names differ in nothing but their ends.
    pub(crate) fn rates<const N: usize>(
        &self,
        table: &str,
        starts: &str,
        ends: [&str; N],
        step: &str,
    ) -> Option<[Spread; N]> {
        let groups = self.groups(table, starts, ends, (step, Measure::OperationsPerSecond));
        groups.last().map(|&(_, rates)| rates)
    }

    /// All such rows that have figures, in the order of the table, with what their names begin with.
    pub(crate) fn groups<'a, const N: usize>(
        &'a self,
        table: &str,
        starts: &str,
        ends: [&str; N],
        (step, measure): (&str, Measure),
    ) -> Vec<(&'a str, [Spread; N])> {
        let Some(chapter) = self.chapter(table) else { return Vec::new() };
        let named = chapter.table.rows.iter().filter(|row| row.id.starts_with(starts));
        let stems = named.filter_map(|row| row.id.strip_suffix(ends.first()?));
        let group = |stem| {
            let spread = |end| self.spread(table, &format!("{stem}{end}"), step, measure);
            let spreads: Vec<Spread> = ends.into_iter().map_while(spread).collect();
            Some((stem, spreads.try_into().ok()?))
        };
        stems.filter_map(group).collect()
    }

    /// The first and the last eighth of the course of a step, in operations per second.
    pub(crate) fn ends(&self, table: &str, row: &str, step: &str) -> Option<[Spread; 2]> {
        self.chapter(table)?.summary.ends(row, step)
    }

    /// All figures of a step, by row.
    pub(crate) fn all(&self, table: &str, step: &str, measure: Measure) -> Vec<(&str, Spread)> {
        let Some(chapter) = self.chapter(table) else { return Vec::new() };
        let spread = |id| self.spread(table, id, step, measure);
        let rows = chapter.table.rows.iter();
        rows.filter_map(|row| Some((row.id.as_str(), spread(&row.id)?))).collect()
    }
}

/// Of what is known of a table, from the smallest scale on and of one scale in the order of the directories, what to show: the
/// largest scale at which all of its rows were run, or, if there is none, that of whose rows the largest share was; of
/// several directories that are equal in this the last. Smoke is shown if there is nothing else.
fn chosen(mut known: Vec<Chapter>) -> Option<Chapter> {
    let worth = |chapter: &Chapter| (chapter.scale > Scale::Smoke, chapter.part().share());
    let best = known.iter().map(worth).reduce(|best, next| if next >= best { next } else { best });
    let at = known.iter().rposition(|chapter| Some(worth(chapter)) == best)?;
    let scale = known[at].scale;
    let larger = known.drain(at + 1..).filter(|chapter| chapter.scale > scale);
    let begun = larger.map(|chapter| chapter.part()).collect();
    known.pop().map(|chapter| Chapter { begun, ..chapter })
}

#[cfg(test)]
pub(crate) mod made {
    use tempfile::TempDir;

    use super::*;
    use crate::run::outcome::{Measured, Outcome};
    use crate::run::results::{End, Record};

    /// A row of a table, one of its steps, and what was measured of it in one run.
    pub(crate) struct Made {
        pub(crate) table: &'static str,
        pub(crate) row: String,
        pub(crate) step: Measured,
    }

    /// A step that did so many operations a second.
    pub(crate) fn step(name: &str, operations_per_second: f64) -> Measured {
        Measured {
            name: name.to_owned(),
            operations: 1_000_000,
            seconds: 1e6 / operations_per_second,
            user_bytes: 116_000_000,
            ..Measured::default()
        }
    }

    /// Results that are added one by one.
    pub(crate) struct Making {
        _dir: TempDir,
        pub(crate) results: Results,
        /// Which build of this program the next runs are of.
        pub(crate) build: String,
    }

    impl Making {
        pub(crate) fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let results = Results::create(dir.path()).unwrap();
            Self { _dir: dir, results, build: "one".to_owned() }
        }

        /// A run of a row that is known at `scale`.
        pub(crate) fn add(&self, scale: Scale, table: &str, id: &str, end: End) {
            let known = tables::table(table, scale).unwrap();
            let row = known.rows.iter().find(|row| row.id == id);
            let row = row.unwrap_or_else(|| panic!("{table} has no row {id}"));
            let job = row.job.clone();
            let (row, build) = (id.to_owned(), self.build.clone());
            let record = Record { row, scale, job, seconds: 1.0, build, end };
            self.results.add(table, &record).unwrap();
        }

        /// A run of every row, with so many operations a second.
        pub(crate) fn add_all(&self, scale: Scale, table: &str, rate: f64) {
            for row in tables::table(table, scale).unwrap().rows {
                let steps = row.steps().into_iter().map(|name| step(name, rate)).collect();
                self.add(scale, table, &row.id, measured(steps));
            }
        }

        pub(crate) fn book(&self) -> Book {
            Book::of(std::slice::from_ref(&self.results)).unwrap()
        }
    }

    /// The book of the directories of several, in their order.
    pub(crate) fn book_of(all: &[&Making]) -> Book {
        let opened = all.iter().map(|making| {
            let mut opened = Results::open(making.results.path()).unwrap();
            opened.machine = making.results.machine.clone();
            opened
        });
        Book::of(&opened.collect::<Vec<_>>()).unwrap()
    }

    pub(crate) fn measured(steps: Vec<Measured>) -> End {
        End::Measured(Outcome { steps, close_seconds: 0.0 })
    }

    /// The book of these results at a scale.
    pub(crate) fn book_at(scale: Scale, all: &[Made]) -> Book {
        let making = Making::new();
        for Made { table, row, step } in all {
            let known = tables::table(table, scale).unwrap();
            let steps = known.rows.iter().find(|known| known.id == *row).map(Row::steps);
            let is_known = steps.is_some_and(|steps| steps.contains(&step.name.as_str()));
            assert!(is_known, "{row} has no step {}", step.name);
            making.add(scale, table, row, measured(vec![step.clone()]));
        }
        making.book()
    }

    /// The same at the quick scale.
    pub(crate) fn book(all: &[Made]) -> Book {
        book_at(Scale::Quick, all)
    }
}

#[cfg(test)]
mod tests {
    use super::made::{Made, Making, book, book_of, measured, step};
    use super::*;
    use crate::run::outcome::Measured;
    use crate::run::results::End;

    fn made(table: &'static str, row: &str, rate: f64) -> Made {
        Made { table, row: row.to_owned(), step: step("put", rate) }
    }

    fn medians<const N: usize>(spreads: Option<[Spread; N]>) -> Option<[f64; N]> {
        spreads.map(|spreads| spreads.map(|spread| spread.median))
    }

    #[test]
    fn rows_are_compared_with_those_of_the_same_size() {
        let known = [
            made("locks", "size-50k/rocksdb", 8.0),
            made("locks", "size-50k/range", 16.0),
            made("locks", "size-100k/rocksdb", 32.0),
            made("locks", "size-100k/range", 64.0),
            made("locks", "size-200k/rocksdb", 128.0),
        ];
        let book = book(&known);
        let ends = ["/rocksdb", "/range"];
        assert_eq!(medians(book.rates("locks", "size-", ends, "put")), Some([32.0, 64.0]));
        let rate = |ends, step| book.rate("locks", "size-", ends, step).map(|rate| rate.median);
        assert_eq!(rate("/rocksdb", "put"), Some(128.0));
        assert_eq!(rate("/range-level", "put"), None);
        assert_eq!(rate("/range", "get"), None);
        assert_eq!(book.rate("peers", "", "rocksdb", "put"), None, "the table was not run");
        let groups = book.groups("locks", "size-", ends, ("put", Measure::SettledPerSecond));
        let stems: Vec<_> = groups.iter().map(|group| group.0).collect();
        assert_eq!(stems, ["size-50k", "size-100k"]);
    }

    #[test]
    fn the_first_and_the_last_eighth_of_a_course() {
        let marks = (1..=16).map(|i| if i <= 8 { f64::from(i) } else { f64::from(4 * i - 24) });
        let course = Measured { marks: marks.collect(), ..step("put", 1000.0) };
        let row = "course-ascending".to_owned();
        let book = book(&[Made { table: "lsm-kv", row, step: course }]);
        assert_eq!(
            medians(book.ends("lsm-kv", "course-ascending", "put")),
            Some([125_000.0 / 2.0, 125_000.0 / 8.0])
        );
    }

    #[test]
    fn a_table_is_shown_at_the_largest_scale_that_is_whole() {
        let making = Making::new();
        making.add_all(Scale::Quick, "peers", 1000.0);
        making.add(Scale::Full, "peers", "redb", measured(vec![step("put", 1.0)]));
        let chapter = making.book().chapters.remove(0);
        assert_eq!(chapter.scale, Scale::Quick);
        let of = chapter.table.rows.len();
        assert_eq!(chapter.begun, [Part { scale: Scale::Full, rows: 1, of }]);
        assert_eq!(chapter.part(), Part { scale: Scale::Quick, rows: of, of });
        making.add_all(Scale::Full, "peers", 1000.0);
        let chapter = making.book().chapters.remove(0);
        assert_eq!((chapter.scale, &chapter.begun[..]), (Scale::Full, &[][..]));
    }

    /// Results of a machine.
    fn of_machine(name: &str) -> Making {
        let mut making = Making::new();
        making.results.machine.processor = name.to_owned();
        making
    }

    #[test]
    fn a_table_is_shown_as_one_directory_has_it() {
        let (one, two) = (of_machine("one"), of_machine("two"));
        one.add_all(Scale::Quick, "peers", 1000.0);
        one.add(Scale::Full, "raw", "file-100k/write", measured(vec![step("put", 1.0)]));
        two.add_all(Scale::Quick, "raw", 1000.0);
        two.add(Scale::Full, "peers", "redb", measured(vec![step("put", 1.0)]));
        let book = book_of(&[&one, &two]);
        let of = |chapter: &Chapter| (chapter.table.name, chapter.machine.processor.clone());
        let chapters: Vec<_> = book.chapters.iter().map(of).collect();
        assert_eq!(chapters, [("raw", "two".to_owned()), ("peers", "one".to_owned())]);
        assert_eq!(book.machine(), None);
        assert!(!book.is_of_one_machine(&["peers", "raw"]));
        assert!(book.is_of_one_machine(&["peers", "files"]), "one of them was not run");
    }

    #[test]
    fn of_directories_that_are_equal_the_last_is_shown() {
        let shown = |first: &Making, second: &Making| {
            let book = book_of(&[first, second]);
            let chapter = &book.chapters[0];
            assert_eq!(book.machine(), Some(&chapter.machine));
            assert_eq!(chapter.begun, [], "the same scale elsewhere is no larger one");
            chapter.machine.processor.clone()
        };
        let (one, two, full) = (of_machine("one"), of_machine("two"), of_machine("full"));
        one.add_all(Scale::Quick, "peers", 1000.0);
        two.add_all(Scale::Quick, "peers", 1000.0);
        full.add_all(Scale::Full, "peers", 1000.0);
        assert_eq!(shown(&one, &two), "two");
        assert_eq!(shown(&two, &one), "one");
        assert_eq!(shown(&full, &one), "full", "the larger scale, wherever it is");
        let part = of_machine("part");
        part.add(Scale::Quick, "peers", "redb", measured(vec![step("put", 1.0)]));
        assert_eq!(shown(&one, &part), "one", "the larger share");
    }

    #[test]
    fn of_scales_that_are_not_whole_the_one_with_the_larger_share_is_shown() {
        let making = Making::new();
        making.add_all(Scale::Smoke, "peers", 1000.0);
        making.add(Scale::Quick, "peers", "redb", measured(vec![step("put", 1.0)]));
        // Smoke is whole, but its figures mean nothing.
        assert_eq!(making.book().chapters[0].scale, Scale::Quick);
        making.add(Scale::Full, "peers", "redb", measured(vec![step("put", 1.0)]));
        assert_eq!(making.book().chapters[0].scale, Scale::Full, "as many rows: the larger");
        // What failed was run, what is missing need not be.
        making.add(Scale::Quick, "peers", "fjall", End::Failed("full".to_owned()));
        making.add(Scale::Full, "peers", "lmdb", End::Missing("not built in".to_owned()));
        let chapter = making.book().chapters.remove(0);
        assert_eq!(chapter.part(), Part { scale: Scale::Quick, rows: 2, of: 8 });
        assert_eq!(chapter.begun, [Part { scale: Scale::Full, rows: 1, of: 7 }]);
    }
}
