//! The commands that print figures, and the names in their JSON.

use super::*;

fn imported() -> (Place, Value) {
    let place = Place::new();
    let file = place.file("input", b"b\t1\na\t2\n");
    let import = place.run(&["import", "DB", &file, "--format", "tsv", "--key", "1", "--json"]);
    let figures = import.json().remove(0);
    (place, figures)
}

#[test]
fn import_figures() {
    let (place, figures) = imported();
    let expected = [
        "keyspace",
        "records",
        "bytes",
        "seconds",
        "records_per_second",
        "duplicates",
        "malformed",
    ];
    assert_eq!(names(&figures), expected);
    assert_eq!((&figures["records"], &figures["bytes"]), (&2.into(), &8.into()));
    assert_eq!(figures["keyspace"], "default");
    let file = place.file("input", b"b\t1\na\t2\n");
    let import = place.run(&["import", "DB", &file, "--format", "tsv", "--key", "1"]);
    assert_eq!(import.err, "", "no bar without a terminal");
    let line = import.text();
    assert!(line.starts_with("2 records, 8 B, ") && line.ends_with(" records/s\n"), "{line}");
}

#[test]
fn count_and_keyspaces() {
    let (place, _) = imported();
    let count = place.run(&["count", "DB", "--json"]).text();
    assert_eq!(count, "{\"keyspace\":\"default\",\"count\":2}\n");
    let mut keyspaces = place.run(&["keyspaces", "DB", "--json"]).json();
    keyspaces.sort_by_key(|keyspace| keyspace["keyspace"].as_str().unwrap().to_owned());
    assert_eq!(keyspaces.len(), 2);
    assert_eq!(names(&keyspaces[0]), ["keyspace", "engine", "file", "logged", "options"]);
    assert_eq!(keyspaces[0]["keyspace"], "default");
    assert_eq!(keyspaces[1]["keyspace"], "default.order");
    assert_eq!((&keyspaces[0]["engine"], &keyspaces[0]["logged"]), (&"lsm".into(), &true.into()));
    assert!(place.run(&["keyspaces", "DB"]).text().contains("default.order"));
}

#[test]
fn stats() {
    let (place, _) = imported();
    place.run(&["compact", "DB"]).good();
    let stats = place.run(&["stats", "DB", "--json"]).json().remove(0);
    let expected = [
        "disk_bytes",
        "last_seqno",
        "log",
        "recovery",
        "memory",
        "cache",
        "page_cache",
        "io",
        "keyspaces",
    ];
    assert_eq!(names(&stats), expected);
    assert_eq!(names(&stats["log"]), ["segments", "bytes"]);
    assert_eq!(names(&stats["recovery"]), ["replayed_batches", "dropped_bytes"]);
    let expected = ["budget", "memtables", "block_cache", "tables", "page_caches"];
    assert_eq!(names(&stats["memory"]), expected);
    assert_eq!(names(&stats["cache"]), ["hits", "misses"]);
    let pages = ["requests", "hits", "read_pages", "written_pages", "evictions"];
    assert_eq!(names(&stats["page_cache"]), pages);
    let expected = ["requests", "reads", "read_bytes", "writes", "written_bytes", "syncs"];
    assert_eq!(names(&stats["io"]), expected);
    let expected = [
        "keyspace",
        "engine",
        "file",
        "block_size",
        "page_cache_pages",
        "entries",
        "disk_bytes",
        "memory_bytes",
        "page_cache",
        "flushes",
        "compactions",
        "levels",
        "values",
        "tree",
        "skip",
        "logged",
        "options",
    ];
    assert_eq!(stats["keyspaces"].as_array().unwrap().len(), 2);
    assert_eq!(names(&stats["keyspaces"][0]), expected);
    assert_eq!(names(&stats["keyspaces"][0]["page_cache"]), pages);
    assert_eq!(stats["keyspaces"][0]["block_size"], Value::Null);
    assert_eq!(names(&stats["keyspaces"][0]["values"]), ["files", "bytes", "garbage"]);
    assert_eq!(stats["keyspaces"][0]["tree"], Value::Null);
    assert_eq!(stats["keyspaces"][0]["skip"], Value::Null);
    for level in stats["keyspaces"][0]["levels"].as_array().unwrap() {
        assert_eq!(
            names(level),
            ["level", "runs", "tables", "bytes", "entries", "range_tombstones"]
        );
    }
    let text = place.run(&["stats", "DB"]).text();
    assert!(text.contains("on disk") && text.contains("default.order"), "{text}");
    assert!(text.contains("cache      0 hits, 0 misses\n"), "{text}");
    assert!(
        text.contains("pages      0 requests, 0 hits, 0 read, 0 written, 0 evicted\n"),
        "{text}"
    );
}

