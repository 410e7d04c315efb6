//! Requests.

use memcached::{Kind, Limits, Parsed, parse};

use super::{Cuts, digits, words};

/// What a stream of a client's bytes consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A request.
    Request {
        verb: String,
        keys: Vec<Vec<u8>>,
        arguments: Vec<Vec<u8>>,
        value: Vec<u8>,
        noreply: bool,
        quiet: bool,
        kind: Kind,
        whole: Vec<u8>,
    },
    /// A mistake, and the reply to it.
    Mistake(String),
    /// The connection is closed, after this reply. Nothing follows.
    Close(String),
    /// The stream ends in the middle of a request, or of a value that is dropped. Nothing follows.
    Unfinished,
}

const FORMAT: &str = "CLIENT_ERROR bad command line format\r\n";
const DELETE: &str = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";
const EXPTIME: &str = "CLIENT_ERROR invalid exptime argument\r\n";

/// What is wrong with a line, and the bytes of the value behind it.
struct Wrong(&'static str, usize);

/// What a line says.
struct ParsedLine {
    keys: Vec<Vec<u8>>,
    arguments: Vec<Vec<u8>>,
    /// The length of the value.
    value: Option<usize>,
    kind: Kind,
}

/// The items of a stream, read with all of it at hand.
pub fn items(stream: &[u8], limits: &Limits) -> Vec<Item> {
    let mut items = Vec::new();
    let mut rest = stream;
    while !rest.is_empty() {
        let (item, used) = item(rest, limits);
        let last = matches!(item, Item::Close(_) | Item::Unfinished);
        items.push(item);
        if last {
            break;
        }
        if used > rest.len() {
            // What is to be dropped has not all arrived.
            items.push(Item::Unfinished);
            break;
        }
        rest = &rest[used..];
    }
    items
}

fn item(rest: &[u8], limits: &Limits) -> (Item, usize) {
    if rest[0] == 0x80 {
        return (Item::Close(String::new()), 0);
    }
    let long =
        ["get ", "gets ", "gat ", "gats "].iter().any(|name| rest.starts_with(name.as_bytes()));
    let most = if long { limits.line_bytes_max } else { limits.line_bytes_max.min(2048) };
    let Some(end) = rest.iter().take(most).position(|byte| *byte == b'\n') else {
        if rest.len() >= most {
            return (Item::Close("CLIENT_ERROR line too long\r\n".to_owned()), 0);
        }
        return (Item::Unfinished, 0);
    };
    let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
    let mut all = words(line);
    let name = if all.is_empty() { &b""[..] } else { all.remove(0) };
    let verb = String::from_utf8_lossy(name).into_owned();
    let meta = matches!(&*verb, "mg" | "ms" | "md" | "ma" | "me");
    let never =
        matches!(&*verb, "get" | "gets" | "gat" | "gats" | "version" | "stats" | "quit" | "mn");
    if !is_command(&verb) && all.last().is_some_and(|word| word.starts_with(b"HTTP/")) {
        return (Item::Close(String::new()), 0);
    }
    let noreply = !meta && !never && all.last() == Some(&&b"noreply"[..]);
    if noreply {
        all.pop();
    }
    let quiet = meta && all.iter().skip(if verb == "ms" { 2 } else { 1 }).any(|w| w[0] == b'q');
    let mut value = Vec::new();
    let mut used = end + 1;
    let said = match line_says(&verb, &all, noreply, line, limits) {
        Err(Wrong(reply, more)) => {
            let reply = if noreply { "" } else { reply };
            return (Item::Mistake(reply.to_owned()), used + more);
        }
        Ok(said) => said,
    };
    if let Some(length) = said.value {
        used += length + 2;
        if used > rest.len() {
            return (Item::Unfinished, 0);
        }
        value = rest[used - length - 2..used - 2].to_vec();
        if &rest[used - 2..used] != b"\r\n" {
            let reply = if noreply { "" } else { "CLIENT_ERROR bad data chunk\r\n" };
            return (Item::Mistake(reply.to_owned()), used);
        }
    }
    let ParsedLine { keys, arguments, kind, .. } = said;
    let whole = rest[..used].to_vec();
    (Item::Request { verb, keys, arguments, value, noreply, quiet, kind, whole }, used)
}

fn is_command(verb: &str) -> bool {
    let all = "get gets gat gats set add replace append prepend cas incr decr delete touch flush_all \
               version verbosity stats quit mg ms md ma mn me";
    all.split(' ').any(|name| name == verb)
}

/// The fewest and the most words after the command, `noreply` among them.
fn words_of(verb: &str) -> (usize, usize) {
    match verb {
        "get" | "gets" | "gat" | "gats" | "mg" | "ms" | "md" | "ma" => (1, usize::MAX),
        "set" | "add" | "replace" | "append" | "prepend" => (4, 5),
        "cas" => (5, 6),
        "incr" | "decr" | "touch" => (2, 3),
        "delete" => (1, 3),
        "flush_all" => (0, 2),
        "verbosity" => (1, 2),
        _ => (0, usize::MAX),
    }
}

fn is_expiry(word: &[u8]) -> bool {
    match word.strip_prefix(b"-") {
        Some(number) => digits(number, 19, 1 << 63).is_some(),
        None => digits(word, 19, (1 << 63) - 1).is_some(),
    }
}

fn line_says(
    verb: &str,
    words: &[&[u8]],
    noreply: bool,
    line: &[u8],
    limits: &Limits,
) -> Result<ParsedLine, Wrong> {
    let clean = line.iter().all(|byte| *byte != 0);
    let owned = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect::<Vec<_>>();
    let wrong = |reply| Err(Wrong(reply, 0));
    let key_fits = |key: &[u8]| !key.is_empty() && key.len() <= limits.key_bytes_max;
    let (least, most) = words_of(verb);
    let count = words.len() + usize::from(noreply);
    if count < least || count > most {
        return wrong("ERROR\r\n");
    }
    // What stands where `noreply` may stand.
    let optional = !matches!(
        verb,
        "get" | "gets" | "gat" | "gats" | "delete" | "mg" | "ms" | "md" | "ma" | "me"
    );
    let words = if optional && words.len() == most { &words[..most - 1] } else { words };
    let said = match verb {
        "get" | "gets" | "gat" | "gats" => {
            let touches = verb.starts_with("gat");
            let (times, keys) = words.split_at(usize::from(touches).min(words.len()));
            if !times.iter().all(|time| is_expiry(time)) {
                return wrong(EXPTIME);
            } else if keys.is_empty() {
                return wrong("END\r\n");
            } else if !keys.iter().all(|key| key_fits(key)) {
                return wrong(FORMAT);
            } else if keys.len() > limits.keys_max {
                return wrong("CLIENT_ERROR too many keys\r\n");
            }
            let kind = if touches { Kind::Update } else { Kind::Read };
            ParsedLine { keys: owned(keys), arguments: owned(times), value: None, kind }
        }
        "set" | "add" | "replace" | "append" | "prepend" | "cas" => {
            return store(verb, words, clean, limits);
        }
        "mg" | "ms" | "md" | "ma" | "me" => return meta(verb, words, clean, limits),
        "version" | "stats" | "quit" | "mn" => {
            ParsedLine { keys: Vec::new(), arguments: owned(words), value: None, kind: Kind::Local }
        }
        "delete" | "incr" | "decr" | "touch" | "flush_all" | "verbosity" => {
            let with_key = !matches!(verb, "flush_all" | "verbosity");
            let (keys, arguments) = words.split_at(usize::from(with_key).min(words.len()));
            if with_key && keys.is_empty()
                || !keys.iter().all(|key| key_fits(key))
                || arguments.len() > 1
            {
                return wrong(if verb == "delete" && !arguments.is_empty() {
                    DELETE
                } else {
                    FORMAT
                });
            }
            check_argument(verb, arguments.first().copied())?;
            let kind = match verb {
                "verbosity" => Kind::Local,
                "incr" | "decr" => Kind::Update,
                _ => Kind::Write,
            };
            ParsedLine { keys: owned(keys), arguments: owned(arguments), value: None, kind }
        }
        _ => return wrong("ERROR\r\n"),
    };
    if clean { Ok(said) } else { wrong(FORMAT) }
}

/// Checks the argument of a command that has at most one.
fn check_argument(verb: &str, argument: Option<&[u8]>) -> Result<(), Wrong> {
    let (needed, valid, reply) = match verb {
        "delete" => (false, argument.is_none_or(|word| word == b"0"), DELETE),
        "flush_all" => (false, argument.is_none_or(is_expiry), EXPTIME),
        "touch" => (true, argument.is_some_and(is_expiry), EXPTIME),
        "verbosity" => {
            let level = |word| digits(word, 10, u128::from(u32::MAX)).is_some();
            (true, argument.is_some_and(level), FORMAT)
        }
        _ => {
            let delta = |word| digits(word, 20, u128::from(u64::MAX)).is_some();
            let reply = "CLIENT_ERROR invalid numeric delta argument\r\n";
            (true, argument.is_some_and(delta), reply)
        }
    };
    if needed && argument.is_none() {
        Err(Wrong(FORMAT, 0))
    } else if !valid {
        Err(Wrong(reply, 0))
    } else {
        Ok(())
    }
}

const TOO_LARGE: &str = "SERVER_ERROR object too large for cache\r\n";

fn length(word: Option<&&[u8]>) -> Result<usize, Wrong> {
    let most = i32::MAX as u128 - 2;
    let length = word.and_then(|word| digits(word, 10, most)).ok_or(Wrong(FORMAT, 0))?;
    Ok(length as usize)
}

/// `set KEY FLAGS EXPTIME BYTES [CAS]`.
fn store(verb: &str, words: &[&[u8]], clean: bool, limits: &Limits) -> Result<ParsedLine, Wrong> {
    let bytes = length(words.get(3))?;
    let numbers = match verb {
        "cas" => words.len() == 5 && digits(words[4], 20, u128::from(u64::MAX)).is_some(),
        _ => words.len() == 4,
    };
    let valid = numbers
        && words[0].len() <= limits.key_bytes_max
        && digits(words[1], 10, u128::from(u32::MAX)).is_some()
        && is_expiry(words[2])
        && clean;
    if !valid {
        return Err(Wrong(FORMAT, bytes + 2));
    } else if bytes > limits.value_bytes_max {
        return Err(Wrong(TOO_LARGE, bytes + 2));
    }
    let kind = if verb == "set" { Kind::Write } else { Kind::Update };
    let arguments = words[1..].iter().map(|word| word.to_vec()).collect();
    Ok(ParsedLine { keys: vec![words[0].to_vec()], arguments, value: Some(bytes), kind })
}

/// `mg KEY FLAG*`, `ms KEY BYTES FLAG*`.
fn meta(verb: &str, words: &[&[u8]], clean: bool, limits: &Limits) -> Result<ParsedLine, Wrong> {
    let (bytes, more) = if verb == "ms" {
        let bytes = length(words.get(1))?;
        (Some(bytes), bytes + 2)
    } else {
        (None, 0)
    };
    let wrong = |reply| Err(Wrong(reply, more));
    let Some(key) = words.first().filter(|key| key.len() <= limits.key_bytes_max) else {
        return wrong(FORMAT);
    };
    let first = if verb == "ms" { 2 } else { 1 };
    let flags = &words[first..];
    for (at, flag) in flags.iter().enumerate() {
        // The command counts as a word too.
        if 1 + first + at + 1 > 19 {
            return wrong("CLIENT_ERROR options flags are too long\r\n");
        } else if !flag[0].is_ascii_alphabetic() {
            return wrong("CLIENT_ERROR invalid flag\r\n");
        } else if flags[..at].iter().any(|other| other[0] == flag[0]) {
            let known = |flag: &&[u8]| "bCcDEFfhIJklLMNOPqRsTtuvx".contains(char::from(flag[0]));
            return wrong(if flags[..at].iter().all(known) {
                "CLIENT_ERROR duplicate flag\r\n"
            } else {
                "CLIENT_ERROR invalid flag\r\n"
            });
        }
    }
    let has = |letters: &str| flags.iter().any(|flag| letters.contains(char::from(flag[0])));
    if has("b") && plain(key).is_none() {
        return wrong("CLIENT_ERROR error decoding key\r\n");
    } else if !clean {
        return wrong(FORMAT);
    } else if bytes.is_some_and(|bytes| bytes > limits.value_bytes_max) {
        return wrong(TOO_LARGE);
    }
    let stores = flags.iter().all(|flag| flag[0] != b'M' || *flag == b"MS");
    let kind = match verb {
        "me" => Kind::Read,
        "mg" if !has("ENRT") => Kind::Read,
        "ms" if stores && !has("CI") => Kind::Write,
        "md" if !has("CIx") => Kind::Write,
        _ => Kind::Update,
    };
    let arguments = flags.iter().map(|flag| flag.to_vec()).collect();
    Ok(ParsedLine { keys: vec![key.to_vec()], arguments, value: bytes, kind })
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The bytes whose base64 this is: found by encoding them again.
pub fn plain(key: &[u8]) -> Option<Vec<u8>> {
    let mut bits = String::new();
    for byte in key.iter().filter(|byte| **byte != b'=') {
        let sextet = ALPHABET.iter().position(|letter| letter == byte)?;
        bits += &format!("{sextet:06b}");
    }
    let bytes: Vec<u8> = (0..bits.len() / 8)
        .map(|at| u8::from_str_radix(&bits[at * 8..at * 8 + 8], 2).expect("eight bits"))
        .collect();
    (!bytes.is_empty() && encoded(&bytes) == key).then_some(bytes)
}

/// The base64 of some bytes.
pub fn encoded(bytes: &[u8]) -> Vec<u8> {
    let mut bits: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
    while !bits.len().is_multiple_of(6) {
        bits.push('0');
    }
    let letter = |at: usize| {
        let sextet = usize::from_str_radix(&bits[at..at + 6], 2).expect("six bits");
        ALPHABET[sextet]
    };
    let mut text: Vec<u8> = (0..bits.len()).step_by(6).map(letter).collect();
    while !text.len().is_multiple_of(4) {
        text.push(b'=');
    }
    text
}

/// The items that [`parse`] finds in a stream that arrives in chunks.
///
/// # Panics
/// If `needed` was more than a request had.
pub fn in_chunks(stream: &[u8], cuts: &[usize], limits: &Limits) -> Vec<Item> {
    let (mut items, mut cuts) = (Vec::new(), Cuts::new(cuts));
    let (mut buffer, mut skip, mut least): (Vec<u8>, u64, usize) = (Vec::new(), 0, 0);
    let mut rest = stream;
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(cuts.next().min(rest.len()));
        rest = after;
        buffer.extend_from_slice(chunk);
        loop {
            let dropped = skip.min(buffer.len() as u64);
            buffer.drain(..dropped as usize);
            skip -= dropped;
            if buffer.is_empty() || buffer.len() < least {
                break;
            }
            match parse(&buffer, limits) {
                Parsed::Incomplete { needed } => {
                    assert!(needed == 0 || needed > buffer.len(), "{needed}: {buffer:?}");
                    least = needed;
                    break;
                }
                Parsed::Request(request) => {
                    assert!(least == 0 || request.whole.len() == least, "{least}: {request:?}");
                    items.push(Item::from(&request));
                    let used = request.whole.len();
                    buffer.drain(..used);
                    least = 0;
                }
                Parsed::Invalid { reply, close: true, .. } => {
                    items.push(Item::Close(reply.to_owned()));
                    return items;
                }
                Parsed::Invalid { reply, consumed, skip: more, close: false, drops } => {
                    assert!(consumed > 0);
                    let large = more as usize > limits.value_bytes_max + 2;
                    assert!(drops.is_none() || large && drops.is_some_and(|it| !it.key.is_empty()));
                    items.push(Item::Mistake(reply.to_owned()));
                    buffer.drain(..consumed);
                    (skip, least) = (more, 0);
                }
            }
        }
    }
    if !buffer.is_empty() || skip > 0 {
        items.push(Item::Unfinished);
    }
    items
}

impl From<&memcached::Request<'_>> for Item {
    fn from(request: &memcached::Request<'_>) -> Item {
        Item::Request {
            verb: request.verb.name().to_owned(),
            keys: request.keys().map(<[u8]>::to_vec).collect(),
            arguments: words(request.arguments()).iter().map(|word| word.to_vec()).collect(),
            value: request.value().to_vec(),
            noreply: request.noreply,
            quiet: request.quiet,
            kind: request.kind(),
            whole: request.whole.to_vec(),
        }
    }
}
