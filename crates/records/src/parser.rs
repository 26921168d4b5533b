//! Cuts an input into pieces and finds the key of every record.

use clap::ValueEnum;

use super::csv::Csv;
use super::jsonl;
use super::lines::{Ending, Lines};
use crate::error::{Error, Result};

/// The form of a file of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// Lines cut at a separator, no quoting
    Tsv,
    /// Comma separated values, quoted where needed (RFC 4180)
    Csv,
    /// JSON Lines: one object a line
    Jsonl,
}

/// What a piece of the input is.
#[derive(PartialEq, Eq, Debug)]
pub enum Piece {
    /// Text that is no record.
    Verbatim,
    /// A record with this key.
    Record(Vec<u8>),
    /// Something that should have been a record; the reason why it is none.
    Malformed(String),
}

/// Where the key of a record is.
enum Key {
    /// Its line number, in twelve decimal digits.
    Line,
    /// A column, counted from 0.
    Column(usize),
    /// A field of a JSON object.
    Field(String),
}

enum Syntax {
    Tsv { separator: u8 },
    Csv(Box<Csv>),
    Jsonl,
}

/// Reads pieces off an input.
pub struct Parser {
    lines: Lines,
    syntax: Syntax,
    key: Key,
    line: u64,
}

impl Parser {
    /// Starts to read `lines`. What stands in front of the first record (a byte order mark, a header)
    /// is read already and handed out as the second part. `key` is the name or the number of a column, the name of a field, or `line`.
    ///
    /// # Errors
    /// `Io`; `Invalid` if there is no header where there should be one, or no such key.
    pub fn new(
        mut lines: Lines,
        format: Format,
        separator: Option<u8>,
        header: bool,
        key: &str,
    ) -> Result<(Self, Vec<Vec<u8>>)> {
        let mut front = Vec::new();
        let mut raw = Vec::new();
        if lines.take_byte_order_mark(&mut raw)? {
            front.push(std::mem::take(&mut raw));
        }
        let mut syntax = match format {
            Format::Tsv => Syntax::Tsv { separator: separator.unwrap_or(b'\t') },
            Format::Csv => Syntax::Csv(Box::new(Csv::new(separator.unwrap_or(b',')))),
            Format::Jsonl => Syntax::Jsonl,
        };
        let names =
            if header { read_header(&mut lines, &mut syntax, &mut raw)? } else { Vec::new() };
        if !raw.is_empty() {
            front.push(raw);
        }
        let key = find_key(format, key, header.then_some(&names))?;
        Ok((Self { lines, syntax, key, line: 0 }, front))
    }

    /// The line on which the latest piece starts, from 1.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.line
    }

    /// How many bytes of the input were read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.lines.bytes()
    }

    /// Reads the next piece into `raw`, with its line ending. `None` at the end of the input.
    ///
    /// # Errors
    /// `Io`; `Invalid` if a record is too long.
    pub fn next(&mut self, raw: &mut Vec<u8>) -> Result<Option<Piece>> {
        raw.clear();
        self.line = self.lines.number() + 1;
        if !self.lines.append(raw)? {
            return Ok(None);
        }
        let blank = Ending::cut(raw).0.trim_ascii().is_empty();
        let fields = match &mut self.syntax {
            Syntax::Tsv { .. } => Ok(()),
            Syntax::Csv(_) | Syntax::Jsonl if blank => return Ok(Some(Piece::Verbatim)),
            Syntax::Csv(csv) => csv.read(&mut self.lines, raw)?,
            Syntax::Jsonl => Ok(()),
        };
        Ok(Some(match fields.and_then(|()| self.key_of(Ending::cut(raw).0)) {
            Ok(key) => Piece::Record(key),
            Err(reason) => Piece::Malformed(reason),
        }))
    }

    fn key_of(&self, record: &[u8]) -> Result<Vec<u8>, String> {
        match (&self.key, &self.syntax) {
            (Key::Line, Syntax::Jsonl) => jsonl::check(record).map(|()| self.line_key()),
            (Key::Line, _) => Ok(self.line_key()),
            (Key::Column(column), Syntax::Tsv { separator }) => record
                .split(|byte| byte == separator)
                .nth(*column)
                .map(<[u8]>::to_vec)
                .ok_or_else(|| format!("it has no column {}", column + 1)),
            (Key::Column(column), Syntax::Csv(csv)) => csv
                .field(*column)
                .map(<[u8]>::to_vec)
                .ok_or_else(|| format!("it has no column {}", column + 1)),
            (Key::Field(name), _) => jsonl::field(record, name),
            (Key::Column(_), Syntax::Jsonl) => Err(String::from("an object has no columns")),
        }
    }

    fn line_key(&self) -> Vec<u8> {
        format!("{:012}", self.line).into_bytes()
    }
}

