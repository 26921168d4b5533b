//! A database's status as lines of text. Whatever the status says, which is not trusted, the lines can be shown.

mod axis;
mod line;
mod rates;

use std::time::Duration;

use turbidite::{ClaimStatus, JobStatus, KeyspaceStatus, LevelStatus, LsmStatus, Status};

use crate::size::{Bytes, Count};
use axis::Axis;
pub(crate) use line::Line;
pub(crate) use rates::Rates;

/// What stands in front of the keys of a level.
const MARGIN: usize = 28;
/// So many characters of a key are shown.
const KEY: usize = 20;

/// How a picture is drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    /// The most characters of a line.
    pub(crate) width: usize,
    /// Whether colours tell what is claimed; otherwise a line of its own does.
    pub(crate) colours: bool,
    /// Whether blocks of several heights may be used.
    pub(crate) blocks: bool,
}

/// The lines of a picture.
pub(crate) fn draw(status: &Status, rates: Option<&Rates>, style: Style) -> Vec<Line> {
    let mut lines = vec![Line::text(flow(status, rates)), Line::text(memory(status))];
    lines.push(Line::text(writers(status)));
    if !status.jobs.is_empty() {
        lines.push(Line::text(format!("{} under way", number(status.jobs.len(), "job"))));
        lines.extend(status.jobs.iter().map(job));
    }
    for keyspace in &status.keyspaces {
        lines.push(Line::default());
        draw_keyspace(keyspace, style, &mut lines);
    }
    lines
}

/// What writers brought and what became of it, each second, or since the database was opened.
fn flow(status: &Status, rates: Option<&Rates>) -> String {
    let sums = Rates::sums(status);
    let (rates, each) = rates.map_or((&sums, ""), |rates| (rates, "/s"));
    let bytes = |name: &str, bytes: u64| format!("{name} {}{each}", Bytes(bytes));
    let parts = [
        bytes("in", rates.taken_bytes),
        bytes("flushed", rates.flushed_bytes),
        bytes("compacted", rates.compacted_bytes),
        bytes("read", rates.read_bytes),
        format!("{} writes{each}", Count(rates.writes)),
    ];
    parts.join("  ")
}

fn memory(status: &Status) -> String {
    let memory = &status.memory;
    let parts =
        [memory.memtables, memory.block_cache, memory.tables, memory.indexes, memory.page_caches];
    let used = parts.into_iter().fold(0, u64::saturating_add);
    format!(
        "memory {} of {}: memtables {} of {}, block cache {}, tables {}",
        Bytes(used),
        Bytes(memory.budget),
        Bytes(memory.memtables),
        Bytes(status.memtables_limit),
        Bytes(memory.block_cache),
        Bytes(memory.tables),
    )
}

fn writers(status: &Status) -> String {
    let slowed = match status.pressure {
        _ if status.is_poisoned => "writes are refused".to_owned(),
        0 => "writers are not slowed down".to_owned(),
        1000.. => "writers wait".to_owned(),
        pressure => format!("writers are slowed down: pressure {pressure} of 1000"),
    };
    let trees = || status.keyspaces.iter().filter_map(|keyspace| keyspace.tree.as_ref());
    let debt = trees().map(|tree| tree.debt_bytes).fold(0, u64::saturating_add);
    format!("{slowed}; background work is {} behind", Bytes(debt))
}

fn job(job: &JobStatus) -> Line {
    let levels = match job.levels {
        Some((from, to)) if from != to => format!(", level {from} to {to}"),
        Some((level, _)) => format!(", level {level}"),
        None => String::new(),
    };
    let bytes = if job.bytes > 0 { format!(", {}", Bytes(job.bytes)) } else { String::new() };
    let (name, seconds) = (clean(&job.keyspace), job.running_for.as_secs_f64());
    Line::text(format!("  {:<6} {name}{levels}{bytes}, for {seconds:.1} s", job.kind.name()))
}

