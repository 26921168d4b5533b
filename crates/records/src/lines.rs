//! The lines of an input with their numbers and their endings.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The longest record taken, in bytes: an input without line feeds must not fill the memory.
const MAX_RECORD: usize = 256 << 20;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads an input line by line.
pub struct Lines {
    input: Box<dyn BufRead>,
    path: PathBuf,
    number: u64,
    bytes: u64,
}

impl Lines {
    /// Opens a file, or standard input for `-`. Gives the length too, if it is known.
    ///
    /// # Errors
    /// `Io`.
    pub fn open(path: &Path) -> Result<(Self, Option<u64>)> {
        if path == Path::new("-") {
            return Ok((
                Self::new(Box::new(io::stdin().lock()), Path::new("standard input")),
                None,
            ));
        }
        let failure = |error| Error::io("open", path, error);
        let file = File::open(path).map_err(failure)?;
        let metadata = file.metadata().map_err(failure)?;
        let input = Box::new(BufReader::with_capacity(256 << 10, file));
        Ok((Self::new(input, path), metadata.is_file().then_some(metadata.len())))
    }

    /// The lines of `input`, which errors call `path`.
    #[must_use]
    pub fn new(input: Box<dyn BufRead>, path: &Path) -> Self {
        Self { input, path: path.to_owned(), number: 0, bytes: 0 }
    }

    /// How many lines were read.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// How many bytes were read.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends the byte order mark to `raw` if the input starts with one, and tells whether it does.
    pub(crate) fn take_byte_order_mark(&mut self, raw: &mut Vec<u8>) -> Result<bool> {
        let start = self.input.fill_buf().map_err(|error| Error::io("read", &self.path, error))?;
        let marked = start.starts_with(BYTE_ORDER_MARK);
        if marked {
            self.input.consume(BYTE_ORDER_MARK.len());
            self.bytes += BYTE_ORDER_MARK.len() as u64;
            raw.extend_from_slice(BYTE_ORDER_MARK);
        }
        Ok(marked)
    }

    /// Appends the next line with its ending to `raw`. False at the end of the input.
    pub(crate) fn append(&mut self, raw: &mut Vec<u8>) -> Result<bool> {
        let room = MAX_RECORD.saturating_sub(raw.len()) + 1;
        let read = (&mut self.input)
            .take(room as u64)
            .read_until(b'\n', raw)
            .map_err(|error| Error::io("read", &self.path, error))?;
        self.number += u64::from(read > 0);
        self.bytes += read as u64;
        if raw.len() > MAX_RECORD {
            let (line, limit) = (self.number, MAX_RECORD >> 20);
            return Err(Error::invalid(format!(
                "line {line}: the record that it is part of is longer than {limit} MiB"
            )));
        }
        Ok(read > 0)
    }
}

/// What ends a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// Nothing: it is the last one.
    None,
    /// `\n`.
    LineFeed,
    /// `\r\n`.
    CarriageReturnLineFeed,
}

impl Ending {
    /// Cuts the ending off a line.
    #[must_use]
    pub fn cut(raw: &[u8]) -> (&[u8], Self) {
        if let Some(line) = raw.strip_suffix(b"\r\n") {
            (line, Self::CarriageReturnLineFeed)
        } else if let Some(line) = raw.strip_suffix(b"\n") {
            (line, Self::LineFeed)
        } else {
            (raw, Self::None)
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(self) -> &'static [u8] {
        match self {
            Self::None => b"",
            Self::LineFeed => b"\n",
            Self::CarriageReturnLineFeed => b"\r\n",
        }
    }
}
