//! `turbidite export`

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use clap::Args;
use turbidite::{Error, Keyspace, Slice};

use crate::arguments::{DatabaseArguments, KeyspaceArguments};
use crate::failure::{Failure, Result};
use crate::output;
use crate::records::order::{Entry, Order};

/// How many records are looked up at once.
const STEP: usize = 1000;

/// Write the records of a keyspace
///
/// A keyspace that was filled by `import` gives back the file as it was imported, byte for byte: its
/// header, the order of its lines, their endings. Records that were deleted since are left out, replaced
/// ones are written as they are now. Records that were not part of the latest import are left out too,
/// which a note on standard error tells.
///
/// With --by-key, and for a keyspace that was not imported, all records are written in the order of the
/// keys (in any order if the keyspace has the engine hash), each followed by the line ending of the
/// imported file, or a line feed. To keep keys and values that are not lines of text, use `scan --hex`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  turbidite export unicode.db | cmp - UnicodeData.txt
  turbidite export cities.db cities.csv
  turbidite export words.db --by-key | head")]
pub(crate) struct Arguments {
    #[command(flatten)]
    database: DatabaseArguments,
    /// Where to write; standard output if it is left out or -
    file: Option<PathBuf>,
    /// In the order of the keys, if they have one, not of the imported file
    #[arg(long)]
    by_key: bool,
    #[command(flatten)]
    keyspace: KeyspaceArguments,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<()> {
        let database = self.database.open_to_read()?;
        let records = self.keyspace.open(&database)?;
        let order = Order::open(&database, &self.keyspace.keyspace)?;
        let Some(path) = self.file.as_ref().filter(|path| path.as_os_str() != "-") else {
            return self.write(&records, order.as_ref(), &mut output::stdout());
        };
        let file = File::create(path).map_err(|error| Failure::io("create", path, &error))?;
        self.write(&records, order.as_ref(), &mut BufWriter::with_capacity(256 << 10, file))
    }

    fn write(&self, records: &Keyspace, order: Option<&Order>, out: &mut impl Write) -> Result<()> {
        match order {
            Some(order) if !self.by_key => write_as_imported(records, order, out)?,
            _ => write_by_key(records, order, out)?,
        }
        Ok(out.flush()?)
    }
}

fn write_as_imported(records: &Keyspace, order: &Order, out: &mut impl Write) -> Result<()> {
    let mut entries = order.entries();
    let mut written = 0;
    loop {
        let some: Vec<Slice> = entries.by_ref().take(STEP).collect::<Result<_, Error>>()?;
        if some.is_empty() {
            break;
        }
        written += write_some(records, &some, out)?;
    }
    if !order.is_complete()? {
        note("the latest import did not reach the end of its file; this is the beginning");
    }
    let others = records.count()?.saturating_sub(written);
    if others > 0 {
        let text = "were not part of the latest import and are left out; --by-key writes all";
        note(&format!("{others} records {text}"));
    }
    Ok(())
}

/// Writes some pieces of the file and gives the number of records among them.
fn write_some(records: &Keyspace, pieces: &[Slice], out: &mut impl Write) -> Result<u64> {
    let pieces: Vec<Entry<'_>> = pieces.iter().map(|p| Entry::read(p)).collect::<Result<_>>()?;
    let keys = pieces.iter().filter_map(|piece| match piece {
        Entry::Record(key, _) => Some(key),
        Entry::Verbatim(_) => None,
    });
    let mut values = records.multi_get(keys)?.into_iter();
    let mut written = 0;
    for piece in pieces {
        match piece {
            Entry::Verbatim(text) => out.write_all(text)?,
            Entry::Record(_, ending) => {
                if let Some(value) = values.next().flatten() {
                    out.write_all(&value)?;
                    out.write_all(ending.bytes())?;
                    written += 1;
                }
            }
        }
    }
    Ok(written)
}

/// Writes the text in front of the first imported record, then all records by key.
fn write_by_key(records: &Keyspace, order: Option<&Order>, out: &mut impl Write) -> Result<()> {
    let mut ending: &[u8] = b"\n";
    for entry in order.iter().flat_map(|order| order.entries()) {
        match Entry::read(&entry?)? {
            Entry::Verbatim(text) => out.write_all(text)?,
            Entry::Record(_, first) => {
                if !first.bytes().is_empty() {
                    ending = first.bytes();
                }
                break;
            }
        }
    }
    for entry in records.iter() {
        out.write_all(&entry?.1)?;
        out.write_all(ending)?;
    }
    Ok(())
}

fn note(text: &str) {
    anstream::eprintln!("turbidite: note: {text}");
}
