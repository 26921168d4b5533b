//! Readers beside the writer.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::base::rng::Rng;

with_every_kind! {
    what_was_inserted_is_found,
    each_key_is_seen_as_of_its_time,
    walks_see_whole_entries_in_order,
    walks_within_prefixes_see_what_was_there,
}

/// `all` of them, or a few where each step takes long.
fn count(all: u64) -> u64 {
    if cfg!(miri) { all / 300 } else { all }
}

/// A key that lies anywhere among the others.
fn spread(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn what_was_inserted_is_found(kind: MemtableKind) {
    let entries = count(60_000);
    let table = Checked::new(kind).table;
    let inserted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=entries {
                let key = spread(number);
                table.insert(&key, Trailer::new(number, Kind::Put), &key);
                inserted.store(number, Ordering::Release);
            }
        });
        for reader in 0..2 {
            let (table, inserted) = (&table, &inserted);
            scope.spawn(move || {
                let mut rng = Rng::new(reader);
                let mut done = 0;
                while done < entries {
                    done = inserted.load(Ordering::Acquire);
                    let number = 1 + rng.next() % done.max(1);
                    let key = spread(number);
                    if number <= done {
                        assert!(table.get(&key, done).is_some(), "{number} of {done} by get");
                        let mut cursor = table.cursor();
                        cursor.seek_before(&key, Trailer::new(0, Kind::Delete)).unwrap();
                        assert!(cursor.is_valid() && cursor.key() == key, "{number} from above");
                    }
                }
            });
        }
    });
}

fn each_key_is_seen_as_of_its_time(kind: MemtableKind) {
    const KEYS: u64 = 97;
    let writes = count(60_000);
    let key = |number: u64| spread(number % KEYS);
    let table = Checked::new(kind).table;
    let published = AtomicU64::new(KEYS);
    let put = |number| {
        table.insert(&key(number), Trailer::new(number, Kind::Put), &number.to_le_bytes());
    };
    (1..=KEYS).for_each(put);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in KEYS + 1..=writes {
                put(number);
                published.store(number, Ordering::Release);
            }
        });
        for reader in 0..2 {
            let (table, published) = (&table, &published);
            scope.spawn(move || {
                let mut rng = Rng::new(reader);
                let mut cursor = table.cursor();
                let mut last = 0;
                while last < writes {
                    last = published.load(Ordering::Acquire);
                    let at = if rng.next().is_multiple_of(2) {
                        last
                    } else {
                        KEYS + rng.next() % (last - KEYS + 1)
                    };
                    let number = at - rng.next() % KEYS;
                    let (trailer, value) = table.get(&key(number), at).unwrap();
                    assert_eq!((trailer.seqno(), &*value), (number, &number.to_le_bytes()[..]));
                    if rng.next().is_multiple_of(16) {
                        cursor.seek(&key(number), Trailer::visible_at(at)).unwrap();
                        let found = (cursor.key(), cursor.trailer().seqno());
                        assert_eq!(found, (&key(number)[..], number));
                    }
                }
            });
        }
    });
}

fn walks_see_whole_entries_in_order(kind: MemtableKind) {
    let table = Checked::new(kind).table;
    let entries = count(20_000).max(50);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut rng = Rng::new(1);
            for seqno in 1..=entries {
                let key = format!("{:016}", rng.next() % 100_000);
                table.insert(key.as_bytes(), Trailer::new(seqno, Kind::Put), key.as_bytes());
            }
        });
        for forward in [true, false] {
            let table = &table;
            scope.spawn(move || {
                let mut seen = 0;
                while seen < entries as usize {
                    let mut found = Vec::new();
                    let mut cursor = table.cursor();
                    if forward { cursor.seek_to_first() } else { cursor.seek_to_last() }.unwrap();
                    while cursor.is_valid() {
                        found.push(shown(&cursor));
                        if forward { cursor.next() } else { cursor.prev() }.unwrap();
                    }
                    if !forward {
                        found.reverse();
                    }
                    assert!(found.len() >= seen, "entries do not vanish");
                    seen = found.len();
                    assert!(found.iter().all(|(key, _, value)| key == value));
                    let name = |entry: &Shown| (entry.0.clone(), age(entry.1));
                    assert!(found.is_sorted_by(|a, b| name(a) < name(b)));
                }
            });
        }
    });
}

/// Walks from a key of a prefix on, while more come, meet all that was there when they began, and out of the prefix.
fn walks_within_prefixes_see_what_was_there(kind: MemtableKind) {
    const GROUPS: u64 = 50;
    let entries = count(30_000);
    let key = |number: u64| {
        let [a, b, ..] = spread(number);
        format!("{:03}/{a:02x}{b:02x}/{number:08}", number % GROUPS)
    };
    let table = Checked::new(kind).table;
    let published = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=entries {
                table.insert(key(number).as_bytes(), Trailer::new(number, Kind::Put), b"");
                published.store(number, Ordering::Release);
            }
        });
        let (table, published) = (&table, &published);
        scope.spawn(move || {
            let mut rng = Rng::new(7);
            let mut last = 0;
            while last < entries {
                last = published.load(Ordering::Acquire);
                let number = 1 + rng.next() % last.max(1);
                if number > last {
                    continue;
                }
                let mut cursor = table.cursor();
                let group = number % GROUPS;
                cursor.seek(format!("{group:03}/").as_bytes(), Trailer::NEWEST).unwrap();
                let mut was_there = 0;
                let mut before = Vec::new();
                while cursor.is_valid()
                    && cursor.key().starts_with(format!("{group:03}/").as_bytes())
                {
                    assert!(cursor.key() > &before[..]);
                    before = cursor.key().to_vec();
                    was_there += u64::from(cursor.trailer().seqno() <= last);
                    cursor.next().unwrap();
                }
                let expected = (1..=last).filter(|number| number % GROUPS == group).count() as u64;
                assert_eq!(was_there, expected, "group {group} of {last}");
            }
        });
    });
}
