use super::super::book::made::{Made, Making, book_at, book_of, measured, step};
use super::*;
use crate::run::outcome::Measured;
use crate::tables::{self, Scale};

/// A run of a row: the table, the row, a step, and its operations per second.
type Run<'a> = (&'static str, &'a str, &'a str, f64);

/// The claim that begins with `text`.
fn claim(text: &str) -> &'static Claim {
    let mut named = CLAIMS.iter().filter(|claim| claim.text.starts_with(text));
    let (claim, another) = (named.next().unwrap(), named.next());
    assert!(another.is_none(), "{text:?} begins several claims");
    claim
}

/// The book of what was measured, if it is nothing but this.
fn book_of_runs(scale: Scale, measured: &[Run]) -> Book {
    let made = |&(table, row, name, rate): &Run| Made {
        table,
        row: row.to_owned(),
        step: step(name, rate),
    };
    book_at(scale, &measured.iter().map(made).collect::<Vec<_>>())
}

/// What becomes of the claim that begins with `text` if nothing but this was measured.
fn verdict_at(scale: Scale, text: &str, measured: &[Run]) -> Verdict {
    claim(text).verdict(&book_of_runs(scale, measured))
}

/// The smallest scale at which the claim is judged.
fn verdict(text: &str, measured: &[Run]) -> Verdict {
    verdict_at(if claim(text).sized.is_some() { Scale::Full } else { Scale::Quick }, text, measured)
}

#[track_caller]
fn holds(text: &str, measured: &[Run], says: &str) {
    let verdict = verdict(text, measured);
    assert!(matches!(&verdict, Verdict::Holds(said) if said.contains(says)), "{verdict:?}");
}

#[track_caller]
fn broken(text: &str, measured: &[Run], says: &str) {
    let verdict = verdict(text, measured);
    assert!(matches!(&verdict, Verdict::DoesNotHold(said) if said.contains(says)), "{verdict:?}");
}

#[track_caller]
fn open(text: &str, measured: &[Run], says: &str) {
    let verdict = verdict(text, measured);
    assert!(matches!(&verdict, Verdict::CannotBeTold(said) if said.contains(says)), "{verdict:?}");
}

#[test]
fn every_claim_is_judged_if_all_was_measured() {
    for scale in [Scale::Quick, Scale::Full] {
        let making = Making::new();
        for table in tables::NAMES {
            for row in tables::table(table, scale).unwrap().rows {
                let made = |name| Measured {
                    marks: (1..=64).map(f64::from).collect(),
                    written_bytes: 300,
                    disk_bytes: 200,
                    live_bytes: 100,
                    ..step(name, 1000.0)
                };
                let steps = row.steps().into_iter().map(made).collect();
                making.add(scale, table, &row.id, measured(steps));
            }
        }
        let book = making.book();
        for claim in &CLAIMS {
            let verdict = claim.verdict(&book);
            assert_ne!(verdict, Verdict::NotRun, "{}", claim.text);
            let is_smaller = claim.sized.is_some() && scale < Scale::Full;
            assert_eq!(matches!(verdict, Verdict::Smaller(_)), is_smaller, "{}", claim.text);
        }
    }
}

