//! The layers: the ways in which a file's bytes can be reached, their names and their sizes.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::pages::PageCache;
use crate::error::{Error, Result};

/// How the bytes of a file are reached. The file holds the same bytes whichever it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Layer {
    /// A shared memory mapping (`mmap`): views are lent without a copy. A device error while reading
    /// becomes a signal (SIGBUS) instead of an error; choose it for devices you trust.
    Mmap,
    /// Positional calls (`pos`): pread and pwrite through the kernel's page cache.
    #[default]
    Positional,
    /// Positional calls (`pos-block`) that move whole blocks.
    Block {
        /// The size of a block, in bytes.
        block_size: u32,
    },
    /// Positional calls (`pos-block-cache`) that move whole blocks, through a page cache of our own.
    BlockCache {
        /// The size of a block and of a page, in bytes.
        block_size: u32,
        /// How many pages the cache has.
        pages: u32,
    },
    /// Direct I/O (`pos-direct`): whole blocks go between memory and the device, past the kernel's page
    /// cache.
    Direct {
        /// The size of a block, in bytes.
        block_size: u32,
    },
    /// Direct I/O (`pos-direct-cache`) through a page cache of our own.
    DirectCache {
        /// The size of a block and of a page, in bytes.
        block_size: u32,
        /// How many pages the cache has.
        pages: u32,
    },
}

/// The sizes that a block may have, if they are powers of two.
const BLOCK_SIZES: RangeInclusive<u32> = 512..=1 << 20;

impl Layer {
    /// The layer by which files are written that are read by way of this one, if no byte of a mapping is to be written:
    /// its page faults cost more than calls.
    pub(crate) fn for_writing(self) -> Self {
        if self == Self::Mmap { Self::Positional } else { self }
    }

    /// The layer by which a file that was opened by this one is opened again when its keyspace has the layer `present`: one that the keyspace
    /// has left makes no page cache any more, which nobody would count.
    pub(crate) fn again_under(self, present: Self) -> Self {
        match self {
            Self::BlockCache { block_size, .. } if self != present => Self::Block { block_size },
            Self::DirectCache { block_size, .. } if self != present => Self::Direct { block_size },
            _ => self,
        }
    }

    /// The size of a block unless told otherwise, in bytes: 4 KiB.
    pub const DEFAULT_BLOCK_SIZE: u32 = 4096;
    /// The pages of a page cache unless told otherwise: 4096.
    pub const DEFAULT_PAGES: u32 = 4096;

    /// All layers, with blocks and page caches of the default sizes.
    pub const ALL: [Self; 6] = {
        let (block_size, pages) = (Self::DEFAULT_BLOCK_SIZE, Self::DEFAULT_PAGES);
        [
            Self::Mmap,
            Self::Positional,
            Self::Block { block_size },
            Self::BlockCache { block_size, pages },
            Self::Direct { block_size },
            Self::DirectCache { block_size, pages },
        ]
    };

    /// The size of a block in bytes, if files are reached in blocks.
    #[must_use]
    pub fn block_size(self) -> Option<u32> {
        match self {
            Self::Mmap | Self::Positional => None,
            Self::Block { block_size }
            | Self::BlockCache { block_size, .. }
            | Self::Direct { block_size }
            | Self::DirectCache { block_size, .. } => Some(block_size),
        }
    }

    /// How many pages the page cache has, if there is one.
    #[must_use]
    pub fn page_cache_pages(self) -> Option<u32> {
        match self {
            Self::BlockCache { pages, .. } | Self::DirectCache { pages, .. } => Some(pages),
            Self::Mmap | Self::Positional | Self::Block { .. } | Self::Direct { .. } => None,
        }
    }

    /// The memory of the page cache, in bytes, with what its pages are found by, some hundred for each; 0 without one.
    #[must_use]
    pub fn page_cache_bytes(self) -> usize {
        match (self.block_size(), self.page_cache_pages()) {
            (Some(size), Some(pages)) => PageCache::bytes_of(size as usize, pages as usize),
            _ => 0,
        }
    }

    /// The same layer with blocks of `bytes` bytes.
    ///
    /// # Errors
    /// `Invalid` if the layer has no blocks. The size itself is looked at by [`check`](Self::check).
    pub fn with_block_size(mut self, bytes: u32) -> Result<Self> {
        match &mut self {
            Self::Mmap | Self::Positional => {
                return Err(Error::Invalid(format!(
                    "a block size was given, but the file layer {self} has no blocks: choose one that \
                     has, such as pos-block, or leave the block size out"
                )));
            }
            Self::Block { block_size }
            | Self::BlockCache { block_size, .. }
            | Self::Direct { block_size }
            | Self::DirectCache { block_size, .. } => *block_size = bytes,
        }
        Ok(self)
    }

    /// The same layer with a page cache of `count` pages.
    ///
    /// # Errors
    /// `Invalid` if the layer has no page cache. The number itself is looked at by [`check`](Self::check).
    pub fn with_page_cache_pages(mut self, count: u32) -> Result<Self> {
        match &mut self {
            Self::Mmap | Self::Positional | Self::Block { .. } | Self::Direct { .. } => {
                return Err(Error::Invalid(format!(
                    "pages of a page cache were given, but the file layer {self} has no page cache: \
                     choose pos-block-cache or pos-direct-cache, or leave the pages out"
                )));
            }
            Self::BlockCache { pages, .. } | Self::DirectCache { pages, .. } => *pages = count,
        }
        Ok(self)
    }