fn draw_keyspace(keyspace: &KeyspaceStatus, style: Style, lines: &mut Vec<Line>) {
    lines.push(Line::text(format!(
        "{}: {}, {} in files, {} in memory; {}, {}",
        clean(&keyspace.name),
        keyspace.engine,
        Bytes(keyspace.disk_bytes),
        Bytes(keyspace.memory_bytes),
        number(keyspace.flushes as usize, "flush"),
        number(keyspace.compactions as usize, "compaction"),
    )));
    let Some(tree) = &keyspace.tree else { return };
    lines.push(Line::text(format!(
        "queue: {}, {} too many in level 0, {}; {}",
        number(tree.frozen as usize, "memtable"),
        number(tree.excess_runs as usize, "run"),
        if tree.is_due { "a compaction is due" } else { "no compaction is due" },
        number(tree.claims.len(), "claim"),
    )));
    draw_levels(tree, style, lines);
}

fn draw_levels(tree: &LsmStatus, style: Style, lines: &mut Vec<Line>) {
    let columns = style.width.saturating_sub(MARGIN + 2).max(10);
    let Some(axis) = Axis::new(tree, columns) else { return };
    lines.push(Line::text(format!("level runs tables      bytes  {}", axis.title(columns))));
    let mut levels: Vec<u32> = tree.levels.iter().map(|level| level.level).collect();
    levels.extend(tree.claims.iter().map(|claim| claim.level));
    levels.sort_unstable();
    levels.dedup();
    for number in levels {
        let level = tree.levels.iter().find(|level| level.level == number);
        let claims: Vec<_> = tree.claims.iter().filter(|claim| claim.level == number).collect();
        draw_level(number, level, &claims, &axis, style, lines);
    }
    let (smallest, largest) = axis.ends();
    lines.push(Line::text(format!(
        "{:MARGIN$} {} to {}; a step for each table's first key",
        "",
        key(smallest),
        key(largest)
    )));
}

/// A level's bar, and in front of it its figures.
fn draw_level(
    number: u32,
    level: Option<&LevelStatus>,
    claims: &[&ClaimStatus],
    axis: &Axis,
    style: Style,
    lines: &mut Vec<Line>,
) {
    let (runs, tables, bytes) =
        level.map_or((0, 0, 0), |level| (level.runs, level.tables(), level.bytes()));
    let densities = axis.densities(level.map_or(&[], |level| &level.spans));
    let mut claimed: Vec<Option<u64>> = vec![None; densities.len()];
    for claim in claims {
        claimed[axis.columns(&claim.smallest, &claim.largest)].fill(Some(claim.claim));
    }
    let figures = format!("{number:>5} {runs:>4} {tables:>6} {:>10}", Bytes(bytes).to_string());
    let mut line = Line::text(format!("{figures:<MARGIN$} |"));
    for (glyph, claim) in glyphs(&densities, style.blocks).zip(&claimed) {
        line.push(glyph, claim.filter(|_| style.colours));
    }
    line.push('|', None);
    lines.push(line);
    if !style.colours && !claims.is_empty() {
        let marks = claimed.iter().map(|claim| if claim.is_some() { '^' } else { ' ' });
        lines.push(Line::text(format!("{:>MARGIN$} |{}|", "claimed", marks.collect::<String>())));
    }
}

/// A character for each density, in proportion to the largest.
fn glyphs(densities: &[f64], blocks: bool) -> impl Iterator<Item = char> {
    let heights: [char; 8] = if blocks {
        ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█']
    } else {
        ['.', ':', '-', '=', '+', '*', '#', '@']
    };
    let largest = densities.iter().copied().fold(0.0, f64::max);
    densities.iter().map(move |&density| match density {
        0.0 => ' ',
        density => heights[((density / largest * 8.0).ceil() as usize).clamp(1, 8) - 1],
    })
}

/// A name, with what would not show, or would do something to a terminal, in the form of an escape.
pub(crate) fn clean(text: &str) -> String {
    let shown = |c: char| match c {
        ' '..='~' => c.to_string(),
        c => c.escape_debug().to_string(),
    };
    text.chars().map(shown).collect()
}

/// The front of a key.
fn key(key: &[u8]) -> String {
    let text = clean(&String::from_utf8_lossy(key));
    match text.char_indices().nth(KEY) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => format!("{text:?}").replace("\\\\", "\\"),
    }
}

/// So many of them.
fn number(count: usize, what: &str) -> String {
    let plural = if what.ends_with("sh") { "es" } else { "s" };
    format!("{} {what}{}", Count(count as u64), if count == 1 { "" } else { plural })
}

