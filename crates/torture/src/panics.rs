//! Panics as sentences.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// What `work` gives, or what it panicked with.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        format!("panicked: {}", text.unwrap_or("with no text"))
    })
}
