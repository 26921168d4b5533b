//! Memory: what is charged for it, what keeps it, how much it is.

use super::*;
use crate::memtable::entry::LARGE;
use crate::memtable::table::COPIED;

with_every_kind! {
    the_budget_is_charged_and_given_back,
    what_is_made_for_readers_is_charged,
    large_values_and_keys_outlive_the_table,
    a_full_one_has_little_room_left,
    entries_take_little_more_than_their_bytes,
}

fn the_budget_is_charged_and_given_back(kind: MemtableKind) {
    let budget = Arc::new(Budget::new(64 << 20));
    let table = new(kind, &budget);
    table.insert(b"k", Trailer::new(1, Kind::Put), &vec![0; 1 << 20]);
    assert!(budget.memtables_used() > 1 << 20);
    assert_eq!(budget.memtables_used(), table.memory());
    assert_eq!((table.entries(), table.oldest()), (1, Some(1)));
    drop(table);
    assert_eq!(budget.memtables_used(), 0);
}

/// It is frozen when it takes more than it may, which is when the last chunk is begun.
fn a_full_one_has_little_room_left(kind: MemtableKind) {
    for mebibytes in if cfg!(miri) { 0..0 } else { 4..20_usize } {
        let budget = Arc::new(Budget::new(mebibytes << 20));
        let (table, value) = (new(kind, &budget), vec![7; 1000]);
        let mut number = 0_u64;
        while table.memory() <= budget.memtable {
            number += 1;
            let key = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
            table.insert(&key, Trailer::new(number, Kind::Put), &value);
        }
        let held = number as usize * value.len();
        assert!(held > budget.memtable * 2 / 3, "{held} of {} bytes", budget.memtable);
    }
}

fn what_is_made_for_readers_is_charged(kind: MemtableKind) {
    let budget = Arc::new(Budget::new(64 << 20));
    let table = new(kind, &budget);
    let mut old = table.cursor();
    let entries = if cfg!(miri) { 200 } else { 20_000u64 };
    for number in 1..=entries {
        table.insert(&number.to_be_bytes(), Trailer::new(number, Kind::Put), b"");
        if number == entries / 2 {
            old.seek_to_first().unwrap();
        }
    }
    let before = table.memory();
    table.cursor().seek_to_first().unwrap();
    let with_two = table.memory();
    let makes_order = kind != MemtableKind::Skiplist;
    assert_eq!(with_two > before + entries as usize * 12, makes_order);
    assert_eq!(budget.memtables_used(), with_two);
    assert_eq!(all(&mut old).len() as u64, entries, "a seek takes the newest order");
    assert_eq!(table.memory() < with_two, makes_order, "the first order is gone");
    assert_eq!(budget.memtables_used(), table.memory());
    table.set_flushed();
    assert_eq!(budget.memtables_used(), 0);
    drop((old, table));
    assert_eq!(budget.memtables_used(), 0);
}

fn large_values_and_keys_outlive_the_table(kind: MemtableKind) {
    let table = Checked::new(kind).table;
    let sizes = [0, 1, COPIED + 1, LARGE, LARGE + 1, 3 << 20];
    for (i, &size) in sizes.iter().enumerate() {
        let key = vec![i as u8; 64 << 10];
        table.insert(&key, Trailer::new(i as u64 + 1, Kind::Put), &vec![i as u8; size]);
    }
    let mut slices: Vec<_> = (0..sizes.len())
        .map(|i| table.get(&vec![i as u8; 64 << 10], 100).expect("there").1)
        .collect();
    let mut cursor = table.cursor();
    cursor.seek_to_first().unwrap();
    drop(table);
    for _ in &sizes {
        slices.push(cursor.value_slice());
        cursor.next().unwrap();
    }
    drop(cursor);
    for (i, &size) in sizes.iter().chain(&sizes).enumerate() {
        assert_eq!(slices[i], vec![(i % sizes.len()) as u8; size], "a slice outlives the table");
    }
}

fn entries_take_little_more_than_their_bytes(kind: MemtableKind) {
    if cfg!(miri) {
        return;
    }
    let table = Checked::new(kind).table;
    let entries = 100_000u64;
    for number in 1..=entries {
        let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        table.insert(&key, Trailer::new(number, Kind::Put), &[7; 100]);
    }
    let per_entry = table.memory() as u64 / entries - 108;
    let most = match kind {
        // Nearly each key has a list of its own, with a head of four levels or one.
        MemtableKind::HashSkiplist { prefix: 3.. } => 140,
        MemtableKind::HashLinklist { prefix: 3.. } => 110,
        _ => 75,
    };
    assert!(per_entry < most, "{per_entry}");
}
