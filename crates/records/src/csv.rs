//! One CSV record at a time, with its bytes as they stand in the file.
//!
//! Lines are gathered until the quotes close, so that what was read is exactly the record. A carriage
//! return ends no record on its own; in front of the line feed it is part of the ending.

use csv_core::{ReadRecordResult, Reader, ReaderBuilder, Terminator};

use super::lines::Lines;
use crate::error::Result;

/// Reads records and keeps the fields of the latest.
pub(crate) struct Csv {
    reader: Reader,
    text: Vec<u8>,
    ends: Vec<usize>,
    text_len: usize,
    count: usize,
    expected: Option<usize>,
}

impl Csv {
    pub(crate) fn new(separator: u8) -> Self {
        let mut builder = ReaderBuilder::new();
        builder.delimiter(separator).terminator(Terminator::Any(b'\n'));
        Self {
            reader: builder.build(),
            text: vec![0; 4096],
            ends: vec![0; 64],
            text_len: 0,
            count: 0,
            expected: None,
        }
    }

    /// Splits the record that starts with the line in `raw` into fields, appending the further lines
    /// that it spans. The inner error is the reason why it is no record.
    pub(crate) fn read(
        &mut self,
        lines: &mut Lines,
        raw: &mut Vec<u8>,
    ) -> Result<Result<(), String>> {
        (self.text_len, self.count) = (0, 0);
        let mut fed = 0;
        while !self.feed(&raw[fed..]) {
            fed = raw.len();
            if raw.ends_with(b"\n") && lines.append(raw)? {
                continue;
            }
            // The last line may lack its line feed; a quote that is still open then stays open.
            if raw.ends_with(b"\n") || !self.feed(b"\n") {
                return Ok(Err(String::from("a quote is never closed")));
            }
            break;
        }
        self.drop_carriage_return(raw);
        let expected = *self.expected.get_or_insert(self.count);
        if self.count == expected {
            return Ok(Ok(()));
        }
        let plural = if self.count == 1 { "" } else { "s" };
        Ok(Err(format!("it has {} field{plural}, the first record has {expected}", self.count)))
    }

    /// Field `i` of the latest record.
    pub(crate) fn field(&self, i: usize) -> Option<&[u8]> {
        let end = *self.ends[..self.count].get(i)?;
        let start = i.checked_sub(1).map_or(0, |previous| self.ends[previous]);
        Some(&self.text[start..end])
    }

    /// The fields of the latest record.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.count).filter_map(|i| self.field(i))
    }

    /// Takes more of the record; true when it is complete.
    fn feed(&mut self, mut input: &[u8]) -> bool {
        while !input.is_empty() {
            let (text, ends) = (&mut self.text[self.text_len..], &mut self.ends[self.count..]);
            let (result, read, written, fields) = self.reader.read_record(input, text, ends);
            input = &input[read..];
            self.text_len += written;
            self.count += fields;
            match result {
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull => self.text.resize(self.text.len() * 2, 0),
                ReadRecordResult::OutputEndsFull => self.ends.resize(self.ends.len() * 2, 0),
                ReadRecordResult::Record | ReadRecordResult::End => return true,
            }
        }
        false
    }

    /// Takes the carriage return of the line's ending off the last field.
    fn drop_carriage_return(&mut self, raw: &[u8]) {
        let last = self.count.wrapping_sub(1);
        if raw.ends_with(b"\r\n") && self.field(last).is_some_and(|field| field.ends_with(b"\r")) {
            self.ends[last] -= 1;
        }
    }
}