    /// Looks at the sizes.
    ///
    /// # Errors
    /// `Invalid` unless the block size is a power of two from 512 bytes to 1 MiB, and the page cache has a
    /// page.
    pub fn check(self) -> Result<()> {
        if let Some(size) = self.block_size()
            && !(size.is_power_of_two() && BLOCK_SIZES.contains(&size))
        {
            return Err(Error::Invalid(format!(
                "a block size of {size} bytes is not possible: give a power of two from {} to {} (1 MiB)",
                BLOCK_SIZES.start(),
                BLOCK_SIZES.end()
            )));
        }
        if self.page_cache_pages() == Some(0) {
            let without =
                if matches!(self, Self::DirectCache { .. }) { "pos-direct" } else { "pos-block" };
            return Err(Error::Invalid(format!(
                "a page cache needs at least one page: give more pages, or choose {without}, which is \
                 {self} without the cache"
            )));
        }
        Ok(())
    }
}

/// The layers that a file system offers by itself; [`LayeredFs`](super::LayeredFs) makes the others of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Raw {
    Mmap,
    Positional,
    /// Only whole blocks, in aligned memory.
    Direct {
        block_size: u32,
    },
}

impl Layer {
    /// The layer as a file system is asked for it by [`LayeredFs`](super::LayeredFs).
    ///
    /// # Errors
    /// `Unsupported` if it is one that has to be made of another, `Invalid` for an impossible block size.
    pub(super) fn raw(self) -> Result<Raw> {
        self.check()?;
        match self {
            Self::Mmap => Ok(Raw::Mmap),
            Self::Positional => Ok(Raw::Positional),
            Self::Direct { block_size } => Ok(Raw::Direct { block_size }),
            Self::Block { .. } | Self::BlockCache { .. } | Self::DirectCache { .. } => {
                Err(Error::Unsupported(format!(
                    "a file system does not offer the file layer {self} by itself: wrap it in a LayeredFs"
                )))
            }
        }
    }
}

impl fmt::Display for Layer {
    /// The layer's name, without its sizes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mmap => "mmap",
            Self::Positional => "pos",
            Self::Block { .. } => "pos-block",
            Self::BlockCache { .. } => "pos-block-cache",
            Self::Direct { .. } => "pos-direct",
            Self::DirectCache { .. } => "pos-direct-cache",
        })
    }
}

impl FromStr for Layer {
    type Err = Error;
    /// The layer of this name, with the default sizes.
    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|layer| layer.to_string() == name).ok_or_else(|| {
            let names = Self::ALL.map(|layer| layer.to_string()).join(", ");
            Error::Invalid(format!("unknown file layer {name:?}: one of {names}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_that_was_left_makes_no_page_cache() {
        for layer in Layer::ALL {
            assert_eq!(layer.again_under(layer), layer);
            for present in Layer::ALL.into_iter().filter(|present| *present != layer) {
                let again = layer.again_under(present);
                assert_eq!(
                    (again.page_cache_pages(), again.block_size()),
                    (None, layer.block_size())
                );
            }
        }
    }

    #[test]
    fn names_and_sizes_round_trip() {
        for layer in Layer::ALL {
            assert_eq!(layer.to_string().parse::<Layer>().unwrap(), layer);
            layer.check().unwrap();
            match layer.block_size() {
                None => assert!(layer.with_block_size(4096).is_err()),
                Some(_) => {
                    assert_eq!(layer.with_block_size(512).unwrap().block_size(), Some(512));
                }
            }
            match layer.page_cache_pages() {
                None => {
                    assert_eq!(layer.page_cache_bytes(), 0);
                    let error = layer.with_page_cache_pages(1).unwrap_err().to_string();
                    assert!(error.contains(&format!("{layer} has no page cache")), "{error}");
                }
                Some(_) => {
                    let layer = layer.with_page_cache_pages(3).unwrap();
                    assert!((3 * 4096..3 * 4300).contains(&layer.page_cache_bytes()));
                }
            }
        }
        let error = "disk".parse::<Layer>().unwrap_err().to_string();
        assert!(error.ends_with("pos-direct, pos-direct-cache"), "{error}");
    }

    #[test]
    fn impossible_sizes_are_refused() {
        for layer in Layer::ALL.into_iter().filter(|layer| layer.block_size().is_some()) {
            for size in [0, 1, 256, 1000, 4095, 2 << 20, 1 << 31] {
                let error = layer.with_block_size(size).unwrap().check().unwrap_err().to_string();
                assert!(error.contains(&format!("{size} bytes")), "{error}");
            }
            for size in [512, 1 << 20] {
                layer.with_block_size(size).unwrap().check().unwrap();
            }
        }
        let none = Layer::DirectCache { block_size: 4096, pages: 0 };
        let error = none.check().unwrap_err().to_string();
        assert!(error.contains("choose pos-direct,"), "{error}");
    }
}
