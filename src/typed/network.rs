//! Codecs of network addresses as keys.
//!
//! ```text
//! Ipv4Addr      its 4 bytes, as they are in a packet
//! Ipv6Addr      its 16 bytes
//! IpAddr        04, the 4 bytes | 06, the 16 bytes
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::decode_error::DecodeError;
use super::key::{EncodeKey, KeyCodec, KeyReader, KeyWriter};

impl EncodeKey<Self> for Ipv4Addr {
    #[inline]
    fn encode(&self, out: &mut KeyWriter) {
        out.fixed(&self.octets());
    }
}

impl KeyCodec for Ipv4Addr {
    fn name() -> String {
        "ipv4".into()
    }
    #[inline]
    fn decode(from: &mut KeyReader<'_>) -> Result<Self, DecodeError> {
        Ok(Self::from(from.fixed()?))
    }
}

impl EncodeKey<Self> for Ipv6Addr {
    #[inline]
    fn encode(&self, out: &mut KeyWriter) {
        out.fixed(&self.octets());
    }
}

impl KeyCodec for Ipv6Addr {
    fn name() -> String {
        "ipv6".into()
    }
    #[inline]
    fn decode(from: &mut KeyReader<'_>) -> Result<Self, DecodeError> {
        Ok(Self::from(from.fixed()?))
    }
}

impl EncodeKey<Self> for IpAddr {
    #[inline]
    fn encode(&self, out: &mut KeyWriter) {
        match self {
            Self::V4(address) => out.fixed(&[4]).last::<Ipv4Addr>(address),
            Self::V6(address) => out.fixed(&[6]).last::<Ipv6Addr>(address),
        }
    }
}

impl KeyCodec for IpAddr {
    fn name() -> String {
        "ip".into()
    }
    #[inline]
    fn decode(from: &mut KeyReader<'_>) -> Result<Self, DecodeError> {
        match from.fixed()? {
            [4] => from.last().map(Self::V4),
            [6] => from.last().map(Self::V6),
            [_] => Err(DecodeError::new("it begins like no address")),
        }
    }
}
