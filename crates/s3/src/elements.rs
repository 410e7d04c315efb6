//! Which elements a body in XML has, looked at byte by byte as it passes.
//!
//! `s3s` passes elements by that it does not know, below some of the ones that it does: a `<tag>` or `<s3:Tag>` in a set of tags
//! would be left out, and with it the tag; a `<s3:Part>` of an upload, and with it the part's bytes. So an element that its
//! parent does not have is refused. That an element ends where it should is `s3s`'s to judge.

/// Elements, and those that they may have. One that is not named has none.
const CHILDREN: [(&str, &[&str]); 8] = [
    ("Delete", &["Object", "Quiet"]),
    ("Object", &["Key", "VersionId", "ETag", "Size", "LastModifiedTime"]),
    ("Tagging", &["TagSet"]),
    ("TagSet", &["Tag"]),
    ("Tag", &["Key", "Value"]),
    ("CompleteMultipartUpload", PARTS),
    ("CompletedMultipartUpload", PARTS),
    ("Part", &["PartNumber", "ETag"]),
];
const PARTS: &[&str] = &["Part"];
/// How the names of further elements of a part begin.
const CHECKSUM: &str = "Checksum";
/// The longest name that is looked at.
const NAME_BYTES_MAX: usize = 64;

/// Where in the text it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Between tags.
    #[default]
    Text,
    /// In the name of a tag.
    Name,
    /// Behind the name of a tag; in quotes of this kind, if it is; whether the last byte was a slash.
    Tag { quote: Option<u8>, slash: bool },
    /// In a comment; how many of the last bytes were hyphens, up to two.
    Comment { hyphens: u8 },
    /// In a declaration, or something else that is no element.
    Other,
}

/// The elements of a text that comes in pieces.
#[derive(Default)]
pub struct Elements {
    place: Place,
    name: Vec<u8>,
    /// The elements that have begun and not ended, as places in [`CHILDREN`]; `None` for one that has no elements.
    path: Vec<Option<usize>>,
    /// Whether the root is one whose elements are not known here.
    is_free: bool,
}

impl Elements {
    /// Whether an element begins in these bytes, or with those before them, that its parent does not have.
    pub fn are_strange_in(&mut self, bytes: &[u8]) -> bool {
        bytes.iter().any(|byte| !self.is_free && !self.take(*byte))
    }

    /// Takes a byte; returns whether all is well.
    fn take(&mut self, byte: u8) -> bool {
        match self.place {
            Place::Text if byte == b'<' => {
                self.name.clear();
                self.place = Place::Name;
            }
            Place::Text => {}
            Place::Name => return self.take_of_name(byte),
            Place::Tag { quote: Some(of), .. } => {
                let quote = Some(of).filter(|of| *of != byte);
                self.place = Place::Tag { quote, slash: false };
            }
            Place::Tag { slash, quote: None } => match byte {
                b'>' if slash => self.end(),
                b'>' => self.place = Place::Text,
                b'"' | b'\'' => self.place = Place::Tag { quote: Some(byte), slash: false },
                _ => self.place = Place::Tag { quote: None, slash: byte == b'/' },
            },
            Place::Comment { hyphens: 2 } if byte == b'>' => self.place = Place::Text,
            Place::Comment { hyphens } => {
                let hyphens = if byte == b'-' { (hyphens + 1).min(2) } else { 0 };
                self.place = Place::Comment { hyphens };
            }
            Place::Other if byte == b'>' => self.place = Place::Text,
            Place::Other => {}
        }
        true
    }

    fn end(&mut self) {
        self.path.pop();
        self.place = Place::Text;
    }

