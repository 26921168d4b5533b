//! Reading many ranges at depth: a device serves many reads at once faster than the same reads one after
//! the other.
//!
//! What is in memory is served at once, without a thread. The rest is sorted, neighbours are merged, and the
//! reads that come out of it are in flight together: through an io_uring with the feature `io-uring`, where
//! the kernel allows one, else by a pool of threads.
//!
//! Thread safety: any number of callers at the same time. A call returns when all its reads have ended.

mod plan;
mod pool;
#[cfg(feature = "io-uring")]
mod ring;
#[cfg(feature = "io-uring")]
mod rings;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::{File, View};
use crate::error::Result;
use plan::Read;
use pool::Pool;

/// Bytes of a file to be read.
#[derive(Clone, Debug)]
pub(crate) struct ReadRequest {
    pub(crate) file: Arc<dyn File>,
    pub(crate) range: Range<u64>,
}

/// Carries out batches of reads. One for each database: its threads are shared by all callers.
pub(crate) struct BatchReader {
    pool: Pool,
    #[cfg(feature = "io-uring")]
    rings: rings::Rings,
}

impl BatchReader {
    /// The number of threads behind which more give no more reads; see docs/decisions/0008.
    pub(crate) const DEPTH: usize = 32;

    /// Reads with up to `depth` threads beside the caller's. They are started when first needed, and end
    /// when this is dropped.
    pub(crate) fn new(depth: usize) -> Self {
        Self {
            pool: Pool::new(depth),
            #[cfg(feature = "io-uring")]
            rings: rings::Rings::default(),
        }
    }

    /// Reads all; the results are in the order of the requests. An error concerns only the requests that
    /// need the bytes it is about. A result holds no more memory than its own bytes, unless the file lends
    /// or caches them.
    pub(crate) fn read(&self, requests: &[ReadRequest]) -> Vec<Result<View>> {
        let present = |request: &ReadRequest| request.file.try_view(request.range.clone());
        let mut answers: Vec<Option<Result<View>>> =
            requests.iter().map(|request| present(request).transpose()).collect();
        if answers.iter().any(Option::is_none) {
            let absent = requests.iter().zip(&answers).filter(|(_, answer)| answer.is_none());
            let absent: Vec<ReadRequest> = absent.map(|(request, _)| request.clone()).collect();
            let missing = answers.iter_mut().filter(|answer| answer.is_none());
            missing.zip(self.read_absent(&absent)).for_each(|(answer, read)| *answer = Some(read));
        }
        answers.into_iter().map(|answer| answer.expect("every request was answered")).collect()
    }

    /// Reads what is in no memory.
    fn read_absent(&self, requests: &[ReadRequest]) -> Vec<Result<View>> {
        let (reads, sorted) = plan::merge(requests);
        let views = self.carry_out(reads.iter().map(Read::request).collect());
        let mut answers: Vec<Option<Result<View>>> = requests.iter().map(|_| None).collect();
        for (read, view) in reads.iter().zip(views) {
            let members = read.members(&sorted);
            for &at in members {
                let request = &requests[at];
                answers[at] = Some(match &view {
                    Ok(view) => Ok(read.part(view, &request.range)),
                    Err(error) if members.len() == 1 => Err(error.clone()),
                    Err(_) => request.file.view(request.range.clone()),
                });
            }
        }
        answers.into_iter().map(|answer| answer.expect("every request was answered")).collect()
    }

    /// Makes each of the reads, all at once.
    #[cfg(feature = "io-uring")]
    fn carry_out(&self, reads: Vec<ReadRequest>) -> Vec<Result<View>> {
        self.rings.read(reads, &self.pool)
    }

    /// Makes each of the reads, all at once.
    #[cfg(not(feature = "io-uring"))]
    fn carry_out(&self, reads: Vec<ReadRequest>) -> Vec<Result<View>> {
        self.pool.read(reads)
    }
}

impl fmt::Debug for BatchReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BatchReader")
    }
}
