//! bench: its names, its sums, and what it leaves behind.

use super::*;

const NAMES: [&str; 42] = [
    "engine",
    "page_size",
    "max_cached_pages",
    "step_unit",
    "max_level",
    "reducer",
    "file",
    "block_size",
    "page_cache_pages",
    "log_file",
    "durability",
    "phase",
    "keys",
    "order",
    "records",
    "threads",
    "batch",
    "latency_run",
    "operations",
    "found",
    "close_seconds",
    "open_seconds",
    "seconds",
    "persist_seconds",
    "settle_seconds",
    "ops_per_second",
    "p50_us",
    "p99_us",
    "p999_us",
    "max_us",
    "written_bytes",
    "space_bytes",
    "write_amplification",
    "space_amplification",
    "peak_rss_bytes",
    "io",
    "close_io",
    "tree",
    "skip",
    "keyspace",
    "log",
    "options",
];

/// The names in `keyspace`.
const KEYSPACE_NAMES: [&str; 4] =
    ["written_bytes", "space_bytes", "write_amplification", "space_amplification"];

/// The names in `log`.
const LOG_NAMES: [&str; 2] = ["written_bytes", "write_amplification"];

/// The names in `io`.
const IO_NAMES: [&str; 7] =
    ["requests", "hits", "reads", "read_bytes", "writes", "written_bytes", "syncs"];

/// The names in `tree`.
const TREE_NAMES: [&str; 10] = [
    "requests",
    "hits",
    "records",
    "levels",
    "inner_nodes",
    "leaf_nodes",
    "records_per_leaf",
    "overflow_pages",
    "free_pages",
    "page_fill",
];

/// The names in `skip`.
const SKIP_NAMES: [&str; 9] = [
    "requests",
    "hits",
    "records",
    "levels",
    "blocks",
    "records_per_block",
    "runs",
    "run_entries",
    "merges",
];

/// Runs a small benchmark in a directory, which must be empty afterwards.
fn bench(options: &[&str]) -> Vec<Value> {
    bench_with("3000", options)
}

/// The same with another number of records.
fn bench_with(records: &str, options: &[&str]) -> Vec<Value> {
    let place = Place::new();
    let dir = place.path("bench").display().to_string();
    let arguments = ["bench", "--json", "--dir", &dir, "--records", records];
    let run = place.run(&[&arguments[..], options].concat());
    assert_eq!(run.err, "");
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    run.json()
}

fn phases(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["phase"].as_str().unwrap()).collect()
}

#[test]
fn names_and_figures() {
    let lines = bench(&[]);
    assert_eq!(phases(&lines), ["fill", "get", "miss", "scan"]);
    for line in &lines {
        assert_eq!(names(line), NAMES);
        assert_eq!(names(&line["io"]), IO_NAMES);
        assert_eq!(names(&line["close_io"]), IO_NAMES);
        assert_eq!(names(&line["tree"]), TREE_NAMES);
        assert!(TREE_NAMES.iter().all(|name| line["tree"][name].as_f64() == Some(0.0)), "{line}");
        assert_eq!(names(&line["skip"]), SKIP_NAMES);
        assert!(SKIP_NAMES.iter().all(|name| line["skip"][name].as_f64() == Some(0.0)), "{line}");
        assert_eq!((&line["max_level"], &line["reducer"]), (&Value::Null, &Value::Null));
        assert_eq!(
            (names(&line["keyspace"]), names(&line["log"])),
            (KEYSPACE_NAMES.to_vec(), LOG_NAMES.to_vec())
        );
        assert_eq!(line["options"], serde_json::json!({}));
        let written = |name: &str| line[name]["written_bytes"].as_u64().unwrap();
        // Figures are read one after the other, while a segment may be made.
        let sum = written("keyspace") + written("log");
        assert!(sum.abs_diff(line["written_bytes"].as_u64().unwrap()) <= 4096, "{line}");
        assert!(IO_NAMES.iter().all(|name| line["io"][name].is_u64()), "{line}");
        assert_eq!(line["io"]["written_bytes"], line["written_bytes"]);
        for name in &NAMES[14..35] {
            assert!(line[name].as_f64().is_some_and(|figure| figure >= 0.0), "{name}: {line}");
        }
        assert_eq!((&line["records"], &line["threads"]), (&3000.into(), &1.into()));
        assert_eq!((&line["engine"], &line["file"]), (&"lsm".into(), &"pos".into()));
        assert_eq!((&line["durability"], &line["order"]), (&"os".into(), &"random".into()));
        assert_eq!((&line["keys"], &line["log_file"]), (&"number".into(), &"mmap".into()));
        assert_eq!((&line["batch"], &line["latency_run"]), (&1.into(), &1.into()));
        assert_eq!((&line["close_seconds"], &line["open_seconds"]), (&0.0.into(), &0.0.into()));
        assert_eq!(line["operations"], 3000);
        let product = line["ops_per_second"].as_f64().unwrap() * line["seconds"].as_f64().unwrap();
        assert!((product - 3000.0).abs() < 1.0, "{line}");
        assert!(line["p50_us"].as_f64() <= line["p99_us"].as_f64(), "{line}");
        assert!(line["p999_us"].as_f64() <= line["max_us"].as_f64(), "{line}");
    }
    assert!(lines[0]["write_amplification"].as_f64() > Some(0.0), "{}", lines[0]);
    assert_eq!(lines[1]["write_amplification"], 0.0);
    // Each record is in the log, with a few bytes of its own around it, and not in a table yet.
    let amplification = |name: &str| lines[0][name]["write_amplification"].as_f64().unwrap();
    assert!((1.0..1.5).contains(&amplification("log")), "{}", lines[0]);
    assert!(amplification("keyspace") < 0.1, "{}", lines[0]);
    let found: Vec<_> = lines.iter().map(|line| &line["found"]).collect();
    assert_eq!(found, [0, 3000, 0, 0]);
}