    fn take_of_name(&mut self, byte: u8) -> bool {
        let is_end = matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b'>')
            || byte == b'/' && !self.name.is_empty();
        if !is_end {
            self.name.push(byte);
            match self.name.as_slice() {
                b"!--" => self.place = Place::Comment { hyphens: 0 },
                [b'?'] => self.place = Place::Other,
                _ => {}
            }
            return self.name.len() <= NAME_BYTES_MAX;
        }
        match self.name.first() {
            Some(b'/') => {
                self.path.pop();
                self.place = if byte == b'>' { Place::Text } else { Place::Other };
                true
            }
            Some(b'!') => {
                self.place = if byte == b'>' { Place::Text } else { Place::Other };
                true
            }
            _ => {
                self.place = match byte {
                    b'>' => Place::Text,
                    _ => Place::Tag { quote: None, slash: byte == b'/' },
                };
                self.begin()
            }
        }
    }

    /// An element begins; returns whether its parent has such.
    fn begin(&mut self) -> bool {
        let Ok(name) = std::str::from_utf8(&self.name) else { return false };
        let place = CHILDREN.iter().position(|(of, _)| *of == name);
        let is_known = match self.path.last() {
            None => {
                self.is_free = place.is_none();
                true
            }
            Some(None) => false,
            Some(Some(parent)) => {
                let (parent, children) = CHILDREN[*parent];
                let is_sum = parent == "Part" && name.starts_with(CHECKSUM);
                is_sum || children.contains(&name)
            }
        };
        self.path.push(place);
        is_known
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn are_strange(text: &str, piece: usize) -> bool {
        let mut elements = Elements::default();
        text.as_bytes().chunks(piece).any(|piece| elements.are_strange_in(piece))
    }

    const KNOWN: [&str; 9] = [
        "",
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Delete xmlns=\"http://x/y\"><Object><Key>a/b>c</Key></Object><Quiet>true</Quiet></Delete>",
        "<Delete><Object><Key>a</Key><ETag/><Size>1</Size></Object><Object ><Key/></Object\n></Delete>",
        "<Tagging\n  xmlns:s='a/>b'><TagSet><Tag><Key>k</Key><Value>v</Value></Tag></TagSet></Tagging>",
        "<Tagging><TagSet/></Tagging>",
        "<!-- <x:y> - -- --><CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>\"a\"</ETag><ChecksumSHA256>x</ChecksumSHA256></Part></CompleteMultipartUpload>",
        "<CompletedMultipartUpload><Part/><!----><Part/></CompletedMultipartUpload>",
        "<!DOCTYPE Tagging><Tagging><TagSet></TagSet></Tagging>",
        // Judged by s3s, or not at all.
        "<AccessControlPolicy><s:Owner/></AccessControlPolicy>",
    ];

    #[test]
    fn elements_that_a_parent_does_not_have_are_found_in_any_pieces() {
        let long = format!("<Delete><{}/></Delete>", "x".repeat(70));
        for piece in 1..20 {
            for text in KNOWN {
                assert!(!are_strange(text, piece), "{text} in pieces of {piece}");
            }
            for text in [
                "<Delete><s:Object><Key>a</Key></s:Object></Delete>",
                "<Delete xmlns:s=\"x\"><Object><Key>a</Key><s:ETag>b</s:ETag></Object></Delete>",
                "<Delete><Object><Key>a</Key></Object><quiet>true</quiet></Delete>",
                "<Delete><Object><Key>a<b/></Key></Object></Delete>",
                "<Tagging><TagSet><tag><Key>a</Key></tag></TagSet></Tagging>",
                "<Tagging><TagSet><Key>a</Key></TagSet></Tagging>",
                "<Tagging><TagSet/><Tag/></Tagging>",
                "<Tagging><!-- > --><Tag/></Tagging>",
                "<CompleteMultipartUpload><s:Part/></CompleteMultipartUpload>",
                "<CompleteMultipartUpload a='/>' b=\"'\"><part/></CompleteMultipartUpload>",
                &long,
            ] {
                assert!(are_strange(text, piece), "{text} in pieces of {piece}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(text in "[<>/!?a:'\" -]{0,40}", piece in 1_usize..9) {
            let _ = are_strange(&text, piece);
            let _ = are_strange(&format!("<Delete>{text}"), piece);
        }

        #[test]
        fn pieces_do_not_matter(text in "(<Delete>)?[<>/!?a:'\" -]{0,20}", piece in 1_usize..9) {
            prop_assert_eq!(are_strange(&text, piece), are_strange(&text, 100));
        }
    }
}
