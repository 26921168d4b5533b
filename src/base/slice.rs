//! Bytes that are lent without copying.
//!
//! [`View`] is a run of bytes together with whatever keeps them alive: a map of a file, a block in the
//! cache, a memtable. [`Slice`] is what readers get: short values are copied into it, longer ones are a
//! view. Cloning either never copies more than 40 bytes.
//!
//! Thread safety: both are `Send` and `Sync`; the bytes never change while a view of them lives.

use std::fmt;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::Arc;

use super::key;
use super::prefetch::{prefetch, prefetch_end};

/// A run of bytes and the owner that keeps them alive.
#[derive(Clone)]
pub struct View {
    start: NonNull<u8>,
    len: usize,
    owner: Arc<dyn Send + Sync>,
}

// SAFETY: the bytes are immutable while the owner lives (the contract of `View::from_raw`), and the
// owner itself is Send and Sync.
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

impl View {
    /// A view of `len` bytes at `start`.
    ///
    /// # Safety
    /// The bytes must be initialised, readable and unchanged for as long as `owner` or a clone of it
    /// lives.
    pub unsafe fn from_raw(start: NonNull<u8>, len: usize, owner: Arc<dyn Send + Sync>) -> Self {
        Self { start, len, owner }
    }

    /// The part of this view in `range`, sharing the owner. Panics if the range reaches outside.
    #[must_use]
    #[inline]
    pub fn slice(&self, range: Range<usize>) -> Self {
        let part = &self[range];
        Self { start: NonNull::from(part).cast(), len: part.len(), owner: Arc::clone(&self.owner) }
    }

    /// Whether there is another view with the same owner.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.owner) > 1
    }

    /// Asks ahead for what cloning the view and looking at its end touch.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch(&*self.owner);
        prefetch_end(self);
    }
}

impl View {
    /// Like [`slice`](Self::slice), of a view that is not needed any more.
    #[must_use]
    pub fn into_slice(self, range: Range<usize>) -> Self {
        let part = &self[range];
        let (start, len) = (NonNull::from(part).cast(), part.len());
        Self { start, len, owner: self.owner }
    }
}

impl View {
    /// A copy of `bytes`. Up to 512 of them are with their owner in one piece of memory.
    fn copy_of(bytes: &[u8]) -> Self {
        match bytes.len() {
            ..=64 => Self::in_array::<64>(bytes),
            65..=128 => Self::in_array::<128>(bytes),
            129..=256 => Self::in_array::<256>(bytes),
            257..=512 => Self::in_array::<512>(bytes),
            _ => bytes.to_vec().into(),
        }
    }

    /// A copy of at most `N` bytes.
    fn in_array<const N: usize>(bytes: &[u8]) -> Self {
        let mut array = [0; N];
        array[..bytes.len()].copy_from_slice(bytes);
        let owner = Arc::new(array);
        let start = NonNull::from(&owner[..]).cast();
        Self { start, len: bytes.len(), owner }
    }
}

impl From<Vec<u8>> for View {
    fn from(bytes: Vec<u8>) -> Self {
        let owner = Arc::new(bytes);
        let start = NonNull::from(&owner[..]).cast();
        Self { start, len: owner.len(), owner }
    }
}

impl Deref for View {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the contract of `from_raw`; `from` and `in_array` point into memory that nobody can reach
        // to change, and that does not move with the Arc.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "View({} bytes)", self.len)
    }
}

/// How many bytes a [`Slice`] holds in itself.
const INLINE: usize = 38;

/// Bytes read from the database: a key or a value. It derefs to `[u8]`.
///
/// Up to 38 bytes are held in the slice itself; longer ones stay where they were read (a block in the
/// cache, a map of the file, a memtable), which the slice keeps alive: of the cache up to 128 KiB, which
/// it has less of meanwhile. Copy out with [`to_vec`](slice::to_vec) what is to be kept for long.
#[derive(Clone)]
pub struct Slice(Repr);

