//! The rooms of the library and the arrows between them: who may import whom. The sources are read as text,
//! so that an arrow that runs back is found without anybody looking for it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The rooms, lowest layer first. A room may import rooms of lower layers. Rooms of one layer may import
/// each other unless that makes a circle; the handles, which are one room with many doors, may do even that.
const LAYERS: &[&[&str]] = &[
    &["sync", "planted"],
    &["base", "error"],
    &["vfs", "codec"],
    &["options", "reducer", "budget", "workers", "filter"],
    &["stats", "events", "status", "throttle", "cache", "iter", "log", "memtable"],
    &["contract", "jobs"],
    ENGINES,
    &["engine"],
    &["commit", "catalog"],
    HANDLES,
    &["typed", "fuzzing"],
    &["lib"],
];
/// These never import each other.
const ENGINES: &[&str] = &["lsm", "hash", "btree", "skip"];
/// These know each other.
const HANDLES: &[&str] =
    &["batch", "builder", "cursor", "database", "housekeeper", "keyspace", "open", "snapshot"];
/// What only the file layer may name, and what takes memory from the system.
const OPERATING_SYSTEM: &[&str] = &["std::fs", "libc", "rustix", "memmap2", "io_uring"];
/// The only files that may be unsafe.
const UNSAFE: &[&str] = &[
    "base/pages.rs",
    "base/prefetch.rs",
    "base/slice.rs",
    "base/words.rs",
    "cache/slabs.rs",
    "hash/index/chunks.rs",
    "memtable/arena.rs",
    "memtable/cursor.rs",
    "memtable/entry.rs",
    "memtable/hashed/heads.rs",
    "memtable/hashed/mod.rs",
    "memtable/list.rs",
    "memtable/order/mod.rs",
    "memtable/order/model.rs",
    "memtable/order/tree.rs",
    "memtable/table.rs",
    "memtable/tagged.rs",
    "memtable/tags.rs",
    "vfs/aligned.rs",
    "vfs/depth/ring.rs",
    "vfs/memory/lent.rs",
    "vfs/mmap.rs",
    "vfs/pages/frames.rs",
];

/// A source file: its path below `src`, and its code without comments, strings and test modules.
struct Source {
    path: String,
    code: String,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), code: without_tests(&without_comments(text)) }
    }

    /// The room the file is in.
    fn room(&self) -> &str {
        let top = self.path.split('/').next().unwrap_or_default();
        top.strip_suffix(".rs").unwrap_or(top)
    }

    /// How many `super` lead from the file's module to the crate.
    fn depth(&self) -> usize {
        let names = self.path.trim_end_matches(".rs").split('/');
        names.filter(|name| !["lib", "mod"].contains(name)).count()
    }

    /// The rooms the file names, by `crate` or by as many `super` as lead there from the file's module.
    fn imports(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut root = vec!["crate::".to_owned()];
        if self.depth() > 0 {
            root.push("super::".repeat(self.depth()));
        }
        for root in root {
            for (at, _) in self.code.match_indices(&root) {
                let before = self.code[..at].chars().next_back();
                if !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                    found.extend(first_names(&self.code[at + root.len()..]));
                }
            }
        }
        found
    }
}

/// The first name of a path, or of each path in braces.
fn first_names(path: &str) -> Vec<String> {
    let name = |text: &str| {
        let word = |c: &char| c.is_alphanumeric() || *c == '_';
        text.trim_start().chars().take_while(word).collect::<String>()
    };
    let Some(group) = path.strip_prefix('{') else { return vec![name(path)] };
    let (mut names, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                names.push(name(&group[start..at]));
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                names.push(name(&group[start..at]));
                start = at + 1;
            }
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// The text with comments and the contents of strings and characters blanked out.
fn without_comments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skip = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if c == '"' {
            string_len(rest)
        } else if rest.starts_with("'\"'") {
            3
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        rest = &rest[skip..];
    }
    out
}

