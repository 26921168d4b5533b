//! What was built is read back, and found where a sorted vector has it.

use super::super::header::Header;
use super::*;

fn assert_leaf(node: &[u8], page_size: usize, records: &[(Vec<u8>, Value)], others: &[Vec<u8>]) {
    assert_eq!(check(node, IDENTITY, OFFSET, page_size), Ok(0));
    assert_eq!((level(node), generation(node)), (0, GENERATION));
    let leaf = Leaf::new(node);
    assert_eq!(leaf.len(), records.len());
    assert!((node.len() - page_size..=node.len()).contains(&leaf.used()));
    let mut key = b"old".to_vec();
    for (index, (expected, value)) in records.iter().enumerate() {
        leaf.key_into(index, &mut key);
        assert_eq!(&key, expected);
        assert_eq!([leaf.prefix(), leaf.suffix(index)].concat(), key);
        assert!(leaf.key_is(index, &key));
        assert_eq!(leaf.value(index), value.stored());
        let place = &node[leaf.parts(index).payload];
        match value {
            Value::Inline(bytes) => assert_eq!(place, bytes),
            Value::Overflow(at, _) => assert_eq!(place, at.bits().to_le_bytes()),
        }
    }
    prefetch(node);
    for probe in probes(records.iter().map(|(key, _)| key), others) {
        let expected = records.binary_search_by(|(key, _)| key.cmp(&probe));
        assert_eq!(leaf.find(&probe), expected.ok());
        assert_eq!(leaf.lower_bound(&probe), expected.unwrap_or_else(|at| at));
        if let Err(at) = expected {
            assert!(at == leaf.len() || !leaf.key_is(at, &probe));
        }
    }
}

fn assert_inner(
    node: &[u8],
    page_size: usize,
    low: Pointer,
    separators: &[(Vec<u8>, Pointer)],
    others: &[Vec<u8>],
) {
    assert_eq!(check(node, IDENTITY, OFFSET, page_size), Ok(1));
    let inner = Inner::new(node);
    assert_eq!(inner.len(), separators.len());
    assert_eq!(inner.child(0), low);
    let mut key = b"old".to_vec();
    for (index, (expected, child)) in separators.iter().enumerate() {
        inner.separator_into(index, &mut key);
        assert_eq!((&key, inner.child(index + 1)), (expected, *child));
    }
    for probe in probes(separators.iter().map(|(key, _)| key), others) {
        let expected = separators.partition_point(|(key, _)| *key <= probe);
        assert_eq!(inner.child_for(&probe), expected);
    }
}