#[test]
fn every_phase_in_every_order() {
    let all = "fill,get,miss,scan,reverse,overwrite,get,scan,delete,miss,scan,reverse,count,fill,count,get";
    for order in ["random", "sequential", "skewed"] {
        for threads in ["1", "3"] {
            let options = ["--phases", all, "--order", order, "--threads", threads];
            let lines = bench(&options);
            assert_eq!(phases(&lines).join(","), all);
            assert!(lines.iter().all(|line| line["order"] == order));
            assert_eq!(lines[10]["ops_per_second"], 0.0, "there is nothing to scan");
            assert_eq!(
                (&lines[12]["operations"], &lines[14]["operations"]),
                (&0.into(), &3000.into())
            );
            assert_eq!(lines[8]["space_amplification"], 0.0, "no user data is left");
        }
    }
}

#[test]
fn files_durabilities_and_sizes() {
    for file in ["mmap", "pos"] {
        for durability in ["none", "buffered", "manual", "os", "sync"] {
            let records = if durability == "sync" { "50" } else { "500" };
            let place = Place::new();
            let lines = place
                .run(&[
                    "bench",
                    "--json",
                    "--file",
                    file,
                    "--log-file",
                    if file == "mmap" { "pos" } else { "mmap" },
                    "--durability",
                    durability,
                    "--records",
                    records,
                    "--engine",
                    "lsm",
                    "--key-size",
                    "9",
                    "--value-size",
                    "0",
                    "--value-entropy",
                    "1",
                    "--memory-budget",
                    "32MiB",
                    "--seed",
                    "7",
                    "--phases",
                    "fill,get,reverse",
                ])
                .json();
            assert_eq!(lines.len(), 3);
            assert!(lines.iter().all(|line| line["log_file"] != file));
            assert!(lines.iter().all(|l| l["file"] == file && l["durability"] == durability));
            let logged = lines[0]["log"]["written_bytes"].as_u64().unwrap();
            match durability {
                "none" | "manual" => assert_eq!(logged, 0, "{}", lines[0]),
                "os" | "sync" => assert!(logged > 400, "{}", lines[0]),
                // As much as a few milliseconds have let through.
                _ => assert!(logged < 30_000, "{}", lines[0]),
            }
        }
    }
}

#[test]
fn the_table_has_a_heading() {
    let run = Place::new().run(&["bench", "--records", "1000", "--phases", "fill,scan"]);
    assert_eq!(run.err, "");
    let text = run.text();
    let heading = "engine lsm, file pos, log file mmap, durability os, random order, 1 thread, no";
    for part in [
        heading,
        "1,000 records",
        "latencies of each call",
        "memory budget",
        "page cache",
        "no cache is dropped",
        "ops/s",
        "p99.9 µs",
        "settle s",
        "requests  hits",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.lines().any(|line| line.starts_with("fill ")), "{text}");
    assert!(text.lines().any(|line| line.starts_with("scan ")), "{text}");
}

