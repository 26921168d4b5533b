//! Entry points for the fuzz targets in `fuzz/`, one for each format that is read from disk or given by users, and one for
//! whole databases. They are compiled for fuzzers and for tests only: the tests give them the inputs in `fuzz/corpus`, and these with
//! random changes, on every run.
//!
//! Where a format has checksums, bytes are read twice: as they are, and as if all checksums were right, which is what somebody comes to who
//! makes them so; a whole database is opened in the one way or the other, as the input says. What reads bytes may refuse them and may
//! give wrong answers; it may not panic, go on for ever, read elsewhere or take much more memory than the bytes.
//!
//! Thread safety: functions without state.

mod database;
mod options;
#[cfg(test)]
mod tests;

use crate::base::checksum::mended;
use crate::filter::Filter;
use crate::lsm::table::fuzzing as table;
use crate::{btree, catalog, commit, hash, log, lsm, skip, status, typed};

/// Reads bytes as they are, and as if all checksums were right.
fn twice(read: impl Fn(&[u8]), bytes: &[u8]) {
    read(bytes);
    mended(|| read(bytes));
}

macro_rules! entry_points {
    ($($(#[$text:meta])+ $name:ident => $read:expr;)*) => {
        $(
            $(#[$text])+
            pub fn $name(bytes: &[u8]) {
                let read: fn(&[u8]) = $read;
                read(bytes);
            }
        )*
    };
}

entry_points! {
    /// A data block of a table.
    table_block => table::block;
    /// A data block of a table as it is compressed, with its dictionary.
    table_packed_block => table::packed_block;
    /// The index of a table, behind the bytes that its data blocks take, as a `u64`.
    table_index => table::index;
    /// The point index of a table, behind the hash of a key, as a `u64`.
    table_points => table::points;
    /// The range tombstones of a table.
    table_ranges => table::range_tombstones;
    /// What a table says of itself.
    table_properties => table::properties;
    /// The footer of a table.
    table_footer => table::footer;
    /// A table.
    table_file => |bytes| twice(table::file, bytes);
    /// A filter, behind the hash of a key, as a `u64`.
    filter => filter_of_a_table;
    /// A file of values that are kept apart from their keys, without its header, behind a reference into it.
    value_file => |bytes| twice(lsm::values::fuzzing::values, bytes);
    /// What the manifest of an LSM-tree says.
    lsm_manifest => lsm::version::fuzzing::manifest;
    /// A segment of the log.
    log_segment => |bytes| twice(segment_of_the_log, bytes);
    /// The tail of the log.
    log_tail => |bytes| twice(tail_of_the_log, bytes);
    /// What a record of the log says.
    log_writes => commit::fuzzing::writes;
    /// What the log says of a sorted load.
    log_load => loads;
    /// A file of an edit log, as catalog and manifests are.
    edit_log => |bytes| twice(log::fuzzing::edit_log, bytes);
    /// What the catalog says.
    catalog => catalog::fuzzing::catalog;
    /// What the manifest of a hash keyspace says.
    hash_manifest => hash::fuzzing::manifest;
    /// The front of a record of a hash keyspace.
    hash_record => hash::fuzzing::record;
    /// A segment of a hash keyspace, without its header.
    hash_segment => |bytes| twice(hash::fuzzing::records, bytes);
    /// A checkpoint of a hash keyspace, without its header.
    hash_checkpoint => |bytes| twice(hash::fuzzing::checkpoint, bytes);
    /// The meta pages of a B+ tree.
    btree_meta => |bytes| twice(btree::fuzzing::meta, bytes);
    /// A node of a B+ tree.
    btree_node => |bytes| twice(btree::fuzzing::node, bytes);
    /// The free pages of a B+ tree, behind the number of its pages, as a `u32`.
    btree_free_list => btree::fuzzing::free_list;
    /// The file of a B+ tree, of pages without the zeros at their ends, each behind its length as a `u16`.
    btree_file => |bytes| twice(btree::fuzzing::file, bytes);
    /// What the manifest of a skip keyspace says.
    skip_manifest => skip::fuzzing::manifest;
    /// A block of a sorted file.
    skip_block => skip::fuzzing::block;
    /// The footer of a sorted file.
    skip_footer => |bytes| twice(skip::fuzzing::footer, bytes);
    /// A sorted file.
    skip_file => |bytes| twice(skip::fuzzing::file, bytes);
    /// A key of a typed keyspace.
    typed_key => typed::fuzzing::key;
    /// A value of a typed keyspace.
    typed_value => typed::fuzzing::value;
    /// A status that is published for others to watch.
    status => |bytes| twice(status::fuzzing::status, bytes);
    /// Text that says what a database or a keyspace is made of.
    options => options::text;
    /// Changes to the files of a database.
    database => database::changed;
}

fn segment_of_the_log(bytes: &[u8]) {
    log::fuzzing::segment(bytes, commit::fuzzing::writes);
}

fn tail_of_the_log(bytes: &[u8]) {
    log::fuzzing::log_tail(bytes, commit::fuzzing::writes);
}

fn loads(bytes: &[u8]) {
    lsm::fuzzing::load(bytes);
    skip::fuzzing::load(bytes);
}

fn filter_of_a_table(bytes: &[u8]) {
    let Some((hash, bytes)) = bytes.split_first_chunk() else { return };
    for filter in [Filter::of(bytes), Filter::of_version_1(bytes)].into_iter().flatten() {
        asked(&filter, u64::from_le_bytes(*hash));
        let kept = filter.kept();
        assert!(kept.memory() <= bytes.len() + 1000);
        asked(&kept, u64::from_le_bytes(*hash));
    }
}

/// Asks a filter for keys.
fn asked<B: AsRef<[u8]>>(filter: &Filter<B>, hash: u64) {
    for hash in [hash, !hash, hash.rotate_left(32), 0, u64::MAX] {
        filter.prefetch(hash);
        let answer = filter.may_contain(hash);
        assert_eq!(filter.may_contain(hash), answer);
    }
}