#[test]
fn options_of_keyspaces() {
    let place = Place::new();
    let made: [(&str, &[&str], &str); 5] = [
        (
            "lsm",
            &["--memtable", "vector", "--filter-bits", "10,6", "--policy", "tiered:3"],
            "memtable vector, filter bits 10,6, policy tiered:3",
        ),
        ("levels", &["--levels", "tiering:2,levelling:4"], "policy tiering:2,levelling:4"),
        ("tree", &["--engine", "btree", "--page-size", "8192"], "page size 8192"),
        ("skip", &["--engine", "skip", "--reducer", "concat"], "reducer concat"),
        ("plain", &["--engine", "hash", "--durability", "none"], ""),
    ];
    for (name, options, _) in made {
        place.run(&[&["put", "DB", "k", "v", "--keyspace", name], options].concat()).good();
    }
    let stats = place.run(&["stats", "DB", "--json"]).json().remove(0);
    let listed = place.run(&["keyspaces", "DB", "--json"]).json();
    let texts = [place.run(&["stats", "DB"]).text(), place.run(&["keyspaces", "DB"]).text()];
    for (name, _, words) in made {
        let listed = listed.iter().find(|keyspace| keyspace["keyspace"] == name).unwrap();
        let all = stats["keyspaces"].as_array().unwrap();
        let told = all.iter().find(|keyspace| keyspace["keyspace"] == name).unwrap();
        assert_eq!((&told["options"], &told["logged"]), (&listed["options"], &listed["logged"]));
        assert_eq!(listed["logged"], name != "plain");
        let object = listed["options"].as_object().unwrap();
        let in_words: Vec<_> = object
            .iter()
            .map(|(name, value)| format!("{} {}", name.replace('_', " "), value.as_str().unwrap()))
            .collect();
        assert_eq!(in_words.join(", "), words);
        let line = |text: &String| text.lines().any(|l| l.starts_with(name) && l.ends_with(words));
        assert!(texts.iter().all(line), "{name}: {texts:?}");
    }
    // What may change changes, and what may not is refused.
    place.run(&["put", "DB", "k", "w", "--keyspace", "lsm", "--memtable", "skiplist"]).good();
    let listed = place.run(&["keyspaces", "DB", "--json"]).json();
    let lsm = listed.iter().find(|keyspace| keyspace["keyspace"] == "lsm").unwrap();
    let now =
        serde_json::json!({"memtable": "skiplist", "filter_bits": "10,6", "policy": "tiered:3"});
    assert_eq!(lsm["options"], now);
    for wrong in [
        &["--policy", "tiered:4"][..],
        &["--levels", "tiering:3"],
        &["--durability", "none"],
        &["--filter", "none", "--filter-bits", "10"],
    ] {
        place.run(&[&["put", "DB", "k", "x", "--keyspace", "lsm"], wrong].concat()).bad(2);
    }
    place.run(&["delete", "DB", "k", "--keyspace", "lsm", "--durability", "none"]).bad(2);
    for wrong in ["os", "sync", "buffered", "manual"] {
        let put = ["put", "DB", "k", "x", "--keyspace", "plain", "--durability", wrong];
        place.run(&put).bad(2);
    }
    place.run(&["put", "DB", "k", "x", "--keyspace", "plain"]).good();
    place.run(&["delete", "DB", "k", "--keyspace", "plain", "--durability", "none"]).good();
    assert_eq!(place.run(&["get", "DB", "k", "--keyspace", "lsm"]).text(), "w\n");
}

