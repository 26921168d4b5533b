//! What the studies claim, and whether it holds here.

use super::book::Book;
use super::numbers::{short, times};
use crate::tables::Measure;

/// What became of a claim.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Verdict {
    Holds(String),
    DoesNotHold(String),
    /// What would have to be run.
    NotRun,
}

/// A claim of a study.
pub(crate) struct Claim {
    pub(crate) study: &'static str,
    pub(crate) text: &'static str,
    judge: fn(&Book) -> Option<(bool, String)>,
}

impl Claim {
    pub(crate) fn verdict(&self, book: &Book) -> Verdict {
        match (self.judge)(book) {
            Some((true, figures)) => Verdict::Holds(figures),
            Some((false, figures)) => Verdict::DoesNotHold(figures),
            None => Verdict::NotRun,
        }
    }
}

/// All claims, in the order of the studies.
pub(crate) const CLAIMS: [Claim; 19] = [
    Claim {
        study: "000",
        text: "Writing the log is the bottleneck of a put even without a sync: RocksDB is 3 to 4 times faster without it.",
        judge: |book| {
            let ends = ["/rocksdb-wal", "/rocksdb-none"];
            let [with, without] = book.rates("write-path", "study-random-", ends, "put")?;
            Some((
                without / with >= 2.0,
                compare("RocksDB without the log", without, "with it", with),
            ))
        },
    },
    Claim {
        study: "000",
        text: "The same of any store: a log that survives a kill costs most of a put.",
        judge: |book| {
            let ends = ["/turbidite-os", "/turbidite-none"];
            let [with, without] = book.rates("write-path", "study-random-", ends, "put")?;
            Some((
                without / with >= 2.0,
                compare("Turbidite without the log", without, "with it", with),
            ))
        },
    },
    Claim {
        study: "000",
        text: "What is left is the memtable's structure: a Vec log is about 6 times as fast as a SkipMap log.",
        judge: |book| {
            let ends = ["/vec-log", "/skipmap-log"];
            let [vec, skip] = book.rates("write-path", "study-random-", ends, "put")?;
            Some((vec / skip >= 2.0, compare("the Vec log", vec, "the SkipMap log", skip)))
        },
    },
    Claim {
        study: "000",
        text: "A memtable in order costs 4 to 11 times an append, random keys.",
        judge: |book| {
            let ends = ["/vec", "/skipmap", "/tagged"];
            let [vec, skip, ours] = book.rates("raw", "true-shuffle-", ends, "put")?;
            let text = compare("pushing on a vector", vec, "inserting into the SkipMap", skip);
            let ours = times(vec / ours);
            Some((
                (4.0..=11.0).contains(&(vec / skip)),
                format!(
                    "{text}; {ours} Turbidite's memtable, which is put in order when that is asked for"
                ),
            ))
        },
    },
    Claim {
        study: "000",
        text: "A memtable in order costs 1.8 times an append, ascending keys.",
        judge: |book| {
            let ends = ["/vec", "/skipmap"];
            let [vec, skip] = book.rates("raw", "sequential-", ends, "put")?;
            let text = compare("pushing on a vector", vec, "inserting into the SkipMap", skip);
            Some(((1.4..=2.3).contains(&(vec / skip)), text))
        },
    },
    Claim {
        study: "000",
        text: "A write() for each record is about as fast as RocksDB with its log: that is where its time goes.",
        judge: |book| {
            let write = book.rate("raw", "file-", "/write", "put")?;
            let rocks = book.rate("write-path", "study-random-", "/rocksdb-wal", "put")?;
            let text = compare("write() for each record", write, "RocksDB with its log", rocks);
            Some(((0.5..=2.0).contains(&(write / rocks)), text))
        },
    },
    Claim {
        study: "000",
        text: "Holding RocksDB's log back in the process makes puts 3.8 times as fast.",
        judge: |book| {
            let ends = ["/rocksdb-manual", "/rocksdb-os"];
            let [held, written] = book.rates("durability", "one/", ends, "put")?;
            Some((
                held / written >= 2.0,
                compare("held back", held, "written with each put", written),
            ))
        },
    },
    Claim {
        study: "000",
        text: "With the vector memtable and no log, RocksDB loads a million records a second.",
        judge: |book| {
            let ends = ["rocksdb-vector", "turbidite-none"];
            let [rate, ours] = book.rates("write-path", "bulk/", ends, "put")?;
            Some((rate >= 1e6, format!("RocksDB {}/s, Turbidite {}/s", short(rate), short(ours))))
        },
    },
    Claim {
        study: "001",
        text: "There is no algorithm and no software faster than 15,543 sets and 12,500 gets a second on direct I/O.",
        judge: |book| {
            let row = |layer: &str| {
                let of = |step| book.rate("files", &format!("hash-{layer}"), "/turbidite", step);
                Some((of("set")?, of("get")?.max(of("get 32")?)))
            };
            let (set, get) = row("pos-direct/")?;
            let text = format!(
                "Turbidite's hash table on direct I/O: {} sets/s and {} gets/s",
                short(set),
                short(get)
            );
            Some((set <= 15_543.0 || get <= 12_500.0, text))
        },
    },
    Claim {
        study: "001",
        text: "A page cache under a hash table helps sets on direct I/O, and gets not at all.",
        judge: |book| {
            let (set, get) = cached(book, "hash")?;
            Some((set > 1.1 && get < 1.1, in_words(set, get)))
        },
    },
    Claim {
        study: "001",
        text: "A page cache under a tree only hurts on direct I/O.",
        judge: |book| {
            let (set, get) = cached(book, "tree")?;
            Some((set < 1.0 && get < 1.0, in_words(set, get)))
        },
    },
    Claim {
        study: "001",
        text: "A page cache under a skip list helps both building and reading on direct I/O.",
        judge: |book| {
            let (set, get) = cached(book, "skip")?;
            Some((set > 1.1 && get > 1.1, in_words(set, get)))
        },
    },
    Claim {
        study: "001",
        text: "Mapped files are the fastest of all as long as data fit in memory.",
        judge: |book| {
            let mut others = Vec::new();
            let mut checked = 0;
            for (engine, who) in
                ["hash", "tree", "skip"].iter().flat_map(|&e| [(e, "tkrzw"), (e, "turbidite")])
            {
                for step in ["set", "get"] {
                    let of =
                        |layer: &str| book.rate("files", &format!("{engine}-{layer}/"), who, step);
                    let Some(mapped) = of("mmap") else { continue };
                    let rates = ["pos", "pos-block", "pos-block-cache"].into_iter().filter_map(of);
                    checked += 1;
                    if rates.fold(0.0, f64::max) > mapped * 1.02 {
                        others.push(format!("{who} {engine} {step}"));
                    }
                }
            }
            let text = match others.len() {
                0 => format!("in all {checked} cases"),
                _ => format!("not in {} of {checked} cases: {}", others.len(), others.join(", ")),
            };
            (checked > 0).then_some((others.is_empty(), text))
        },
    },
    Claim {
        study: "002",
        text: "Locking key ranges × levels gives about 10 % more throughput than locking key ranges alone.",
        judge: |book| {
            let ends = ["/range-level", "/range", "/database"];
            let [both, range, all] = book.settled("locks", "zipf-", ends, "put")?;
            let text = compare("ranges × levels", both, "ranges", range);
            Some((both / range >= 1.05, format!("{text}; the whole tree {}/s", short(all))))
        },
    },
    Claim {
        study: "002",
        text: "With fewer keys, compactions meet more often, and throughput falls.",
        judge: |book| {
            let rates = book.all("locks", "put", Measure::SettledPerSecond);
            let is_ours = |row: &str| row.starts_with("size-") && row.ends_with("/range-level");
            let ours: Vec<_> = rates.iter().filter(|(row, _)| is_ours(row)).collect();
            let (few, many) = (ours.first()?, ours.last()?);
            let text = compare("the fewest keys", few.1, "the most", many.1);
            (ours.len() > 1).then_some((is_less(few.1, many.1), text))
        },
    },
    Claim {
        study: "004",
        text: "A filter costs time if every get hits.",
        judge: |book| {
            let ends = ["-none", "-filter"];
            let [none, filter] = book.rates("lsm-kv", "key-file-", ends, "get")?;
            Some((is_less(filter, none), compare("gets with a filter", filter, "without", none)))
        },
    },
    Claim {
        study: "004",
        text: "A filter saves time if half of the gets miss, and keeping keys in memory saves far more.",
        judge: |book| {
            let ends = ["-none", "-filter", "-keys"];
            let [none, filter, keys] = book.rates("lsm-kv", "key-file-", ends, "half")?;
            let text = compare("gets with a filter", filter, "without", none);
            Some((
                is_less(none, filter) && keys > 2.0 * filter,
                format!("{text}; {}/s with keys in memory", short(keys)),
            ))
        },
    },
    Claim {
        study: "004",
        text: "As levels fill, compaction makes the throughput of puts fall in steps, to a tenth.",
        judge: |book| {
            let (first, last) = book.ends("lsm-kv", "course-ascending", "put")?;
            let text = compare("the first eighth", first, "the last", last);
            let shuffled = book.ends("lsm-kv", "course-shuffled", "put");
            let more = shuffled.map_or(String::new(), |(first, last)| {
                format!("; in a true shuffle {}/s and {}/s", short(first), short(last))
            });
            Some((first / last >= 2.0, text + &more))
        },
    },
    Claim {
        study: "004",
        text: "Larger size ratios and a tiering size above 2 make puts and gets faster.",
        judge: |book| {
            let mean = |step, wanted: fn(u32, u32) -> bool| {
                let rates = book.all("lsm-kv", step, Measure::OperationsPerSecond);
                let known = rates.iter().filter_map(|&(row, rate)| {
                    let (runs, ratio) = row.strip_prefix("grid-")?.split_once('-')?;
                    let wanted = wanted(runs.parse().ok()?, ratio.parse().ok()?);
                    wanted.then_some(rate)
                });
                let known: Vec<f64> = known.collect();
                (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
            };
            let (large, small) =
                (mean("put", |_, ratio| ratio > 3)?, mean("put", |_, ratio| ratio < 3)?);
            let (many, few) = (mean("get", |runs, _| runs > 2)?, mean("get", |runs, _| runs <= 2)?);
            let text = format!(
                "puts with ratios of 4 and 5 {}/s, with 1 and 2 {}/s; gets with more than 2 runs {}/s, with fewer {}/s",
                short(large),
                short(small),
                short(many),
                short(few)
            );
            Some((is_less(small, large) && is_less(few, many), text))
        },
    },
];

/// Whether a rate is less than another by more than runs of one row differ anyway.
fn is_less(rate: f64, than: f64) -> bool {
    rate < 0.95 * than
}

/// Two rates and their ratio in words.
fn compare(name: &str, rate: f64, other: &str, with: f64) -> String {
    format!("{name} {}/s, {other} {}/s: {}", short(rate), short(with), times(rate / with))
}

/// How much faster sets and gets of Tkrzw are on direct I/O with a page cache than without.
fn cached(book: &Book, engine: &str) -> Option<(f64, f64)> {
    let of = |layer: &str, step| book.rate("files", &format!("{engine}-{layer}/"), "tkrzw", step);
    let ratio = |step| Some(of("pos-direct-cache", step)? / of("pos-direct", step)?);
    Some((ratio("set")?, ratio("get")?))
}

fn in_words(set: f64, get: f64) -> String {
    format!(
        "with the page cache, Tkrzw's sets are {} as fast and its gets {}",
        times(set),
        times(get)
    )
}

#[cfg(test)]
mod tests {
    use super::super::book::made::{Made, book, step};
    use super::*;
    use crate::tables::{self, Scale};

    /// What becomes of the claim that begins with `text` if nothing but this was measured.
    fn verdict(text: &str, measured: &[(&'static str, &str, &str, f64)]) -> Verdict {
        let mut named = CLAIMS.iter().filter(|claim| claim.text.starts_with(text));
        let (claim, another) = (named.next().unwrap(), named.next());
        assert!(another.is_none(), "{text:?} begins several claims");
        let made = |&(table, row, name, rate): &(_, &str, &str, f64)| Made {
            table,
            row: row.to_owned(),
            step: step(name, rate),
        };
        claim.verdict(&book(&measured.iter().map(made).collect::<Vec<_>>()))
    }

    #[track_caller]
    fn holds(text: &str, measured: &[(&'static str, &str, &str, f64)], says: &str) {
        let verdict = verdict(text, measured);
        assert!(matches!(&verdict, Verdict::Holds(said) if said.contains(says)), "{verdict:?}");
    }

    #[track_caller]
    fn broken(text: &str, measured: &[(&'static str, &str, &str, f64)], says: &str) {
        let verdict = verdict(text, measured);
        assert!(
            matches!(&verdict, Verdict::DoesNotHold(said) if said.contains(says)),
            "{verdict:?}"
        );
    }

    #[test]
    fn every_claim_is_judged_if_all_was_measured() {
        let mut all = Vec::new();
        for table in tables::NAMES {
            for row in tables::table(table, Scale::Quick).unwrap().rows {
                for name in row.steps() {
                    let marks = (1..=64).map(f64::from).collect();
                    let step = crate::run::outcome::Measured { marks, ..step(name, 1000.0) };
                    all.push(Made { table, row: row.id.clone(), step });
                }
            }
        }
        let book = book(&all);
        for claim in &CLAIMS {
            assert_ne!(claim.verdict(&book), Verdict::NotRun, "{}", claim.text);
        }
    }

    #[test]
    fn a_claim_is_not_judged_without_its_rows() {
        let half = [("write-path", "study-random-600k/rocksdb-wal", "put", 190e3)];
        assert_eq!(verdict("Writing the log is", &half), Verdict::NotRun);
        assert_eq!(verdict("With fewer keys", &[]), Verdict::NotRun);
        let one = [("locks", "size-50k/range-level", "put", 100e3)];
        assert_eq!(verdict("With fewer keys", &one), Verdict::NotRun);
    }

    #[test]
    fn claims_of_the_write_path() {
        let log = |with, without| {
            [
                ("write-path", "study-random-600k/rocksdb-wal", "put", with),
                ("write-path", "study-random-600k/rocksdb-none", "put", without),
            ]
        };
        holds("Writing the log is", &log(190e3, 635e3), "3.34 ×");
        broken("Writing the log is", &log(400e3, 635e3), "1.59 ×");
        let memtable = |vec, skip| {
            [
                ("raw", "true-shuffle-600k/vec", "put", vec),
                ("raw", "true-shuffle-600k/skipmap", "put", skip),
                ("raw", "true-shuffle-600k/tagged", "put", 2e6),
            ]
        };
        holds("A memtable in order costs 4", &memtable(4e6, 800e3), "2.00 × Turbidite");
        broken("A memtable in order costs 4", &memtable(40e6, 800e3), "50.0 ×");
        broken("A memtable in order costs 4", &memtable(2e6, 800e3), "2.50 ×");
    }

    #[test]
    fn claims_of_file_layers() {
        let text = "There is no algorithm";
        let direct = |set, get, together| {
            [
                ("files", "hash-pos-direct/turbidite", "set", set),
                ("files", "hash-pos-direct/turbidite", "get", get),
                ("files", "hash-pos-direct/turbidite", "get 32", together),
            ]
        };
        broken(text, &direct(400e3, 12e3, 60e3), "60.0k gets/s");
        holds(text, &direct(400e3, 12e3, 12.4e3), "12.4k gets/s");
        holds(text, &direct(15e3, 40e3, 40e3), "15.0k sets/s");
        let mapped = |pos| {
            [
                ("files", "tree-mmap/tkrzw", "get", 100e3),
                ("files", "tree-pos/tkrzw", "get", pos),
                ("files", "tree-pos-direct/tkrzw", "get", 900e3),
            ]
        };
        holds("Mapped files are the fastest", &mapped(101e3), "in all 1 cases");
        broken("Mapped files are the fastest", &mapped(103e3), "in 1 of 1 cases: tkrzw tree get");
        let cached = |set, get| {
            [
                ("files", "skip-pos-direct/tkrzw", "set", 1000.0),
                ("files", "skip-pos-direct/tkrzw", "get", 1000.0),
                ("files", "skip-pos-direct-cache/tkrzw", "set", set),
                ("files", "skip-pos-direct-cache/tkrzw", "get", get),
            ]
        };
        holds("A page cache under a skip list", &cached(20e3, 4e3), "sets are 20.0 ×");
        broken("A page cache under a skip list", &cached(20e3, 1e3), "gets 1.00 ×");
    }

    #[test]
    fn claims_of_locks_and_of_choices() {
        let locks = |both, range| {
            [
                ("locks", "zipf-4-4/range-level", "put", both),
                ("locks", "zipf-4-4/range", "put", range),
                ("locks", "zipf-4-4/database", "put", 80e3),
            ]
        };
        holds("Locking key ranges × levels", &locks(110e3, 100e3), "the whole tree 80.0k/s");
        broken("Locking key ranges × levels", &locks(104e3, 100e3), "1.04 ×");
        let sizes = |few, many| {
            [
                ("locks", "size-50k/range-level", "put", few),
                ("locks", "size-200k/range-level", "put", many),
            ]
        };
        holds("With fewer keys", &sizes(90e3, 100e3), "0.900 ×");
        broken("With fewer keys", &sizes(100e3, 90e3), "1.11 ×");
        broken("With fewer keys", &sizes(96e3, 100e3), "0.960 ×");
        let filter = |filter| {
            [("lsm-kv", "key-file-none", "get", 1e6), ("lsm-kv", "key-file-filter", "get", filter)]
        };
        holds("A filter costs time", &filter(900e3), "0.900 ×");
        broken("A filter costs time", &filter(1.1e6), "1.10 ×");
        broken("A filter costs time", &filter(0.98e6), "0.980 ×");
        let grid = |large, many| {
            [
                ("lsm-kv", "grid-1-1", "put", 100e3),
                ("lsm-kv", "grid-1-5", "put", large),
                ("lsm-kv", "grid-1-1", "get", 100e3),
                ("lsm-kv", "grid-3-1", "get", many),
            ]
        };
        holds("Larger size ratios", &grid(120e3, 110e3), "puts with ratios of 4 and 5 120k/s");
        broken("Larger size ratios", &grid(80e3, 110e3), "80.0k/s");
        broken("Larger size ratios", &grid(120e3, 90e3), "more than 2 runs 90.0k/s");
    }
}
