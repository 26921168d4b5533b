//! The options of a keyspace that are not the default, as they are shown.

use serde_json::Value;
use turbidite::KeyspaceOptions;

/// One member for each, with its value as it is written on the command line.
pub(crate) fn as_json(options: &KeyspaceOptions) -> Value {
    Value::Object(
        options.chosen().into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect(),
    )
}

/// The same in words.
pub(crate) fn as_text(options: &KeyspaceOptions) -> String {
    in_words(&options.chosen())
}

/// Names and values in words.
pub(crate) fn in_words(chosen: &[(&str, String)]) -> String {
    let words = chosen.iter().map(|(name, value)| format!("{} {value}", name.replace('_', " ")));
    words.collect::<Vec<_>>().join(", ")
}
