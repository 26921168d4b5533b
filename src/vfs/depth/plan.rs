//! Which reads a batch comes down to: requests for neighbouring bytes of a file become one read.

use std::ops::Range;
use std::sync::Arc;

use super::{File, ReadRequest, View};

/// Requests that are no further apart than this are read together: a block that nobody asked for costs less
/// than another read. Not in files that share their memory: somebody may be writing there.
const GAP: u64 = 4 << 10;

/// Requests are read together up to this many bytes.
const LARGEST: u64 = 256 << 10;

/// One read, which answers one request or several.
#[derive(Debug)]
pub(super) struct Read {
    request: ReadRequest,
    /// Which of the sorted positions of requests it answers.
    members: Range<usize>,
}

impl Read {
    /// The read itself.
    pub(super) fn request(&self) -> ReadRequest {
        self.request.clone()
    }

    /// The positions of the requests it answers; `sorted` is what [`merge`] left.
    pub(super) fn members<'a>(&self, sorted: &'a [usize]) -> &'a [usize] {
        &sorted[self.members.clone()]
    }

    /// The bytes of a request in those of the read. They are copied: a part would keep all bytes of the read
    /// in memory for as long as it is kept itself.
    pub(super) fn part(&self, view: &View, range: &Range<u64>) -> View {
        let whole = &self.request.range;
        if whole == range {
            return view.clone();
        }
        let part = (range.start - whole.start) as usize..(range.end - whole.start) as usize;
        View::from(view[part].to_vec())
    }
}

/// The reads that answer the requests, and the positions of the requests sorted by file and place.
pub(super) fn merge(requests: &[ReadRequest]) -> (Vec<Read>, Vec<usize>) {
    let file = |request: &ReadRequest| Arc::as_ptr(&request.file).addr();
    let mut sorted: Vec<usize> = (0..requests.len()).collect();
    sorted.sort_unstable_by_key(|&at| {
        let request = &requests[at];
        (file(request), request.range.start, request.range.end)
    });
    let mut reads: Vec<Read> = Vec::new();
    for (position, &at) in sorted.iter().enumerate() {
        let next = &requests[at];
        if let Some(read) = reads.last_mut()
            && file(&read.request) == file(next)
            && let Some(both) = joined(&read.request.range, &next.range, gap(&*next.file))
        {
            read.request.range = both;
            read.members.end = position + 1;
        } else {
            reads.push(Read { request: next.clone(), members: position..position + 1 });
        }
    }
    (reads, sorted)
}

/// How far apart requests for a file may be that are read together.
fn gap(file: &dyn File) -> u64 {
    if file.shares() { 0 } else { GAP }
}

/// The range of both, if they are to be read together: they are no further apart than `gap`. `next` does not start before `read`.
fn joined(read: &Range<u64>, next: &Range<u64>, gap: u64) -> Option<Range<u64>> {
    let both = read.start..read.end.max(next.end);
    let whole = read.start <= read.end && next.start <= next.end;
    let near = next.start <= read.end.saturating_add(gap);
    (whole && near && (both == *read || both.end - both.start <= LARGEST)).then_some(both)
}