proptest! {
    #[test]
    fn leaves_are_read_back(
        page_size in page_size(),
        records in records(),
        others in vec(key(), 0..8),
    ) {
        let mut builder = LeafBuilder::new(page_size);
        for (key, value) in &records {
            builder.push(key, value.stored());
        }
        let (mut start, mut out) = (0, Vec::new());
        loop {
            let split = builder.balance_point().filter(|_| !builder.is_one_page());
            let count = split.unwrap_or(builder.len());
            out.clear();
            let bound = builder.used();
            let pages = match split {
                Some(at) => {
                    let separator = builder.separator(at).to_vec();
                    assert!(separator[..] > *builder.key(at - 1));
                    assert!(builder.key(at).starts_with(&separator));
                    builder.finish_split(at, &mut out)
                }
                None => builder.finish(&mut out),
            };
            assert_eq!(out.len(), pages * page_size);
            assert!(pages == 1 || count == 1, "{count} records in {pages} pages");
            let node = sealed(out.clone());
            assert_leaf(&node, page_size, &records[start..start + count], &others);
            assert!(Leaf::new(&node).used() <= bound);
            start += count;
            if split.is_none() {
                break;
            }
        }
        prop_assert_eq!(start, records.len());
        prop_assert!(builder.is_empty());
    }

    #[test]
    fn inner_nodes_are_read_back(
        page_size in page_size(),
        first in pointer(),
        separators in separators(),
        others in vec(key(), 0..8),
    ) {
        let mut builder = InnerBuilder::new(page_size, 1);
        builder.push_first(first);
        for (key, child) in &separators {
            builder.push(key, *child);
            assert_eq!(builder.child(builder.len()), *child);
        }
        let (mut start, mut low) = (0, first);
        let mut up = Vec::new();
        while !builder.is_one_page() && let Some(at) = builder.balance_point() {
            assert_eq!(builder.child(0), low);
            let mut out = Vec::new();
            let pages = builder.finish_split(at, &mut out, &mut up);
            assert!(pages == 1 || at == 1, "{at} separators in {pages} pages");
            assert_inner(&sealed(out), page_size, low, &separators[start..start + at], &others);
            let (separator, child) = &separators[start + at];
            assert_eq!(&up, separator);
            (start, low) = (start + at + 1, *child);
        }
        let (count, bound) = (builder.len(), builder.used());
        assert_eq!(count, separators.len() - start);
        let mut out = Vec::new();
        let pages = builder.finish(&mut out);
        prop_assert!(pages == 1 || count <= 2, "{} separators in {} pages", count, pages);
        prop_assert_eq!(builder.children(), 0);
        let node = sealed(out);
        assert_inner(&node, page_size, low, &separators[start..], &others);
        prop_assert!(Header::read(&node).unwrap().used <= bound);
    }

    /// A node need not have been split: more pages, and offsets in larger units.
    #[test]
    fn nodes_of_many_pages_are_read_back(records in records(), separators in separators()) {
        let large = |key: &[u8]| key.len() > 10_000;
        prop_assume!(records.iter().filter(|(key, _)| large(key)).count() < 5);
        prop_assume!(separators.iter().filter(|(key, _)| large(key)).count() < 5);
        assert_leaf(&leaf(4096, &records), 4096, &records, &[]);
        let low = Pointer::new(2, 1, 7);
        assert_inner(&inner(4096, low, &separators), 4096, low, &separators, &[]);
    }

    #[test]
    fn halves_take_about_the_same(sizes in vec(0usize..150, 60..100)) {
        let mut builder = LeafBuilder::new(4096);
        for (index, &size) in sizes.iter().enumerate() {
            let key = format!("some prefix {index:03}");
            if builder.used() < 5000 {
                builder.push(key.as_bytes(), Stored::Inline(&vec![1; size]));
            }
        }
        let at = builder.balance_point().expect("many records");
        let mut out = Vec::new();
        prop_assert_eq!(builder.finish_split(at, &mut out), 1);
        prop_assert_eq!(builder.finish(&mut out), 1);
        let (left, right) = out.split_at(4096);
        let (left, right) = (Leaf::new(left).used(), Leaf::new(right).used());
        prop_assert!(left.abs_diff(right) < 200, "{} and {}", left, right);
    }
}

/// Heads that are all equal, and equal runs of them, in a page with thousands of records.
#[test]
fn equal_heads_are_told_apart() {
    let page_size = 64 << 10;
    for groups in [1, 2, 5, 40] {
        let record =
            |i: u32| (format!("{:05}{i:05}", i % groups).into_bytes(), Value::Inline(vec![]));
        let records: BTreeMap<_, _> = (0..2800).map(record).collect();
        let records: Records = records.into_iter().collect();
        let node = leaf(page_size, &records);
        assert_eq!(node.len(), page_size);
        assert_leaf(&node, page_size, &records, &[b"00001".to_vec(), b"1".to_vec(), vec![]]);
    }
}

#[test]
fn a_child_may_be_alone() {
    let low = Pointer::new(1 << 39, 3, 7);
    assert_inner(&inner(4096, low, &[]), 4096, low, &[], &[vec![], b"any".to_vec()]);
}

#[test]
fn the_largest_key_and_inline_value_make_a_leaf() {
    for page_size in [4 << 10, 64 << 10] {
        let value = vec![7; largest_inline(page_size)];
        let records = vec![(vec![9; MAX_KEY_LEN], Value::Inline(value))];
        let node = leaf(page_size, &records);
        assert_leaf(&node, page_size, &records, &[]);
        let first = (vec![], Value::Inline(vec![]));
        let records = vec![first, records[0].clone()];
        assert_leaf(&leaf(page_size, &records), page_size, &records, &[]);
    }
}
