//! What can happen to a database, at random.

use std::collections::BTreeSet;
use std::ops::Bound;

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use proptest::sample::select;
use turbidite::{Durability, EngineKind};

use crate::choices;

/// How many keyspaces there are.
pub(super) const KEYSPACES: usize = 2 * choices::ENGINES.len();
/// Their engines: each with the log and without it.
pub(super) const ENGINES: [EngineKind; KEYSPACES] = {
    let [one, two, three, four] = choices::ENGINES;
    [one, two, three, four, one, two, three, four]
};
/// So many of them, the first ones, have the log.
pub(super) const LOGGED: usize = choices::ENGINES.len();

pub(super) type Key = Vec<u8>;

/// A range of keys.
pub(super) type Bounds = (Bound<Key>, Bound<Key>);

/// A write to a keyspace, with values of type `V`.
#[derive(Clone, Debug)]
pub(super) enum Change<V> {
    Put(Key, V),
    Delete(Key),
    DeleteRange(Bounds),
}

/// A write: the keyspace, and what is done there, with the length of the value.
pub(super) type Write = (usize, Change<usize>);

/// What is done with the queue.
#[derive(Clone, Copy, Debug)]
pub(super) enum OfQueue {
    Clear,
    Persist,
    Compact,
    Check,
}

/// One thing that happens.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    Write(Write),
    Batch(Vec<Write>, Durability),
    /// Many writes of this length: small ones for several leaves, large ones for a flush.
    Fill {
        keyspace: usize,
        len: usize,
    },
    /// All that has the log is persisted, so that the log lets go of segments. While it asks who needs them, again and again, there is a
    /// write to the keyspace that it asks first, and then this one fills so many. The process may be killed right behind that.
    Relay {
        keyspace: usize,
        count: usize,
        killed: bool,
    },
    /// Many small puts, deletions and gets, as the seed says.
    Mix {
        keyspace: usize,
        seed: u64,
        count: usize,
    },
    /// The same by several threads, each with keys of its own, so many by each.
    Clients {
        keyspace: usize,
        seed: u64,
        count: usize,
    },
    Get {
        keyspace: usize,
        keys: Vec<Key>,
    },
    /// Reads a range; the bits of the pattern say which end is taken next.
    Range {
        keyspace: usize,
        bounds: Bounds,
        pattern: u8,
        old: Option<usize>,
    },
    Prefix {
        keyspace: usize,
        prefix: Key,
        pattern: u8,
    },
    /// Seeks, forward or backward, and walks: a step for each flag, ahead if it is set.
    Walk {
        keyspace: usize,
        key: Key,
        before: bool,
        steps: Vec<bool>,
        old: Option<usize>,
    },
    Clear(usize),
    /// A sorted load of the keys, with values of this length.
    Load {
        keyspace: usize,
        keys: BTreeSet<Key>,
        len: usize,
    },
    /// So many records are put at the end of the queue, which may let go of those at its beginning. When it has, a snapshot may be taken, before
    /// anything else is written.
    Push {
        count: u64,
        held: bool,
    },
    Queue(OfQueue),
    TakeSnapshot,
    DropSnapshot(usize),
    /// Has a reader stand in the keyspace, at present or in a snapshot, while other things happen.
    Stand {
        keyspace: usize,
        old: Option<usize>,
    },
    /// Moves all of these readers.
    Step(u64),
    Persist(usize),
    FlushLog,
    PersistAll,
    Compact(usize),
    Settle,
    Close,
    /// Closes the database while handles and readers of it are there, which are kept.
    CloseUnder(u64),
    /// Uses such handles, and drops some of them.
    UseLeft(u64),
    Drop,
    Kill,
    /// A power cut that keeps what was synced, and of the rest what the seed says.
    PowerCut(Option<u64>),
}

/// What keys begin with that do not differ in their first 16 bytes.
pub(super) const COMMON: &[u8] = b"what all begin with ";

/// From few letters, so that keys meet and share prefixes. Some differ only behind 20 bytes, a few only behind a page or half of one, and one in
/// some hundreds is about as long as keys may be.
fn key() -> impl Strategy<Value = Key> {
    let letters = || vec(select(vec![b'a', b'b', 0, 0xff]), 0..4);
    let behind = |letter: u8, len: usize, key: Key| [vec![letter; len], key].concat();
    let letter = || select(b"abc".to_vec());
    prop_oneof![
        400 => letters(),
        80 => letters().prop_map(|key| [COMMON, &key].concat()),
        20 => (letter(), select(vec![1000, 2000, 3000]), letters())
            .prop_map(move |(letter, len, key)| behind(letter, len, key)),
        1 => (letter(), letters()).prop_map(move |(letter, key)| behind(letter, 60_000, key)),
    ]
}

fn keyspace() -> impl Strategy<Value = usize> {
    0..KEYSPACES
}

