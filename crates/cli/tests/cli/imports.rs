//! import and export: what goes in comes out, byte for byte.

use super::*;

const UNICODE: &[u8] = b"0041;LATIN CAPITAL LETTER A;Lu;0\n\
    00E9;LATIN SMALL LETTER E WITH ACUTE;Ll;0\n\
    FFFD;REPLACEMENT CHARACTER;So;0\n\
    10000;LINEAR B SYLLABLE B008 A;Lo;0\n\
    1F600;GRINNING FACE;So;0\n";

/// Imports `text` and checks that the export is the same.
#[track_caller]
fn there_and_back(text: &[u8], options: &[&str]) -> Place {
    let place = Place::new();
    let file = place.file("input", text);
    place.run(&[&["import", "DB", &file], options].concat()).good();
    let out = place.run(&["export", "DB"]);
    assert_eq!(out.err, "");
    assert_eq!(out.good().escape_ascii().to_string(), text.escape_ascii().to_string());
    let copy = place.path("copy");
    place.run(&["export", "DB", copy.to_str().unwrap()]).good();
    assert_eq!(fs::read(copy).unwrap(), text);
    place
}

#[test]
fn tsv_with_a_separator_keeps_the_order_of_the_file() {
    let place = there_and_back(UNICODE, &["--format", "tsv", "--separator", ";", "--key", "1"]);
    let value = place.run(&["get", "DB", "1F600"]).text();
    assert_eq!(value, "1F600;GRINNING FACE;So;0\n");
    let by_key = place.run(&["export", "DB", "--by-key"]).text();
    let keys: Vec<&str> = by_key.lines().map(|line| line.split(';').next().unwrap()).collect();
    assert_eq!(keys, ["0041", "00E9", "10000", "1F600", "FFFD"]);
    assert_eq!(place.run(&["count", "DB"]).text(), "5\n");
}

#[test]
fn tsv_endings_are_kept() {
    let options = ["--format", "tsv", "--key", "1"];
    there_and_back(b"b\t1\r\na\t2\r\n", &options);
    there_and_back(b"b\t1\na\t2", &options);
    there_and_back(b"b\t1\r\na\t2\nc\t\r", &options);
    there_and_back(b"", &options);
    there_and_back(b"\xef\xbb\xbfb\t1\na\t\xff\xfe\0\n", &options);
    there_and_back(b"b\r\na", &["--format", "tsv", "--key", "line"]);
    there_and_back(b"same\nsame\n\n", &["--format", "tsv", "--key", "line"]);
    let place =
        there_and_back(b"k\tv\r\nb\t1\r\na\t2\r\n", &[&options[..], &["--header"]].concat());
    assert_eq!(place.run(&["get", "DB", "-n", "b"]).text(), "b\t1");
    assert_eq!(place.run(&["export", "DB", "--by-key"]).text(), "k\tv\r\na\t2\r\nb\t1\r\n");
}

#[test]
fn tsv_columns_by_number_name_and_line() {
    let text = b"name\tid\nx\t2\ny\t1\n";
    let place = there_and_back(text, &["--format", "tsv", "--key", "id", "--header"]);
    assert_eq!(place.run(&["scan", "DB"]).text(), "1\ty\t1\n2\tx\t2\n");
    let place = there_and_back(text, &["--format", "tsv", "--key", "line"]);
    assert_eq!(place.run(&["scan", "DB", "--limit", "1"]).text(), "000000000001\tname\tid\n");
    let file = place.file("input", text);
    for key in ["id", "0", "-1"] {
        let key = format!("--key={key}");
        place.run(&["import", "DB", &file, "--format", "tsv", &key]).bad(2);
    }
    place.run(&["import", "DB", &file, "--format", "tsv", "--header", "--key", "3"]).bad(2);
}

#[test]
fn csv_with_quotes_and_line_breaks() {
    let text = b"id,name,text\r\n\
        10,\"Smith, J.\",\"two\r\nlines\"\r\n\
        9,\"say \"\"hi\"\"\",\n\
        \r\n\
        \"8\n8\",plain,\"last\"";
    let place = there_and_back(text, &["--format", "csv", "--key", "id"]);
    assert_eq!(place.run(&["get", "DB", "9"]).text(), "9,\"say \"\"hi\"\"\",\n");
    assert_eq!(place.run(&["get", "DB", "8\n8"]).text(), "\"8\n8\",plain,\"last\"\n");
    assert_eq!(place.run(&["count", "DB"]).text(), "3\n");
    let place = there_and_back(text, &["--format", "csv", "--key", "3"]);
    assert_eq!(place.run(&["get", "DB", "-n", "last"]).text(), "\"8\n8\",plain,\"last\"");
    let place = there_and_back(text, &["--format", "csv", "--key", "1", "--no-header"]);
    assert_eq!(place.run(&["get", "DB", "id"]).text(), "id,name,text\n");
    there_and_back(
        b"\xef\xbb\xbfid;x\n1;2\n",
        &["--format", "csv", "--separator", ";", "--key", "id"],
    );
    there_and_back(b"id\n", &["--format", "csv", "--key", "id"]);
}

