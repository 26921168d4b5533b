//! put, get, delete, scan, count.

use super::*;

fn fruits() -> Place {
    let place = Place::new();
    for (key, value) in [("apple", "red"), ("apricot", "orange"), ("pear", "green"), ("plum", "")] {
        assert_eq!(place.run(&["put", "DB", key, value]).good(), b"");
    }
    place
}

#[test]
fn put_then_get() {
    let place = fruits();
    assert_eq!(place.run(&["get", "DB", "apple"]).text(), "red\n");
    assert_eq!(place.run(&["get", "DB", "plum"]).text(), "\n");
    assert_eq!(place.run(&["get", "DB", "-n", "apple"]).text(), "red");
    place.run(&["put", "DB", "apple", "-5", "--durability", "sync"]).good();
    assert_eq!(place.run(&["get", "DB", "apple", "--memory-budget", "32MiB"]).text(), "-5\n");
    place.run(&["put", "DB", "--", "-k", "--v"]).good();
    assert_eq!(place.run(&["get", "DB", "--", "-k"]).text(), "--v\n");
}

#[test]
fn keyspaces_are_apart() {
    let place = fruits();
    place.run(&["put", "DB", "--keyspace", "prices", "apple", "0.40"]).good();
    assert_eq!(place.run(&["get", "DB", "--keyspace", "prices", "apple"]).text(), "0.40\n");
    assert_eq!(place.run(&["get", "DB", "apple"]).text(), "red\n");
    assert_eq!(place.run(&["count", "DB", "-k", "prices"]).text(), "1\n");
}

#[test]
fn delete_is_quiet_about_missing_keys() {
    let place = fruits();
    place.run(&["delete", "DB", "apple", "nothing", "pear", "--durability", "os"]).good();
    assert_eq!(place.run(&["scan", "DB", "--keys-only"]).text(), "apricot\nplum\n");
    place.run(&["delete", "DB", "nothing"]).good();
}

#[test]
fn delete_takes_ranges_as_scan_does() {
    let place = fruits();
    let left = || place.run(&["scan", "DB", "--keys-only"]).text();
    place.run(&["delete", "DB", "--from", "pear", "--to", "pear"]).good();
    place.run(&["delete", "DB", "--from", "pear", "--to", "plum"]).good();
    assert_eq!(left(), "apple\napricot\nplum\n");
    place.run(&["delete", "DB", "--prefix", "ap", "--durability", "sync"]).good();
    assert_eq!(left(), "plum\n");
    place.run(&["delete", "DB", "--hex", "--from", "70"]).good();
    assert_eq!(left(), "");
    place.run(&["delete", "DB", "--from", "b", "--to", "a"]).bad(2);
    assert_eq!(place.run(&["delete", "DB", "key", "--to", "a"]).code, Some(2));
    place.run(&["put", "DB", "--keyspace", "hashed", "--engine", "hash", "k", "v"]).good();
    let message = place.run(&["delete", "DB", "--keyspace", "hashed", "--prefix", "k"]).bad(2);
    assert!(message.contains("only an LSM-tree deletes a range"), "{message}");
}

#[test]
fn clear_empties_one_keyspace_if_it_is_meant() {
    let place = fruits();
    place.run(&["put", "DB", "--keyspace", "prices", "apple", "0.40"]).good();
    let message = place.run(&["clear", "DB", "default"]).bad(2);
    assert!(message.contains("\"default\" away: say --yes"), "{message}");
    assert_eq!(place.run(&["count", "DB"]).text(), "4\n");
    let usage = place.run(&["clear", "DB", "--yes"]);
    assert!(usage.code == Some(2) && usage.err.contains("<KEYSPACE>"), "{}", usage.err);
    assert!(place.run(&["clear", "DB", "other", "--yes"]).bad(2).contains("other"));
    assert_eq!(place.run(&["clear", "DB", "default", "--yes"]).good(), b"");
    assert_eq!(place.run(&["count", "DB"]).text(), "0\n");
    assert_eq!(place.run(&["count", "DB", "-k", "prices"]).text(), "1\n");
    place.run(&["put", "DB", "--keyspace", "hashed", "--engine", "hash", "k", "v"]).good();
    let message = place.run(&["clear", "DB", "hashed", "--yes"]).bad(2);
    assert!(message.contains("delete its keys"), "{message}");
}