fn write() -> impl Strategy<Value = Write> {
    let len = prop_oneof![1 => Just(0_usize), 8 => 1_usize..300, 2 => 1000_usize..70_000];
    let change = prop_oneof![
        12 => (key(), len).prop_map(|(key, len)| Change::Put(key, len)),
        4 => key().prop_map(Change::Delete),
        1 => bounds().prop_map(Change::DeleteRange),
    ];
    (keyspace(), change)
}

fn durability() -> impl Strategy<Value = Durability> {
    select(vec![Durability::Buffered, Durability::Buffered, Durability::Os, Durability::Sync])
}

/// The length of the values of a fill.
fn fill_len() -> impl Strategy<Value = usize> {
    prop_oneof![1 => 200_usize..1000, 4 => 2000_usize..30_000]
}

/// The length of the values of a load: with the longer ones tables are not small.
fn load_len() -> impl Strategy<Value = usize> {
    prop_oneof![2 => 1_usize..10_000, 1 => 50_000_usize..150_000]
}

fn bounds() -> impl Strategy<Value = Bounds> {
    let end = || {
        prop_oneof![
            Just(Bound::Unbounded),
            key().prop_map(Bound::Included),
            key().prop_map(Bound::Excluded)
        ]
    };
    (end(), end())
}

/// A snapshot to read from, or the present.
fn old() -> impl Strategy<Value = Option<usize>> {
    proptest::option::of(0_usize..8)
}

/// Any of them, each as often as the weight says that `weigh` makes of the usual one, which is to be positive.
pub(super) fn operations(mut weigh: impl FnMut(u32) -> u32) -> impl Strategy<Value = Operation> {
    use Operation::*;
    prop_oneof![
        weigh(20) => write().prop_map(Write),
        weigh(10) => (vec(write(), 0..12), durability()).prop_map(|(writes, how)| Batch(writes, how)),
        weigh(5) => (keyspace(), fill_len()).prop_map(|(keyspace, len)| Fill { keyspace, len }),
        weigh(3) => (1..LOGGED, 2_usize..4, any::<bool>())
            .prop_map(|(keyspace, count, killed)| Relay { keyspace, count, killed }),
        weigh(5) => (keyspace(), any::<u64>(), 1_usize..3000)
            .prop_map(|(keyspace, seed, count)| Mix { keyspace, seed, count }),
        weigh(2) => (keyspace(), any::<u64>(), 1_usize..300)
            .prop_map(|(keyspace, seed, count)| Clients { keyspace, seed, count }),
        weigh(6) => (keyspace(), bounds())
            .prop_map(|(keyspace, bounds)| Write((keyspace, Change::DeleteRange(bounds)))),
        weigh(8) => (keyspace(), vec(key(), 1..6)).prop_map(|(keyspace, keys)| Get { keyspace, keys }),
        weigh(8) => (keyspace(), bounds(), any::<u8>(), old()).prop_map(
            |(keyspace, bounds, pattern, old)| Range { keyspace, bounds, pattern, old }
        ),
        weigh(4) => (keyspace(), key(), any::<u8>())
            .prop_map(|(keyspace, prefix, pattern)| Prefix { keyspace, prefix, pattern }),
        weigh(8) => (keyspace(), key(), any::<bool>(), vec(any::<bool>(), 0..40), old()).prop_map(
            |(keyspace, key, before, steps, old)| Walk { keyspace, key, before, steps, old }
        ),
        weigh(3) => keyspace().prop_map(Clear),
        weigh(3) => (keyspace(), btree_set(key(), 1..20), load_len())
            .prop_map(|(keyspace, keys, len)| Load { keyspace, keys, len }),
        weigh(8) => (1_u64..200, any::<bool>()).prop_map(|(count, held)| Push { count, held }),
        weigh(3) => select(vec![
            OfQueue::Clear,
            OfQueue::Persist,
            OfQueue::Persist,
            OfQueue::Compact,
            OfQueue::Check,
            OfQueue::Check,
        ])
        .prop_map(Queue),
        weigh(5) => Just(TakeSnapshot),
        weigh(3) => (0_usize..8).prop_map(DropSnapshot),
        weigh(5) => (keyspace(), old()).prop_map(|(keyspace, old)| Stand { keyspace, old }),
        weigh(6) => any::<u64>().prop_map(Step),
        weigh(4) => keyspace().prop_map(Persist),
        weigh(2) => Just(FlushLog),
        weigh(1) => Just(PersistAll),
        weigh(3) => keyspace().prop_map(Compact),
        weigh(2) => Just(Settle),
        weigh(1) => Just(Close),
        weigh(2) => any::<u64>().prop_map(CloseUnder),
        weigh(4) => any::<u64>().prop_map(UseLeft),
        weigh(1) => Just(Drop),
        weigh(2) => Just(Kill),
        weigh(2) => proptest::option::of(any::<u64>()).prop_map(PowerCut),
    ]
}