#[test]
fn a_kept_database_can_be_looked_at() {
    let place = Place::new();
    let dir = place.path("kept");
    let arguments = ["bench", "--keep", "--records", "100", "--phases", "fill", "--dir"];
    place.run(&[&arguments[..], &[dir.to_str().unwrap()]].concat()).good();
    let made = fs::read_dir(&dir).unwrap().next().unwrap().unwrap().path().join("db");
    let count = place.run(&["count", made.to_str().unwrap(), "--keyspace", "bench"]).text();
    assert_eq!(count, "100\n");
}

#[test]
fn senseless_benchmarks_are_refused() {
    let place = Place::new();
    let wrong: [&[&str]; 72] = [
        &["--phases", "get"],
        &["--phases", "scan,fill"],
        &["--phases", "fill,delete,get"],
        &["--phases", "count"],
        &["--key-size", "3"],
        &["--engine", "none"],
        &["--records", "0"],
        &["--keys", "letters"],
        &["--keys", "study", "--key-size", "8"],
        &["--keys", "study", "--order", "random"],
        &["--keys", "study", "--phases", "fill,miss"],
        &["--keys", "study", "--phases", "get,fill"],
        &["--keys", "study", "--records", "100000000"],
        &["--batch", "0"],
        &["--latency-run", "0"],
        &["--reopen", "yes"],
        &["--file", "tape"],
        &["--file", "positional"],
        &["--log-file", "tape"],
        &["--block-size", "4096"],
        &["--page-cache", "8"],
        &["--file", "pos-block", "--page-cache", "8"],
        &["--file", "pos-block", "--block-size", "1000"],
        &["--file", "pos-block-cache", "--page-cache", "0"],
        &["--file", "pos-direct-cache", "--page-cache", "many"],
        &["--file", "mmap", "--block-size", "512"],
        &["--page-size", "4096"],
        &["--max-cached-pages", "100"],
        &["--engine", "hash", "--page-size", "4096"],
        &["--engine", "btree", "--page-size", "1000"],
        &["--engine", "btree", "--page-size", "2048"],
        &["--engine", "btree", "--page-size", "131072"],
        &["--engine", "btree", "--max-cached-pages", "0"],
        &["--engine", "btree", "--page-size", "many"],
        &["--engine", "btree", "--step-unit", "4"],
        &["--engine", "btree", "--memtable", "tagged"],
        &["--engine", "hash", "--policy", "tiered"],
        &["--engine", "skip", "--levels", "tiering:2"],
        &["--memtable", "btree"],
        &["--memtable", "skiplist:8"],
        &["--memtable", "hash-skiplist:0"],
        &["--filter", "cuckoo"],
        &["--filter", "none", "--filter-bits", "10"],
        &["--filter", "none", "--key-file", "filter"],
        &["--filter-bits", "10,33"],
        &["--filter-bits", ""],
        &["--key-file", "all"],
        &["--compression", "gzip"],
        &["--data-block-size", "100"],
        &["--table-size", "many"],
        &["--separate-values", "8"],
        &["--policy", "levelled:1"],
        &["--policy", "tiering:2"],
        &["--levels", "tiered:2"],
        &["--policy", "tiered", "--levels", "tiering:2"],
        &["--policy", "fifo:1048576"],
        &["--open-files", "3"],
        &["--memory-budget", "16MiB", "--block-cache", "17MiB"],
        &["--durability", "buffered", "--log-buffer", "1KiB"],
        &["--durability", "os", "--log-buffer", "64KiB"],
        &["--durability", "manual", "--log-flush-ms", "8"],
        &["--durability", "buffered", "--log-flush-ms", "0"],
        &["--max-level", "4"],
        &["--engine", "hash", "--reducer", "last"],
        &["--engine", "skip", "--page-size", "4096"],
        &["--engine", "skip", "--step-unit", "1"],
        &["--engine", "skip", "--step-unit", "65"],
        &["--engine", "skip", "--max-level", "13"],
        &["--engine", "skip", "--reducer", "median"],
        &["--engine", "skip", "--reducer", "custom:"],
        &["--engine", "skip", "--reducer", "concat", "--keys", "study"],
        &["--engine", "skip", "--reducer", "first", "--phases", "fill,get,overwrite"],
    ];
    for options in wrong {
        assert_eq!(place.run(&[&["bench"], options].concat()).code, Some(2), "{options:?}");
    }
}

