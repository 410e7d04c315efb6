//! Takes the spans out of batches of OpenTelemetry's traces in JSON (OTLP: `resourceSpans`, `scopeSpans`, `spans`), byte by byte, so that a
//! batch may be of any size.

/// The key of the arrays whose objects are taken.
const KEY: &[u8] = b"spans";

/// Where a reader of batches is.
#[derive(Default)]
pub(super) struct Spans {
    /// Open brackets and braces.
    depth: u32,
    is_quoted: bool,
    is_escaped: bool,
    /// The begin of the last text.
    text: Vec<u8>,
    /// The last byte that is not a blank, outside of texts.
    last: u8,
    /// The depth inside the array of spans, while it is open.
    inside: Option<u32>,
}

impl Spans {
    /// Whether the first bytes are of a batch.
    pub fn begin(head: &[u8]) -> bool {
        let inner = head.trim_ascii_start().strip_prefix(b"{").map(<[u8]>::trim_ascii_start);
        inner.is_some_and(|inner| {
            [&b"\"resourceSpans\""[..], b"\"resource_spans\""]
                .iter()
                .any(|key| inner.starts_with(key))
        })
    }

    /// Writes each span on a line of its own.
    pub fn push(&mut self, byte: u8, out: &mut Vec<u8>) {
        let was_inside = self.inside;
        let depth = self.depth;
        if self.is_quoted {
            self.quoted(byte);
        } else {
            self.plain(byte);
        }
        let Some(array) = was_inside else { return };
        match byte {
            // Between spans, and the end of their array.
            _ if depth == array && self.depth <= array => {}
            b'\n' | b'\r' => out.push(b' '),
            _ => out.push(byte),
        }
        if depth > array && self.depth == array {
            out.push(b'\n');
        }
    }

    fn quoted(&mut self, byte: u8) {
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' => self.is_escaped = true,
            b'"' => {
                self.is_quoted = false;
                return;
            }
            _ => {}
        }
        // One more than the key tells a longer text from it.
        if self.text.len() <= KEY.len() {
            self.text.push(byte);
        }
    }

    fn plain(&mut self, byte: u8) {
        match byte {
            b'"' => {
                self.is_quoted = true;
                self.text.clear();
            }
            b'{' => self.depth = self.depth.saturating_add(1),
            b'[' => {
                self.depth = self.depth.saturating_add(1);
                if self.inside.is_none() && self.last == b':' && self.text == KEY {
                    self.inside = Some(self.depth);
                }
            }
            b'}' | b']' => {
                if self.inside == Some(self.depth) {
                    self.inside = None;
                }
                self.depth = self.depth.saturating_sub(1);
            }
            _ => {}
        }
        if !byte.is_ascii_whitespace() {
            self.last = byte;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn spans_in(text: &str) -> Vec<Value> {
        let (mut spans, mut out) = (Spans::default(), Vec::new());
        text.bytes().for_each(|byte| spans.push(byte, &mut out));
        let lines = out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
    }

    proptest! {
        /// As a parser of the whole finds them, in any number of batches, resources and scopes.
        #[test]
        fn spans_are_found_as_a_parser_finds_them(
            batches in prop::collection::vec(prop::collection::vec(prop::collection::vec(
                prop::collection::vec("[\\[\\]{}\",:\\\\a\n]{0,9}|spans", 0..4), 0..3), 0..3), 1..4),
            pretty: bool,
        ) {
            let (mut text, mut all) = (String::new(), Vec::new());
            for resources in &batches {
                let mut written = Vec::new();
                for scopes in resources {
                    let mut each = Vec::new();
                    for texts in scopes {
                        let spans: Vec<Value> = texts.iter().map(|text| json!({
                            "name": text, "links": [{"spans": [{"a": text}]}], "kind": 2, text: [[], {}] })).collect();
                        all.extend(spans.clone());
                        each.push(json!({"scope": {"name": "spans"}, "spans": spans, "schemaUrl": "u"}));
                    }
                    written.push(json!({"resource": {"attributes": [{"key": "spans"}]}, "scopeSpans": each}));
                }
                let batch = json!({"resourceSpans": written});
                text += &if pretty { serde_json::to_string_pretty(&batch) } else { serde_json::to_string(&batch) }.unwrap();
                text.push('\n');
            }
            prop_assert!(Spans::begin(text.as_bytes()));
            prop_assert_eq!(spans_in(&text), all);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let (mut spans, mut out) = (Spans::default(), Vec::new());
            bytes.iter().for_each(|byte| spans.push(*byte, &mut out));
            prop_assert!(out.len() <= 2 * bytes.len());
        }
    }
}