#[test]
fn an_import_takes_the_options_of_an_lsm_tree() {
    let place = Place::new();
    let file = place.file("input", b"b\t1\na\t2\n");
    let options = ["--compression", "lz4", "--separate-values", "64", "--durability", "none"];
    let import = ["import", "DB", &file, "--format", "tsv", "--key", "1"];
    place.run(&[&import[..], &options].concat()).good();
    assert_eq!(place.run(&["export", "DB"]).text(), "b\t1\na\t2\n");
    let keyspaces = place.run(&["keyspaces", "DB", "--json"]).json();
    assert!(keyspaces.iter().all(|keyspace| keyspace["logged"] == false));
    let chosen = serde_json::json!({"compression": "lz4", "separate_values": "64"});
    let options: Vec<_> = keyspaces.iter().map(|keyspace| &keyspace["options"]).collect();
    assert_eq!(options, [&chosen, &serde_json::json!({})]);
}

#[test]
fn stats_of_a_tree() {
    let place = Place::new();
    place.run(&["put", "DB", "k", "v", "--engine", "btree"]).good();
    let stats = place.run(&["stats", "DB", "--json"]).json().remove(0);
    let keyspace = &stats["keyspaces"][0];
    assert_eq!(
        (&keyspace["engine"], &keyspace["levels"]),
        (&"btree".into(), &Value::Array(vec![]))
    );
    let expected = [
        "page_size",
        "levels",
        "records",
        "leaf_nodes",
        "inner_nodes",
        "overflow_pages",
        "free_pages",
        "requests",
        "hits",
    ];
    let tree = &keyspace["tree"];
    assert_eq!(names(tree), expected);
    assert_eq!((&tree["page_size"], &tree["levels"]), (&4096.into(), &1.into()));
    assert_eq!((&tree["records"], &tree["leaf_nodes"]), (&1.into(), &1.into()));
    let text = place.run(&["stats", "DB"]).text();
    assert!(text.contains("leaf nodes  inner nodes  overflow pages  free pages\n"), "{text}");
    let (imported, _) = imported();
    assert!(!imported.run(&["stats", "DB"]).text().contains("leaf nodes"));
}

#[test]
fn stats_of_a_skip_keyspace() {
    let place = Place::new();
    let made = ["--engine", "skip", "--step-unit", "16"];
    place.run(&[&["put", "DB", "k", "v"], &made[..]].concat()).good();
    place.run(&["compact", "DB"]).good();
    let stats = place.run(&["stats", "DB", "--json"]).json().remove(0);
    let keyspace = &stats["keyspaces"][0];
    assert_eq!((&keyspace["engine"], &keyspace["tree"]), (&"skip".into(), &Value::Null));
    let expected = [
        "step_unit",
        "levels",
        "records",
        "blocks",
        "runs",
        "run_entries",
        "requests",
        "hits",
        "merges",
        "merge_done",
        "merge_total",
    ];
    let skip = &keyspace["skip"];
    assert_eq!(names(skip), expected);
    assert_eq!((&skip["step_unit"], &skip["records"]), (&16.into(), &1.into()));
    let text = place.run(&["stats", "DB"]).text();
    assert!(text.contains("step unit  levels  records  blocks  runs  run entries\n"), "{text}");
    let (imported, _) = imported();
    assert!(!imported.run(&["stats", "DB"]).text().contains("run entries"));
}

#[test]
fn verify_and_compact() {
    let (place, _) = imported();
    let compact = place.run(&["compact", "DB", "--json"]).json().remove(0);
    let expected = ["keyspace", "seconds", "disk_bytes_before", "disk_bytes_after"];
    assert_eq!(names(&compact), expected);
    assert!(place.run(&["compact", "DB"]).text().starts_with("default: "));
    let verify = place.run(&["verify", "DB", "--json"]).json().remove(0);
    assert_eq!(names(&verify), ["files", "bytes", "entries", "problems"]);
    assert_eq!(verify["problems"], Value::Array(vec![]));
    assert!(place.run(&["verify", "DB"]).text().ends_with(" 0 problems\n"));
    assert_eq!(place.run(&["count", "DB"]).text(), "2\n");
}