/// The figure of every phase.
fn figures(lines: &[Value], name: &str) -> Vec<u64> {
    lines.iter().map(|line| line[name].as_u64().unwrap()).collect()
}

#[test]
fn the_keys_of_the_study() {
    let lines = bench_with("2000", &["--keys", "study", "--latency-run", "1"]);
    assert_eq!(phases(&lines), ["fill", "get"]);
    for line in &lines {
        assert_eq!((&line["keys"], &line["order"]), (&"study".into(), &"random".into()));
        assert_eq!((&line["operations"], &line["latency_run"]), (&2000.into(), &1.into()));
    }
    let found = lines[1]["found"].as_u64().unwrap();
    assert!((1180..1350).contains(&found), "{found} of 2000, about 63 % are to be expected");
}

#[test]
fn the_study_counts_what_it_stored() {
    let all = "fill,count,scan,get,overwrite,reverse,get,delete,count,get,scan,fill,get";
    for threads in ["1", "3"] {
        for batch in ["1", "7"] {
            let options = ["--keys", "study", "--threads", threads, "--batch", batch];
            let lines = bench_with("2000", &[&options[..], &["--phases", all]].concat());
            assert_eq!(phases(&lines).join(","), all);
            assert!(lines.iter().all(|line| line["latency_run"] == 16));
            let (operations, found) = (figures(&lines, "operations"), figures(&lines, "found"));
            // 63 %; 86 % after a second fill; a third of those after deleting.
            let shares = [(1, 1180..1350), (5, 1660..1800), (8, 560..720)];
            for (i, share) in shares {
                assert!(share.contains(&operations[i]), "{i}: {operations:?}");
            }
            assert_eq!((operations[1], operations[8]), (operations[2], operations[10]));
            for (stored, get) in [(1, 3), (5, 6), (8, 9)] {
                assert_eq!(operations[get], 2000);
                assert!(operations[stored].abs_diff(found[get]) < 120, "{operations:?} {found:?}");
            }
        }
    }
}

#[test]
fn batches() {
    let all = "fill,get,miss,overwrite,get,delete,miss,scan,count";
    for threads in ["1", "3"] {
        // The last batch is a short one; a batch may be larger than all.
        for batch in [7, 5000] {
            let size = batch.to_string();
            let lines = bench(&["--batch", &size, "--threads", threads, "--phases", all]);
            assert_eq!(phases(&lines).join(","), all);
            assert!(lines.iter().all(|line| line["batch"] == batch));
            assert_eq!(
                figures(&lines, "operations"),
                [3000, 3000, 3000, 3000, 3000, 3000, 3000, 0, 0]
            );
            assert_eq!(figures(&lines, "found"), [0, 3000, 0, 0, 3000, 0, 0, 0, 0]);
        }
    }
    let one = bench(&["--phases", "fill", "--log-file", "pos"]);
    let many = bench(&["--phases", "fill", "--log-file", "pos", "--batch", "100"]);
    let writes = |lines: &[Value]| lines[0]["io"]["writes"].as_u64().unwrap();
    assert!(writes(&many) * 10 < writes(&one), "a batch is one record of the log");
}

#[test]
fn reopening() {
    let all = ["--phases", "fill,overwrite,get,scan,delete,miss"];
    let reopened = |options: &[&str]| -> Vec<bool> {
        let lines = bench(&[&all[..], options].concat());
        let positive = |line: &Value, name| line[name].as_f64().unwrap() > 0.0;
        let closed: Vec<_> = lines.iter().map(|line| positive(line, "close_seconds")).collect();
        let opened: Vec<_> = lines.iter().map(|line| positive(line, "open_seconds")).collect();
        assert_eq!(closed, opened);
        closed
    };
    let before_reading = [false, false, true, false, false, true];
    assert_eq!(reopened(&["--reopen"]), before_reading);
    assert_eq!(reopened(&["--no-reopen", "--reopen", "--durability", "none"]), before_reading);
    assert_eq!(reopened(&[]), [false; 6]);
    assert_eq!(reopened(&["--reopen", "--no-reopen"]), [false; 6]);
    let study = |option: &[&str]| {
        let lines = bench(&[&["--keys", "study"], option].concat());
        lines[1]["open_seconds"].as_f64().unwrap() > 0.0
    };
    assert!(study(&[]) && !study(&["--no-reopen"]));
}

