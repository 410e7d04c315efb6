//! Where a word begins and ends.

use std::ops::Range;

use regex_syntax::try_is_word_character;

/// Whether this byte is a letter, a digit or `_` of ASCII.
pub(crate) fn is_of_words(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Whether the part `word` of a record is a word by itself, as `\b` judges it on both sides: no letter, digit or `_` of Unicode
/// is beside it within the record. Bytes that are not UTF-8 are none of these.
pub(crate) fn is_whole(text: &[u8], record: Range<usize>, word: Range<usize>) -> bool {
    // A character has at most four bytes.
    let before = text.get(record.start.max(word.start.saturating_sub(4))..word.start);
    let after = text.get(word.end..record.end.min(word.end + 4));
    let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
    match (before.last(), after.first()) {
        (None | Some(..0x80), None | Some(..0x80)) => {
            !before.last().is_some_and(|byte| is_of_words(*byte))
                && !after.first().is_some_and(|byte| is_of_words(*byte))
        }
        _ => !last_char(before).is_some_and(is_word) && !first_char(after).is_some_and(is_word),
    }
}

/// The tables of Unicode are compiled in, so that each character is known.
fn is_word(character: char) -> bool {
    try_is_word_character(character).unwrap_or(true)
}

fn first_char(bytes: &[u8]) -> Option<char> {
    let valid = bytes.utf8_chunks().next()?.valid();
    valid.chars().next()
}

/// The character that begins last, whatever continuation bytes follow it: so the regular expressions take it, which must
/// agree in bytes that are not UTF-8 too.
fn last_char(bytes: &[u8]) -> Option<char> {
    let start = bytes.iter().rposition(|byte| byte & 0xC0 != 0x80)?;
    first_char(bytes.get(start..)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex_automata::meta::Regex;
    use regex_automata::util::syntax::Config;

    use super::*;

    proptest! {
        /// The twin is the regular expression whose answers are counted.
        #[test]
        fn words_end_where_a_regular_expression_says(
            before in proptest::collection::vec(part(), 0..3).prop_map(|parts| parts.concat()),
            after in proptest::collection::vec(part(), 0..3).prop_map(|parts| parts.concat()),
            outside in part(),
        ) {
            // What is beside the record does not count.
            let text = [&outside, &before, &b"cat"[..], &after, &outside].concat();
            let record = outside.len()..text.len() - outside.len();
            let word = record.start + before.len();
            let any_bytes = Config::new().utf8(false);
            let regex = Regex::builder().syntax(any_bytes).build(r"\bcat\b").unwrap();
            let expected = regex.is_match(&text[record.clone()]);
            prop_assert_eq!(is_whole(&text, record, word..word + 3), expected);
        }
    }

    /// Bytes without `cat`.
    fn part() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            "[ab_0 .\n\u{e9}\u{201c}\u{301}\u{4e2d}\u{1f600}\u{a0}]{0,2}"
                .prop_map(String::into_bytes),
            proptest::collection::vec(128_u8..=255, 0..5),
        ]
    }
}
