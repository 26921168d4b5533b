//! Going on with a database that may be damaged: what is written to it, and what flushes, checkpoints, merges and compactions make of its
//! files, must not make answers of the damage.
//!
//! New keys are written to each keyspace, others are overwritten or deleted, all is persisted, compacted, closed and opened again. Any of it may fail
//! because of the damage. But no power is cut, so what was acknowledged is there, or an error says that it cannot be
//! read or that it was not persisted; what failed is there as a whole or not at all.

use turbidite::vfs::MemoryFs;
use turbidite::{Database, Durability, Keyspace, Layer};

use super::examine::{self, Opening, Records, Told, Wanted};
use crate::Dice;

/// Keys that are new with each writing.
const NEW: usize = 8;
/// How long new values are: some are kept apart from their keys, and some have pages of their own.
const LENGTHS: [usize; 4] = [0, 16, 120, 5000];

/// What a database is made to hold that was examined.
struct User {
    dice: Dice,
    keyspaces: Vec<Member>,
    told: Vec<Told>,
}

/// A keyspace of it.
struct Member {
    name: String,
    is_logged: bool,
    /// What it may hold now,
    states: Vec<Records>,
    /// and what it may hold if it cannot be closed: older states, which have no log behind them.
    older: Vec<Records>,
}

/// Writes to a database that holds what is `wanted` and is in `fs`, as the seed says, has it change its files, opens it again and reads
/// all. Gives the errors that were told.
///
/// # Errors
/// What is wrong: an answer that is none of those that there may be, or anything that [`examine`] finds.
pub(super) fn go_on(
    db: Database,
    fs: &MemoryFs,
    layer: Layer,
    wanted: Wanted,
    seed: u64,
) -> Result<Vec<Told>, String> {
    let mut user = User::new(&db, wanted, seed);
    user.write(&db, 0);
    // Not always, so that recovery and closing have something to do, too.
    for work in [Keyspace::persist, Keyspace::compact] {
        if user.dice.roll(4) > 0 {
            user.have(&db, work);
        }
    }
    user.read(&db)?;
    user.write(&db, 1);
    user.close(db);
    user.open_again(fs, layer)?;
    Ok(user.told)
}

impl User {
    fn new(db: &Database, mut wanted: Wanted, seed: u64) -> Self {
        let keyspaces = db.keyspaces().into_iter().map(|info| {
            let states = wanted.remove(&info.name).unwrap_or_default();
            Member { name: info.name, is_logged: info.logged, states, older: Vec::new() }
        });
        Self { dice: Dice::new(seed), keyspaces: keyspaces.collect(), told: Vec::new() }
    }

    fn wanted(&self) -> Wanted {
        self.keyspaces.iter().map(|member| (member.name.clone(), member.states.clone())).collect()
    }

    /// Writes to each keyspace for the `round`-th time.
    fn write(&mut self, db: &Database, round: usize) {
        let Self { dice, keyspaces, told } = self;
        for member in keyspaces {
            let changes = member.changes(dice, round);
            let done = commit(db, &member.name, &changes, dice);
            member.note(&changes, done.is_ok());
            told.extend(done.err().map(|error| Told::of(&member.name, error)));
        }
    }

    /// Has each keyspace do some work with its files.
    fn have(&mut self, db: &Database, work: fn(&Keyspace) -> turbidite::Result<()>) {
        for member in &mut self.keyspaces {
            match db.open_keyspace(&member.name).and_then(|keyspace| work(&keyspace)) {
                Ok(()) => member.older.clear(),
                Err(error) => self.told.push(Told::of(&member.name, error)),
            }
        }
    }

    fn read(&mut self, db: &Database) -> Result<(), String> {
        let told = examine::read_all(db, &self.wanted());
        self.told.extend(told.map_err(|wrong| format!("after writing: {wrong}"))?);
        Ok(())
    }

    fn close(&mut self, db: Database) {
        let Err(error) = db.close() else { return };
        self.told.push(Told::of_all(error));
        for member in &mut self.keyspaces {
            member.states.append(&mut member.older);
        }
    }

