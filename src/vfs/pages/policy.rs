//! Which page goes when a frame is needed: S3-FIFO (Yang, Zhang, Qiu, Yue and Rashmi, "FIFO queues are all you
//! need for cache eviction", SOSP 2023).
//!
//! 1. A new page enters the *small* queue, a tenth of the frames. At its end, if it was used at least twice
//!    since, it goes on to the *main* queue; otherwise it leaves, and a *ghost* remembers its hash for a while.
//! 2. A page that comes back while its ghost is there enters the main queue at once.
//! 3. At the end of the main queue, a page that was used goes round again, its use counted down; one that was
//!    not leaves.
//!
//! Chosen over CLOCK with counters because of scans. However long a scan is, it goes through the small queue
//! and leaves the main one alone, where CLOCK's hand counts every page down once for each cache-full that the
//! scan reads, and has driven everything out after a few. And as with CLOCK, a hit changes no queue: it only
//! sets the count in its frame.
//!
//! Thread safety: under the directory's lock. Invariant: a frame is in exactly one queue, or reserved, or never
//! was used (`fresh` and above).

use super::Key;
use super::frames::{Blank, Frames, Taken};
use super::table::Table;

/// No frame.
const NONE: u32 = u32::MAX;
/// How often a page has to be used in the small queue to be kept.
const KEPT: u8 = 2;
/// How many frames are passed over before the counts of use are ignored, and how many more before giving up:
/// a bound on how long one search takes.
const PATIENCE: usize = 4096;

/// A queue that a frame is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Place {
    #[default]
    Nowhere,
    Free,
    Small,
    Main,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    place: Place,
    before: u32,
    behind: u32,
}

/// A queue linked through the nodes of its frames.
#[derive(Clone, Copy, Debug)]
struct Queue {
    front: u32,
    back: u32,
    len: usize,
}

const EMPTY: Queue = Queue { front: NONE, back: NONE, len: 0 };

/// The queues of a cache.
#[derive(Debug)]
pub(super) struct Policy {
    nodes: Vec<Node>,
    /// By place; nobody is in the first.
    queues: [Queue; 4],
    /// Frames from here on were never used.
    fresh: u32,
    /// How many frames the small queue may have before it gives some up.
    small: usize,
    ghosts: Ghosts,
}

/// What to do for a frame.
pub(super) enum Victim<'a> {
    /// It was free, or its page was driven out.
    Blank { blank: Blank<'a>, evicted: bool },
    /// This page has to be written back first.
    Dirty(Key),
    /// Everything is pinned.
    None,
}

