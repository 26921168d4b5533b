//! What the operating system is really asked for: files and names are synced before they are said to be safe. All else tries that against file
//! systems in memory, which know only of what reaches the file layer.
//!
//! The parent starts this test binary again as the child, under strace, and reads what that has written down.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use turbidite::{Database, Durability, Layer};

use crate::setup::{ENGINES, options};

/// Names a layer and a directory to the child.
const CHILD: &str = "TURBIDITE_SYNCS_CHILD";
/// What files and directories are changed by, and what makes that safe.
const CALLS: &str = "trace=openat,write,pwrite64,writev,pwritev,pwritev2,fallocate,rename,renameat,\
                     renameat2,mkdir,mkdirat,unlink,unlinkat,fsync,fdatasync";
/// Files of which nothing is ever said to be safe.
const UNSAFE: [&str; 4] = ["lock", "tail.log", "probe", "marks"];

/// What the child process runs; nothing without a parent that asks for it.
#[test]
fn child_that_is_traced() {
    let Ok(task) = std::env::var(CHILD) else { return };
    let (layer, dir) = task.split_once(' ').expect("the layer and the directory");
    let (layer, dir): (Layer, _) = (layer.parse().expect("it is a layer"), Path::new(dir));
    let mut marks = File::create(dir.join("marks")).unwrap();
    let mut mark = |what: &str| marks.write_all(what.as_bytes()).unwrap();
    let open = || Database::builder(dir.join("db")).log_layer(layer).open().unwrap();
    let db = open();
    mark("settled");
    for engine in ENGINES {
        let options = options(engine).layer(layer);
        mark("begun");
        let keyspace = db.keyspace(&engine.to_string(), options).unwrap();
        mark("made");
        for number in 0..200_u32 {
            let value = [number as u8; 2000];
            if number % 50 > 0 {
                keyspace.put(number.to_be_bytes(), value).unwrap();
                continue;
            }
            mark("begun");
            keyspace.put_with(number.to_be_bytes(), value, Durability::Sync).unwrap();
            mark("synced");
        }
        keyspace.persist().unwrap();
        db.settle().unwrap();
        mark("settled");
        keyspace.put("another", "value").unwrap();
        keyspace.compact().unwrap();
        db.settle().unwrap();
        mark("settled");
        keyspace.put("only in the log", "value").unwrap();
    }
    db.close().unwrap();
    mark("closed");
    let db = open();
    assert_eq!(db.keyspaces().len(), ENGINES.len());
    mark("settled");
}

/// What is known of files and directories while the trace is read.
#[derive(Default)]
struct Disk {
    /// The database's.
    root: PathBuf,
    /// Whether files are written in whole blocks.
    in_blocks: bool,
    /// Where in the trace what has not been synced since was changed last; but for segments of the log, which are written to at any time.
    changed: HashMap<PathBuf, usize>,
    /// Syncs that are done: where they began, and of what.
    synced: Vec<(usize, PathBuf)>,
    /// Where the last mark `begun` was.
    begun: usize,
    /// How often each mark was met.
    marks: HashMap<String, usize>,
}

impl Disk {
    fn change(&mut self, path: &Path, at: usize) {
        let name = path.file_name().unwrap_or_default();
        if path.starts_with(&self.root) && UNSAFE.iter().all(|other| name != *other) {
            self.changed.insert(path.to_path_buf(), at);
        }
    }

    /// The names of a directory have changed by that of `path`.
    fn change_names(&mut self, path: &Path, at: usize) {
        let name = path.file_name().unwrap_or_default();
        if UNSAFE.iter().all(|other| name != *other) {
            path.parent().into_iter().for_each(|dir| self.change(dir, at));
        }
    }

    fn mark(&mut self, what: &str, at: usize) {
        *self.marks.entry(what.to_owned()).or_default() += 1;
        let has_synced = |named: &str| {
            let since = self.synced.iter().filter(|(since, _)| *since > self.begun);
            since.filter_map(|(_, path)| path.to_str()).any(|path| path.contains(named))
        };
        let all_is_synced = |dir: &str| {
            let dir = self.root.join(dir);
            let changed = self.changed.iter().filter(|(path, _)| path.starts_with(&dir));
            let changed: Vec<_> = changed.collect();
            assert!(changed.is_empty(), "line {at}: not synced: {changed:?}");
        };
        match what {
            "begun" => self.begun = at,
            "synced" => assert!(has_synced("db/log/0"), "line {at}: the log was not synced"),
            "made" => {
                assert!(has_synced("db/catalog-0"), "line {at}: the catalog was not synced");
                all_is_synced("keyspaces");
            }
            // The catalog may be changed at any time: by what lets go of the log.
            "settled" => all_is_synced("keyspaces"),
            "closed" => all_is_synced(""),
            _ => panic!("line {at}: an unknown mark, {what}"),
        }
    }

