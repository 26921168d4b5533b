//! Finds a field of a JSON object without keeping the rest.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The text of the string or the digits of the number in the field `name` of the object in `line`. If
/// the name is there more than once the last one counts.
pub(crate) fn field(line: &[u8], name: &str) -> Result<Vec<u8>, String> {
    let Some(raw) = parse(line, name)? else { return Err(format!("it has no field {name:?}")) };
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'"') => serde_json::from_str::<String>(text)
            .map(String::into_bytes)
            .map_err(|error| format!("field {name:?}: {error}")),
        Some(b'-' | b'0'..=b'9') => Ok(text.as_bytes().to_vec()),
        _ => Err(format!("field {name:?} is neither a string nor a number")),
    }
}

/// Whether `line` is a JSON object.
pub(crate) fn check(line: &[u8]) -> Result<(), String> {
    parse(line, "").map(|_| ())
}

fn parse<'a>(line: &'a [u8], name: &str) -> Result<Option<&'a RawValue>, String> {
    let mut json = serde_json::Deserializer::from_slice(line);
    let found = Wanted(name).deserialize(&mut json).and_then(|raw| json.end().map(|()| raw));
    found.map_err(|error| format!("it is not a JSON object: {error}"))
}

/// The name of the field that is wanted.
struct Wanted<'n>(&'n str);

impl<'de> DeserializeSeed<'de> for Wanted<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Wanted<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(name) = map.next_key::<String>()? {
            if name == self.0 {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}
