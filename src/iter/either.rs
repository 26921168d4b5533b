//! A cursor that is one of two kinds.

use super::{Approach, EntryCursor, StoredBlock};
use crate::base::{Slice, Trailer};
use crate::error::Result;

/// One of two kinds of cursors, chosen at run time: what a merge of a memtable's with others needs.
pub(crate) enum Either<A, B> {
    Left(A),
    Right(B),
}

macro_rules! each {
    ($either:expr, $cursor:ident => $call:expr) => {
        match $either {
            Either::Left($cursor) => $call,
            Either::Right($cursor) => $call,
        }
    };
}

impl<A: EntryCursor, B: EntryCursor> EntryCursor for Either<A, B> {
    fn seek_to_first(&mut self) -> Result<()> {
        each!(self, cursor => cursor.seek_to_first())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        each!(self, cursor => cursor.seek_to_last())
    }

    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        each!(self, cursor => cursor.seek(key, trailer))
    }

    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        each!(self, cursor => cursor.seek_before(key, trailer))
    }

    #[inline]
    fn approach(&mut self, part: Approach, key: &[u8], trailer: Trailer) {
        each!(self, cursor => cursor.approach(part, key, trailer));
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        each!(self, cursor => cursor.next())
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        each!(self, cursor => cursor.prev())
    }

    #[inline]
    fn is_valid(&self) -> bool {
        each!(self, cursor => cursor.is_valid())
    }

    #[inline]
    fn key(&self) -> &[u8] {
        each!(self, cursor => cursor.key())
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        each!(self, cursor => cursor.trailer())
    }

    #[inline]
    fn value(&self) -> &[u8] {
        each!(self, cursor => cursor.value())
    }

    #[inline]
    fn value_slice(&self) -> Slice {
        each!(self, cursor => cursor.value_slice())
    }

    fn count_below(&self, limit: Option<&[u8]>) -> usize {
        each!(self, cursor => cursor.count_below(limit))
    }

    #[inline]
    fn block(&self) -> Option<StoredBlock<'_>> {
        each!(self, cursor => cursor.block())
    }

    fn pass_block(&mut self) -> Result<()> {
        each!(self, cursor => cursor.pass_block())
    }
}
