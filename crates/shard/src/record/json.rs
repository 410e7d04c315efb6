//! JSON lines, parsed by `serde_json`. Numbers and literals keep their spelling, so that a search
//! for `1.50` finds `1.50`, and an identifier of twenty digits keeps all of them.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::field::{DEPTH_MAX, FIELDS_MAX, Field, NAME_BYTES_MAX, Problem};

/// The leaves of a record's object. See [`super::Schema::fields`].
pub fn fields(record: &[u8]) -> Result<Vec<Field<'_>>, Problem> {
    let root: &RawValue = serde_json::from_slice(record).map_err(problem)?;
    if !root.get().starts_with('{') {
        return Err(Problem::NotAnObject);
    }
    let mut fields = Vec::new();
    walk(root.get(), &mut String::new(), 0, &mut fields)?;
    Ok(fields)
}

fn walk<'a>(
    value: &'a str,
    path: &mut String,
    depth: usize,
    fields: &mut Vec<Field<'a>>,
) -> Result<(), Problem> {
    if depth > DEPTH_MAX {
        return Err(Problem::TooDeep);
    }
    let leaf = match value.as_bytes().first() {
        Some(b'{') => {
            let members: Members<'a> = serde_json::from_str(value).map_err(problem)?;
            for (name, member) in members.0 {
                let parent = path.len();
                // Members of the root have no dot before their name.
                if depth > 0 {
                    path.push('.');
                }
                path.push_str(&name);
                if path.len() > NAME_BYTES_MAX {
                    return Err(Problem::Name);
                }
                walk(member.get(), path, depth + 1, fields)?;
                path.truncate(parent);
            }
            return Ok(());
        }
        Some(b'[') => {
            let elements: Vec<&'a RawValue> = serde_json::from_str(value).map_err(problem)?;
            return elements
                .into_iter()
                .try_for_each(|element| walk(element.get(), path, depth + 1, fields));
        }
        Some(b'"') => string(value)?,
        _ => Cow::Borrowed(value.as_bytes()),
    };
    if fields.len() >= FIELDS_MAX {
        return Err(Problem::TooManyFields);
    }
    fields.push(Field { name: Cow::Owned(path.clone()), value: leaf });
    Ok(())
}

/// The content of a quoted string; copied only if it contains escapes.
fn string(quoted: &str) -> Result<Cow<'_, [u8]>, Problem> {
    let inner = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match inner {
        Some(inner) if !inner.contains('\\') => Ok(Cow::Borrowed(inner.as_bytes())),
        _ => serde_json::from_str(quoted).map(|text: Text| Cow::Owned(text.0)).map_err(problem),
    }
}

fn problem(error: serde_json::Error) -> Problem {
    Problem::Json(error.to_string())
}

/// The bytes of a string. Its grammar has halves of surrogate pairs (`\ud800`), which are no text: such a one becomes the three bytes that
/// UTF-8 would have for its number.
struct Text(Vec<u8>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Decode;
        impl Visitor<'_> for Decode {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Text, E> {
                Ok(Text(bytes.to_vec()))
            }
        }
        deserializer.deserialize_bytes(Decode)
    }
}

/// An object's members in order, including repeated names, with unparsed values.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some((name, member)) = map.next_entry::<Text, _>()? {
                    let name = String::from_utf8(name.0);
                    // A name is text, whatever its escapes are.
                    let name = name.unwrap_or_else(|name| {
                        String::from_utf8_lossy(name.as_bytes()).into_owned()
                    });
                    members.push((name, member));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}
