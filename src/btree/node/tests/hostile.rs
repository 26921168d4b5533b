//! Damaged bytes are always refused; hostile ones with right checksums are refused or read without a panic.

use super::*;

fn small_leaf() -> Vec<u8> {
    let value = |i: u64| match i % 5 {
        0 => Value::Overflow(Pointer::new(100 + i, 2, i), 5000 + i),
        _ => Value::Inline(vec![i as u8; i as usize]),
    };
    leaf(4096, &(0..40).map(|i| (format!("key/{}", 100 + i).into_bytes(), value(i))).collect())
}

fn small_inner() -> Vec<u8> {
    let separator = |i: u64| (format!("key/{}", 100 + i).into_bytes(), Pointer::new(50 + i, 1, i));
    inner(4096, Pointer::new(9, 1, 3), &(0..40).map(separator).collect::<Vec<_>>())
}

/// Whether a node passes with a checksum that is right.
fn passes(node: &[u8]) -> bool {
    check(&sealed(node.to_vec()), IDENTITY, OFFSET, 4096).is_ok()
}

/// Reads all that a node has; what it says must be consistent.
fn read_all(node: &[u8]) {
    let mut last: Option<Vec<u8>> = None;
    let mut key = Vec::new();
    let mut ascends = |key: &Vec<u8>| last.replace(key.clone()).is_none_or(|last| last < *key);
    if level(node) == 0 {
        let leaf = Leaf::new(node);
        for index in 0..leaf.len() {
            leaf.key_into(index, &mut key);
            assert!(ascends(&key) && key.len() <= MAX_KEY_LEN);
            assert_eq!((leaf.find(&key), leaf.lower_bound(&key)), (Some(index), index));
            assert!(leaf.key_is(index, &key));
            match leaf.value(index) {
                Stored::Inline(bytes) => assert_eq!(bytes, &node[leaf.parts(index).payload]),
                Stored::Overflow { at, len } => assert!(at.page() >= 2 && len <= 1 << 30),
            }
            key.push(0);
            assert!(leaf.lower_bound(&key) == index + 1);
        }
    } else {
        let inner = Inner::new(node);
        assert!((0..=inner.len()).all(|index| inner.child(index).page() >= 2));
        for index in 0..inner.len() {
            inner.separator_into(index, &mut key);
            assert!(ascends(&key));
            assert_eq!(inner.child_for(&key), index + 1);
        }
        assert_eq!(inner.child_for(b""), usize::from(inner.len() > 0 && key.is_empty()));
    }
}