#[test]
fn jsonl_by_field() {
    let text = b"{\"id\": \"b\", \"n\": 1.50}\n\n{\"n\":2, \"id\":\"a\\u00e9\"}\r\n{\"id\":\"c\",\"n\":3,\"line\":9}";
    let place = there_and_back(text, &["--format", "jsonl", "--key", "id"]);
    assert_eq!(place.run(&["get", "DB", "a\u{e9}"]).text(), "{\"n\":2, \"id\":\"a\\u00e9\"}\n");
    let place = there_and_back(text, &["--format", "jsonl", "--key", "n"]);
    assert_eq!(place.run(&["scan", "DB", "--keys-only"]).text(), "1.50\n2\n3\n");
    let place = there_and_back(text, &["--format", "jsonl", "--key", "line"]);
    assert_eq!(place.run(&["count", "DB"]).text(), "3\n");
    let file = place.file("input", b"{\"line\":9}\n");
    place.run(&["import", "DB", &file, "-k", "x", "--format", "jsonl", "--key", ".line"]).good();
    assert_eq!(place.run(&["get", "DB", "-k", "x", "9"]).text(), "{\"line\":9}\n");
}

#[test]
fn many_batches_keep_everything() {
    let mut text = Vec::new();
    (0..2500_u32)
        .for_each(|i| writeln!(text, "{:x}\tline {i}", i.wrapping_mul(2_654_435_761)).unwrap());
    let place = there_and_back(&text, &["--format", "tsv", "--key", "1", "--batch", "7"]);
    assert_eq!(place.run(&["count", "DB"]).text(), "2500\n");
    there_and_back(&text, &["--format", "tsv", "--key", "2", "--durability", "sync"]);
}

#[test]
fn standard_input() {
    let place = Place::new();
    let arguments = ["import", "DB", "-", "--format", "tsv", "--key", "1", "--separator", ";"];
    place.run_with_input(&arguments, UNICODE).good();
    assert_eq!(place.run(&["export", "DB", "-"]).good(), UNICODE);
}

#[test]
fn the_latest_import_is_what_comes_out() {
    let place = Place::new();
    let import = |text: &[u8]| {
        let file = place.file("input", text);
        place.run(&["import", "DB", &file, "--format", "tsv", "--key", "1", "--batch", "2"]).good();
    };
    import(b"a\t1\nb\t1\nc\t1\nd\t1\ne\t1\n");
    import(b"c\t2\na\t2\n");
    let out = place.run(&["export", "DB"]);
    assert!(out.err.contains("3 records were not part"), "{}", out.err);
    assert_eq!(out.text(), "c\t2\na\t2\n");
    let by_key = place.run(&["export", "DB", "--by-key"]).text();
    assert_eq!(by_key, "a\t2\nb\t1\nc\t2\nd\t1\ne\t1\n");
}

#[test]
fn later_changes_show() {
    let place = there_and_back(UNICODE, &["--format", "tsv", "--separator", ";", "--key", "1"]);
    place.run(&["delete", "DB", "0041", "10000", "1F600"]).good();
    place.run(&["put", "DB", "00E9", "changed"]).good();
    assert_eq!(place.run(&["export", "DB"]).text(), "changed\nFFFD;REPLACEMENT CHARACTER;So;0\n");
}

#[test]
fn without_an_import_values_are_lines_by_key() {
    let place = Place::new();
    place.run(&["put", "DB", "b", "2"]).good();
    place.run(&["put", "DB", "a", "1"]).good();
    assert_eq!(place.run(&["export", "DB"]).text(), "1\n2\n");
}

#[test]
fn duplicates_are_counted_or_refused() {
    let place = Place::new();
    let file = place.file("input", b"a\t1\nb\t2\na\t3\n");
    let arguments = ["import", "DB", &file, "--format", "tsv", "--key", "1"];
    let text = place.run(&arguments).text();
    assert!(text.contains("1 had a key that occurred before"), "{text}");
    assert_eq!(place.run(&["scan", "DB"]).text(), "a\ta\t3\nb\tb\t2\n");
    // Keys of an earlier import are no duplicates.
    let figures = place.run(&[&arguments[..], &["--json"]].concat()).json();
    assert_eq!(figures[0]["duplicates"], 1);
    let message = place.run(&[&arguments[..], &["--duplicates", "error"]].concat()).bad(2);
    assert!(message.contains("line 3") && message.contains("2 records"), "{message}");
}

