//! The memory that this process has, of all pieces together: what tells of a length that was believed, and of many small pieces
//! that nobody bounds.
//!
//! Thread safety: all threads are counted together, those in the background too. Who measures has to have the process [to
//! itself](super::alone).

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering::Relaxed};

/// Nothing is counted before somebody measures: it would slow all tests down.
static IS_COUNTED: AtomicBool = AtomicBool::new(false);
/// What is allocated now; less than nothing if what was there before is freed.
static LIVE: AtomicIsize = AtomicIsize::new(0);
static PEAK: AtomicIsize = AtomicIsize::new(0);

#[global_allocator]
static ALLOCATOR: Watched = Watched;

/// The system's allocator, which is watched.
struct Watched;

fn note(bytes: usize) {
    if IS_COUNTED.load(Relaxed) {
        let live = LIVE.fetch_add(bytes as isize, Relaxed) + bytes as isize;
        PEAK.fetch_max(live, Relaxed);
    }
}

fn note_freed(bytes: usize) {
    if IS_COUNTED.load(Relaxed) {
        LIVE.fetch_sub(bytes as isize, Relaxed);
    }
}

// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    /// Both places are there for a moment, if it has to move.
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        note_freed(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        note_freed(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Does `work`, and gives how many bytes there were at most that had not been there before.
pub(super) fn most_during(work: impl FnOnce()) -> usize {
    IS_COUNTED.store(true, Relaxed);
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    work();
    (PEAK.load(Relaxed) - before).max(0) as usize
}

#[test]
fn pieces_of_all_threads_are_counted() {
    if !super::alone::is_alone("allocations::pieces_of_all_threads_are_counted") {
        return;
    }
    let one = most_during(|| {
        let mut large = vec![0_u8; 70_000];
        large.reserve_exact(30_000);
        assert_eq!(large.len() + "small".repeat(2).len(), 70_010);
    });
    assert!((100_000..180_000).contains(&one), "{one}");
    let many = most_during(|| {
        let pieces = || (0..1000).map(|number| vec![1_u8; 900 + number % 2]).collect::<Vec<_>>();
        let elsewhere = std::thread::spawn(pieces).join().expect("it is joined");
        drop(pieces());
        let here = pieces();
        assert_eq!(here.len() + elsewhere.len(), 2000);
    });
    assert!((1_800_000..2_200_000).contains(&many), "{many}");
    let small = most_during(|| assert_eq!("small".repeat(2).len(), 10));
    assert!(small < 1000, "{small}");
}
