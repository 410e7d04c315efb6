//! Texts that are changed as an input says: a fuzzer reaches the depth of a parser sooner from what is nearly right.

/// Numbers at the ends of ranges, in place of those of a text.
const NUMBERS: [&str; 14] = [
    "0",
    "-1",
    "1",
    "1e308",
    "1e-320",
    "-0.0",
    "inf",
    "nan",
    "18446744073709551615",
    "18446744073709551616",
    "9223372036854775807",
    "4294967295",
    "65536",
    "0.5",
];

/// The text of an input: `[seed]`, then edits of four bytes each (position, kind, value); or, past the last seed, the
/// rest of the input as it is.
pub fn edited(seeds: &[&[u8]], data: &[u8]) -> Vec<u8> {
    let [which, edits @ ..] = data else { return Vec::new() };
    let Some(seed) = seeds.get(usize::from(*which) % (seeds.len() + 1)) else {
        return edits.to_vec();
    };
    let mut text = seed.to_vec();
    edits.chunks_exact(4).for_each(|edit| apply(&mut text, edit));
    text
}

fn apply(text: &mut Vec<u8>, edit: &[u8]) {
    let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % (text.len() + 1);
    let (value, length) = (edit[3], usize::from(edit[3]));
    let is_end = |byte: &u8| *byte == b'\n';
    let line = text[..at].iter().rposition(is_end).map_or(0, |end| end + 1);
    let line = line..text[at..].iter().position(is_end).map_or(text.len(), |end| at + end + 1);
    match edit[2] % 8 {
        0 if at < text.len() => text[at] = value,
        1 => text.insert(at, value),
        2 => drop(text.drain(at..text.len().min(at + length))),
        3 => {
            let is_part = |byte: &u8| byte.is_ascii_digit() || b"+-.e".contains(byte);
            let Some(from) = text[at..].iter().position(u8::is_ascii_digit) else { return };
            let from = at + from;
            let to = text[from..].iter().position(|byte| !is_part(byte));
            let to = to.map_or(text.len(), |to| from + to);
            let number = NUMBERS[usize::from(value) % NUMBERS.len()];
            drop(text.splice(from..to, number.bytes()));
        }
        // A line is removed, or is there twice.
        4 => drop(text.drain(line)),
        5 => {
            let again = text[line.clone()].to_vec();
            drop(text.splice(line.end..line.end, again));
        }
        // A piece of the text is put before its beginning, or at its end.
        6 => {
            let piece = text[at..text.len().min(at + length)].to_vec();
            drop(text.splice(line.start..line.start, piece));
        }
        _ => {
            let piece = text[at..text.len().min(at + length)].to_vec();
            text.extend(piece);
        }
    }
    text.truncate(1 << 18);
}
