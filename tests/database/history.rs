//! What workloads did, with options that are drawn with the seed of this run of the tests.

use turbidite::{Database, Result};
pub(crate) use turbidite_torture::Dice;
use turbidite_torture::history;
pub(crate) use turbidite_torture::history::{
    Change, Fingerprint, History, KEYSPACES, Model, PARTS, PATH, builder, commit, deletion_of_all,
    is_logged, open, options, part_of,
};

use crate::choices;

/// Makes a keyspace with options that are drawn, or opens it with others if it is there.
pub(crate) fn create(db: &Database, name: &str, opening: u64) -> Result<()> {
    history::create(db, name, choices::seed(), opening)
}
