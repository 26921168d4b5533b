//! Memory of a size that a file says, which may be any.

use std::io;

/// All of `items`: an error if there is not so much memory.
pub(crate) fn collected<T>(items: impl ExactSizeIterator<Item = T>) -> io::Result<Vec<T>> {
    let mut all = Vec::new();
    all.try_reserve_exact(items.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
    all.extend(items);
    Ok(all)
}

/// Whether there is memory for so many of them now.
pub(crate) fn is_there_for<T>(count: usize) -> bool {
    Vec::<T>::new().try_reserve_exact(count).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_there_is_can_be_asked_for() {
        let error =
            collected(std::iter::repeat_n(0_u64, 1 << 58)).expect_err("there is not so much");
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        assert!(!is_there_for::<u64>(1 << 58) && is_there_for::<u64>(9));
        assert_eq!(collected(3..6).unwrap(), [3, 4, 5]);
    }
}
