//! How much room the file takes, and when it is given back.

use super::{Dice, check, check_clean, keyspace, open};
use crate::vfs::{Layer, MemoryFs};
use crate::{Database, ErrorKind, Keyspace, KeyspaceOptions};

const RECORD: u64 = 116;

fn put(keyspace: &Keyspace, number: u64) {
    let key = format!("{number:016}");
    keyspace.put(key, [number as u8; 100]).unwrap();
}

fn disk(keyspace: &Keyspace) -> u64 {
    keyspace.stats().disk_bytes
}

fn filled(numbers: impl Iterator<Item = u64>) -> (Database, Keyspace) {
    let db = open(&MemoryFs::new());
    let keyspace = keyspace(&db);
    numbers.for_each(|number| put(&keyspace, number));
    keyspace.persist().unwrap();
    db.settle().unwrap();
    check_clean(&db);
    (db, keyspace)
}

/// Each of `0..count` once; `count` is a power of two.
fn shuffled(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |number| number.wrapping_mul(0x9e37_79b1) % count)
}

const COUNT: u64 = 1 << 16;

#[test]
fn ascending_loads_fill_their_pages() {
    let (_db, keyspace) = filled(0..COUNT);
    assert!(disk(&keyspace) < COUNT * RECORD * 115 / 100, "{} bytes", disk(&keyspace));
}

#[test]
fn descending_loads_fill_theirs_enough() {
    let (_db, keyspace) = filled((0..COUNT).rev());
    assert!(disk(&keyspace) < COUNT * RECORD * 3 / 2, "{} bytes", disk(&keyspace));
}

#[test]
fn random_loads_fill_theirs_enough() {
    let (db, keyspace) = filled(shuffled(COUNT));
    assert!(disk(&keyspace) < COUNT * RECORD * 3 / 2, "{} bytes", disk(&keyspace));
    keyspace.compact().unwrap();
    check_clean(&db);
    assert!(disk(&keyspace) < COUNT * RECORD * 112 / 100, "{} bytes", disk(&keyspace));
}

#[test]
fn overwriting_takes_no_more_room() {
    let (db, keyspace) = filled(shuffled(COUNT));
    for _ in 0..3 {
        shuffled(COUNT).for_each(|number| put(&keyspace, number));
    }
    keyspace.persist().unwrap();
    db.settle().unwrap();
    assert!(disk(&keyspace) < COUNT * RECORD * 7 / 4, "{} bytes", disk(&keyspace));
    check_clean(&db);
}

#[test]
fn a_tree_that_is_read_for_long_keeps_its_pages_and_few_others() {
    let (db, keyspace) = filled(shuffled(COUNT / 4));
    let mut standing = keyspace.iter();
    standing.next().unwrap().unwrap();
    for _ in 0..20 {
        shuffled(COUNT / 4).for_each(|number| put(&keyspace, number));
        keyspace.persist().unwrap();
    }
    db.settle().unwrap();
    // Three trees whose pages are three quarters full, and a step: the one that is read, the newest, and the one before it if somebody is
    // just looking at that while all is written anew.
    assert!(disk(&keyspace) < COUNT / 4 * RECORD * 9 / 2, "{} bytes", disk(&keyspace));
    check_clean(&db);
    let left = standing.map(Result::unwrap).inspect(|(_, value)| assert_eq!(value.len(), 100));
    assert_eq!(left.count() as u64, COUNT / 4 - 1);
    keyspace.compact().unwrap();
    check_clean(&db);
    assert!(disk(&keyspace) < COUNT / 4 * RECORD * 115 / 100, "{} bytes", disk(&keyspace));
}