/// The length of the string literal that `text` begins with.
fn string_len(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The code without the modules and items that are for tests only.
fn without_tests(code: &str) -> String {
    let mut out = String::new();
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(test)]") {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let body = rest.find(['{', ';']).unwrap_or(rest.len() - 1);
        let mut depth = 0;
        let end = rest[body..].char_indices().find(|&(_, c)| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            depth == 0
        });
        rest = &rest[body + end.map_or(rest.len() - body - 1, |(end, _)| end) + 1..];
    }
    out + rest
}

fn layer(room: &str) -> Option<usize> {
    LAYERS.iter().position(|rooms| rooms.contains(&room))
}

/// What is wrong with the arrows and the words of the sources.
fn problems(sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut arrows: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for source in sources {
        let (path, room) = (&source.path, source.room());
        let Some(own) = layer(room) else {
            problems.push(format!("{path}: {room} is not among the rooms"));
            continue;
        };
        for import in source.imports() {
            // Names that are no rooms are what the facade exports again: it is above everybody.
            let known = layer(&import).unwrap_or(LAYERS.len() - 1);
            if known > own {
                problems.push(format!("{path}: {room} must not know {import}"));
            }
            if import != room && ENGINES.contains(&room) && ENGINES.contains(&&*import) {
                problems.push(format!("{path}: engine {room} must not know engine {import}"));
            }
            if import != room && layer(&import).is_some() {
                arrows.entry(room).or_default().insert(import);
            }
        }
        let is_word = |word: &&&str| names(&source.code, word);
        let is_for_it = room == "vfs" || path == "base/pages.rs";
        if let Some(word) = OPERATING_SYSTEM.iter().find(is_word).filter(|_| !is_for_it) {
            problems.push(format!("{path}: {word} belongs to the file layer"));
        }
        if names(&source.code, "unsafe") && !UNSAFE.contains(&&**path) {
            problems.push(format!("{path}: unsafe has no place here"));
        }
    }
    problems.extend(circle(&arrows).map(|circle| format!("a circle leads through {circle:?}")));
    problems
}

/// Whether code has `word` standing by itself.
fn names(code: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        !code[..at].chars().next_back().is_some_and(part)
            && !code[at + word.len()..].chars().next().is_some_and(part)
    })
}

/// Rooms other than handles that are left when those that import none of the others are taken away, again
/// and again.
fn circle(arrows: &BTreeMap<&str, BTreeSet<String>>) -> Option<Vec<String>> {
    let other = |room: &&str| layer(room).is_some() && !HANDLES.contains(room);
    let mut left: BTreeSet<&str> = arrows.keys().copied().filter(other).collect();
    loop {
        let bound = |room: &&str| arrows[*room].iter().any(|import| left.contains(&**import));
        let next: BTreeSet<&str> = left.iter().copied().filter(bound).collect();
        if next.len() == left.len() {
            break;
        }
        left = next;
    }
    (!left.is_empty()).then(|| left.into_iter().map(str::to_owned).collect())
}

/// The library's sources. Files that hold only tests are left out.
fn library() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = crate::setup::files_below(&root);
    let is_code = |path: &str| {
        path.ends_with(".rs") && !path.split('/').any(|name| name == "tests" || name == "tests.rs")
    };
    files
        .iter()
        .map(|(path, text)| {
            let path = path.strip_prefix(&root).unwrap().to_str().unwrap();
            (path, std::str::from_utf8(text).unwrap())
        })
        .filter(|(path, _)| is_code(path))
        .map(|(path, text)| Source::new(path, text))
        .collect()
}

#[test]
fn arrows_run_down() {
    let library = library();
    assert!(library.len() > 50, "the sources were found");
    let rooms: BTreeSet<&str> = library.iter().map(Source::room).collect();
    assert!(["base", "vfs", "log", "lsm", "commit", "database"].iter().all(|r| rooms.contains(r)));
    let imports = |room: &str| -> BTreeSet<String> {
        library.iter().filter(|source| source.room() == room).flat_map(Source::imports).collect()
    };
    assert!(imports("lsm").contains("contract") && imports("engine").contains("lsm"));
    let problems = problems(&library);
    assert!(problems.is_empty(), "{problems:#?}");
}