#[test]
fn scan_chooses() {
    let place = fruits();
    let scan = |options: &[&str]| place.run(&[&["scan", "DB"], options].concat()).text();
    assert_eq!(scan(&[]), "apple\tred\napricot\torange\npear\tgreen\nplum\t\n");
    assert_eq!(scan(&["--prefix", "ap", "--keys-only"]), "apple\napricot\n");
    assert_eq!(scan(&["--prefix", "ap", "--keys-only", "--reverse"]), "apricot\napple\n");
    assert_eq!(scan(&["--from", "apricot", "--to", "plum", "--keys-only"]), "apricot\npear\n");
    assert_eq!(scan(&["--from", "b", "--keys-only"]), "pear\nplum\n");
    assert_eq!(scan(&["--to", "apricot"]), "apple\tred\n");
    assert_eq!(scan(&["--reverse", "--limit", "1", "--keys-only"]), "plum\n");
    assert_eq!(scan(&["--limit", "0"]), "");
    assert_eq!(scan(&["--from", "pear", "--to", "pear"]), "");
    place.run(&["scan", "DB", "--from", "b", "--to", "a"]).bad(2);
    assert_eq!(place.run(&["scan", "DB", "--from", "b", "--prefix", "a"]).code, Some(2));
}

#[test]
fn count_counts() {
    let place = fruits();
    assert_eq!(place.run(&["count", "DB"]).text(), "4\n");
    assert_eq!(place.run(&["count", "DB", "--prefix", "p"]).text(), "2\n");
    assert_eq!(place.run(&["count", "DB", "--from", "apricot", "--to", "plum"]).text(), "2\n");
}

#[test]
fn hex_carries_any_bytes() {
    let place = Place::new();
    place.run(&["put", "DB", "--hex", "00ff0a", "0d0a09"]).good();
    place.run(&["put", "DB", "--hex", "00FE", ""]).good();
    assert_eq!(place.run(&["get", "DB", "--hex", "00ff0a"]).text(), "0d0a09\n");
    assert_eq!(place.run(&["get", "DB", "--hex", "00FF0A"]).text(), "0d0a09\n");
    assert_eq!(place.run(&["scan", "DB", "--hex"]).text(), "00fe\t\n00ff0a\t0d0a09\n");
    assert_eq!(place.run(&["scan", "DB", "--hex", "--prefix", "00ff"]).text(), "00ff0a\t0d0a09\n");
    assert_eq!(place.run(&["count", "DB", "--hex", "--from", "00ff"]).text(), "1\n");
    place.run(&["delete", "DB", "--hex", "00fe"]).good();
    assert_eq!(place.run(&["count", "DB"]).text(), "1\n");
    let message = place.run(&["get", "DB", "--hex", "0g"]).bad(2);
    assert!(message.contains("hexadecimal"), "{message}");
}

#[cfg(unix)]
#[test]
fn arguments_are_bytes() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let place = Place::new();
    let mut put = place.command(&["put", "DB"]);
    put.arg(OsStr::from_bytes(b"k\xff")).arg(OsStr::from_bytes(b"\xfe"));
    assert!(put.status().unwrap().success());
    assert_eq!(place.run(&["get", "DB", "--hex", "6bff"]).text(), "fe\n");
}

#[test]
fn the_engine_is_chosen_when_a_keyspace_is_made() {
    let place = Place::new();
    for engine in ["lsm", "hash", "btree", "skip"] {
        let put = ["put", "DB", "k", "v", "--keyspace", engine, "--engine"];
        place.run(&[&put[..], &[engine]].concat()).good();
        // It is what it is from then on, whether it is named or not.
        place.run(&[&put[..], &[engine]].concat()).good();
        place.run(&["put", "DB", "k", "w", "--keyspace", engine]).good();
        assert_eq!(place.run(&["get", "DB", "k", "--keyspace", engine]).text(), "w\n");
        for other in ["lsm", "hash", "btree", "skip"].iter().filter(|other| **other != engine) {
            let error = place.run(&[&put[..], &[other]].concat()).bad(2);
            assert!(error.contains(&format!("exists with the engine {engine}")), "{error}");
        }
    }
    let keyspaces = place.run(&["keyspaces", "DB", "--json"]).json();
    assert!(keyspaces.iter().all(|keyspace| keyspace["keyspace"] == keyspace["engine"]));
    assert_eq!(keyspaces.len(), 4);
    assert_eq!(place.run(&["put", "DB", "k", "v", "--engine", "abacus"]).code, Some(2));
    for command in ["put", "import", "bench"] {
        let help = place.run(&[command, "--help"]).text();
        for engine in ["lsm", "hash", "btree", "skip"] {
            assert!(help.contains(&format!("- {engine}:")), "{command} {engine}: {help}");
        }
    }
}