#[test]
fn what_is_deleted_is_given_back() {
    let (db, keyspace) = filled(shuffled(COUNT));
    for number in shuffled(COUNT).filter(|number| !number.is_multiple_of(10)) {
        keyspace.delete(format!("{number:016}")).unwrap();
    }
    keyspace.compact().unwrap();
    check_clean(&db);
    assert!(disk(&keyspace) < COUNT / 10 * RECORD * 5 / 4, "{} bytes", disk(&keyspace));
    for number in (0..COUNT).step_by(10) {
        keyspace.delete(format!("{number:016}")).unwrap();
    }
    keyspace.compact().unwrap();
    check_clean(&db);
    let stats = keyspace.stats();
    let tree = stats.tree.unwrap();
    assert_eq!((stats.entries, tree.levels, tree.leaves, tree.inner_nodes), (0, 0, 0, 0));
    assert!(stats.disk_bytes <= 4 * 4096, "{} bytes for nothing", stats.disk_bytes);
    check(&keyspace, &super::Model::new());
}

#[test]
fn nothing_but_the_tree_is_left_by_compacting() {
    for kept in 2..40 {
        let (db, keyspace) = filled(shuffled(COUNT / 8));
        for number in shuffled(COUNT / 8).filter(|number| !number.is_multiple_of(kept)) {
            keyspace.delete(format!("{number:016}")).unwrap();
        }
        keyspace.compact().unwrap();
        check_clean(&db);
        let tree = keyspace.stats().tree.unwrap();
        // Two meta pages, and a list of the pages that are free, before it and after it was written.
        let pages = tree.leaves + tree.inner_nodes + 4;
        let most = (pages + pages / 64) * 4096;
        assert!(disk(&keyspace) <= most, "{} bytes, {most} at most: {kept}", disk(&keyspace));
    }
}

#[test]
fn leaves_that_are_thinned_out_are_merged_without_compacting() {
    let (db, keyspace) = filled(0..COUNT);
    let before = keyspace.stats().tree.unwrap().leaves;
    for number in (0..COUNT).filter(|number| !number.is_multiple_of(20)) {
        keyspace.delete(format!("{number:016}")).unwrap();
    }
    keyspace.persist().unwrap();
    check_clean(&db);
    let after = keyspace.stats().tree.unwrap().leaves;
    assert!(after < before / 8, "{after} leaves of {before}");
    keyspace.persist().unwrap();
}

#[test]
fn a_snapshot_keeps_its_state_and_gives_the_room_back() {
    let (db, keyspace) = filled(shuffled(1 << 14));
    let snapshot = db.snapshot();
    for round in 1..10 {
        shuffled(1 << 15).for_each(|number| {
            keyspace.put(format!("{number:016}"), [round; 100]).unwrap();
        });
    }
    keyspace.persist().unwrap();
    check_clean(&db);
    let mut found = 0;
    for item in snapshot.iter(&keyspace) {
        let (key, value) = item.unwrap();
        assert_eq!((&*key, &*value), (format!("{found:016}").as_bytes(), &[found as u8; 100][..]));
        found += 1;
    }
    assert_eq!(found, 1 << 14);
    let held = disk(&keyspace);
    drop(snapshot);
    keyspace.compact().unwrap();
    check_clean(&db);
    let live = (1 << 15) * RECORD;
    assert!(disk(&keyspace) < live * 115 / 100, "{} bytes, {held} before", disk(&keyspace));
}

#[test]
fn a_tree_ten_times_larger_than_its_cache_is_changed_all_over() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let options = || KeyspaceOptions::btree().max_cached_pages(16);
    let keyspace = db.keyspace("tree", options()).unwrap();
    let count = 1 << 14;
    for round in 0..4 {
        shuffled(count).for_each(|number| put(&keyspace, number + round));
        keyspace.persist().unwrap();
    }
    let tree = keyspace.stats().tree.unwrap();
    assert!(tree.leaves > 160);
    for number in shuffled(count).skip(100) {
        assert!(keyspace.get(format!("{:016}", number + 3)).unwrap().is_some());
    }
    check_clean(&db);
    db.close().unwrap();
    let db = open(&fs);
    assert_eq!(db.keyspace("tree", options()).unwrap().count().unwrap(), count + 3);
}

