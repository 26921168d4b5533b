//! What the studies claim, and whether it holds here.

#[cfg(test)]
mod tests;

use super::book::Book;
use super::judging::{Band, Truth, amount, compare, in_most, rate, ratio, side_by_side};
use super::numbers::short;
use super::summary::Spread;
use super::verdict::Verdict;
use crate::tables::Measure;

type Judge = fn(&Book) -> Option<(Truth, String)>;

/// A claim of a study.
pub(crate) struct Claim {
    pub(crate) study: &'static str,
    pub(crate) text: &'static str,
    judge: Judge,
    /// What the names of those rows of engines and file layers begin with that must have as many records as the study.
    sized: Option<&'static str>,
    /// The tables whose figures it compares, if they are several.
    across: &'static [&'static str],
}

impl Claim {
    const fn new(study: &'static str, text: &'static str, judge: Judge) -> Self {
        Self { study, text, judge, sized: None, across: &[] }
    }

    /// A claim of the study of file layers, of which smaller runs show nothing: caches have room for more of their records.
    const fn of_files(text: &'static str, rows: &'static str, judge: Judge) -> Self {
        Self { sized: Some(rows), ..Self::new("001", text, judge) }
    }

    /// A claim that compares figures of several tables.
    const fn across(self, tables: &'static [&'static str]) -> Self {
        Self { across: tables, ..self }
    }

    pub(crate) fn verdict(&self, book: &Book) -> Verdict {
        if !book.is_of_one_machine(self.across) {
            return Verdict::OtherMachines;
        }
        let Some((truth, figures)) = (self.judge)(book) else { return Verdict::NotRun };
        match (self.smaller(book), truth) {
            (Some(records), _) => Verdict::Smaller(format!(
                "its rows have {} records and the study's a million: caches have room for more of them, and what was measured \
                 says too little of it",
                short(records as f64)
            )),
            (None, Truth::Yes) => Verdict::Holds(figures),
            (None, Truth::No) => Verdict::DoesNotHold(figures),
            (None, Truth::Open) => Verdict::CannotBeTold(figures),
        }
    }

    /// How many records its rows have, if those are fewer than the study's.
    fn smaller(&self, book: &Book) -> Option<u64> {
        book.records("files", self.sized?).filter(|&records| records < STUDY)
    }
}

/// How many records the study of file layers has.
const STUDY: u64 = 1_000_000;

