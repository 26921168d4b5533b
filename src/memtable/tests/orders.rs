//! The order that is made for readers. A vector has nothing else.

use super::*;

#[test]
fn it_is_made_anew_when_its_prefix_no_longer_fits() {
    let mut checked = Checked::new(MemtableKind::Vector);
    for number in 1..=3_000 {
        checked.put(format!("{number:016}").as_bytes());
        if number % 100 == 1 {
            checked.check_order(&mut checked.table.cursor(), b"0000000000000500", number);
        }
    }
    checked.check_order(&mut checked.table.cursor(), b"0000000000002500", 3_000);
}

#[test]
fn keys_that_descend_in_a_gap_take_no_more_memory_than_others() {
    let tables = [(); 2].map(|()| Checked::new(MemtableKind::Vector).table);
    let entries = 3_000u64;
    let put = |key: String, seqno| {
        let trailer = Trailer::new(seqno, Kind::Put);
        tables.iter().for_each(|table| table.insert(key.as_bytes(), trailer, b""));
        let mut cursor = tables[0].cursor();
        cursor.seek(key.as_bytes(), Trailer::NEWEST).unwrap();
        assert_eq!(cursor.trailer().seqno(), seqno);
    };
    let order = || tables[0].memory() - tables[1].memory();
    // Ascending ones first, whose nodes are full.
    (1..=entries).for_each(|number| put(format!("a{number:08}"), number));
    let before = order();
    (1..=entries).for_each(|number| put(format!("b{:08}", entries - number), entries + number));
    let taken = order() - before;
    assert!(taken < 256 * entries as usize, "{taken}");
}

#[test]
fn sorting_is_charged_while_it_goes_on() {
    use crate::memtable::account::Account;

    let budget = Arc::new(Budget::new(64 << 20));
    let account = Account::new(Arc::clone(&budget));
    account.grow(10);
    let scratch = account.scratch(100);
    assert_eq!((account.bytes(), budget.memtables_used()), (110, 110));
    drop(scratch);
    assert_eq!((account.bytes(), budget.memtables_used()), (10, 10));
    let scratch = account.scratch(100);
    account.close();
    drop(scratch);
    assert_eq!((account.bytes(), budget.memtables_used()), (10, 0));
}
