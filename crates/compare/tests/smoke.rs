//! Runs every table at the smallest scale, goes on with it, and makes the report of it. The peers that are compiled in run
//! with it; the others must be said to be missing.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

fn compare(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_turbidite-compare")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs a table at the smallest scale and gives the lines of its medians, and what was said.
fn run(table: &str, dir: &Path) -> (Vec<serde_json::Value>, String) {
    let dir = dir.to_str().unwrap();
    let output = compare(&["run", table, "--scale", "smoke", "--dir", dir, "--json", "-"]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{table}: {said}");
    let lines = text(&output.stdout);
    (lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), said)
}

/// Runs one table and its report, and goes on with what is done.
fn smoke(table: &str) {
    let dir = tempfile::tempdir().unwrap();
    let (lines, said) = run(table, dir.path());
    assert!(!lines.is_empty());
    for line in &lines {
        let is_missing = line["trouble"].is_string();
        assert_eq!(line["ops_per_second"].is_null(), is_missing, "{line}");
        let step = line["step"].as_str().unwrap();
        let is_mix = step.starts_with("YCSB") && step != "YCSB C";
        let writes = is_mix || matches!(step, "put" | "overwrite" | "delete");
        if table == "peers" && !is_missing {
            assert_eq!(line["settled_ops_per_second"].is_number(), writes, "{line}");
        }
        for named in ["memory", "durability", "workload", "label"] {
            assert!(!line[named].as_str().unwrap().is_empty(), "{line}");
        }
        if is_missing {
            let system = line["system"].as_str().unwrap();
            assert!(said.contains(&format!("{system} is left out")), "{said}");
        }
    }
    let (again, said) = run(table, dir.path());
    assert_eq!((again, said.contains(": 0 runs in")), (lines, true), "{said}");

    let output = compare(&["report", dir.path().to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = fs::read_to_string(dir.path().join("report.html")).unwrap();
    let markdown = fs::read_to_string(dir.path().join("report.md")).unwrap();
    assert!(page.contains("<svg") && page.ends_with("</html>\n"));
    for wrong in ["NaN", "inf\"", "src=\"http", "<script"] {
        assert!(!page.contains(wrong), "{wrong}");
    }
    assert!(markdown.contains("not measured") && !markdown.contains("here**"), "it proves nothing");
    let plots: Vec<_> =
        markdown.lines().filter_map(|line| line.strip_prefix("![")?.split_once("](")).collect();
    assert!(!plots.is_empty());
    for (_, file) in plots {
        let plot = dir.path().join(file.trim_end_matches(')'));
        assert!(fs::read_to_string(&plot).unwrap().starts_with("<svg"), "{}", plot.display());
    }
    assert!(!dir.path().join("data/system").exists(), "what was measured is removed");
}

#[test]
fn write_path() {
    smoke("write-path");
}

#[test]
fn raw() {
    smoke("raw");
}

#[test]
fn durability() {
    smoke("durability");
}

#[test]
fn files() {
    smoke("files");
}

#[test]
fn locks() {
    smoke("locks");
}

#[test]
fn lsm_kv() {
    smoke("lsm-kv");
}

#[test]
fn peers() {
    smoke("peers");
}

#[test]
fn scale() {
    smoke("scale");
}

/// What a command says when it fails.
fn refused(arguments: &[&str]) -> String {
    let output = compare(arguments);
    assert!(!output.status.success());
    text(&output.stderr)
}

#[test]
fn errors_say_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    fs::write(dir.path().join("notes"), "mine").unwrap();
    assert!(refused(&["run", "raw", "--dir", path]).contains("is not empty"));
    assert!(refused(&["report", path]).contains("has no results"));
    let no_row = refused(&["run", "raw", "--rows", "vec/,nothing", "--dir", path]);
    assert!(no_row.contains("`list raw --scale quick` has all"), "{no_row}");
    let code = |arguments: &[&str]| compare(arguments).status.code();
    let none = ["run", "files", "--only", "rocksdb", "--dir", path];
    assert!(refused(&none).contains("no row is of a system rocksdb"));
    assert_eq!(code(&none), Some(2));
    let new = dir.path().join("new");
    let new = new.to_str().unwrap();
    assert!(
        refused(&["run", "raw", "--dir", new, "--data", path]).contains("--data a new directory")
    );
    assert!(refused(&["run", "nothing", "--dir", new]).contains("there is no table"));
    assert!(refused(&["run", "raw", "--only", "nothing", "--dir", new]).contains("`list` has all"));
    let nowhere = format!("{path}/nowhere/medians");
    let run = ["run", "raw", "--scale", "smoke", "--dir", new, "--json", &nowhere];
    assert_eq!(code(&run), Some(5));
    assert!(!Path::new(new).join("raw.jsonl").exists(), "nothing is run before");
    assert_eq!(fs::read(dir.path().join("notes")).unwrap(), b"mine");
}

#[test]
fn the_list_has_every_table_and_system() {
    let output = compare(&["list"]);
    let list = text(&output.stdout);
    for name in ["write-path", "scale", "turbidite-skip", "rocksdb", "tkrzw", "skipmap-log"] {
        assert!(list.contains(name), "{name}");
    }
    if !cfg!(feature = "rocksdb") {
        assert!(list.contains("libclang-dev"), "{list}");
    }
}

#[test]
fn a_report_is_of_several_directories() {
    let dir = tempfile::tempdir().unwrap();
    let dirs = ["one", "two"].map(|name| dir.path().join(name));
    for (table, dir) in ["raw", "lsm-kv"].into_iter().zip(&dirs) {
        run(table, dir);
    }
    let [one, two] = dirs.each_ref().map(|dir| dir.to_str().unwrap());
    let output = compare(&["report", one, two]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let markdown = fs::read_to_string(dirs[0].join("report.md")).unwrap();
    assert!(markdown.contains("\n## Raw structures") && markdown.contains("\n## A store made"));
    assert!(!dirs[1].join("report.md").exists());
}

#[test]
fn rows_are_run_by_their_names() {
    let list = text(&compare(&["list", "raw", "--scale", "smoke"]).stdout);
    let row = list.lines().nth(2).unwrap().split_whitespace().next().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let output = compare(&["run", "raw", "--scale", "smoke", "--rows", row, "--dir", path]);
    assert!(text(&output.stderr).contains("raw: 1 runs in"), "{}", text(&output.stderr));
    let all = text(&compare(&["list", "all"]).stdout);
    assert!(all.contains("raw, quick scale") && all.contains("scale, quick scale"), "{all}");
}

/// Waits until `is_so`, and says whether it came to be in a minute.
fn comes_to_be(is_so: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !is_so() {
        if start.elapsed() > Duration::from_secs(60) {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
    true
}

/// Whether a process is there and has not ended.
fn runs(process: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/stat"));
    // What has ended and is not waited for is a zombie.
    status.is_ok_and(|status| !status.contains(") Z "))
}

#[test]
fn a_tool_ends_with_the_run_that_needs_it() {
    let dir = tempfile::tempdir().unwrap();
    let tool = dir.path().join("tkrzw_dbm_perf");
    let told = dir.path().join("process");
    // It is asked for its version before.
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && exit\necho $$ >{0}.new\nmv {0}.new {0}\nexec sleep 600\n",
        told.display()
    );
    fs::write(&tool, script).unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let results = dir.path().join("results");
    let mut run = Command::new(env!("CARGO_BIN_EXE_turbidite-compare"))
        .args(["run", "files", "--scale", "smoke", "--only", "tkrzw", "--dir"])
        .arg(&results)
        .env("PATH", path)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert!(comes_to_be(|| told.exists()), "the tool was not run");
    let process = fs::read_to_string(&told).unwrap();
    let process = process.trim();
    assert!(runs(process));
    run.kill().unwrap();
    run.wait().unwrap();
    assert!(comes_to_be(|| !runs(process)), "process {process} goes on");
    // What was left goes with the next run.
    let left = results.join("data/system");
    assert!(left.exists());
    fs::write(left.join("large"), "left").unwrap();
    let path = results.to_str().unwrap();
    let row = "hash-pos/turbidite";
    let output = compare(&["run", "files", "--scale", "smoke", "--rows", row, "--dir", path]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(!left.exists());
}

/// Runs one row of Tkrzw's with results in `dir`, where a tool takes the place of Tkrzw's that does `what` unless it is asked for
/// its version. Gives the exit code and what was said.
fn run_tool(dir: &Path, what: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let tool = dir.join("tkrzw_dbm_perf");
    fs::write(&tool, format!("#!/bin/sh\n[ \"$1\" = --version ] || {what}\n")).unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_turbidite-compare"))
        .args(["run", "files", "--rows", "hash-mmap/tkrzw", "--dir"])
        .arg(dir.join("results"))
        .args(arguments)
        .env("PATH", format!("{}:{}", dir.display(), std::env::var("PATH").unwrap()))
        .output()
        .unwrap();
    (output.status.code(), text(&output.stderr))
}

#[test]
fn a_row_that_has_failed_often_enough_is_not_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let run =
        |again: &[&str]| run_tool(dir.path(), "exit 1", &[&["--scale", "smoke"], again].concat());
    let (code, said) = run(&[]);
    assert!(
        code == Some(6) && said.contains("1 runs failed") && said.contains("--again"),
        "{said}"
    );
    let (code, said) = run(&[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("1 rows have failed") && said.contains(": 0 runs in"), "{said}");
    let (code, said) = run(&["--again"]);
    assert!(code == Some(6) && said.contains("1 runs failed"), "{said}");
}

#[test]
fn a_row_that_takes_too_long_is_not_tried_again_by_the_same_command() {
    let dir = tempfile::tempdir().unwrap();
    let run = |limit: &str| {
        let limit = format!("--limit={limit}");
        run_tool(dir.path(), "exec sleep 600", &["--scale", "quick", &limit])
    };
    for failed in 1..=2 {
        let (code, said) = run("0.01");
        assert!(code == Some(6) && said.contains("1 runs failed"), "{said}");
        assert!(said.contains("took longer than 0.01 minutes"), "{said}");
        assert!(said.contains(": 1 runs in"), "{said}");
        let lines = fs::read_to_string(dir.path().join("results/files.jsonl")).unwrap();
        assert_eq!(lines.lines().count(), failed);
    }
    for wrong in ["0", "-1", "NaN", "inf", "1e9", "soon"] {
        let (code, said) = run(wrong);
        assert!(code == Some(2) && said.contains("such as 30 or 0.5"), "{wrong}: {said}");
    }
}