/// All claims, in the order of the studies.
pub(crate) const CLAIMS: [Claim; 24] = [
    Claim::new(
        "000",
        "Writing the log is the bottleneck of a put even without a sync: RocksDB is 3 to 4 times faster without it.",
        |book| {
            let ends = ["/rocksdb-wal", "/rocksdb-none"];
            let [with, without] = book.rates("write-path", "study-random-", ends, "put")?;
            let band = Band::rounded(3.0, 4.0);
            Some(compare(("RocksDB without the log", without), ("with it", with), band))
        },
    ),
    Claim::new(
        "000",
        "The same of any store: a log that survives a kill costs most of a put.",
        |book| {
            let ends = ["/turbidite-os", "/turbidite-none"];
            let [with, without] = book.rates("write-path", "study-random-", ends, "put")?;
            let band = Band::at_least(2.0);
            Some(compare(("Turbidite without the log", without), ("with it", with), band))
        },
    ),
    Claim::new(
        "000",
        "Without the log, 100k sequential puts of RocksDB are 4.4 times as fast.",
        |book| {
            let [with, without] = sequential(book, ["-wal", "-none"], ["-os", "-none"])?;
            Some(compare(("RocksDB without the log", without), ("with it", with), Band::about(4.4)))
        },
    ),
    Claim::new(
        "000",
        "What is left is the memtable's structure: a Vec log is about 6 times as fast as a SkipMap log.",
        |book| {
            let ends = ["/vec-log", "/skipmap-log"];
            let [vec, skip] = book.rates("write-path", "study-random-", ends, "put")?;
            Some(compare(("the Vec log", vec), ("the SkipMap log", skip), Band::about(6.0)))
        },
    ),
    Claim::new("000", "A memtable in order costs 4 to 11 times an append, random keys.", |book| {
        let ends = ["/vec", "/skipmap", "/tagged"];
        let [vec, skip, ours] = book.rates("raw", "true-shuffle-", ends, "put")?;
        let (truth, text) = append(vec, skip, Band::rounded(4.0, 11.0));
        let ours = ratio(vec.over(ours));
        let text = format!(
            "{text}; {ours} Turbidite's memtable, which is put in order when that is asked for"
        );
        Some((truth, text))
    }),
    Claim::new("000", "A memtable in order costs 1.8 times an append, ascending keys.", |book| {
        let ends = ["/vec", "/skipmap"];
        let [vec, skip] = book.rates("raw", "sequential-", ends, "put")?;
        Some(append(vec, skip, Band::about(1.8)))
    }),
    Claim::new(
        "000",
        "A pwrite() for each record is about as fast as RocksDB with its log: that is where its time goes.",
        |book| {
            let file = |mode| book.rate("raw", "file-", mode, "put");
            let (name, write) = match file("/pwrite") {
                Some(pwrite) => ("pwrite() for each record", pwrite),
                None => ("write() for each record", file("/write")?),
            };
            let rocks = book.rate("write-path", "study-random-", "/rocksdb-wal", "put")?;
            let band = Band::about(1.0);
            Some(compare((name, write), ("RocksDB with its log", rocks), band))
        },
    )
    .across(&["raw", "write-path"]),
    Claim::new(
        "000",
        "Holding RocksDB's log back in the process makes 100k sequential puts 3.8 times as fast.",
        |book| {
            let [held, written] = sequential(book, ["-manual", "-wal"], ["-manual", "-os"])?;
            let band = Band::about(3.8);
            Some(compare(("held back", held), ("written with each put", written), band))
        },
    ),
    Claim::new(
        "000",
        "Other settings of RocksDB hardly matter: no compactions are worth about 2 %, a memtable of one writer about 1 %.",
        |book| {
            let ends = ["-no-compaction", "-one-writer", "-os"];
            let [idle, alone, usual] = book.rates("durability", "one/rocksdb", ends, "put")?;
            let (first, text) = compare(("without compactions", idle), ("as usual", usual), SAME);
            let (second, more) =
                compare(("with a memtable of one writer", alone), ("as usual", usual), SAME);
            Some((first.and(second), format!("{text}; {more}")))
        },
    ),
    Claim::new(
        "000",
        "With the vector memtable and no log, RocksDB loads a million records a second.",
        |book| {
            let ends = ["rocksdb-vector", "turbidite-none"];
            let [rocks, ours] = book.rates("write-path", "bulk/", ends, "put")?;
            let text = format!("RocksDB {}, Turbidite {}", rate(rocks), rate(ours));
            Some((Band::at_least(1e6).has(rocks), text))
        },
    ),
    Claim::of_files(
        "There is no algorithm and no software faster than 15,543 sets and 12,500 gets a second on direct I/O.",
        "hash-pos-direct",
        |book| {
            let of = |step| book.rate("files", "hash-pos-direct/", "turbidite", step);
            let (set, mut get) = (of("set")?, of("get")?);
            if let Some(together) = of("get 32").filter(|found| found.median > get.median) {
                get = together;
            }
            let text = format!(
                "Turbidite's hash table on direct I/O: sets {}, gets {}",
                rate(set),
                rate(get)
            );
            Some((Band::at_most(15_543.0).has(set).or(Band::at_most(12_500.0).has(get)), text))
        },
    ),
    Claim::of_files(
        "A page cache under a hash table helps sets on direct I/O, and gets not at all.",
        "hash-pos-direct",
        |book| cached(book, "hash", Band::MORE, Band::NOT_MORE),
    ),
    Claim::of_files(
        "A page cache under a tree only hurts on direct I/O.",
        "tree-pos-direct",
        |book| cached(book, "tree", Band::LESS, Band::LESS),
    ),
    Claim::of_files(
        "A page cache under a skip list helps both building and reading on direct I/O.",
        "skip-pos-direct",
        |book| cached(book, "skip", Band::MORE, Band::MORE),
    ),
    Claim::of_files(
        "Mapped files are the fastest of all as long as data fit in memory.",
        "hash-mmap",
        mapped,
    ),
    // The rows of a million records, as many as the study has, are there at every scale.
    Claim::new(
        "001",
        "Skip lists are for batches only, not for records that are put one at a time.",
        |book| {
            let wanted = ("put", Measure::SettledPerSecond);
            let ends = ["-skip", "-btree"];
            let groups = book.groups("scale", "1M/turbidite", ends, wanted);
            let &(_, [skip, tree]) = groups.first()?;
            let name = "a million single puts until all is in its files, Turbidite's skip list";
            Some(compare((name, skip), ("its B+ tree", tree), Band::at_most(0.5)))
        },
    ),
    Claim::new(
        "002",
        "Locking key ranges × levels gives about 10 % more throughput than locking key ranges alone.",
        |book| {
            let ends = ["/range-level", "/range"];
            let wanted = ("put", Measure::SettledPerSecond);
            let groups = book.groups("locks", "zipf-", ends, wanted);
            let cases: Vec<_> = groups.into_iter().map(of_locks).collect();
            let (truth, text) = in_most(&cases);
            let text = format!("asked for {}; {text}", TENTH_MORE.in_words());
            (!cases.is_empty()).then_some((truth, text))
        },
    ),
    Claim::new("002", "Merging leaves the device idle unless several compactions run at once.", |book| {
        let cases = ["zipf", "hot", "uniform"].into_iter().flat_map(|load| threads(book, load));
        let cases: Vec<_> = cases.collect();
        let (truth, text) = in_most(&cases);
        let text = format!(
            "what devices take until all is compacted, asked for {} with the most threads; {text}",
            Band::MORE.in_words()
        );
        (!cases.is_empty()).then_some((truth, text))
    }),
    Claim::new(
        "002",
        "With fewer keys, compactions meet more often, and throughput falls.",
        |book| {
            let rates = book.all("locks", "put", Measure::SettledPerSecond);
            let is_ours = |row: &str| row.starts_with("size-") && row.ends_with("/range-level");
            let ours: Vec<_> = rates.into_iter().filter(|(row, _)| is_ours(row)).collect();
            let (few, many) = (ours.first()?, ours.last()?);
            let band = Band::LESS;
            let (ends, text) = compare(("the fewest keys", few.1), ("the most", many.1), band);
            let steps = ours.windows(2).map(|two| Band::NOT_MORE.has(two[0].1.over(two[1].1)));
            let falls = steps.fold(Truth::Yes, Truth::and);
            let all: Vec<_> = ours.iter().map(|(_, figure)| rate(*figure)).collect();
            let text = format!("{text}, and no step the other way: {}", all.join(", "));
            (ours.len() > 1).then_some((ends.and(falls), text))
        },
    ),
    Claim::new("004", "A filter costs time if every get hits.", |book| {
        let ends = ["-none", "-filter"];
        let [none, filter] = book.rates("lsm-kv", "key-file-", ends, "get")?;
        Some(compare(("gets with a filter", filter), ("without", none), Band::LESS))
    }),
    Claim::new(
        "004",
        "A filter saves time if half of the gets miss, and keeping keys in memory saves far more.",
        |book| {
            let ends = ["-none", "-filter", "-keys"];
            let [none, filter, keys] = book.rates("lsm-kv", "key-file-", ends, "half")?;
            let (saves, text) =
                compare(("gets with a filter", filter), ("without", none), Band::MORE);
            let (more, keys) = compare(
                ("with keys in memory", keys),
                ("with a filter", filter),
                Band::at_least(2.0),
            );
            Some((saves.and(more), format!("{text}; {keys}")))
        },
    ),
    Claim::new(
        "004",
        "As levels fill, compaction makes the throughput of puts fall in steps, to a tenth.",
        |book| {
            let [first, last] = book.ends("lsm-kv", "course-ascending", "put")?;
            let band = Band::between(0.05, 0.15);
            let (truth, text) = compare(("the last eighth", last), ("the first", first), band);
            let shuffled = book.ends("lsm-kv", "course-shuffled", "put");
            let more = shuffled.map_or(String::new(), |[first, last]| {
                format!("; in a true shuffle the last {}, the first {}", rate(last), rate(first))
            });
            Some((truth, text + &more))
        },
    ),
    Claim::new(
        "004",
        "Larger size ratios and a tiering size above 2 make puts and gets faster.",
        |book| {
            let mean = |step, wanted| shapes(book, (step, Measure::OperationsPerSecond), wanted);
            let (large, small) =
                (mean("put", |_, ratio| ratio > 3)?, mean("put", |_, ratio| ratio < 3)?);
            let (many, few) = (mean("get", |runs, _| runs > 2)?, mean("get", |runs, _| runs <= 2)?);
            let (puts, text) = compare(
                ("puts with ratios of 4 and 5", large),
                ("with 1 and 2", small),
                Band::MORE,
            );
            // What the study found of gets is within 3 %.
            let band = Band::at_least(1.01);
            let (gets, more) =
                compare(("gets with more than 2 runs", many), ("with fewer", few), band);
            Some((puts.and(gets), format!("{text}; {more}")))
        },
    ),
    Claim::new("004", "Larger size ratios and a tiering size above 2 cost space.", |book| {
        let mean = |wanted| shapes(book, ("put", Measure::SpaceAmplification), wanted);
        let (large, small) = (mean(|_, ratio| ratio > 3)?, mean(|_, ratio| ratio < 3)?);
        let (many, few) = (mean(|runs, _| runs > 2)?, mean(|runs, _| runs <= 2)?);
        let truth = Band::MORE.has(large.over(small)).and(Band::MORE.has(many.over(few)));
        let text = format!(
            "bytes on disk for each live byte: {} with ratios of 4 and 5, {} with 1 and 2; {} with more than 2 runs, {} with \
             fewer; asked for {} each time",
            ratio(large),
            ratio(small),
            ratio(many),
            ratio(few),
            Band::MORE.in_words()
        );
        Some((truth, text))
    }),
];