#[test]
fn malformed_lines_stop_the_import() {
    let cases: [(&[u8], &[&str], &str); 6] = [
        (b"a\t1\nb\t2\nc\nd\t4\n", &["--format", "tsv", "--key", "2"], "line 3"),
        (b"k,v\na,1\nb,\"2\n\"\nc\nd,4\n", &["--format", "csv", "--key", "k"], "line 5"),
        (b"k,v\na,1\nb,2\nc,\"3\nd,4\n", &["--format", "csv", "--key", "k"], "line 4"),
        (
            b"{\"k\":1}\n{\"k\":2}\n{\"k\":\n{\"k\":4}\n",
            &["--format", "jsonl", "--key", "k"],
            "line 3",
        ),
        (
            b"{\"k\":1}\n{\"k\":2}\n{\"x\":3}\n{\"k\":4}\n",
            &["--format", "jsonl", "--key", "k"],
            "line 3",
        ),
        (
            b"{\"k\":1}\n{\"k\":2}\n{\"k\":[]}\n{\"k\":4}\n",
            &["--format", "jsonl", "--key", "k"],
            "line 3",
        ),
    ];
    for (text, options, line) in cases {
        for batch in ["1", "1000"] {
            let place = Place::new();
            let file = place.file("input", text);
            let import = [&["import", "DB", &file, "--batch", batch], options].concat();
            let message = place.run(&import).bad(2);
            assert!(message.contains(line) && message.contains("2 records"), "{message}");
            assert_eq!(place.run(&["count", "DB"]).text(), "2\n");
            let out = place.run(&["export", "DB"]);
            assert!(out.err.contains("did not reach the end"), "{}", out.err);
            assert!(text.starts_with(&out.good()));

            let skip = [&import[..], &["--skip-malformed", "--json"]].concat();
            let figures = place.run(&skip).json();
            assert_eq!(figures[0]["malformed"], 1);
            assert_eq!(
                figures[0]["records"].to_string(),
                place.run(&["count", "DB"]).text().trim()
            );
            assert_eq!(place.run(&["export", "DB"]).err, "");
        }
    }
}

#[test]
fn a_wrong_header_changes_nothing() {
    let place = there_and_back(UNICODE, &["--format", "tsv", "--separator", ";", "--key", "1"]);
    let file = place.file("wrong", b"a,b\n1,2\n");
    place.run(&["import", "DB", &file, "--format", "csv", "--key", "c"]).bad(2);
    place.run(&["import", "DB", &file, "--format", "csv", "--key", "a", "--header"]).bad(2);
    place
        .run(&["import", "DB", &file, "--format", "jsonl", "--key", "a", "--separator", ","])
        .bad(2);
    place.run(&["import", "DB", &file, "--format", "tsv", "--key", "1", "-k", "x.order"]).bad(2);
    assert_eq!(place.run(&["export", "DB"]).good(), UNICODE);
}

#[test]
fn every_engine_gives_back_the_file() {
    let text = b"b\t1\na\t2\r\nc\t3";
    for engine in ["lsm", "hash", "btree", "skip"] {
        let place = there_and_back(text, &["--format", "tsv", "--key", "1", "--engine", engine]);
        let keyspaces = place.run(&["keyspaces", "DB", "--json"]).json();
        let engines: Vec<_> = keyspaces.iter().map(|keyspace| &keyspace["engine"]).collect();
        assert_eq!(engines, [engine, "lsm"], "the order is kept in an engine with order");
    }
}

#[test]
fn an_import_into_another_engine_changes_nothing() {
    let place = Place::new();
    place.run(&["put", "DB", "k", "v", "--engine", "btree"]).good();
    let file = place.file("input", b"a\t1\n");
    let import = ["import", "DB", &file, "--format", "tsv", "--key", "1"];
    let error = place.run(&[&import[..], &["--engine", "hash"]].concat()).bad(2);
    assert!(error.contains("exists with the engine btree"), "{error}");
    assert_eq!(place.run(&["keyspaces", "DB", "--json"]).json().len(), 1, "no order was made");
    assert_eq!(place.run(&["export", "DB"]).text(), "v\n");
    place.run(&import).good();
    assert_eq!(place.run(&["count", "DB"]).text(), "2\n");
}

#[test]
fn keys_that_occur_again_are_reduced() {
    let place = Place::new();
    let file = place.file("input", b"a\t1\nb\t2\na\t3\n");
    let import = ["import", "DB", &file, "--format", "tsv", "--key", "1", "--engine", "skip"];
    let text = place.run(&[&import[..], &["--reducer", "concat", "--progress"]].concat()).text();
    assert!(text.contains("; 1 had a key that occurred before: the reducer says"), "{text}");
    assert_eq!(place.run(&["get", "DB", "a"]).text(), "a\t1a\t3\n");
}

#[test]
fn progress_is_told_while_it_goes_on() {
    use std::io::{BufRead, BufReader};
    let place = Place::new();
    let import = ["import", "DB", "-", "--format", "tsv", "--key", "1", "--progress"];
    let mut command = place.command(&import);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"a\t1\nb\t2\n").unwrap();
    let mut told = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut told).unwrap();
    assert!(told.starts_with("turbidite: import: "), "{told}");
    assert!(told.ends_with(" records/s\n"), "{told}");
    drop(input);
    assert!(child.wait().unwrap().success());
    assert_eq!(place.run(&["count", "DB"]).text(), "2\n");
}
