//! A model of the tree: one thread extends it while another searches. See [`models`](crate::memtable::models).

use std::sync::{Arc, Mutex};

use loom::thread;

use super::tree::{Arenas, Slot, Target, Tree};
use crate::base::key::head;
use crate::base::{Kind, Trailer};
use crate::budget::Budget;
use crate::memtable::arena::{Arena, Pen, Place};
use crate::memtable::entry::{Draft, Entry, Links, New};
use crate::memtable::models;

struct Shared {
    tree: Tree,
    nodes: Arena,
    entries: Arena,
    /// Of nodes and entries, whose memory they own.
    pens: Mutex<(Pen, Pen)>,
}

fn trailer() -> Trailer {
    Trailer::new(1, Kind::Put)
}

fn add(entries: &Arena, pen: &mut Pen, key: u8) -> Slot {
    let new = New { key: &[key], trailer: trailer(), value: &[] };
    let entry = Draft::new(entries, pen, &[], new).finish(pen, Links::None);
    Slot { head: head(&[key]), entry, child: 0 }
}

impl Shared {
    /// A tree of two full leaves, with the keys 10 to 60.
    fn new() -> Self {
        let budget = Arc::new(Budget::new(64 << 20));
        let (nodes, entries) = (Arena::new(), Arena::new());
        let mut pens = (Pen::new(&budget), Pen::new(&budget));
        let slots: Vec<_> = (1..=6).map(|key| add(&entries, &mut pens.1, 10 * key)).collect();
        let tree = Tree::new(&nodes, &mut pens.0, &slots);
        Self { tree, nodes, entries, pens: Mutex::new(pens) }
    }

    fn arenas(&self) -> Arenas<'_> {
        Arenas { nodes: &self.nodes, entries: &self.entries }
    }

    fn insert(&self, key: u8) {
        let (nodes, entries) = &mut *self.pens.lock().expect("one writer");
        let slot = add(&self.entries, entries, key);
        let target = Target { head: slot.head, key: &[key], trailer: trailer() };
        self.tree.insert(self.arenas(), nodes, target, slot.entry);
    }

    fn key(&self, place: Place) -> u8 {
        // SAFETY: places come from the tree, which hands them on by release and acquire.
        unsafe { Entry::at(&self.entries, place) }.key()[0]
    }
}

/// Keys that are there are found on both sides of others, while leaves are split, and then their parent.
pub(in crate::memtable) fn searches() -> usize {
    models::run(|| {
        let shared = Arc::new(Shared::new());
        let writing = Arc::clone(&shared);
        let writer =
            thread::spawn(move || [15, 45].into_iter().for_each(|key| writing.insert(key)));
        for key in [20, 50] {
            let target = Target { head: head(&[key]), key: &[key], trailer: trailer() };
            let arenas = shared.arenas();
            let found = shared.tree.lower_bound(arenas, target).expect("it is there");
            assert_eq!(shared.key(found.place(arenas)), key);
            let before = shared.tree.before(arenas, target).expect("there are others");
            let before = shared.key(before.place(arenas));
            assert!([key - 10, key - 5].contains(&before), "{before} before {key}");
        }
        writer.join().expect("it does not panic");
    })
}