/// About 10 %: from 5 to 20.
const TENTH_MORE: Band = Band::between(1.05, 1.2);

/// What hardly matters.
const SAME: Band = Band::between(0.95, 1.0 / 0.95);

/// A vector that is pushed on beside a table that is in order at any time.
fn append(vec: Spread, skip: Spread, band: Band) -> (Truth, String) {
    compare(("pushing on a vector", vec), ("inserting into the SkipMap", skip), band)
}

/// RocksDB's 100k sequential puts with its log in two ways, under the study's clock if they were run like that: `study` has the
/// ends of their names there, `plain` those in the table of durability.
fn sequential(book: &Book, study: [&str; 2], plain: [&str; 2]) -> Option<[Spread; 2]> {
    let study = book.rates("write-path", "study-sequential-100k/rocksdb", study, "put");
    let plain = || {
        let is_size = book.records("durability", "one/rocksdb-os") == Some(100_000);
        book.rates("durability", "one/rocksdb", plain, "put").filter(|_| is_size)
    };
    study.or_else(plain)
}

/// How much faster sets and gets of Tkrzw are on direct I/O with a page cache than without.
fn cached(book: &Book, engine: &str, sets: Band, gets: Band) -> Option<(Truth, String)> {
    let judge = |step, band| {
        let of = |layer: &str| book.rate("files", &format!("{engine}-{layer}/"), "tkrzw", step);
        let (with, without) = (of("pos-direct-cache")?, of("pos-direct")?);
        Some(compare(
            (&format!("Tkrzw's {step}s with the page cache"), with),
            ("without", without),
            band,
        ))
    };
    let ((set, text), (get, more)) = (judge("set", sets)?, judge("get", gets)?);
    Some((set.and(get), format!("{text}; {more}")))
}

