//! Codecs of times as keys.
//!
//! ```text
//! Duration      seconds u64 | nanoseconds u32, below 10^9
//! SystemTime    seconds i64 since 1970, downwards if there are fractions | nanoseconds u32, below 10^9
//! ```
//! Integers as numbers.rs has them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::decode_error::DecodeError;
use super::key::{EncodeKey, KeyCodec, KeyReader, KeyWriter};

const NANOS: u32 = 1_000_000_000;

impl EncodeKey<Self> for Duration {
    #[inline]
    fn encode(&self, out: &mut KeyWriter) {
        out.part::<u64>(self.as_secs()).last::<u32>(self.subsec_nanos());
    }
}

impl KeyCodec for Duration {
    fn name() -> String {
        "duration".into()
    }
    #[inline]
    fn decode(from: &mut KeyReader<'_>) -> Result<Self, DecodeError> {
        Ok(Self::new(from.part()?, nanos(from)?))
    }
}

impl EncodeKey<Self> for SystemTime {
    #[inline]
    fn encode(&self, out: &mut KeyWriter) {
        // Seconds of a system's time are 64 bits at most.
        let (seconds, nanos) = match self.duration_since(UNIX_EPOCH) {
            Ok(since) => (since.as_secs().cast_signed(), since.subsec_nanos()),
            Err(before) => {
                let until = before.duration();
                let seconds = until.as_secs().wrapping_neg().cast_signed();
                match until.subsec_nanos() {
                    0 => (seconds, 0),
                    nanos => (seconds - 1, NANOS - nanos),
                }
            }
        };
        out.part::<i64>(seconds).last::<u32>(nanos);
    }
}

impl KeyCodec for SystemTime {
    fn name() -> String {
        "time".into()
    }
    #[inline]
    fn decode(from: &mut KeyReader<'_>) -> Result<Self, DecodeError> {
        let (seconds, nanos) = (from.part::<i64>()?, nanos(from)?);
        let distance = Duration::from_secs(seconds.unsigned_abs());
        let whole = if seconds < 0 {
            UNIX_EPOCH.checked_sub(distance)
        } else {
            UNIX_EPOCH.checked_add(distance)
        };
        whole
            .and_then(|whole| whole.checked_add(Duration::from_nanos(nanos.into())))
            .ok_or_else(|| DecodeError::new("this system has no such time"))
    }
}

#[inline]
fn nanos(from: &mut KeyReader<'_>) -> Result<u32, DecodeError> {
    let nanos = from.last::<u32>()?;
    if nanos < NANOS { Ok(nanos) } else { Err(DecodeError::new("a second has fewer nanoseconds")) }
}