impl Policy {
    pub(super) fn new(frames: usize) -> Self {
        Self {
            nodes: Vec::with_capacity(frames),
            queues: [EMPTY; 4],
            fresh: 0,
            small: (frames / 10).max(1),
            ghosts: Ghosts::new(frames),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>() + size_of_val(&*self.ghosts.slots)
    }

    /// The bytes of the queues of so many frames.
    pub(super) fn bytes_of(frames: usize) -> usize {
        frames * size_of::<Node>() + Ghosts::size(frames) * size_of::<(u32, u32)>()
    }

    /// Queues a frame that was reserved and has a page now.
    pub(super) fn admit(&mut self, index: u32, key: Key) {
        let place = if self.ghosts.forget(key) { Place::Main } else { Place::Small };
        self.push(place, index);
    }

    /// Takes a frame that was reserved, or whose page is forgotten, as a free one.
    pub(super) fn free(&mut self, index: u32) {
        self.remove(index);
        self.push(Place::Free, index);
    }

    /// A frame for another page. It is reserved and in no queue, and its old page has left the table.
    pub(super) fn victim<'a>(&mut self, frames: &'a Frames, table: &Table) -> Victim<'a> {
        if let Some(blank) = self.free_frame(frames) {
            return Victim::Blank { blank, evicted: false };
        }
        for step in 0..2 * PATIENCE.min(4 * self.nodes.len().max(1)) {
            let place = self.next_place();
            let index = self.queue(place).front;
            if index == NONE {
                break;
            }
            if step < PATIENCE && self.is_kept(frames, place, index) {
                continue;
            }
            match frames.take(index) {
                Taken::Blank(blank) => {
                    let key = frames.key(index);
                    self.remove(index);
                    table.remove(frames, index, key);
                    if place == Place::Small {
                        self.ghosts.remember(key);
                    }
                    return Victim::Blank { blank, evicted: true };
                }
                Taken::Dirty => return Victim::Dirty(frames.key(index)),
                Taken::Held => self.move_to(place, index),
            }
        }
        Victim::None
    }

    /// The page is not to be the next victim: it goes to the back of its queue.
    pub(super) fn pass_over(&mut self, frames: &Frames, table: &Table, key: Key) {
        if let Some(index) = table.find(frames, key) {
            let place = self.nodes[index as usize].place;
            if place != Place::Nowhere {
                self.move_to(place, index);
            }
        }
    }

    /// A frame without a page. Those that old views still hold are passed over.
    fn free_frame<'a>(&mut self, frames: &'a Frames) -> Option<Blank<'a>> {
        for _ in 0..self.queue(Place::Free).len.min(PATIENCE) {
            let index = self.queue(Place::Free).front;
            if let Some(blank) = frames.take_free(index) {
                self.remove(index);
                return Some(blank);
            }
            self.move_to(Place::Free, index);
        }
        while (self.fresh as usize) < frames.count() {
            let index = self.fresh;
            self.fresh += 1;
            self.nodes.push(Node { place: Place::Nowhere, before: NONE, behind: NONE });
            match frames.take_free(index) {
                Some(blank) => return Some(blank),
                None => self.push(Place::Free, index),
            }
        }
        None
    }

    fn next_place(&self) -> Place {
        let [small, main] =
            [Place::Small, Place::Main].map(|place| self.queues[place as usize].len);
        if small >= self.small || main == 0 { Place::Small } else { Place::Main }
    }

    /// Whether the page at the front of a queue stays, for its use; it has then been moved.
    fn is_kept(&mut self, frames: &Frames, place: Place, index: u32) -> bool {
        let used = frames.used(index);
        match place {
            Place::Small if used >= KEPT => frames.set_used(index, 0),
            Place::Main if used > 0 => frames.set_used(index, used - 1),
            _ => return false,
        }
        self.move_to(Place::Main, index);
        true
    }

    fn queue(&mut self, place: Place) -> &mut Queue {
        &mut self.queues[place as usize]
    }

    fn move_to(&mut self, place: Place, index: u32) {
        self.remove(index);
        self.push(place, index);
    }

    fn push(&mut self, place: Place, index: u32) {
        let back = self.queue(place).back;
        self.nodes[index as usize] = Node { place, before: back, behind: NONE };
        match back {
            NONE => self.queue(place).front = index,
            back => self.nodes[back as usize].behind = index,
        }
        let queue = self.queue(place);
        queue.back = index;
        queue.len += 1;
    }

    /// Takes a frame out of its queue, if it is in one.
    fn remove(&mut self, index: u32) {
        let Node { place, before, behind } = self.nodes[index as usize];
        if place == Place::Nowhere {
            return;
        }
        self.nodes[index as usize].place = Place::Nowhere;
        match before {
            NONE => self.queue(place).front = behind,
            before => self.nodes[before as usize].behind = behind,
        }
        match behind {
            NONE => self.queue(place).back = before,
            behind => self.nodes[behind as usize].before = before,
        }
        self.queue(place).len -= 1;
    }
}

/// The pages that left the small queue last, about as many as there are frames. A slot has the half of a
/// page's hash that did not choose it, and when the page left; a newer page in the same slot replaces it.
#[derive(Debug)]
struct Ghosts {
    slots: Box<[(u32, u32)]>,
    /// How many pages left so far, and at the start so many that no empty slot looks recent.
    now: u32,
    capacity: u32,
    shift: u32,
}

impl Ghosts {
    fn new(frames: usize) -> Self {
        let size = Self::size(frames);
        let capacity = frames.min(u32::MAX as usize / 2) as u32;
        Self {
            slots: vec![(0, 0); size].into_boxed_slice(),
            now: capacity + 1,
            capacity,
            shift: u64::BITS - size.trailing_zeros(),
        }
    }

    fn size(frames: usize) -> usize {
        frames.next_power_of_two().max(2)
    }

    fn slot(&mut self, key: Key) -> (&mut (u32, u32), u32) {
        let hash = key.hash();
        (&mut self.slots[(hash >> self.shift) as usize], hash as u32)
    }

    fn remember(&mut self, key: Key) {
        self.now = self.now.wrapping_add(1);
        let now = self.now;
        let (slot, tag) = self.slot(key);
        *slot = (tag, now);
    }

    /// Whether the page left not long ago; forgets it.
    fn forget(&mut self, key: Key) -> bool {
        let (now, capacity) = (self.now, self.capacity);
        let (slot, tag) = self.slot(key);
        let is_there = slot.0 == tag && now.wrapping_sub(slot.1) < capacity;
        if is_there {
            slot.1 = now.wrapping_sub(capacity);
        }
        is_there
    }
}