/// Whether no other layer that caches is faster than mapped files, of any engine.
fn mapped(book: &Book) -> Option<(Truth, String)> {
    let mut cases = Vec::new();
    for engine in ["hash", "tree", "skip"] {
        for (who, step) in
            [("tkrzw", "set"), ("tkrzw", "get"), ("turbidite", "set"), ("turbidite", "get")]
        {
            let of = |layer: &str| book.rate("files", &format!("{engine}-{layer}/"), who, step);
            let Some(mapped) = of("mmap") else { continue };
            // Of the others the one that speaks against it most.
            let others = ["pos", "pos-block", "pos-block-cache"].into_iter().filter_map(|layer| {
                let other = of(layer)?;
                let (truth, text) = compare(("mapped", mapped), (layer, other), Band::NOT_LESS);
                Some((truth, mapped.over(other).median, text))
            });
            let worst = others.min_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
            let Some((truth, _, text)) = worst else { continue };
            cases.push((truth, format!("{who} {engine} {step}, {text}")));
        }
    }
    let truth = cases.iter().map(|case| case.0).min()?;
    let told = |wanted| {
        let texts = cases.iter().filter(|case| case.0 == wanted).map(|case| case.1.clone());
        texts.collect::<Vec<_>>()
    };
    let (not, open) = (told(Truth::No), told(Truth::Open));
    let holds = cases.len() - not.len() - open.len();
    let mut text = format!("it holds in {holds} of {} cases, and all are asked for", cases.len());
    for (name, cases) in [("it does not hold", not), ("it cannot be told", open)] {
        if !cases.is_empty() {
            text += &format!("; {name} for {}", cases.join("; "));
        }
    }
    Some((truth, text))
}

