//! bench: its names, its sums, and what it leaves behind.

use super::*;

const NAMES: [&str; 18] = [
    "engine",
    "file",
    "durability",
    "phase",
    "order",
    "records",
    "threads",
    "seconds",
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
];

/// Runs a small benchmark in a directory, which must be empty afterwards.
fn bench(options: &[&str]) -> Vec<Value> {
    let place = Place::new();
    let dir = place.path("bench").display().to_string();
    let run =
        place.run(&[&["bench", "--json", "--dir", &dir, "--records", "3000"], options].concat());
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
        for name in &NAMES[5..] {
            assert!(line[name].as_f64().is_some_and(|figure| figure >= 0.0), "{name}: {line}");
        }
        assert_eq!((&line["records"], &line["threads"]), (&3000.into(), &1.into()));
        assert_eq!((&line["engine"], &line["file"]), (&"lsm".into(), &"pos".into()));
        assert_eq!((&line["durability"], &line["order"]), (&"os".into(), &"random".into()));
        let product = line["ops_per_second"].as_f64().unwrap() * line["seconds"].as_f64().unwrap();
        assert!((product - 3000.0).abs() < 1.0, "{line}");
        assert!(line["p50_us"].as_f64() <= line["p99_us"].as_f64(), "{line}");
        assert!(line["p999_us"].as_f64() <= line["max_us"].as_f64(), "{line}");
    }
    assert!(lines[0]["write_amplification"].as_f64() > Some(0.0), "{}", lines[0]);
    assert_eq!(lines[1]["write_amplification"], 0.0);
}

#[test]
fn every_phase_in_every_order() {
    let all = "fill,get,miss,scan,reverse,overwrite,get,scan,delete,miss,scan,reverse,fill,get";
    for order in ["random", "sequential", "skewed"] {
        for threads in ["1", "3"] {
            let options = ["--phases", all, "--order", order, "--threads", threads];
            let lines = bench(&options);
            assert_eq!(phases(&lines).join(","), all);
            assert!(lines.iter().all(|line| line["order"] == order));
            assert_eq!(lines[10]["ops_per_second"], 0.0, "there is nothing to scan");
            assert_eq!(lines[8]["space_amplification"], 0.0, "no user data is left");
        }
    }
}

#[test]
fn files_durabilities_and_sizes() {
    for file in ["mmap", "pos"] {
        for durability in ["none", "buffered", "os", "sync"] {
            let records = if durability == "sync" { "50" } else { "500" };
            let place = Place::new();
            let lines = place
                .run(&[
                    "bench",
                    "--json",
                    "--file",
                    file,
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
            assert!(lines.iter().all(|l| l["file"] == file && l["durability"] == durability));
        }
    }
}

#[test]
fn the_table_has_a_heading() {
    let run = Place::new().run(&["bench", "--records", "1000", "--phases", "fill,scan"]);
    assert_eq!(run.err, "");
    let text = run.text();
    let heading = "engine lsm, file pos, durability os, random order, 1 thread";
    for part in
        [heading, "1,000 records", "memory budget", "page cache", "ops/s", "p99.9 µs", "settle s"]
    {
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
    let wrong: [&[&str]; 6] = [
        &["--phases", "get"],
        &["--phases", "scan,fill"],
        &["--phases", "fill,delete,get"],
        &["--key-size", "3"],
        &["--engine", "none"],
        &["--records", "0"],
    ];
    for options in wrong {
        assert_eq!(place.run(&[&["bench"], options].concat()).code, Some(2), "{options:?}");
    }
}