    fn open_again(&mut self, fs: &MemoryFs, layer: Layer) -> Result<(), String> {
        let examined = examine::examine_any(fs, layer, &[self.wanted()], Opening::Writing);
        let examined = examined.map_err(|wrong| format!("opened again after writing: {wrong}"))?;
        self.told.extend(examined.told);
        let Some((db, _)) = examined.opened else { return Ok(()) };
        let dropped = db.recovery().dropped_bytes;
        if dropped > 0 && self.told.is_empty() {
            return Err(format!("opened again after writing: {dropped} bytes are dropped"));
        }
        self.told.extend(db.close().err().map(Told::of_all));
        Ok(())
    }
}

impl Member {
    /// New keys, and some of those that there are: overwritten or deleted.
    fn changes(&self, dice: &mut Dice, round: usize) -> Records {
        let mut value = |sides: usize| {
            let len = LENGTHS[dice.roll(LENGTHS.len())];
            (dice.roll(sides) > 0).then(|| dice.bytes(len))
        };
        let new = (0..NEW).map(|number| format!("key {number:03} of round {round}").into_bytes());
        let mut changes: Records = new.map(|key| (key, value(usize::MAX))).collect();
        let old = self.states.iter().flat_map(|records| records.keys());
        // Every seventh one, another one in each round.
        changes.extend(old.skip(round * 3).step_by(7).map(|key| (key.clone(), value(2))));
        changes
    }

    /// Takes note of what was to be written.
    fn note(&mut self, changes: &Records, is_done: bool) {
        // The keys are asked for in any case.
        let absent = changes.keys().map(|key| (key.clone(), None));
        let absent: Records = absent.collect();
        for records in self.states.iter_mut().chain(&mut self.older) {
            *records = absent.clone().into_iter().chain(std::mem::take(records)).collect();
        }
        let with = |records: &Records| {
            let mut records = records.clone();
            records.extend(changes.clone());
            records
        };
        let written: Vec<_> = self.states.iter().map(with).collect();
        match is_done {
            true if self.is_logged => self.states = written,
            true => self.older.extend(std::mem::replace(&mut self.states, written)),
            false => self.states.extend(written),
        }
    }
}

/// Writes to a keyspace, so that it survives the end of the process at least.
fn commit(db: &Database, name: &str, changes: &Records, dice: &mut Dice) -> turbidite::Result<()> {
    let durability = [Durability::Os, Durability::Sync][dice.roll(2)];
    let keyspace = db.open_keyspace(name)?;
    let mut batch = db.batch().durability(durability);
    for (key, value) in changes {
        match value {
            Some(value) => batch.put(&keyspace, key, value),
            None => batch.delete(&keyspace, key),
        };
    }
    batch.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(value: Option<&str>) -> Records {
        [(b"key".to_vec(), value.map(|value| value.into()))].into()
    }

    fn member(is_logged: bool) -> Member {
        let states = vec![Records::new()];
        Member { name: "name".into(), is_logged, states, older: Vec::new() }
    }

    #[test]
    fn what_was_acknowledged_must_be_there_and_what_failed_may_be() {
        let [none, one, two] = [None, Some("one"), Some("two")].map(records);
        for is_logged in [true, false] {
            let mut member = member(is_logged);
            member.note(&one, true);
            assert_eq!(member.states, std::slice::from_ref(&one));
            let older = if is_logged { vec![] } else { vec![none.clone()] };
            assert_eq!(member.older, older);
            member.note(&two, false);
            assert_eq!(member.states, [one.clone(), two.clone()]);
            assert_eq!(member.older, older);
        }
    }

    #[test]
    fn some_keys_are_new_and_some_are_not() {
        let old = (0..20).map(|number| (format!("old {number:02}").into_bytes(), Some(vec![])));
        let mut member = member(true);
        member.states = vec![old.collect()];
        let dice = &mut Dice::new(1);
        let [first, second] = [0, 1].map(|round| member.changes(dice, round));
        let are_old = |changes: &Records| {
            let keys = changes.keys().filter(|key| key.starts_with(b"old"));
            keys.map(|key| String::from_utf8_lossy(key).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(are_old(&first), ["old 00", "old 07", "old 14"]);
        assert_eq!(are_old(&second), ["old 03", "old 10", "old 17"]);
        assert_eq!((first.len(), second.len()), (NEW + 3, NEW + 3));
    }
}