#[test]
fn keys_without_order_come_all_or_not_at_all() {
    let place = Place::new();
    for key in ["b", "a", "c"] {
        place.run(&["put", "DB", key, "v", "--engine", "hash"]).good();
    }
    let scan = place.run(&["scan", "DB", "--keys-only"]).text();
    let mut keys: Vec<_> = scan.lines().collect();
    keys.sort_unstable();
    assert_eq!(keys, ["a", "b", "c"]);
    assert_eq!(place.run(&["scan", "DB", "--limit", "2"]).text().lines().count(), 2);
    assert_eq!(place.run(&["count", "DB"]).text(), "3\n");
    assert_eq!(place.run(&["export", "DB", "--by-key"]).text(), "v\nv\nv\n");
    for options in [&["--reverse"][..], &["--prefix", "a"], &["--from", "a"], &["--to", "b"]] {
        let error = place.run(&[&["scan", "DB"], options].concat()).bad(2);
        assert!(error.contains("has no order"), "{error}");
    }
    place.run(&["count", "DB", "--prefix", "a"]).bad(2);
    let help = place.run(&["scan", "--help"]).text();
    assert!(help.contains("no order") && help.contains("engine hash"), "{help}");
}

#[test]
fn what_an_engine_is_made_of_is_chosen_when_a_keyspace_is_made() {
    let place = Place::new();
    let put = |options: &[&str]| {
        place.run(&[&["put", "DB", "k", "v", "--keyspace", "tree"], options].concat())
    };
    let error = put(&["--page-size", "8192"]).bad(2);
    assert!(error.contains("are for the engine btree, not for lsm"), "{error}");
    let error = put(&["--engine", "btree", "--step-unit", "8"]).bad(2);
    assert!(error.contains("are for the engine skip, not for btree"), "{error}");
    put(&["--engine", "btree", "--page-size", "8192"]).good();
    // It is what it is from then on, whether it is named or not.
    put(&["--page-size", "8192"]).good();
    put(&["--max-cached-pages", "100"]).good();
    put(&[]).good();
    let error = put(&["--page-size", "4096"]).bad(2);
    assert!(error.contains("have 8192 bytes, and that cannot be changed"), "{error}");
    put(&["--reducer", "sum"]).bad(2);
    let stats = place.run(&["stats", "DB", "--json"]).json().remove(0);
    assert_eq!(stats["keyspaces"][0]["tree"]["page_size"], 8192);
}

#[test]
fn reducers_say_what_several_values_become() {
    let place = Place::new();
    for (reducer, expected) in [("last", "b"), ("first", "a"), ("concat", "ab")] {
        let options = ["--keyspace", reducer, "--engine", "skip", "--reducer", reducer];
        for value in ["a", "b"] {
            place.run(&[&["put", "DB", "k", value][..], &options].concat()).good();
        }
        let value = place.run(&["get", "DB", "k", "--keyspace", reducer]).text();
        assert_eq!(value, format!("{expected}\n"));
    }
    let sum = ["put", "DB", "--keyspace", "sum", "--engine", "skip", "--reducer", "sum"];
    let error = place.run(&[&sum[..], &["k", "v"]].concat()).bad(2);
    assert!(error.contains("8 bytes"), "{error}");
    let custom = ["put", "DB", "k", "v", "--keyspace", "custom", "--engine", "skip", "--reducer"];
    let error = place.run(&[&custom[..], &["custom:largest"]].concat()).bad(2);
    assert!(error.contains("no reducer is registered under the name \"largest\""), "{error}");
    assert_eq!(place.run(&[&custom[..], &["median"]].concat()).code, Some(2));
    let other = ["put", "DB", "k", "v", "--keyspace", "first", "--reducer", "last"];
    let error = place.run(&other).bad(2);
    assert!(error.contains("reducer first, and that cannot be changed"), "{error}");
}

#[test]
fn records_have_positions_in_a_skip_keyspace() {
    let place = Place::new();
    for key in ["b", "a", "d"] {
        place.run(&["put", "DB", key, "v", "--engine", "skip"]).good();
    }
    assert_eq!(place.run(&["nth", "DB", "0"]).text(), "a\tv\n");
    assert_eq!(place.run(&["nth", "DB", "2", "--hex"]).text(), "64\t76\n");
    let error = place.run(&["nth", "DB", "3"]).bad(1);
    assert!(error.contains("no record at position 3"), "{error}");
    for (key, rank) in [("", "0"), ("a", "0"), ("b", "1"), ("c", "2"), ("d", "2"), ("e", "3")] {
        assert_eq!(place.run(&["rank", "DB", key]).text(), format!("{rank}\n"), "{key}");
    }
}

#[test]
fn other_keyspaces_know_no_positions() {
    let place = Place::new();
    for engine in ["lsm", "hash", "btree"] {
        place.run(&["put", "DB", "k", "v", "--engine", engine, "--keyspace", engine]).good();
        for command in [["nth", "DB", "0"], ["rank", "DB", "k"]] {
            let error = place.run(&[&command[..], &["--keyspace", engine]].concat()).bad(2);
            assert!(error.contains("only a skip keyspace knows the positions"), "{error}");
        }
    }
    assert_eq!(place.run(&["nth", "DB", "first"]).code, Some(2));
}
