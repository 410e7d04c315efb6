//! Texts with `{key}` in the places of a request's key: paths, header values and bodies.
//!
//! `{{key}}` stands for the literal text `{key}`, which GraphQL, for one, can contain. All other braces are
//! text, so that JSON needs no escapes. A text is split once; each request only copies.

use ground::hex;

/// The placeholder of the key.
pub(super) const KEY: &str = "{key}";
/// The literal text of the placeholder.
const LITERAL: &[u8] = b"{{key}}";

/// How the bytes of a key are written into a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escape {
    /// Unchanged.
    Plain,
    /// As in a JSON string, without the quotes. Bytes that are not UTF-8 become U+FFFD.
    Json,
    /// Percent-encoded but for letters, digits and `-._~`, as in a form.
    Form,
    /// Control characters and bytes that are not ASCII percent-encoded, as in a header value.
    Header,
}

impl Escape {
    /// Appends a key.
    pub fn push(self, out: &mut Vec<u8>, key: &[u8]) {
        match self {
            Escape::Plain => out.extend_from_slice(key),
            Escape::Json => {
                for character in String::from_utf8_lossy(key).chars() {
                    match character {
                        '"' | '\\' => out.extend_from_slice(&[b'\\', character as u8]),
                        '\0'..='\x1f' => {
                            out.extend_from_slice(
                                format!("\\u{:04x}", character as u32).as_bytes(),
                            );
                        }
                        _ => {
                            let mut bytes = [0; 4];
                            out.extend_from_slice(character.encode_utf8(&mut bytes).as_bytes());
                        }
                    }
                }
            }
            Escape::Form | Escape::Header => {
                for &byte in key {
                    let plain = match self {
                        Escape::Form => byte.is_ascii_alphanumeric() || b"-._~".contains(&byte),
                        _ => byte.is_ascii_graphic() || byte == b' ',
                    };
                    if plain {
                        out.push(byte);
                    } else {
                        hex::push_percent(byte, out);
                    }
                }
            }
        }
    }
}

/// A text with places for the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// The texts around the keys: one more than there are keys.
    parts: Vec<Box<[u8]>>,
}

impl Template {
    /// Splits a text at its placeholders.
    pub fn parse(text: &[u8]) -> Template {
        let (mut parts, mut part) = (Vec::new(), Vec::new());
        let mut rest = text;
        while let Some((&first, after)) = rest.split_first() {
            // The literal first: it begins one byte before a placeholder.
            if let Some(after) = rest.strip_prefix(LITERAL) {
                part.extend_from_slice(KEY.as_bytes());
                rest = after;
            } else if let Some(after) = rest.strip_prefix(KEY.as_bytes()) {
                parts.push(std::mem::take(&mut part).into_boxed_slice());
                rest = after;
            } else {
                part.push(first);
                rest = after;
            }
        }
        parts.push(part.into_boxed_slice());
        Template { parts }
    }

    /// Whether the text has a place for the key.
    pub fn has_key(&self) -> bool {
        self.parts.len() > 1
    }

    /// The length of the text with an escaped key of `key` bytes.
    pub fn length(&self, key: usize) -> usize {
        self.parts.iter().map(|part| part.len()).sum::<usize>() + (self.parts.len() - 1) * key
    }

    /// Appends the text with an escaped key.
    pub fn write(&self, out: &mut Vec<u8>, key: &[u8]) {
        for (number, part) in self.parts.iter().enumerate() {
            if number > 0 {
                out.extend_from_slice(key);
            }
            out.extend_from_slice(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filled(text: &str, key: &str) -> String {
        let mut out = Vec::new();
        Template::parse(text.as_bytes()).write(&mut out, key.as_bytes());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn keys_are_put_into_their_places_and_nowhere_else() {
        for (text, expected) in [
            ("", ""),
            ("{key}", "k1"),
            ("{key}{key}", "k1k1"),
            (r#"{"id": "{key}", "n": {}}"#, r#"{"id": "k1", "n": {}}"#),
            (r#"{"a":{"b":{key}}}"#, r#"{"a":{"b":k1}}"#),
            ("{{key}}", "{key}"),
            ("query{user{{key}}}", "query{user{key}}"),
            ("{{{key}}}", "{{key}}"),
            ("{ke}{key", "{ke}{key"),
        ] {
            assert_eq!(filled(text, "k1"), expected, "{text}");
        }
        assert!(!Template::parse(b"{{key}}").has_key());
    }

    #[test]
    fn keys_are_escaped_as_their_places_require() {
        for (escape, expected) in [
            (Escape::Plain, "a\"\\ \n%é"),
            (Escape::Json, "a\\\"\\\\ \\u000a%é"),
            (Escape::Form, "a%22%5C%20%0A%25%C3%A9"),
            (Escape::Header, "a\"\\ %0A%%C3%A9"),
        ] {
            let mut out = Vec::new();
            escape.push(&mut out, "a\"\\ \n%é".as_bytes());
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    proptest! {
        /// Against a twin that replaces texts.
        #[test]
        fn templates_are_replacements(text in "(\\{|\\}|\\{key\\}|key|[a-z\"]){0,12}", key in "[a-z]{0,5}") {
            let naive: Vec<String> =
                text.split("{{key}}").map(|part| part.replace(KEY, &key)).collect();
            prop_assert_eq!(filled(&text, &key), naive.join(KEY));
            let length = Template::parse(text.as_bytes()).length(key.len());
            prop_assert_eq!(length, filled(&text, &key).len());
        }

        #[test]
        fn json_stays_json(key in prop::collection::vec(any::<u8>(), 0..30)) {
            let mut body = br#"{"key":""#.to_vec();
            Escape::Json.push(&mut body, &key);
            body.extend_from_slice(b"\"}");
            let value: serde_json::Value = serde_json::from_slice(&body).unwrap();
            prop_assert_eq!(value["key"].as_str().unwrap(), String::from_utf8_lossy(&key));
        }
    }
}