/// Reads the header into `raw` and gives the names of the columns.
fn read_header(lines: &mut Lines, syntax: &mut Syntax, raw: &mut Vec<u8>) -> Result<Vec<Vec<u8>>> {
    if !lines.append(raw)? {
        return Err(Error::invalid("the input is empty: it has no header"));
    }
    match syntax {
        Syntax::Tsv { separator } => {
            let header = Ending::cut(raw).0;
            Ok(header.split(|byte| byte == separator).map(<[u8]>::to_vec).collect())
        }
        Syntax::Csv(csv) => {
            let read = csv.read(lines, raw)?;
            read.map_err(|reason| Error::invalid(format!("line 1: {reason}")))?;
            Ok(csv.fields().map(<[u8]>::to_vec).collect())
        }
        Syntax::Jsonl => Err(Error::invalid("JSON Lines have no header")),
    }
}

/// Understands what the user named as the key. Columns are named if there is a header, or numbered.
fn find_key(format: Format, key: &str, names: Option<&Vec<Vec<u8>>>) -> Result<Key> {
    if key == "line" {
        return Ok(Key::Line);
    }
    if format == Format::Jsonl {
        return Ok(Key::Field(key.strip_prefix('.').unwrap_or(key).to_owned()));
    }
    let named = |names: &Vec<Vec<u8>>| names.iter().position(|name| name == key.as_bytes());
    if let Some(column) = names.and_then(named) {
        return Ok(Key::Column(column));
    }
    match key.parse::<usize>() {
        Ok(number) if number > 0 && names.is_none_or(|names| number <= names.len()) => {
            Ok(Key::Column(number - 1))
        }
        _ if names.is_some() => {
            Err(Error::invalid(format!("the header has no column {key:?}, by name or by number")))
        }
        _ => Err(Error::invalid(format!(
            "{key:?} is no key: give the number of a column from 1, or `line`; names need a header"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn pieces(format: Format, header: bool, key: &str, text: &'static [u8]) -> Vec<Piece> {
        let lines = Lines::new(Box::new(text), Path::new("text"));
        let (mut parser, front) = Parser::new(lines, format, None, header, key).unwrap();
        let mut all = front.concat();
        let mut pieces = Vec::new();
        let mut raw = Vec::new();
        while let Some(piece) = parser.next(&mut raw).unwrap() {
            all.extend_from_slice(&raw);
            pieces.push(piece);
        }
        assert_eq!(all, text, "nothing is lost");
        pieces
    }

    fn record(key: &str) -> Piece {
        Piece::Record(key.as_bytes().to_vec())
    }

    #[test]
    fn tsv_columns() {
        let text = b"a\tb\r\n\tx\n\xff\tlast";
        let expected = vec![record("b"), record("x"), record("last")];
        assert_eq!(pieces(Format::Tsv, false, "2", text), expected);
        let expected = vec![record("000000000001"), record("000000000002")];
        assert_eq!(pieces(Format::Tsv, false, "line", b"\n\n"), expected);
        let missing = pieces(Format::Tsv, false, "2", b"one\n");
        assert!(matches!(&missing[..], [Piece::Malformed(_)]));
    }

    #[test]
    fn csv_quotes_span_lines() {
        let text = b"\xef\xbb\xbfid,text\r\n1,\"a\nb\"\r\n\r\n\"x\"\"y\",z\r\n3,\"end\"";
        let expected = vec![record("1"), Piece::Verbatim, record("x\"y"), record("3")];
        assert_eq!(pieces(Format::Csv, true, "id", text), expected);
        let expected = vec![record("a\nb"), Piece::Verbatim, record("z"), record("end")];
        assert_eq!(pieces(Format::Csv, true, "2", text), expected);
    }

    #[test]
    fn csv_that_is_none() {
        let got = pieces(Format::Csv, false, "1", b"a,b\nc\nd,\"e\nf,g\n");
        assert!(matches!(&got[1], Piece::Malformed(why) if why.contains("1 field")), "{got:?}");
        assert!(matches!(&got[2], Piece::Malformed(why) if why.contains("quote")), "{got:?}");
        assert_eq!(got.len(), 3);
    }

    /// What inputs are made of, and any bytes.
    fn texts() -> impl Strategy<Value = Vec<u8>> {
        let words: [&[u8]; 20] = [
            b"\"",
            b"\"\"",
            b",",
            b"\t",
            b"\n",
            b"\r\n",
            b"\r",
            b"{",
            b"}",
            b"[",
            b"]",
            b":",
            b"\"id\"",
            b"{\"id\":1}",
            b"id",
            b"\\u00e9",
            b"\\ud800",
            b"\xef\xbb\xbf",
            b"1e400",
            b" ",
        ];
        let word = prop::sample::select(words.to_vec()).prop_map(<[u8]>::to_vec);
        let any = vec(any::<u8>(), 0..4);
        vec(prop_oneof![8 => word, 1 => any], 0..60).prop_map(|parts| parts.concat())
    }

    fn formats() -> impl Strategy<Value = (Format, Option<u8>, bool, &'static str)> {
        let format = prop::sample::select(vec![Format::Tsv, Format::Csv, Format::Jsonl]);
        let keys = vec!["1", "2", "line", "id", ".id", "0", "99999999999999999999", ""];
        (format, any::<Option<u8>>(), any::<bool>(), prop::sample::select(keys))
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3000) })]

        #[test]
        fn whatever_is_read_comes_out_whole_or_is_refused(text in texts(), (format, separator, header, key) in formats()) {
            let lines = Lines::new(Box::new(std::io::Cursor::new(text.clone())), Path::new("text"));
            if let Ok((mut parser, front)) = Parser::new(lines, format, separator, header, key) {
                let (mut all, mut raw, mut pieces) = (front.concat(), Vec::new(), 0);
                while let Some(_piece) = parser.next(&mut raw).unwrap() {
                    prop_assert!(!raw.is_empty() && parser.line() > 0);
                    all.extend_from_slice(&raw);
                    pieces += 1;
                }
                prop_assert_eq!(&all, &text);
                prop_assert!(parser.bytes() == text.len() as u64 && pieces <= text.len());
            }
        }
    }

    #[test]
    fn json_that_is_nested_without_end_is_malformed() {
        let text: &[u8] =
            Box::leak(format!("{{\"id\":{}", "[".repeat(1 << 20)).into_boxed_str()).as_bytes();
        for key in ["id", "line"] {
            let got = pieces(Format::Jsonl, false, key, text);
            assert!(matches!(&got[..], [Piece::Malformed(_)]), "{key}");
        }
    }

    #[test]
    fn jsonl_fields() {
        let text = b"{\"id\":\"\\u00e9\",\"x\":[1]}\n \n{\"x\":{\"id\":1},\"id\":1.50}\r\n{\"id\":null}\n[]";
        let got = pieces(Format::Jsonl, false, "id", text);
        assert_eq!(got[..3], [record("\u{e9}"), Piece::Verbatim, record("1.50")]);
        assert!(matches!(&got[3..], [Piece::Malformed(_), Piece::Malformed(_)]));
    }
}
