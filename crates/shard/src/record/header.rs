//! Judges whether the first row of a table is a header.
//!
//! Evidence comes from columns of numbers, dates and times: a word above them is a name, and a
//! number above them a record like the others. Names may have any characters (`price (USD)`, `1st`,
//! `a?`). A table of words alone gives no evidence: its first row is taken for a header if its
//! fields are short, distinct and occur in no row below, since most such tables have one. That is
//! a guess, which is why [`Judgement::because`] says so.

use std::collections::HashSet;

/// The longest name, in bytes, in a table of words alone.
const NAME_BYTES_MAX: usize = 64;
/// The most words of such a name: a sentence is no name.
const WORDS_MAX: usize = 5;

/// The fields of a row.
pub(super) type Row = Vec<Vec<u8>>;

/// Whether the first row is a header, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Judgement {
    pub is_header: bool,
    /// Whether a column of numbers says so.
    pub is_certain: bool,
    pub because: String,
}

/// Judges the first of some rows of equally many fields.
pub(super) fn judge(rows: &[Row]) -> Judgement {
    let judgement = |is_header, is_certain, because: &str| Judgement {
        is_header,
        is_certain,
        because: because.to_owned(),
    };
    let Some((first, others)) = rows.split_first() else {
        return judgement(false, false, "no row");
    };
    let named: Vec<&[u8]> = first.iter().map(|name| name.trim_ascii()).collect();
    let names: Vec<&[u8]> = named.iter().copied().filter(|name| !name.is_empty()).collect();
    let distinct: HashSet<&[u8]> = names.iter().copied().collect();
    let mut met: HashSet<&[u8]> = HashSet::new();
    let twice = names.iter().find(|name| !met.insert(name));
    if names.is_empty() || (names.len() > 1 && distinct.len() == 1) {
        return judgement(false, false, "no header: the first row has equal or no fields");
    }
    let (mut above, mut among) = (0, 0);
    for (column, name) in named.iter().enumerate() {
        // Tables that follow each other in one input have a header each.
        let rows = others.iter().filter(|row| *row != first);
        let below = rows.filter_map(|row| row.get(column)).map(|value| value.trim_ascii());
        let mut below = below.filter(|value| !is_missing(value)).peekable();
        if is_missing(name) || below.peek().is_none() || !below.all(is_measure) {
            continue;
        }
        if is_measure(name) { among += 1 } else { above += 1 }
    }
    if above > 0 && above >= among {
        let because = "header: its words stand above numbers";
        return match twice.map(|name| String::from_utf8_lossy(name)) {
            // Tables that were joined have such columns: a query of the name means each of them.
            Some(name) => {
                judgement(true, true, &format!("{because}; columns have the same name {name:?}"))
            }
            None => judgement(true, true, because),
        };
    }
    if among > 0 {
        return judgement(false, true, "no header: the first row has numbers as those below");
    }
    if twice.is_some() {
        return judgement(false, false, "no header: the first row has equal fields");
    }
    let is_plain = |name: &&[u8]| {
        name.len() <= NAME_BYTES_MAX
            && !is_measure(name)
            && name.split(u8::is_ascii_whitespace).count() <= WORDS_MAX
            && name.iter().any(|byte| byte.is_ascii_alphabetic() || *byte >= 0x80)
    };
    let recurs = |(column, name): (usize, &Vec<u8>)| {
        others.iter().any(|row| row.get(column).is_some_and(|value| value == name))
    };
    // Rows of words may lack one, so that a gap is none of a header's, but in the column of row numbers.
    let has_gap = named.iter().skip(1).any(|name| name.is_empty());
    if has_gap || !names.iter().all(is_plain) || first.iter().enumerate().any(recurs) {
        return judgement(false, false, "no header: the first row has values as those below");
    }
    judgement(true, false, "header, presumably: no row repeats its words")
}

/// A value that stands for none.
fn is_missing(value: &[u8]) -> bool {
    const MARKS: [&[u8]; 9] = [b"", b"-", b"?", b"na", b"n/a", b"nan", b"null", b"none", b"\\n"];
    value.len() <= 4 && MARKS.contains(&&*value.to_ascii_lowercase())
}

/// A number, an amount, a date or a time: digits, and no letters but those of exponents and zones.
fn is_measure(value: &[u8]) -> bool {
    let is_known = |byte: &u8| byte.is_ascii_digit() || b" +-.,:/%$eETZ_()".contains(byte);
    value.iter().any(u8::is_ascii_digit)
        && value.iter().all(is_known)
        && !value.first().is_some_and(u8::is_ascii_alphabetic)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(table: &str, is_header: bool) {
        let rows: Vec<Row> = table
            .lines()
            .map(|line| line.split(';').map(|value| value.as_bytes().to_vec()).collect())
            .collect();
        let judged = judge(&rows);
        assert_eq!(judged.is_header, is_header, "{table:?}: {}", judged.because);
    }

    #[test]
    fn names_above_numbers_are_a_header_whatever_their_characters() {
        for name in [
            "price (USD)",
            "100%",
            "x/y",
            "#n",
            "a&b",
            "a.b",
            "a-b",
            "it's",
            "a+b",
            "a b",
            "a:b",
            "[a]",
            "1st",
            "a?",
            "$x",
            "a, b",
            "",
            "größe",
            "e",
        ] {
            check(&format!("id;{name}\n1;2\n3;4\n5;6"), true);
        }
        check("when;n\n2024-01-02 10:00:00;1\n2024-01-03 10:00:00;", true);
        check(";name\n0;ann\n1;bob", true);
        check("country;1960;note\nchad;7;x\nmali;8;y", false);
        check("1;2\n3;4", false);
        check("ann;31\nbob;22", false);
        check("NA;31\n2;22", false);
        check("a;a\n1;2", false);
        check("id;x;x\n1;2;3\n2;3;4", true);
        check("id;x;x\nann;bob;eve", false);
        check("id;town\n1;rome\nid;town\n2;oslo", true);
        check("id;town\nid;town", false);
    }

    #[test]
    fn words_above_words_are_a_header_if_no_row_repeats_them() {
        check("name;town\nann;london\nbob;paris", true);
        check("ann;london\nbob;paris\nann;rome", false);
        check("name;\nann;london", false);
        check("a very long remark about nothing;x\nb;y", false);
        check("name;size", true);
        check("12;13", false);
        check("", false);
    }
}