/// Something done to the bytes of a node.
#[derive(Clone, Debug)]
enum Mutation {
    Set(usize, u8),
    Add(usize, i8),
    Wide(usize, u32),
    Copy(usize, usize, usize),
    Swap(usize, usize, usize),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let place = || prop_oneof![3 => 4usize..400, 1 => 0usize..2000, 1 => 0usize..4096];
    let number = prop_oneof![any::<u32>(), 0u32..5000, Just(u32::MAX)];
    let slot = || (0usize..40).prop_map(|slot| 100 + 6 * slot);
    prop_oneof![
        (place(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        (place(), -2i8..3).prop_map(|(at, by)| Mutation::Add(at, by)),
        (place(), number).prop_map(|(at, number)| Mutation::Wide(at, number)),
        (place(), place(), 1usize..40).prop_map(|(from, to, n)| Mutation::Copy(from, to, n)),
        (slot(), slot(), 1usize..7).prop_map(|(a, b, n)| Mutation::Swap(a, b, n)),
    ]
}

impl Mutation {
    fn apply(&self, node: &mut [u8]) {
        match *self {
            Self::Set(at, byte) => node[at] = byte,
            Self::Add(at, by) => node[at] = node[at].wrapping_add_signed(by),
            Self::Wide(at, number) => {
                let at = at.min(node.len() - 4);
                node[at..at + 4].copy_from_slice(&number.to_le_bytes());
            }
            Self::Copy(from, to, n) => {
                let n = n.min(node.len() - from.max(to));
                node.copy_within(from..from + n, to);
            }
            Self::Swap(a, b, n) => (0..n).for_each(|i| node.swap(a + i, b + i)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn hostile_nodes_are_refused_or_right(
        is_leaf in any::<bool>(),
        mutations in vec(mutation(), 1..4),
    ) {
        let mut node = if is_leaf { small_leaf() } else { small_inner() };
        mutations.iter().for_each(|mutation| mutation.apply(&mut node));
        seal(&mut node, IDENTITY, OFFSET, GENERATION);
        if check(&node, IDENTITY, OFFSET, 4096).is_ok() {
            read_all(&node);
        }
    }

    #[test]
    fn noise_is_refused_or_right(mut node in vec(any::<u8>(), 4096), count in 0u16..20) {
        node[4] &= 1;
        node[5..8].copy_from_slice(&[0, count as u8, 0]);
        node[8..16].copy_from_slice(&[0, 0, 0, 0, 0, 16, 0, 0]);
        seal(&mut node, IDENTITY, OFFSET, GENERATION);
        if check(&node, IDENTITY, OFFSET, 4096).is_ok() {
            read_all(&node);
        }
    }
}

#[test]
fn every_flipped_byte_is_seen() {
    for whole in [small_leaf(), small_inner()] {
        for at in 0..whole.len() {
            let mut node = whole.clone();
            node[at] ^= 1 << (at % 8);
            assert!(check(&node, IDENTITY, OFFSET, 4096).is_err(), "byte {at}");
        }
    }
}

#[test]
fn a_node_of_another_place_or_size_is_refused() {
    let node = small_leaf();
    assert_eq!(check(&node, IDENTITY, OFFSET, 4096), Ok(0));
    assert!(check(&node, IDENTITY + 1, OFFSET, 4096).is_err());
    assert!(check(&node, IDENTITY, OFFSET + 4096, 4096).is_err());
    for len in [0, 3, 31, 95, 96, 2048, 4095] {
        let mut short = node[..len].to_vec();
        assert!(check(&short, IDENTITY, OFFSET, 4096).is_err());
        if len >= 32 {
            seal(&mut short, IDENTITY, OFFSET, GENERATION);
            assert!(check(&short, IDENTITY, OFFSET, 4096).is_err());
        }
    }
    let mut twice = [&node[..], &node[..]].concat();
    assert!(check(&twice, IDENTITY, OFFSET, 4096).is_err());
    twice.resize(1 << 20, 0);
    assert!(!passes(&twice));
}

/// Where the first record of [`small_leaf`] and of [`small_inner`] is: behind 40 slots and the prefix `key/1`.
const RECORDS: usize = 96 + 5 + 40 * 6;

#[test]
fn each_part_is_checked() {
    let leaf = small_leaf();
    let inner = small_inner();
    assert!(passes(&leaf) && passes(&inner));
    let refused = |node: &[u8], at: usize, bytes: &[u8]| {
        let mut node = node.to_vec();
        assert_ne!(&node[at..at + bytes.len()], bytes, "a change at {at}");
        node[at..at + bytes.len()].copy_from_slice(bytes);
        assert!(!passes(&node), "{bytes:?} at {at}");
    };
    for node in [&leaf, &inner] {
        refused(node, 5, &[3]);
        refused(node, 6, &39u16.to_le_bytes());
        refused(node, 6, &41u16.to_le_bytes());
        refused(node, 6, &u16::MAX.to_le_bytes());
        for prefix_len in [0, 4, 6, 4096, u32::MAX] {
            refused(node, 8, &prefix_len.to_le_bytes());
        }
        for used in [0, 96, RECORDS as u32, 4096, 4097, u32::MAX] {
            refused(node, 12, &used.to_le_bytes());
        }
        for hint in 0..16 {
            refused(node, 32 + 4 * hint, &[0xee]);
        }
        for slot in 0..40 {
            refused(node, 101 + 6 * slot, &[0xee]);
            refused(node, 101 + 6 * slot + 4, &[0xee, 0xee]);
        }
    }
    refused(&leaf, 4, &[1]);
    refused(&leaf, 24, &[9]);
    refused(&inner, 4, &[0]);
    refused(&inner, 24, &[1]);
    refused(&inner, RECORDS, &[1]);
    // The leaf's first value is not inline: a word of two bytes, a length of one, a suffix of two, the pointer.
    assert_eq!(leaf[RECORDS..RECORDS + 6], [0x91, 0x4e, 2, b'0', b'0', 100]);
    refused(&leaf, RECORDS + 5, &[1]);
    refused(&leaf, RECORDS + 3, b"01");
}

/// Records whose numbers are longer than they need be, or larger than they may be.
#[test]
fn each_number_is_checked() {
    let node = |level: u8, low: u64, record: &[u8]| {
        let mut node = vec![0; 4096];
        let used = 102 + record.len() as u32;
        node[4] = level;
        node[6] = 1;
        node[12..16].copy_from_slice(&used.to_le_bytes());
        node[24..32].copy_from_slice(&low.to_le_bytes());
        node[100..102].copy_from_slice(&102u16.to_le_bytes());
        node[102..used as usize].copy_from_slice(record);
        node
    };
    let at = Pointer::new(5, 1, 3).bits().to_le_bytes();
    assert!(passes(&node(0, 0, &[2, 0, 7])));
    assert!(!passes(&node(0, 0, &[0x82, 0, 0, 7])), "a long value word");
    assert!(!passes(&node(0, 0, &[2, 0x80, 0, 7])), "a long suffix length");
    let overflow = |len: u64| {
        let mut record = Vec::new();
        crate::base::varint::put(&mut record, len << 1 | 1);
        record.push(0);
        node(0, 0, &[&record, &at[..]].concat())
    };
    assert!(passes(&overflow(1 << 30)));
    assert!(!passes(&overflow((1 << 30) + 1)), "a long value");
    assert!(!passes(&overflow(u64::MAX >> 1)), "a long value");
    assert!(passes(&node(1, 2, &[&at[..], &[0]].concat())));
    assert!(!passes(&node(1, 2, &[&at[..], &[0x80, 0]].concat())), "a long suffix length");
    assert!(!passes(&node(1, 1, &[&at[..], &[0]].concat())), "an impossible first child");
    assert!(!passes(&node(1, 2, &[0; 9])), "an impossible child");
}

#[test]
fn keys_that_are_too_long_or_out_of_order_are_refused() {
    let build = |keys: &[&[u8]]| {
        let records = keys.iter().map(|key| (key.to_vec(), Value::Inline(vec![]))).collect();
        leaf(4096, &records)
    };
    let longest = vec![b'k'; MAX_KEY_LEN];
    assert!(passes(&build(&[&longest])));
    assert!(!passes(&build(&[&[&longest[..], b"k"].concat()])));
    assert!(!passes(&build(&[b"", &[&longest[..], b"k"].concat()])));
    let mut node = build(&[b"head1", b"head2"]);
    assert!(passes(&node));
    let at = node.iter().rposition(|&byte| byte == b'2').expect("the last key");
    // Prefix `head`, so that the head in the slot and those in the hints have to change with the key.
    for (byte, passing) in [(b'3', true), (b'1', false), (b'0', false)] {
        for place in (32..at + 1).filter(|&place| node[place] == node[at]).collect::<Vec<_>>() {
            node[place] = byte;
        }
        assert_eq!(passes(&node), passing, "{byte}");
        node = build(&[b"head1", b"head2"]);
    }
    // Equal heads, so that only the records say what the order is.
    let node = build(&[b"a", b"equal2", b"equal3"]);
    let at = node.iter().rposition(|&byte| byte == b'3').expect("the last key");
    for (byte, passing) in [(b'4', true), (b'2', false), (b'1', false)] {
        let mut node = node.clone();
        node[at] = byte;
        assert_eq!(passes(&node), passing, "{byte}");
    }
}

/// What passes the check is written anew by those who change its neighbours.
#[test]
fn a_record_that_passes_finds_room_in_a_node_of_its_own() {
    const LEN: usize = 512 << 10;
    const START: usize = 104;
    let leaf = |value_len: usize| {
        let mut node = vec![0; LEN];
        let mut record = Vec::new();
        crate::base::varint::put(&mut record, (value_len as u64) << 1);
        record.extend(b"\x03key");
        record.resize(record.len() + value_len, 7);
        let used = START + record.len();
        (used <= LEN).then(|| {
            node[5] = 3;
            node[6] = 1;
            node[12..16].copy_from_slice(&(used as u32).to_le_bytes());
            let head = u32::from_be_bytes(*b"key\0").to_le_bytes();
            (32..96).step_by(4).chain([96]).for_each(|at| node[at..at + 4].copy_from_slice(&head));
            node[100..102].copy_from_slice(&(START as u16 >> 3).to_le_bytes());
            node[START..used].copy_from_slice(&record);
            sealed(node)
        })
    };
    let mut passing = 0;
    for value_len in LEN - 300..LEN {
        let Some(node) = leaf(value_len) else { continue };
        if check(&node, IDENTITY, OFFSET, 4096).is_ok() {
            passing += 1;
            let mut builder = LeafBuilder::new(4096);
            builder.push(b"key", Leaf::new(&node).value(0));
            builder.finish(&mut Vec::new());
        }
    }
    assert!(passing > 0, "most of them are possible");
}
