//! The largest piece of memory that a thread has asked for: what tells of a length that was believed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;

/// The system's allocator, which is watched.
struct Watched;

fn note(bytes: usize) {
    // There is none any more when the thread ends.
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(bytes)));
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

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Does `work`, and gives the bytes of the largest piece of memory that this thread asked for meanwhile.
pub(super) fn largest_of(work: impl FnOnce()) -> usize {
    LARGEST.set(0);
    work();
    LARGEST.get()
}

#[test]
fn the_largest_piece_is_seen() {
    let largest = largest_of(|| {
        let mut large = vec![0_u8; 70_000];
        large.reserve(100_000 - large.len());
        assert_eq!(large.len() + "small".repeat(2).len(), 70_010);
    });
    assert!((100_000..200_000).contains(&largest), "{largest}");
    assert!(largest_of(|| assert_eq!("small".repeat(2).len(), 10)) < 1000);
}