#[derive(Clone)]
enum Repr {
    Inline { len: u8, bytes: [u8; INLINE] },
    Shared(View),
}

impl Slice {
    /// A slice over the part of `view` in `range`, copied if it is short. Panics if the range reaches
    /// outside the view.
    #[inline]
    pub(crate) fn of_view(view: &View, range: Range<usize>) -> Self {
        let bytes = &view[range.clone()];
        if bytes.len() <= INLINE {
            Self::copied(bytes)
        } else {
            Self(Repr::Shared(view.slice(range)))
        }
    }

    /// A copy of `bytes` inside the slice, if they are short enough.
    #[inline]
    pub(crate) fn inline(bytes: &[u8]) -> Option<Self> {
        (bytes.len() <= INLINE).then(|| Self::copied(bytes))
    }

    /// The same of bytes that are short enough.
    #[inline]
    fn copied(bytes: &[u8]) -> Self {
        let mut inline = [0; INLINE];
        key::copy_bytes(bytes, &mut inline[..bytes.len()]);
        Self(Repr::Inline { len: bytes.len() as u8, bytes: inline })
    }
}

impl Slice {
    /// Like [`of_view`](Self::of_view), of a view that is not needed any more.
    #[inline]
    pub(crate) fn from_view(view: View, range: Range<usize>) -> Self {
        Self::inline(&view[range.clone()])
            .unwrap_or_else(|| Self(Repr::Shared(view.into_slice(range))))
    }

    /// The bytes from `start` on. Panics if there are not so many.
    pub(crate) fn tail(self, start: usize) -> Self {
        match self.0 {
            Repr::Inline { len, bytes } => Self::from(&bytes[start..usize::from(len)]),
            Repr::Shared(view) => {
                let end = view.len();
                Self::from_view(view, start..end)
            }
        }
    }
}

impl From<View> for Slice {
    fn from(view: View) -> Self {
        Self::inline(&view).unwrap_or(Self(Repr::Shared(view)))
    }
}

impl From<Vec<u8>> for Slice {
    fn from(bytes: Vec<u8>) -> Self {
        Self::inline(&bytes).unwrap_or_else(|| Self(Repr::Shared(bytes.into())))
    }
}

impl From<&[u8]> for Slice {
    #[inline]
    fn from(bytes: &[u8]) -> Self {
        if bytes.len() <= INLINE {
            Self::copied(bytes)
        } else {
            Self(Repr::Shared(View::copy_of(bytes)))
        }
    }
}

impl Deref for Slice {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..*len as usize],
            Repr::Shared(view) => view,
        }
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Slice {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl Eq for Slice {}

impl PartialOrd for Slice {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Slice {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

impl std::hash::Hash for Slice {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl std::borrow::Borrow<[u8]> for Slice {
    fn borrow(&self) -> &[u8] {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_read_alike() {
        for n in [0, 1, INLINE, INLINE + 1, 500] {
            let bytes: Vec<u8> = (0..n).map(|i| i as u8).collect();
            let slice = Slice::from(bytes.clone());
            assert_eq!(slice, bytes);
            assert_eq!(slice.clone(), Slice::from(&bytes[..]));
            let view = View::from(bytes.clone());
            assert_eq!(Slice::of_view(&view, 0..n), bytes);
            assert_eq!(Slice::from_view(view.clone(), n / 2..n), &bytes[n / 2..]);
            assert_eq!(&*view.slice(n / 2..n), &bytes[n / 2..]);
            assert_eq!(slice.tail(n / 2), &bytes[n / 2..]);
        }
        assert_eq!(size_of::<Slice>(), 40);
    }

    #[test]
    fn a_part_keeps_the_whole_alive() {
        let view = View::from(vec![7; 100]);
        let part = view.slice(10..60);
        drop(view);
        assert_eq!(Slice::from(part), vec![7; 50]);
    }
}