/// Holes that are too small for what is written must not keep larger ones from being found.
#[test]
fn values_of_many_pages_find_the_holes_that_others_left() {
    let db = open(&MemoryFs::new());
    let keyspace = keyspace(&db);
    let mut dice = Dice::new(3);
    let mut lens = vec![0; 300];
    let mut round = |rounds: u64| {
        for _ in 0..rounds {
            let at = dice.below(300) as usize;
            lens[at] = dice.below(40_000);
            keyspace.put((at as u32).to_be_bytes(), dice.bytes(lens[at])).unwrap();
        }
        keyspace.persist().unwrap();
        lens.iter().sum::<u64>()
    };
    round(2000);
    let live = round(8000);
    check_clean(&db);
    assert!(disk(&keyspace) < live * 3, "{} bytes for {live}", disk(&keyspace));
    keyspace.compact().unwrap();
    check_clean(&db);
    assert!(disk(&keyspace) < live * 13 / 10, "{} bytes for {live}", disk(&keyspace));
}

/// Values that are longer than any hole, or than an eighth of the file, with holes before them or behind.
#[test]
fn values_longer_than_all_holes_move_to_the_front() {
    let small =
        |number: u32| vec![number as u8; if number.is_multiple_of(2) { 9000 } else { 5000 }];
    let large = Dice::new(1).bytes(3 << 20);
    for (count, larges) in [(900, 1), (60, 5)] {
        for kept in [2, 3] {
            for large_first in [false, true] {
                let db = open(&MemoryFs::new());
                let keyspace = keyspace(&db);
                let put_large = |number: u32| keyspace.put([b'z', number as u8], &large).unwrap();
                let mut numbers = 0..count;
                for at in 0..larges {
                    if large_first {
                        put_large(at);
                        keyspace.persist().unwrap();
                    }
                    for number in numbers.by_ref().take((count / larges) as usize) {
                        keyspace.put(number.to_be_bytes(), small(number)).unwrap();
                    }
                    keyspace.persist().unwrap();
                    if !large_first {
                        put_large(at);
                        keyspace.persist().unwrap();
                    }
                }
                let is_kept = |number: &u32| number.is_multiple_of(kept);
                for number in (0..count).filter(|number| !is_kept(number)) {
                    keyspace.delete(number.to_be_bytes()).unwrap();
                }
                keyspace.persist().unwrap();
                keyspace.compact().unwrap();
                check_clean(&db);
                let pages = |len: usize| (len as u64 + 16).div_ceil(4096) * 4096;
                let live = (0..count).filter(is_kept).map(|number| pages(small(number).len()));
                let live = live.sum::<u64>() + u64::from(larges) * pages(large.len());
                assert!(disk(&keyspace) < live * 11 / 10, "{} bytes for {live}", disk(&keyspace));
                for number in (0..count).filter(is_kept) {
                    let value = keyspace.get(number.to_be_bytes()).unwrap().unwrap();
                    assert!(value == small(number));
                }
                for at in 0..larges {
                    assert!(keyspace.get([b'z', at as u8]).unwrap().unwrap() == *large);
                }
            }
        }
    }
}

/// Few values, all longer than an eighth of the file, and short holes between them.
#[test]
fn holes_between_long_values_are_closed() {
    let db = open(&MemoryFs::new());
    let keyspace = keyspace(&db);
    let value = |number: u8| {
        Dice::new(u64::from(number)).bytes(if number.is_multiple_of(2) { 300_000 } else { 500_000 })
    };
    for number in 0..6 {
        keyspace.put([number], value(number)).unwrap();
        keyspace.persist().unwrap();
    }
    (0..6).step_by(2).for_each(|number| keyspace.delete([number]).unwrap());
    keyspace.persist().unwrap();
    keyspace.compact().unwrap();
    check_clean(&db);
    assert!(disk(&keyspace) < 3 * 500_000 * 21 / 20, "{} bytes", disk(&keyspace));
    for number in (1..6).step_by(2) {
        assert!(keyspace.get([number]).unwrap().unwrap() == value(number));
    }
}

