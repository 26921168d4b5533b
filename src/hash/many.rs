//! Reading many keys at once: what lies in files is read together, at depth.

use super::index::{Entry, Found as Candidates};
use super::segment::{Found, Segment};
use super::store::Store;
use crate::base::hash::hash64;
use crate::base::{Kind, ReadPoint, Slice};
use crate::error::Result;
use std::sync::Arc;

/// A key whose record is to be read from a file.
struct Wanted {
    /// Which of the keys it is.
    key: usize,
    segment: Arc<Segment>,
    entry: Entry,
}

impl Store {
    /// The values of `keys` at `point`, in the order of the keys.
    pub(super) fn look_up_many(
        &self,
        keys: &[&[u8]],
        point: ReadPoint<'_>,
    ) -> Result<Vec<Option<Slice>>> {
        // One state for all of them.
        let point = ReadPoint::At(point.seqno());
        let hashes: Vec<u64> = keys.iter().map(|key| hash64(key)).collect();
        hashes.iter().for_each(|&hash| self.index.prefetch(hash));
        let slots = self.slots.load();
        let mut values = vec![None; keys.len()];
        let (mut requests, mut wanted) = (Vec::new(), Vec::new());
        let mut found = Candidates::new();
        let mut alone = Vec::new();
        for (key, &hash) in hashes.iter().enumerate() {
            self.index.find(hash, &mut found);
            match *found.as_slice() {
                [] => {}
                [entry] if self.slots.is_current(&slots) => {
                    let segment = slots.segment(entry.address());
                    let file = segment.and_then(|segment| Some((segment, segment.file()?)));
                    let request = match file {
                        Some((segment, file)) => {
                            file.request(segment.offset(entry.address()), entry)?
                        }
                        None => None,
                    };
                    match (request, file) {
                        (Some(request), Some((segment, _))) => {
                            requests.push(request);
                            wanted.push(Wanted { key, segment: Arc::clone(segment), entry });
                        }
                        _ => alone.push(key),
                    }
                }
                _ => alone.push(key),
            }
        }
        drop(slots);
        let views = self.context.reader.read(&requests);
        for (Wanted { key, segment, entry }, view) in wanted.into_iter().zip(views) {
            let file = segment.file().expect("it is in a file");
            match file.judge(segment.offset(entry.address()), view?, keys[key])? {
                Found::Version(trailer, value) if trailer.seqno() <= point.seqno() => {
                    values[key] = (trailer.kind() == Kind::Put).then_some(value);
                }
                Found::Version(..) | Found::Busy => alone.push(key),
                Found::Other => {}
            }
        }
        for key in alone {
            values[key] = self.look_up(hashes[key], keys[key], point)?;
        }
        Ok(values)
    }
}
