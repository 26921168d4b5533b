//! Damaged and hostile files: an error or right answers for the first, no panic for the second.
