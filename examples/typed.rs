//! A small address book over typed keyspaces: records, an index by another key that is kept in step with batches, a type of
//! key of its own, and what happens to bytes that are none of the type.
//!
//! ```text
//! cargo run --example typed
//! ```

use std::cmp::Reverse;
use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use turbidite::typed::{
    Compressed, DecodeError, EncodeKey, KeyCodec, KeyReader, KeyWriter, TypedKeyspace,
};
use turbidite::{Database, ErrorKind, KeyspaceOptions};

/// The number of a person: a number that cannot be taken for another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PersonId(u32);

impl EncodeKey<Self> for PersonId {
    fn encode(&self, out: &mut KeyWriter) {
        out.last::<u32>(self.0);
    }
}

impl KeyCodec for PersonId {
    fn name() -> String {
        "person".into()
    }

    fn decode(from: &mut KeyReader<'_>) -> Result<Self, DecodeError> {
        from.last().map(Self)
    }
}

/// The keyspaces of the address book.
struct Book {
    db: Database,
    names: TypedKeyspace<PersonId, String>,
    /// Keys are all there is to know: a name, and who has it.
    by_name: TypedKeyspace<(String, PersonId), ()>,
    /// Of each person the newest first.
    letters: TypedKeyspace<(PersonId, Reverse<SystemTime>), Compressed<String>>,
}

impl Book {
    fn open(db: Database) -> turbidite::Result<Self> {
        Ok(Self {
            names: db.typed_keyspace("names", KeyspaceOptions::hash())?,
            by_name: db.typed_keyspace("by name", KeyspaceOptions::btree())?,
            letters: db.typed_keyspace("letters", KeyspaceOptions::lsm())?,
            db,
        })
    }

    /// Names and index change together or not at all.
    fn rename(&self, person: PersonId, name: &str) -> turbidite::Result<()> {
        let mut batch = self.db.batch();
        if let Some(before) = self.names.get(person)? {
            batch.delete_typed(&self.by_name, (before, person));
        }
        batch.put_typed(&self.names, person, name).put_typed(&self.by_name, (name, person), ());
        batch.commit()
    }

    fn called(&self, name: &str) -> turbidite::Result<Vec<PersonId>> {
        self.by_name.prefix((name,)).map(|item| Ok(item?.0.1)).collect()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let book = Book::open(Database::open(dir.path().join("book.db"))?)?;
    let (ada, grace, other) = (PersonId(1), PersonId(2), PersonId(300));
    book.rename(ada, "Ada")?;
    book.rename(grace, "Grace")?;
    book.rename(other, "Grace")?;
    println!("{:?} are called Grace", book.called("Grace")?);

    let then = book.db.snapshot();
    book.rename(other, "Grace H.")?;
    assert_eq!(book.called("Grace")?, [grace]);
    assert_eq!(book.by_name.at(&then).prefix(("Grace",)).count(), 2);

    for day in 0..3 {
        let sent = UNIX_EPOCH + Duration::from_secs(86_400 * day);
        let text = format!("This is the letter of day {day}. ").repeat(50);
        book.letters.put((ada, Reverse(sent)), Compressed(text))?;
    }
    let newest = book.letters.prefix((ada,)).next().ok_or("there are three")??;
    let ((_, Reverse(sent)), Compressed(text)) = newest;
    println!("the newest of {:?}: {}", sent.duration_since(UNIX_EPOCH)?, &text[..28]);

    // Bytes that something else wrote are an error that says where, and nothing else is touched by it.
    book.names.inner().put([0, 0, 0, 9], [0xff])?;
    let error = book.names.get(PersonId(9)).expect_err("it is not UTF-8");
    assert_eq!(error.kind(), ErrorKind::Decode);
    println!("{error}");
    // So does opening it as something else.
    let wrong = book.db.typed_keyspace::<u64, String>("names", KeyspaceOptions::hash());
    println!("{}", wrong.expect_err("the types are noted"));
    Ok(book.db.close()?)
}