#[test]
fn figures_of_different_machines_are_not_compared() {
    let (mut one, two) = (Making::new(), Making::new());
    let run = || measured(vec![step("put", 200e3)]);
    one.add(Scale::Quick, "raw", "file-600k/write", run());
    two.add(Scale::Quick, "write-path", "study-random-600k/rocksdb-wal", run());
    let claim = claim("A pwrite()");
    let verdict = claim.verdict(&book_of(&[&one, &two]));
    assert!(matches!(verdict, Verdict::Holds(_)), "{verdict:?}");
    one.results.machine.processor = "another".to_owned();
    assert_eq!(claim.verdict(&book_of(&[&one, &two])), Verdict::OtherMachines);
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
    broken("Writing the log is", &log(300e3, 635e3), "asked for 2.50 to 4.50 ×");
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
fn mapped_files_are_judged_by_all_engines() {
    let mapped = |pos| {
        [
            ("files", "tree-mmap/tkrzw", "get", 100e3),
            ("files", "tree-pos/tkrzw", "get", pos),
            ("files", "tree-pos-direct/tkrzw", "get", 900e3),
        ]
    };
    let text = "Mapped files are the fastest";
    holds(text, &mapped(104e3), "in 1 of 1 cases");
    broken(text, &mapped(106e3), "does not hold for tkrzw tree get");
    let small = verdict_at(Scale::Quick, text, &mapped(104e3));
    assert!(matches!(&small, Verdict::Smaller(said) if said.contains("200k records")), "{small:?}");
}

#[test]
fn claims_of_direct_files_are_judged_at_the_size_of_the_study() {
    let text = "There is no algorithm";
    let direct = |set, get, together| {
        [
            ("files", "hash-pos-direct/turbidite", "set", set),
            ("files", "hash-pos-direct/turbidite", "get", get),
            ("files", "hash-pos-direct/turbidite", "get 32", together),
        ]
    };
    broken(text, &direct(400e3, 12e3, 60e3), "gets 60.0k/s");
    holds(text, &direct(400e3, 12e3, 12.4e3), "gets 12.4k/s");
    holds(text, &direct(15e3, 40e3, 40e3), "sets 15.0k/s");
    let small = verdict_at(Scale::Quick, text, &direct(400e3, 12e3, 60e3));
    assert!(
        matches!(&small, Verdict::Smaller(said) if said.contains("20.0k records")),
        "{small:?}"
    );
    assert_eq!(verdict(text, &[]), Verdict::NotRun);
    let cached = |engine: &str, set, get| {
        let rows =
            ["pos-direct", "pos-direct-cache"].map(|layer| format!("{engine}-{layer}/tkrzw"));
        let [plain, cached] = rows.map(|row| &*row.leak());
        [
            ("files", plain, "set", 1000.0),
            ("files", plain, "get", 1000.0),
            ("files", cached, "set", set),
            ("files", cached, "get", get),
        ]
    };
    let text = "A page cache under a skip list";
    let figures = "Tkrzw's sets with the page cache 20.0k/s, without 1000/s: 20.0 ×";
    holds(text, &cached("skip", 20e3, 4e3), figures);
    broken(text, &cached("skip", 20e3, 1e3), "1.00 ×");
    let text = "A page cache under a tree";
    holds(text, &cached("tree", 900.0, 900.0), "at most 0.950 ×");
    broken(text, &cached("tree", 900.0, 970.0), "0.970 ×");
}

#[test]
fn skip_lists_take_single_puts_or_not() {
    let puts = |skip| {
        [("scale", "1M/turbidite-skip", "put", skip), ("scale", "1M/turbidite-btree", "put", 100e3)]
    };
    holds("Skip lists are for batches", &puts(10e3), "0.100 ×");
    broken("Skip lists are for batches", &puts(80e3), "0.800 ×");
}

#[test]
fn claims_of_locks_and_of_choices() {
    let sizes = |few, middle, many| {
        [
            ("locks", "size-50k/range-level", "put", few),
            ("locks", "size-100k/range-level", "put", middle),
            ("locks", "size-200k/range-level", "put", many),
        ]
    };
    holds("With fewer keys", &sizes(90e3, 95e3, 100e3), "0.900 ×");
    holds("With fewer keys", &sizes(90e3, 104e3, 100e3), "90.0k/s, 104k/s, 100k/s");
    broken("With fewer keys", &sizes(90e3, 107e3, 100e3), "90.0k/s, 107k/s, 100k/s");
    broken("With fewer keys", &sizes(90e3, 80e3, 100e3), "no step the other way");
    broken("With fewer keys", &sizes(100e3, 95e3, 90e3), "1.11 ×");
    broken("With fewer keys", &sizes(96e3, 98e3, 100e3), "0.960 ×");
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
    holds(
        "Larger size ratios and a tiering size above 2 make",
        &grid(120e3, 110e3),
        "puts with ratios of 4 and 5 120k/s",
    );
    broken("Larger size ratios and a tiering size above 2 make", &grid(80e3, 110e3), "80.0k/s");
    broken(
        "Larger size ratios and a tiering size above 2 make",
        &grid(120e3, 90e3),
        "more than 2 runs 90.0k/s",
    );
    let text = "Larger size ratios and a tiering size above 2 make";
    holds(text, &grid(120e3, 102e3), "at least 1.01 ×");
}

#[test]
fn a_claim_cannot_be_told_if_it_depends_on_the_runs() {
    let runs = |with: [f64; 3], without: [f64; 3]| {
        let rows = ["study-random-600k/rocksdb-wal", "study-random-600k/rocksdb-none"];
        let runs = with.map(|rate| ("write-path", rows[0], "put", rate)).into_iter();
        runs.chain(without.map(|rate| ("write-path", rows[1], "put", rate))).collect::<Vec<_>>()
    };
    let text = "Writing the log is";
    let figures = "600k/s (590k–610k), with it 200k/s (190k–210k): 3.00 × (2.81–3.21)";
    holds(text, &runs([190e3, 200e3, 210e3], [600e3, 590e3, 610e3]), figures);
    open(text, &runs([190e3, 200e3, 300e3], [600e3, 590e3, 610e3]), "(190k–300k)");
    broken(text, &runs([390e3, 400e3, 410e3], [600e3, 590e3, 610e3]), "1.50 ×");
}

#[test]
fn locks_are_judged_by_all_their_rows() {
    let runs = |ratios: [f64; 4]| {
        let names = ["zipf-1-1", "zipf-1-4", "zipf-4-1", "zipf-4-4"];
        let rows = names.into_iter().zip(ratios).flat_map(|(name, ratio)| {
            [(format!("{name}/range-level"), ratio * 100e3), (format!("{name}/range"), 100e3)]
        });
        rows.collect::<Vec<_>>()
    };
    let judge = |ratios| {
        let rows = runs(ratios);
        let runs: Vec<Run> =
            rows.iter().map(|(row, rate)| ("locks", row.as_str(), "put", *rate)).collect();
        verdict("Locking key ranges × levels", &runs)
    };
    let says = |verdict: &Verdict, text| {
        assert!(verdict.figures().contains(text), "{}", verdict.figures());
    };
    let most = judge([1.0, 1.1, 1.15, 1.06]);
    assert!(matches!(most, Verdict::Holds(_)), "{most:?}");
    says(&most, "asked for 1.05 to 1.20 ×; it holds in 3 of 4 cases");
    says(&most, "writers 1, threads 4, ranges × levels 110k/s, ranges 100k/s: 1.10 ×, yes");
    let last = judge([1.0, 1.0, 1.0, 1.1]);
    assert!(matches!(last, Verdict::DoesNotHold(_)), "the last row alone: {last:?}");
    let far_more = judge([1.5, 1.5, 1.5, 1.5]);
    assert!(matches!(far_more, Verdict::DoesNotHold(_)), "50 % is not about 10: {far_more:?}");
}

#[test]
fn a_device_is_idle_if_more_threads_use_it_more() {
    let runs = |loads: &[(&str, f64)]| {
        let made = loads.iter().flat_map(|&(load, times)| {
            [(1, 1.0), (4, times)].map(|(threads, times)| Made {
                table: "locks",
                row: format!("{load}-{threads}/range-level"),
                // 100 MiB a second with one thread.
                step: Measured {
                    written_bytes: (times * 104_857_600.0) as u64,
                    seconds: 0.5,
                    settle_seconds: 0.5,
                    ..step("put", 1e6)
                },
            })
        });
        claim("Merging leaves").verdict(&book_at(Scale::Quick, &made.collect::<Vec<_>>()))
    };
    let verdict = runs(&[("zipf-1", 2.0), ("zipf-4", 1.5), ("uniform-1", 1.0)]);
    assert!(matches!(verdict, Verdict::Holds(_)), "{verdict:?}");
    let says = "zipf, writers 4: 4 threads 150 MiB/s, one 100 MiB/s: 1.50 ×, yes";
    assert!(verdict.figures().contains(says), "{}", verdict.figures());
    let verdict = runs(&[("zipf-1", 2.0), ("zipf-4", 1.0), ("hot-4", 1.02)]);
    assert!(matches!(verdict, Verdict::DoesNotHold(_)), "{verdict:?}");
    assert_eq!(runs(&[]), Verdict::NotRun);
}

#[test]
fn factors_are_those_of_the_claims() {
    let one = |key, against, rate| {
        [("durability", key, "put", rate), ("durability", against, "put", 100e3)]
    };
    let held = |rate| one("one/rocksdb-manual", "one/rocksdb-os", rate);
    holds("Holding RocksDB's log back", &held(300e3), "asked for 2.53 to 5.70 ×");
    broken("Holding RocksDB's log back", &held(210e3), "2.10 ×");
    broken("Holding RocksDB's log back", &held(600e3), "6.00 ×");
    let none = |rate| one("one/rocksdb-none", "one/rocksdb-os", rate);
    holds("Without the log, 100k", &none(440e3), "4.40 ×");
    broken("Without the log, 100k", &none(250e3), "2.50 ×");
    for (text, rows) in [("Without the log, 100k", none(440e3)), ("Holding RocksDB's", held(380e3))]
    {
        let million = verdict_at(Scale::Full, text, &rows);
        assert_eq!(million, Verdict::NotRun, "a full run of that table has a million records");
    }
    let study = |key, rate| ("write-path", key, "put", rate);
    let rows = [
        study("study-sequential-100k/rocksdb-manual", 380e3),
        study("study-sequential-100k/rocksdb-wal", 100e3),
    ];
    let hundred = verdict_at(Scale::Full, "Holding RocksDB's", &rows);
    assert!(matches!(&hundred, Verdict::Holds(said) if said.contains("3.80 ×")), "{hundred:?}");
    let file = |key, rate| ("raw", key, "put", rate);
    let rocks = ("write-path", "study-random-600k/rocksdb-wal", "put", 200e3);
    let calls = [file("file-600k/write", 900e3), file("file-600k/pwrite", 220e3), rocks];
    holds("A pwrite() for each", &calls, "pwrite() for each record 220k/s");
    broken("A pwrite() for each", &[calls[0], calls[2]], "write() for each record 900k/s");
    let settings = |idle, alone| {
        [
            ("durability", "one/rocksdb-os", "put", 100e3),
            ("durability", "one/rocksdb-no-compaction", "put", idle),
            ("durability", "one/rocksdb-one-writer", "put", alone),
        ]
    };
    holds("Other settings of RocksDB", &settings(102e3, 101e3), "1.02 ×");
    broken("Other settings of RocksDB", &settings(102e3, 110e3), "1.10 ×");
    let course = |slower: f64| {
        let first = (1..=56).map(f64::from);
        let marks = first.chain((1..=8).map(|i| 56.0 + slower * f64::from(i))).collect();
        let step = Measured { marks, ..step("put", 1000.0) };
        let row = "course-ascending".to_owned();
        let book = book_at(Scale::Quick, &[Made { table: "lsm-kv", row, step }]);
        let mut claims = CLAIMS.iter().filter(|claim| claim.text.starts_with("As levels fill"));
        claims.next().unwrap().verdict(&book)
    };
    assert!(matches!(course(10.0), Verdict::Holds(_)), "{:?}", course(10.0));
    assert!(matches!(course(3.0), Verdict::DoesNotHold(_)), "{:?}", course(3.0));
}

#[test]
fn space_is_the_price_of_larger_shapes() {
    let judge = |large: u64, many: u64| {
        let made = |row: &str, disk_bytes| Made {
            table: "lsm-kv",
            row: row.to_owned(),
            step: Measured { disk_bytes, live_bytes: 100, ..step("put", 1000.0) },
        };
        let book = book_at(
            Scale::Quick,
            &[made("grid-1-1", 100), made("grid-1-5", large), made("grid-3-3", many)],
        );
        let mut claims = CLAIMS.iter().filter(|claim| claim.text.ends_with("cost space."));
        claims.next().unwrap().verdict(&book)
    };
    assert!(matches!(judge(120, 130), Verdict::Holds(_)), "{:?}", judge(120, 130));
    assert!(matches!(judge(100, 130), Verdict::DoesNotHold(_)), "{:?}", judge(100, 130));
    assert!(matches!(judge(120, 103), Verdict::DoesNotHold(_)), "{:?}", judge(120, 103));
}
