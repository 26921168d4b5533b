//! What workloads did, with options that are drawn with the seed of this run of the tests.

use turbidite::{Database, Layer, Result};
pub(crate) use turbidite_torture::Dice;
pub(crate) use turbidite_torture::history::{
    Change, Fingerprint, History, KEYSPACES, Model, PARTS, PATH, builder, commit, open, options,
};
use turbidite_torture::{Setting, history};

use crate::choices;

/// Makes a keyspace with options that are drawn, or opens it with others if it is there.
pub(crate) fn create(db: &Database, name: &str, opening: u64) -> Result<()> {
    history::create(db, name, Setting::new(choices::seed(), Layer::default()), opening)
}
