//! The hash engine: keys without order, found by their hash.

mod index;