/// A time in words.
pub(crate) fn seconds(time: Duration) -> String {
    match time.as_secs() {
        0..100 => format!("{:.1} s", time.as_secs_f64()),
        100..6000 => format!("{} min", time.as_secs() / 60),
        more => format!("{} h", more / 3600),
    }
}

#[cfg(test)]
mod tests {
    use turbidite::{Database, KeyspaceOptions};

    use super::*;

    /// The status of a tree with two tables in level 0.
    fn status() -> Status {
        let dir = tempfile::tempdir().unwrap();
        let database = Database::open(dir.path().join("db")).unwrap();
        let keyspace = database.keyspace("main", KeyspaceOptions::lsm()).unwrap();
        for keys in [["a", "m"], ["b", "z"]] {
            keys.iter().for_each(|key| keyspace.put(key, "v").unwrap());
            keyspace.persist().unwrap();
        }
        database.status()
    }

    fn picture(status: &Status, width: usize) -> Vec<String> {
        let style = Style { width, colours: false, blocks: false };
        let lines = draw(status, None, style);
        let line = |line: &Line| {
            let mut out = Vec::new();
            line.write(width, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn bars_show_where_tables_are() {
        let picture = picture(&status(), 80);
        let level = picture.iter().find(|line| line.starts_with("    0    2      2")).unwrap();
        let bar = level.split('|').nth(1).unwrap();
        // The keys of both tables overlap in the right half, which begins with the second one's first key.
        assert_eq!(bar.len(), 50);
        assert!(
            bar[..25].chars().all(|c| c == '-') && bar[25..].chars().all(|c| c == '@'),
            "{bar}"
        );
        assert!(picture.iter().any(|line| line.contains("\"a\" to \"z\"")), "{picture:?}");
    }

    #[test]
    fn a_status_that_lies_can_be_drawn() {
        let honest = status();
        for width in [0, 10, 40, 80, 1000] {
            let mut status = honest.clone();
            status.pressure = u32::MAX;
            status.open_for = Duration::MAX;
            status.last_seqno = u64::MAX;
            let keyspace = &mut status.keyspaces[0];
            keyspace.name = "\u{1b}[2J\u{202e}\n".repeat(50);
            keyspace.work.flushed_bytes = u64::MAX;
            let tree = keyspace.tree.as_mut().unwrap();
            let mut level = tree.levels[0].clone();
            (level.level, level.runs) = (u32::MAX, u64::MAX);
            for span in &mut level.spans {
                std::mem::swap(&mut span.smallest, &mut span.largest);
                (span.tables, span.bytes) = (u64::MAX, u64::MAX);
            }
            tree.levels.extend([level.clone(), level]);
            tree.debt_bytes = u64::MAX;
            status.keyspaces.extend_from_within(..);
            let lines = picture(&status, width);
            assert!(lines.iter().all(|line| line.chars().count() <= width));
            assert!(
                lines.iter().all(|line| line.chars().all(|c| !c.is_control() && c != '\u{202e}'))
            );
            assert!(
                Rates::between(&honest, &status).is_some()
                    && Rates::between(&status, &honest).is_none()
            );
        }
    }

    #[test]
    fn names_do_nothing_to_a_terminal() {
        assert_eq!(clean("users"), "users");
        assert_eq!(clean("\x1b[2J\n"), "\\u{1b}[2J\\n");
        assert_eq!(key(b"0017"), "\"0017\"");
        assert_eq!(key(&[b'k'; 64]), format!("{}...", "k".repeat(20)));
        assert!(key(&[0, 255, 27]).chars().all(|c| !c.is_control()));
    }

    #[test]
    fn heights_are_in_proportion() {
        let glyphs = |densities: &[f64]| self::glyphs(densities, false).collect::<String>();
        assert_eq!(glyphs(&[0.0, 1.0, 4.0, 8.0, 1e-9]), " .=@.");
        assert_eq!(glyphs(&[0.0, 0.0]), "  ");
        assert_eq!(super::glyphs(&[8.0], true).collect::<String>(), "█");
    }

    #[test]
    fn numbers_have_their_words() {
        assert_eq!([number(1, "flush"), number(2, "flush")], ["1 flush", "2 flushes"]);
        assert_eq!(number(1234, "run"), "1,234 runs");
    }
}