/// One pair of rows under locks on ranges and levels, and on ranges: their names have the writers and the threads.
fn of_locks((name, [both, range]): (&str, [Spread; 2])) -> (Truth, String) {
    let (times, text) = side_by_side(("ranges × levels", both), ("ranges", range));
    let parts: Vec<_> = name.split('-').skip(1).collect();
    let who = match parts[..] {
        [writers, threads] => format!("writers {writers}, threads {threads}"),
        _ => name.to_owned(),
    };
    (TENTH_MORE.has(times), format!("{who}, {text}"))
}

/// What devices take with the most threads that compact beside what they take with one, for each number of writers; the
/// locks are those that a tree has unless told otherwise.
fn threads(book: &Book, load: &str) -> Vec<(Truth, String)> {
    let wanted = ("put", Measure::DeviceMebibytesPerSecond);
    let rows = book.groups("locks", &format!("{load}-"), ["/range-level"], wanted);
    let rows: Vec<_> = rows
        .into_iter()
        .filter_map(|(name, [taken])| {
            let (stem, threads) = name.rsplit_once('-')?;
            Some((stem, threads, taken))
        })
        .collect();
    let case = |rows: &[(&str, &str, Spread)]| {
        let ((stem, _, one), (_, most, many)) = (rows.first()?, rows.last()?);
        let times = many.over(*one);
        let unit = " MiB/s";
        let (many, one) = (amount(*many, unit), amount(*one, unit));
        let (load, writers) = stem.split_once('-')?;
        let text = format!(
            "{load}, writers {writers}: {most} threads {many}, one {one}: {}",
            ratio(times)
        );
        (rows.len() > 1 && rows[0].1 == "1").then(|| (Band::MORE.has(times), text))
    };
    rows.chunk_by(|a, b| a.0 == b.0).filter_map(case).collect()
}

/// The mean over those shapes of levels whose runs and ratio are wanted.
fn shapes(
    book: &Book,
    (step, measure): (&str, Measure),
    wanted: fn(u32, u32) -> bool,
) -> Option<Spread> {
    let known = book.all("lsm-kv", step, measure);
    let known = known.into_iter().filter_map(|(row, figure)| {
        let (runs, ratio) = row.strip_prefix("grid-")?.split_once('-')?;
        wanted(runs.parse().ok()?, ratio.parse().ok()?).then_some(figure)
    });
    Spread::mean(&known.collect::<Vec<_>>())
}