/// What a reader holds keeps parts of the file from getting empty: it does not grow for that.
#[test]
fn holes_that_cannot_be_closed_are_left() {
    let db = open(&MemoryFs::new());
    let keyspace = keyspace(&db);
    let mut dice = Dice::new(9);
    let mut put = |count: u64, most: u64| {
        for _ in 0..count {
            let len = dice.below(most);
            let value = dice.bytes(len);
            keyspace.put((dice.below(300) as u32).to_be_bytes(), value).unwrap();
        }
        keyspace.persist().unwrap();
    };
    put(3000, 40_000);
    let reader = keyspace.iter();
    let before = disk(&keyspace);
    keyspace.compact().unwrap();
    check_clean(&db);
    assert!(disk(&keyspace) < before * 3 / 2, "{} bytes of {before}", disk(&keyspace));
    drop(reader);
    keyspace.compact().unwrap();
    check_clean(&db);
    let live: usize = keyspace.iter().map(|entry| entry.unwrap().1.len()).sum();
    assert!(disk(&keyspace) < live as u64 * 13 / 10, "{} bytes for {live}", disk(&keyspace));
}

#[test]
fn the_file_is_cut_off_after_values_of_many_pages_are_gone() {
    let db = open(&MemoryFs::new());
    let keyspace = keyspace(&db);
    for number in 0..400u32 {
        keyspace.put(number.to_be_bytes(), vec![number as u8; 20_000]).unwrap();
    }
    for number in (0..400u32).filter(|number| !number.is_multiple_of(20)) {
        keyspace.delete(number.to_be_bytes()).unwrap();
    }
    keyspace.compact().unwrap();
    check_clean(&db);
    assert!(disk(&keyspace) < 20 * 24_000 * 3 / 2, "{} bytes", disk(&keyspace));
    for number in (0..400u32).step_by(20) {
        let value = keyspace.get(number.to_be_bytes()).unwrap().unwrap();
        assert!(value == vec![number as u8; 20_000]);
    }
}

/// Many lists of free pages, of all lengths around those where one more page is needed for them.
#[test]
fn no_page_is_lost_by_lists_of_any_length() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let keyspace = keyspace(&db);
    let value = |number: u32| vec![number as u8; 1100];
    let key = |number: u32| (number * 2).to_be_bytes();
    const KEYS: u32 = 6000;
    (0..KEYS).for_each(|number| keyspace.put(key(number), value(number)).unwrap());
    keyspace.persist().unwrap();
    // Each value has a page of its own: every second one that goes makes a run of free pages.
    for number in (0..KEYS).step_by(2) {
        keyspace.delete(key(number)).unwrap();
        if number > 3800 && number < 4300 {
            keyspace.persist().unwrap();
        }
        if number > 3800 && number < 4300 && number % 4 == 0 {
            check_clean(&db);
        }
    }
    keyspace.persist().unwrap();
    check_clean(&db);
}

/// Room is reserved ahead, more than is needed at once: not the last of a disk, which others need.
#[test]
fn what_finds_no_room_keeps_none() {
    for layer in [Layer::Positional, Layer::Mmap, Layer::BlockCache { block_size: 4096, pages: 64 }]
    {
        let fs = MemoryFs::new();
        let db = open(&fs);
        let options = KeyspaceOptions::btree().log(false).layer(layer);
        let keyspace = db.keyspace("tree", options).unwrap();
        let put =
            |from: u64, count: u64| (from..from + count).for_each(|number| put(&keyspace, number));
        put(0, 1000);
        keyspace.persist().unwrap();
        keyspace.compact().unwrap();
        let used = || fs.files().iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
        let before = used();
        fs.quota(Some(before + (600 << 10)));
        // A little of it.
        put(1000, 500);
        keyspace.persist().unwrap();
        let little = used();
        assert!(little <= before + 300 * RECORD * 4, "{layer}: {before}, then {little} bytes");
        // More than there is.
        let mut written = 1500_u64;
        while written < 10_000 && keyspace.put(format!("{written:016}"), [7; 100]).is_ok() {
            written += 1;
        }
        assert_eq!(keyspace.persist().unwrap_err().kind(), ErrorKind::NoSpace);
        assert!(used() <= little, "{layer}: {little}, then {} bytes", used());
        fs.quota(None);
        keyspace.persist().unwrap();
        assert_eq!(keyspace.count().unwrap(), written);
        check_clean(&db);
    }
}