/// The files of the library that the first column of a table names.
fn tabled_files(text: &str) -> Vec<&str> {
    text.lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` |"))
        .map(|(file, _)| file)
        .filter(|file| file.ends_with(".rs"))
        .collect()
}

#[test]
fn the_inventory_of_unsafe_code_is_complete() {
    let text = include_str!("../../SECURITY.md");
    assert_eq!(tabled_files(text), UNSAFE, "the table in SECURITY.md has other files");
    let library = library();
    let needs_it = |path: &&str| {
        library.iter().any(|source| source.path == **path && names(&source.code, "unsafe"))
    };
    let needless: Vec<_> = UNSAFE.iter().filter(|path| !needs_it(path)).collect();
    assert!(needless.is_empty(), "nothing is unsafe in {needless:?}");
    assert_eq!(tabled_files("| `a.rs` | b |\n| `c` | `d.rs` |\n`e.rs`"), ["a.rs"]);
}

#[test]
fn a_planted_arrow_is_found() {
    let planted: &[(&str, &str, &str)] = &[
        ("vfs/disk.rs", "use crate::database::Inner;", "vfs must not know database"),
        ("log/writer.rs", "use crate::{base, commit::Target};", "log must not know commit"),
        ("lsm/table/reader.rs", "use super::super::super::open;", "lsm must not know open"),
        ("budget.rs", "use super::stats::Stats;", "budget must not know stats"),
        ("cache/mod.rs", "fn f() { crate::lsm::f() }", "cache must not know lsm"),
        ("commit/mod.rs", "use crate::Database;", "commit must not know Database"),
        ("batch.rs", "use crate::typed::EncodeKey;", "batch must not know typed"),
        ("reducer.rs", "use crate::contract::Engine;", "reducer must not know contract"),
        ("lsm/tree.rs", "use crate::hash::Table;", "engine lsm must not know engine hash"),
        ("skip/mod.rs", "use crate::btree::Node;", "engine skip must not know engine btree"),
        ("log/edits.rs", "use std::fs::File;", "std::fs belongs to the file layer"),
        ("open.rs", "fn f() { rustix::fs::sync() }", "rustix belongs to the file layer"),
        ("cache/mod.rs", "fn f() { unsafe { g() } }", "unsafe has no place here"),
        ("garage.rs", "", "garage is not among the rooms"),
    ];
    for (path, code, expected) in planted {
        let found = problems(&[Source::new(path, code)]);
        assert!(found.iter().any(|problem| problem.ends_with(expected)), "{code}: {found:?}");
    }
    let circle = [
        Source::new("cache/mod.rs", "use crate::iter::Merge;"),
        Source::new("iter/merge.rs", "use crate::log::Log;"),
        Source::new("log/mod.rs", "use crate::cache::Cache;"),
    ];
    assert_eq!(problems(&circle), [r#"a circle leads through ["cache", "iter", "log"]"#]);
}

#[test]
fn what_is_no_arrow_is_let_pass() {
    let fine: &[(&str, &str)] = &[
        ("vfs/disk.rs", "//! See [`crate::database`].\n/* crate::lsm */ use crate::base::View;"),
        (
            "vfs/fault.rs",
            "fn f() {}\n#[cfg(test)]\nmod tests { use crate::Database; fn g() { {} } }",
        ),
        ("log/mod.rs", "#[cfg(test)]\nuse crate::database::Inner;\nuse crate::vfs::File;"),
        ("lsm/tree.rs", "use super::table::Table; use crate::lsm::state::State;"),
        ("lsm/table/block.rs", "use super::super::cursor::RunCursor;"),
        ("catalog/mod.rs", r#"const TEXT: &str = "crate::database and \" unsafe std::fs";"#),
        ("vfs/mmap.rs", "use std::fs; fn f() { unsafe { memmap2::f() } }"),
        ("open.rs", "use crate::database::Inner;"),
        ("database.rs", "use crate::open::Opened;"),
    ];
    for (path, code) in fine {
        assert_eq!(problems(&[Source::new(path, code)]), [""; 0], "{code}");
    }
}
