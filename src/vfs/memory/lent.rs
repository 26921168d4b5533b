//! Memory that a mapped file lends to its readers.
//!
//! What a map of a file on disk shows is the file itself: a view shows what is written later, and is worth nothing behind
//! a new end of the file. So that what relies on it is tried in memory as well, a file that is viewed through
//! [`Layer::Mmap`](super::Layer::Mmap) has its bytes in an [`Area`] beside its content, and whatever changes the content
//! changes the area, too.
//!
//! Thread safety: [`Areas`] are behind a lock of their own, that is taken while the content is held: for reading by who views,
//! for writing by who changes. Nobody holds the bytes of an area but in views.

use std::ptr::{self, NonNull};
use std::sync::{Arc, Weak};

use super::View;
use super::content::Content;

/// What is behind the end of a file that was cut off. On disk it is a signal to whoever looks there.
const GONE: u8 = 0xdb;

/// The bytes of a file as they are. Invariant: `start` is the start of `len` initialised bytes in memory of its own, that is given
/// back when it is dropped and not before.
#[derive(Debug)]
struct Area {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is the area's alone. It is changed by `Areas` only, which change it one after the other, and lent in
// views, whose owners keep the law that nothing is changed which they look at.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Area {
    fn new(content: &Content) -> Self {
        let len = usize::try_from(content.len()).expect("files fit the address space");
        // Zeros that nobody has touched take no memory, which goes for holes, then.
        let mut bytes = vec![0; len].into_boxed_slice();
        content.copy_to(&mut bytes);
        Self { start: NonNull::from(Box::leak(bytes)).cast(), len }
    }

    /// Changes what it has of the bytes from `offset` on.
    fn write(&self, offset: u64, bytes: &[u8]) {
        let Ok(offset) = usize::try_from(offset) else { return };
        let count = bytes.len().min(self.len.saturating_sub(offset));
        if count > 0 {
            // SAFETY: both are initialised and as long as that. Where the bytes are a part of the area, the two may overlap.
            unsafe {
                ptr::copy(bytes.as_ptr(), self.start.as_ptr().add(offset), count);
            }
        }
    }

    /// Changes all of its bytes from `offset` on.
    fn fill(&self, offset: u64, byte: u8) {
        let offset = usize::try_from(offset).unwrap_or(self.len).min(self.len);
        // SAFETY: the bytes from `offset` to the end are its own.
        unsafe {
            ptr::write_bytes(self.start.as_ptr().add(offset), byte, self.len - offset);
        }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        let bytes = ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.len);
        // SAFETY: the invariant: it is the box that `new` leaked, and whoever has a view has the area.
        drop(unsafe { Box::from_raw(bytes) });
    }
}

/// The areas of a file that somebody may look at.
#[derive(Debug, Default)]
pub(super) struct Areas {
    /// The one that views are made of.
    latest: Option<Arc<Area>>,
    /// Those that are too short, or that the file was cut off behind, as long as there are views of them.
    earlier: Vec<Weak<Area>>,
}

impl Areas {
    /// A view of `len` bytes from `offset` on, which `content` has.
    pub(super) fn view(&mut self, content: &Content, offset: u64, len: usize) -> View {
        if len == 0 {
            return Vec::new().into();
        }
        let end = offset + len as u64;
        if self.latest.as_ref().is_none_or(|latest| end > latest.len as u64) {
            self.retire();
            self.latest = Some(Arc::new(Area::new(content)));
        }
        let latest = self.latest.as_ref().expect("it was just made");
        // SAFETY: the bytes from `offset` on lie in the area, as was just seen to, and live as long as it does. The laws of the file
        // layer keep them from being changed while they are looked at.
        unsafe {
            let start = latest.start.add(offset as usize);
            View::from_raw(start, len, Arc::clone(latest) as Arc<dyn Send + Sync>)
        }
    }

    /// New views are made of another area.
    fn retire(&mut self) {
        self.earlier.retain(|area| area.strong_count() > 0);
        self.earlier.extend(self.latest.take().map(|latest| Arc::downgrade(&latest)));
    }

    fn each(&self, change: impl Fn(&Area)) {
        self.latest.iter().for_each(|area| change(area));
        self.earlier.iter().filter_map(Weak::upgrade).for_each(|area| change(&area));
    }

    /// `bytes` are written to the file.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) {
        self.each(|area| area.write(offset, bytes));
    }

    /// The file is as long as that now: what was behind it is gone, for good.
    pub(super) fn truncate(&mut self, len: u64) {
        if self.latest.as_ref().is_some_and(|latest| len < latest.len as u64) {
            self.retire();
        }
        self.each(|area| area.fill(len, GONE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(bytes: &[u8]) -> Content {
        let mut content = Content::default();
        content.write(0, bytes);
        content
    }

    #[test]
    fn views_show_what_is_written_later() {
        let (mut areas, mut content) = (Areas::default(), content(b"0123456789"));
        let early = areas.view(&content, 0, 10);
        content.write(8, b"xxxx");
        areas.write(8, b"xxxx");
        assert_eq!(&*early, b"01234567xx");
        let late = areas.view(&content, 9, 3);
        assert_eq!(&*late, b"xxx");
        content.write(0, b"yy");
        areas.write(0, b"yy");
        assert_eq!((&early[..3], &*areas.view(&content, 0, 3)), (&b"yy2"[..], &b"yy2"[..]));
        assert_eq!(areas.earlier.len(), 1);
        drop(early);
        assert_eq!(areas.earlier[0].strong_count(), 0);
    }

    #[test]
    fn what_is_cut_off_is_gone() {
        let (mut areas, mut content) = (Areas::default(), content(&[7; 100]));
        let view = areas.view(&content, 50, 50);
        content.truncate(60);
        areas.truncate(60);
        assert_eq!((&view[..10], &view[10..]), (&[7; 10][..], &[GONE; 40][..]));
        // The file has zeros there when it is extended again, and the view of before has not.
        content.extend(70);
        assert_eq!(&*areas.view(&content, 55, 15), &[[7; 5].as_slice(), &[0; 10]].concat());
        assert_eq!(view[10], GONE);
        drop(view);
        areas.retire();
        assert_eq!(areas.earlier.len(), 1, "those without views are forgotten");
    }

    #[test]
    fn holes_take_no_time() {
        let mut content = content(b"near");
        content.write(5 << 30, b"far");
        let view = Areas::default().view(&content, 5 << 30, 3);
        assert_eq!(&*view, b"far");
    }
}