    /// Takes note of a call that began at a line and has succeeded, with its arguments.
    fn call(&mut self, name: &str, arguments: &str, result: &str, began: usize, at: usize) {
        // What has no name any more is nothing that anybody counts on.
        if arguments.contains("(deleted)>") {
            return;
        }
        // Descriptors have their paths in brackets, and paths that are named are in quotes.
        let bracketed =
            |text: &str| Some(PathBuf::from(text.split_once('<')?.1.split_once('>')?.0));
        let quoted: Vec<_> = arguments.split('"').skip(1).step_by(2).map(PathBuf::from).collect();
        match name {
            "fsync" | "fdatasync" => {
                let path = bracketed(arguments).expect("it has a descriptor");
                if self.changed.get(&path).is_some_and(|&changed| changed < began) {
                    self.changed.remove(&path);
                }
                self.synced.push((began, path));
            }
            "openat" if arguments.contains("O_CREAT") => {
                let path = bracketed(result).expect("it gives a descriptor");
                self.change(&path, at);
                self.change_names(&path, at);
            }
            "openat" => {}
            "mkdir" | "mkdirat" => self.change_names(&quoted[0], at),
            "unlink" | "unlinkat" => drop(self.changed.remove(&quoted[0])),
            "rename" | "renameat" | "renameat2" => {
                let [from, to] = &quoted[..] else { panic!("line {at}: {arguments}") };
                if let Some(changed) = self.changed.remove(from) {
                    self.changed.insert(to.clone(), changed);
                }
                self.change_names(to, at);
            }
            _ => {
                let path = bracketed(arguments).expect("it has a descriptor");
                // In edit logs, in trees and in segments of the log a word of what was synced comes behind that, and is not synced itself.
                let is_word = |name: &str| match name {
                    // Behind one of two pages of any size. In blocks it is one, which looks like any other write.
                    "tree" => self.in_blocks || arguments.contains(", 12, "),
                    _ => !name.contains('.') && arguments.ends_with(", 32, 64)"),
                };
                match &*path.file_name().unwrap_or_default().to_string_lossy() {
                    "marks" => self.mark(&quoted[0].display().to_string(), at),
                    name if name.ends_with(".log") || is_word(name) => {}
                    _ => self.change(&path, at),
                }
            }
        }
    }

    /// Reads a trace, in which calls of several threads are in the midst of each other.
    fn read(&mut self, trace: &str) {
        let mut unfinished: HashMap<&str, (usize, String)> = HashMap::new();
        for (at, line) in trace.lines().enumerate() {
            let (thread, line) = line.split_once(' ').expect("a thread in front");
            let line = line.trim_start();
            let (began, line) = match line.strip_prefix("<... ") {
                Some(rest) => {
                    let (began, start) = unfinished.remove(thread).expect("it has begun");
                    (began, start + rest.split_once(" resumed>").expect("it goes on").1)
                }
                None => (at, line.to_owned()),
            };
            if let Some(start) = line.strip_suffix("<unfinished ...>") {
                unfinished.insert(thread, (at, start.trim_end().to_owned()));
                continue;
            }
            // Signals and ends of threads are not calls.
            let Some((call, result)) = line.rsplit_once(" = ") else { continue };
            let Some((name, arguments)) = call.split_once('(') else { continue };
            if !result.starts_with('-') {
                self.call(name, arguments.trim_end(), result, began, at);
            }
        }
    }
}

#[test]
fn what_is_said_to_be_safe_was_synced() {
    let layers = [Layer::Positional, Layer::Mmap, Layer::Block { block_size: 4096 }];
    let cached = Layer::BlockCache { block_size: 4096, pages: 16 };
    layers.into_iter().chain([cached]).for_each(trace);
}

fn trace(layer: Layer) {
    let dir = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(dir.path()).unwrap();
    let output = root.join("trace");
    let strace = |command: &[&str]| {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-y", "-s", "4096", "-e", CALLS, "-o"]).arg(&output);
        strace.args(command).stdin(Stdio::null());
        strace
    };
    if !strace(&["true"]).output().is_ok_and(|output| output.status.success()) {
        eprintln!("left out: there is no strace here, or it may not trace");
        return;
    }
    let binary = std::env::current_exe().unwrap();
    let child = ["--exact", "syncs::child_that_is_traced", "--nocapture"];
    let ran = strace(&[&[binary.to_str().unwrap()], &child[..]].concat())
        .env(CHILD, format!("{layer} {}", root.display()))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{layer}: {said}");
    let in_blocks = !matches!(layer, Layer::Positional | Layer::Mmap);
    let mut disk = Disk { root: root.join("db"), in_blocks, ..Disk::default() };
    disk.read(&fs::read_to_string(&output).unwrap());
    let marks = ["begun", "made", "synced", "settled", "closed"];
    let marks = marks.map(|mark| disk.marks.get(mark).copied().unwrap_or_default());
    assert_eq!(marks, [20, 4, 16, 10, 1], "{layer}");
}
