//! Panics: what work ends by one, and what they say.
//!
//! Thread safety: a watch belongs to its thread.

use std::any::Any;

use super::thread;

/// Tells, mostly in a drop, whether what was done since it began ends by a panic. A thread that was in a panic before may do
/// its work in drops, and do it well.
#[derive(Debug)]
pub(crate) struct PanicWatch {
    was_panicking: bool,
}

impl PanicWatch {
    pub(crate) fn begin() -> Self {
        Self { was_panicking: thread::panicking() }
    }

    pub(crate) fn sees_one(&self) -> bool {
        !self.was_panicking && thread::panicking()
    }
}

/// What a panic says.
pub(crate) fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word")
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Counts how it is dropped.
    struct Work<'a>(PanicWatch, &'a [AtomicU32; 2]);

    impl<'a> Work<'a> {
        fn begin(ends: &'a [AtomicU32; 2]) -> Self {
            Self(PanicWatch::begin(), ends)
        }
    }

    impl Drop for Work<'_> {
        fn drop(&mut self) {
            self.1[usize::from(self.0.sees_one())].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Does work when it is dropped.
    struct Late<'a>(&'a [AtomicU32; 2]);

    impl Drop for Late<'_> {
        fn drop(&mut self) {
            drop(Work::begin(self.0));
        }
    }

    #[test]
    fn only_what_is_under_way_ends_by_a_panic() {
        let ends = <[AtomicU32; 2]>::default();
        drop(Work::begin(&ends));
        let panic = catch_unwind(|| {
            let _late = Late(&ends);
            let _work = Work::begin(&ends);
            panic!("on {}", "purpose");
        });
        assert_eq!(ends.map(AtomicU32::into_inner), [2, 1]);
        assert_eq!(message(&*panic.unwrap_err()), "on purpose");
        assert_eq!(message(&*catch_unwind(|| panic!("plainly")).unwrap_err()), "plainly");
        assert_eq!(message(&7), "without a word");
    }
}