#[test]
fn file_counters() {
    // Without a log the first table is written when the database is closed, so that gets have to read it.
    let options = ["--durability", "none", "--phases", "fill,get,get"];
    let lines = bench(&[&options[..], &["--reopen"]].concat());
    let figure = |i: usize, name: &str| lines[i]["io"][name].as_u64().unwrap();
    assert!(figure(1, "requests") > 0 && figure(1, "reads") > 0);
    assert!(figure(1, "read_bytes") > 0 && figure(1, "read_bytes") <= 3000 * 4096);
    assert_eq!(figure(1, "written_bytes"), 0);
    assert_eq!(figure(2, "reads"), 0, "the blocks are in the cache by then");
    let lines = bench_with("20", &["--phases", "fill", "--durability", "sync"]);
    assert!(lines[0]["io"]["syncs"].as_u64() >= Some(20), "{}", lines[0]);
}

#[test]
fn the_heading_tells_how_it_was_measured() {
    let place = Place::new();
    let heading = |options: &[&str]| {
        let run =
            place.run(&[&["bench", "--records", "500", "--phases", "fill,get"], options].concat());
        run.text()
    };
    let text = heading(&["--keys", "study", "--batch", "10", "--log-file", "pos"]);
    for part in [
        "log file pos",
        "keys of the study",
        "batches of 10",
        "500 draws of as many keys, keys of 8 B",
        "latencies of runs of 20 operations",
        "its own caches are cold",
        "close s",
        "open s",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(heading(&["--latency-run", "16", "--batch", "32"]).contains("latencies of each call"));
}

#[test]
fn the_help_lists_all_layers() {
    let help = Place::new().run(&["bench", "--help"]).text();
    for layer in ["mmap", "pos", "pos-block", "pos-block-cache", "pos-direct", "pos-direct-cache"] {
        assert!(help.contains(&format!("- {layer}:")), "{layer}: {help}");
    }
    for part in ["--keys", "--batch", "--reopen", "--no-reopen", "--latency-run", "stays warm"] {
        assert!(help.contains(part), "{part}: {help}");
    }
}

#[test]
fn layers_with_sizes() {
    let sizes: [(&[&str], u64, u64); 6] = [
        (&["mmap"], 0, 0),
        (&["pos"], 0, 0),
        (&["pos-block", "--block-size", "1024"], 1024, 0),
        (&["pos-direct", "--block-size", "8192"], 8192, 0),
        (&["pos-block-cache", "--page-cache", "8"], 4096, 8),
        (&["pos-direct-cache", "--block-size", "4096", "--page-cache", "100"], 4096, 100),
    ];
    for (options, block_size, pages) in sizes {
        let phases = ["--phases", "fill,get,scan", "--reopen", "--file"];
        let lines = bench_with("500", &[&phases[..], options].concat());
        for line in &lines {
            assert_eq!(line["file"], options[0]);
            assert_eq!(
                (&line["block_size"], &line["page_cache_pages"]),
                (&block_size.into(), &pages.into())
            );
        }
    }
    let options = ["--file", "pos-block", "--block-size", "1024"];
    let arguments = ["bench", "--records", "100", "--phases", "fill"];
    let text = Place::new().run(&[&arguments[..], &options].concat()).text();
    assert!(text.contains("file pos-block (blocks of 1024 B)"), "{text}");
}

#[test]
fn an_engine_without_order_is_counted_and_not_scanned() {
    let lines = bench_with("300", &["--engine", "hash"]);
    let phases: Vec<_> = lines.iter().map(|line| line["phase"].clone()).collect();
    assert_eq!(phases, ["fill", "get", "miss", "count"]);
    let place = Place::new();
    for phases in ["fill,scan", "fill,reverse"] {
        let options = ["bench", "--engine", "hash", "--records", "300", "--phases", phases];
        let run = place.run(&options);
        assert_eq!(run.code, Some(2), "{phases}");
        assert!(run.err.contains("count reads all of them"), "{}", run.err);
    }
}

#[test]
fn a_tree_tells_its_shape_and_how_it_was_asked() {
    let options = ["--engine", "btree", "--page-size", "8192", "--max-cached-pages", "300"];
    let all = "fill,get,scan,reverse,overwrite,get,count,delete,miss";
    let lines = bench(&[&options[..], &["--reopen", "--phases", all]].concat());
    assert_eq!(phases(&lines).join(","), all);
    for line in &lines {
        assert_eq!(line["engine"], "btree");
        assert_eq!((&line["page_size"], &line["max_cached_pages"]), (&8192.into(), &300.into()));
    }
    let figure = |i: usize, name: &str| lines[i]["tree"][name].as_f64().unwrap();
    assert_eq!(figure(0, "records"), 0.0, "they are in memory");
    assert!(lines[1]["close_io"]["written_bytes"].as_u64() >= Some(3000 * 116), "{}", lines[1]);
    for get in [1, 5] {
        assert_eq!((figure(get, "records"), figure(get, "overflow_pages")), (3000.0, 0.0));
        assert_eq!((figure(get, "levels"), figure(get, "inner_nodes")), (2.0, 1.0));
        assert!((0.5..1.1).contains(&figure(get, "page_fill")), "{}", lines[get]);
        let (leaves, by_leaf) = (figure(get, "leaf_nodes"), figure(get, "records_per_leaf"));
        assert!((leaves * by_leaf - 3000.0).abs() < 1e-6 && leaves > 30.0, "{}", lines[get]);
        let missed = figure(get, "requests") - figure(get, "hits");
        assert_eq!((figure(get, "requests"), missed), (3001.0, leaves + 1.0), "{}", lines[get]);
    }
    assert!(figure(5, "free_pages") >= figure(1, "leaf_nodes"), "what was overwritten is free");
    assert_eq!((figure(8, "records"), figure(8, "levels")), (0.0, 0.0));
}

#[test]
fn long_values_have_pages_of_their_own() {
    let options = ["--engine", "btree", "--value-size", "2000", "--reopen", "--phases", "fill,get"];
    let lines = bench_with("100", &options);
    assert_eq!(lines[1]["tree"]["overflow_pages"], 100);
    assert_eq!(lines[1]["page_size"], 4096);
    let mapped = bench_with("100", &[&options[..], &["--file", "mmap"]].concat());
    assert_eq!(mapped[1]["tree"]["requests"], 0, "nothing is asked of a cache");
}

#[test]
fn few_cached_pages_are_read_again() {
    let misses = |pages: &str| {
        let options = ["--engine", "btree", "--reopen", "--phases", "fill,get", "--keys", "study"];
        let lines = bench(&[&options[..], &["--max-cached-pages", pages]].concat());
        let tree = &lines[1]["tree"];
        assert!(tree["leaf_nodes"].as_u64() > Some(40), "{tree}");
        assert_eq!(lines[1]["io"]["reads"].as_u64() > Some(1000), pages == "8", "{}", lines[1]);
        tree["requests"].as_u64().unwrap() - tree["hits"].as_u64().unwrap()
    };
    assert!(misses("8") > 10 * misses("1000"));
}

#[test]
fn the_table_of_a_tree() {
    let arguments = ["bench", "--records", "1000", "--phases", "fill,get", "--reopen"];
    let run = |options: &[&str]| Place::new().run(&[&arguments[..], options].concat()).text();
    let text = run(&["--engine", "btree", "--page-size", "16384", "--max-cached-pages", "2000"]);
    for part in [
        "engine btree (pages of 16384 B, at most 2,000 cached), file pos,",
        "close written",
        "page requests",
        "records/leaf",
        "page fill",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(run(&["--engine", "btree"]).contains("engine btree, file pos,"));
    assert!(!run(&[]).contains("page requests"));
}

#[test]
fn what_persists_counts_for_the_phase() {
    for engine in ["lsm", "btree"] {
        let options = ["--engine", engine, "--phases", "fill,get,overwrite,get", "--persist"];
        let lines = bench(&options);
        assert_eq!(lines.len(), 4);
        for (line, writes) in lines.iter().zip([true, false, true, false]) {
            let figure = |name: &str| line[name].as_f64().unwrap();
            assert_eq!(figure("persist_seconds") > 0.0, writes, "{line}");
            assert!(figure("persist_seconds") <= figure("seconds"), "{line}");
            // What was written is in the log and in the keyspace's files.
            assert!(!writes || figure("written_bytes") > 2.0 * 3000.0 * 100.0, "{line}");
        }
    }
    let arguments = ["bench", "--records", "500", "--phases", "fill", "--persist", "--progress"];
    let text = Place::new().run(&arguments).text();
    assert!(text.contains("the time of a phase that writes includes that of persisting"), "{text}");
}

#[test]
fn a_skip_keyspace_tells_its_shape_and_how_it_was_asked() {
    let options = ["--engine", "skip", "--step-unit", "16", "--max-level", "5", "--persist"];
    let all = "fill,get,miss,scan,reverse,overwrite,get,count,delete,miss";
    let lines = bench(&[&options[..], &["--reopen", "--phases", all]].concat());
    assert_eq!(phases(&lines).join(","), all);
    for line in &lines {
        assert_eq!((&line["engine"], &line["step_unit"]), (&"skip".into(), &16.into()));
        assert_eq!((&line["max_level"], &line["reducer"]), (&5.into(), &Value::Null));
        let figure = |name: &str| line["skip"][name].as_f64().unwrap();
        assert!(figure("hits") <= figure("requests"), "{line}");
        let by_block = figure("blocks") * figure("records_per_block");
        assert!((by_block - figure("records")).abs() < 1e-6, "{line}");
    }
    let stored = |i: usize| {
        let figure = |name: &str| lines[i]["skip"][name].as_u64().unwrap();
        figure("records") + figure("run_entries")
    };
    assert_eq!(stored(0), 3000, "all has persisted");
    assert!(stored(6) >= 3000);
    let sum = ["--engine", "skip", "--reducer", "sum", "--value-size", "8", "--phases"];
    let lines = bench(&[&sum[..], &["fill,get,delete,fill,get"]].concat());
    assert!(lines.iter().all(|line| line["reducer"] == "sum"));
}

#[test]
fn the_table_of_a_skip_keyspace() {
    let arguments = ["bench", "--records", "1000", "--phases", "fill,get", "--engine", "skip"];
    let run = |options: &[&str]| Place::new().run(&[&arguments[..], options].concat()).text();
    let text = run(&["--step-unit", "16", "--max-level", "5", "--reducer", "last"]);
    for part in [
        "engine skip (step unit 16, at most 5 levels, reducer last), file pos,",
        "block requests",
        "records/block",
        "run entries",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(run(&[]).contains("engine skip, file pos,") && !run(&[]).contains("page requests"));
}

/// Every choice that needs no feature, each in another benchmark.
const LSM_OPTIONS: [(&[&str], &str, &str); 14] = [
    (&["--memtable", "skiplist"], "memtable", "skiplist"),
    (&["--memtable", "hash-linklist:3"], "memtable", "hash-linklist:3"),
    (&["--filter", "ribbon"], "filter", "ribbon"),
    (&["--filter", "none", "--key-file", "keys"], "key_file", "keys"),
    (&["--filter-bits", "10,10,6"], "filter_bits", "10,10,6"),
    (&["--point-index", "true"], "point_index", "true"),
    (&["--compression", "none,lz4"], "compression", "none,lz4"),
    (&["--data-block-size", "16KiB"], "data_block_size", "16384"),
    (&["--table-size", "1MiB"], "table_size", "1048576"),
    (&["--separate-values", "100"], "separate_values", "100"),
    (&["--policy", "tiered"], "policy", "tiered:4"),
    (&["--policy", "lazy-levelled:3"], "policy", "lazy-levelled:3"),
    (&["--policy", "fifo:1000000000"], "policy", "fifo:1000000000"),
    (
        &["--levels", "tiering:2,levelling:4,levelling:64000000B"],
        "policy",
        "tiering:2,levelling:4,levelling:64000000B",
    ),
];

#[test]
fn every_layer_of_an_lsm_tree_is_a_choice_and_told() {
    let all = "fill,get,miss,scan,overwrite,get,delete,miss";
    for (options, name, value) in LSM_OPTIONS {
        let lines = bench(&[options, &["--phases", all, "--persist"]].concat());
        assert_eq!(phases(&lines).join(","), all, "{options:?}");
        for line in &lines {
            assert_eq!(line["options"][name], value, "{options:?}");
        }
        assert!(lines[0]["keyspace"]["write_amplification"].as_f64() > Some(0.2), "{}", lines[0]);
        let place = Place::new();
        let arguments = ["bench", "--records", "500", "--phases", "fill,get"];
        let text = place.run(&[&arguments[..], options].concat()).text();
        let words = format!("{} {value}", name.replace('_', " "));
        assert!(text.lines().next().unwrap().contains(&words), "{words}: {text}");
    }
}

#[test]
fn what_a_database_may_take_is_a_choice_and_told() {
    let options = ["--block-cache", "1MiB", "--open-files", "16", "--memory-budget", "32MiB"];
    let log = ["--durability", "buffered", "--log-buffer", "64KiB", "--log-flush-ms", "20"];
    let all = [&options[..], &log].concat();
    let told = serde_json::json!({
        "memory_budget": "33554432", "block_cache": "1048576", "open_files": "16",
        "log_buffer": "65536", "log_flush_ms": "20",
    });
    assert!(bench(&all).iter().all(|line| line["options"] == told));
    let arguments = ["bench", "--records", "500", "--phases", "fill,get"];
    let text = Place::new().run(&[&arguments[..], &all].concat()).text();
    let chosen = "\nchosen: memory budget 33554432, block cache 1048576, open files 16, log buffer 65536, \
                  log flush ms 20\n";
    assert!(text.contains(chosen), "{text}");
}

#[test]
fn a_trace_has_every_flush_and_compaction() {
    let place = Place::new();
    let (dir, trace) = (place.path("bench"), place.path("jobs.jsonl"));
    fs::write(&trace, "of before").unwrap();
    let (dir, path) = (dir.display().to_string(), trace.display().to_string());
    let options = ["--memory-budget", "8MiB", "--table-size", "64KiB", "--persist", "--reopen"];
    let arguments = ["bench", "--json", "--dir", &dir, "--records", "40000", "--trace", &path];
    let phases = ["--phases", "fill,overwrite,get", "--keep", "--background-threads", "2"];
    let run = place.run(&[&arguments[..], &options, &phases].concat());
    let figures = run.json();
    let text = fs::read_to_string(&trace).unwrap();
    assert!(text.ends_with('\n'));
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let expected = [
        "job",
        "keyspace",
        "kind",
        "opened",
        "start",
        "end",
        "together",
        "inputs",
        "outputs",
        "read_bytes",
        "written_bytes",
        "outcome",
        "error",
    ];
    let (mut kinds, mut written) = (std::collections::BTreeSet::new(), 0);
    for line in &lines {
        assert_eq!(names(line), expected);
        assert_eq!((&line["keyspace"], &line["outcome"]), (&"bench".into(), &"done".into()));
        let seconds = |name: &str| line[name].as_f64().unwrap();
        assert!(seconds("opened") <= seconds("start") && seconds("start") <= seconds("end"));
        assert!((1..=3).contains(&line["together"].as_u64().unwrap()), "{line}");
        kinds.insert(line["kind"].as_str().unwrap());
        written += line["written_bytes"].as_u64().unwrap();
        let ranges = [&line["inputs"], &line["outputs"]].map(|side| side.as_array().unwrap());
        for range in ranges.into_iter().flatten() {
            assert_eq!(names(range), ["level", "tables", "bytes", "smallest", "largest"]);
            let key = |name: &str| range[name].as_str().unwrap().to_owned();
            // Sixteen digits, each with its code.
            assert!(key("smallest") <= key("largest") && key("smallest").len() == 32, "{line}");
            assert!(key("smallest").starts_with("3030"), "{line}");
        }
        let [inputs, outputs] = ranges;
        assert_eq!(inputs.is_empty(), line["kind"] == "flush");
        assert!(!outputs.is_empty());
        if line["kind"] == "merge" {
            let read: u64 = inputs.iter().map(|range| range["bytes"].as_u64().unwrap()).sum();
            assert_eq!(line["read_bytes"], read);
        }
    }
    assert!(kinds.contains("flush") && kinds.contains("merge"), "{kinds:?}");
    // All that files were written came of these jobs, but for manifests and the catalog.
    let files: u64 =
        figures.iter().map(|line| line["keyspace"]["written_bytes"].as_u64().unwrap()).sum();
    assert!(written <= files && written * 10 >= files * 9, "{written} of {files}");
    let nowhere = place.path("no/such/dir").display().to_string();
    place.run(&["bench", "--records", "10", "--trace", &nowhere]).bad(5);
}
