//! The replies to clients, made from those of servers.

use engine::pool::Answer;
use ground::window::Outcome;
use memcached::{Expect, Verb};

use crate::request::Request;

const END: &[u8] = b"END\r\n";

/// The kind of a reply, as the engine knows it. `changes`: the item's time to live is new where it
/// was found, and has to be copied.
pub(crate) fn answer(answer: memcached::Answer, changes: bool) -> Answer {
    match answer {
        memcached::Answer::Hit if changes => Answer::Done,
        memcached::Answer::Hit => Answer::Hit,
        memcached::Answer::Miss => Answer::Miss,
        memcached::Answer::Done => Answer::Done,
        memcached::Answer::Unchanged => Answer::Unchanged,
        memcached::Answer::Refused => Answer::Refused,
        memcached::Answer::Error => Answer::Error,
    }
}

/// What a request is recorded as, once a further part of its reply is known. `parts`: those known
/// before.
pub(crate) fn outcome(before: Outcome, bytes: &[u8], parts: u32) -> Outcome {
    let own = if is_error(bytes) {
        Outcome::Error
    } else if [END, b"EN\r\n", b"NF\r\n", b"NOT_FOUND\r\n"].contains(&bytes) {
        Outcome::Miss
    } else {
        Outcome::Memory
    };
    match (parts, before, own) {
        (0, ..) => own,
        (_, Outcome::Error, _) | (_, _, Outcome::Error) => Outcome::Error,
        (_, Outcome::Memory, _) | (_, _, Outcome::Memory) => Outcome::Memory,
        _ => own,
    }
}

fn is_error(reply: &[u8]) -> bool {
    matches!(reply, [b'S' | b'C' | b'E', ..])
        && [&b"SERVER_ERROR"[..], b"CLIENT_ERROR", b"ERROR"]
            .iter()
            .any(|word| reply.starts_with(word))
}

/// Adds a part to a request's reply, which ends as the part does. A part that is an error is the
/// whole reply.
pub(crate) fn add(request: &mut Request, part: &[u8]) {
    let error = is_error(part);
    if request.failed {
        return;
    }
    if error {
        request.reply.clear();
    }
    open(request);
    request.reply.extend_from_slice(part);
    request.parts += 1;
    request.failed = error;
}

/// Takes the end off a request's reply: a further part follows.
pub(crate) fn open(request: &mut Request) {
    if request.parts > 0 && request.reply.ends_with(END) {
        request.reply.truncate(request.reply.len() - END.len());
    }
}

/// Whether a part makes the whole reply, whatever other parts there are.
pub(crate) fn is_whole(request: &Request, part: &[u8]) -> bool {
    request.parts == 0 || is_error(part)
}

/// The pieces of a get's reply, of which `rest` is the last part, in the order of its keys: memcached answers so, and a client that
/// walks its list of keys as values come (Cache::Memcached::Fast) takes those before the one that comes for misses.
/// `None` if it is in this order as it came, or holds anything else than values of the request's keys.
pub(crate) fn in_order<'a>(request: &'a Request, rest: &'a [u8]) -> Option<Vec<&'a [u8]>> {
    let (reply, count) = (&request.reply[..], request.keys.len());
    let is_put_together = !reply.is_empty() && !rest.is_empty();
    if !is_put_together || count < 2 || request.expect != Expect::Values {
        return None;
    }
    let mut found = Vec::with_capacity(count);
    // Each part has its values in the order of the keys, so the next one is looked for behind the last: once around for each part.
    let mut next = 0;
    for value in memcached::values(reply).chain(memcached::values(rest)) {
        let is_key = |index: &usize| request.slice(request.keys[*index]) == value.key;
        let index = (next..count).find(is_key).or_else(|| (0..next).find(is_key))?;
        found.push((index, value.whole));
        next = index + 1;
    }
    let bytes: usize = found.iter().map(|(_, whole)| whole.len()).sum();
    if found.is_sorted_by_key(|(index, _)| *index) || bytes + END.len() != reply.len() + rest.len()
    {
        return None;
    }
    found.sort_by_key(|(index, _)| *index);
    Some(found.into_iter().map(|(_, whole)| whole).chain([END]).collect())
}

/// What a read-back (`mg KEY f s t c v`) has read.
struct Item<'a> {
    value: &'a [u8],
    /// The flags of the reply, each with its letter.
    flags: &'a [u8],
}

impl<'a> Item<'a> {
    /// Reads `VA size fFLAGS …`; `None` if the reply holds no value.
    fn parse(reply: &'a [u8]) -> Option<Item<'a>> {
        let end = reply.windows(2).position(|two| two == b"\r\n")?;
        let line = reply.get(..end)?.strip_prefix(b"VA ")?;
        let digits = line.iter().position(|&b| b == b' ').unwrap_or(line.len());
        let size: usize = std::str::from_utf8(line.get(..digits)?).ok()?.parse().ok()?;
        let value = reply.get(end + 2..)?.get(..size)?;
        Some(Item { value, flags: line.get(digits..)? })
    }

    /// What the flag with a letter says.
    fn flag(&self, letter: u8) -> Option<&'a [u8]> {
        let mut flags = self.flags.split(|&b| b == b' ');
        flags.find_map(|flag| flag.strip_prefix(&[letter]))
    }
}

/// Converts the reply to a read-back to the form that the client asked for: a text get, or a meta
/// get with its own flags.
pub(crate) fn convert(request: &Request, read_back: &[u8], out: &mut Vec<u8>) {
    let meta = matches!(request.expect, Expect::Meta { .. });
    let Some(item) = Item::parse(read_back) else {
        let miss: &[u8] = if is_error(read_back) {
            read_back
        } else if meta {
            b"EN\r\n"
        } else {
            END
        };
        return out.extend_from_slice(miss);
    };
    let size = item.value.len().to_string();
    if meta {
        return convert_meta(request, &item, &size, out);
    }
    let words: [&[u8]; 3] = [request.key(), item.flag(b'f').unwrap_or(b"0"), size.as_bytes()];
    out.extend_from_slice(b"VALUE");
    let cas = matches!(request.verb, Verb::Gets | Verb::Gats).then(|| item.flag(b'c')).flatten();
    for word in words.into_iter().chain(cas) {
        out.push(b' ');
        out.extend_from_slice(word);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(item.value);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(END);
}

/// The reply to a meta get, in the order of the client's flags.
fn convert_meta(request: &Request, item: &Item<'_>, size: &str, out: &mut Vec<u8>) {
    let line = request.command.strip_suffix(b"\r\n").unwrap_or(&request.command);
    let flags = || line.split(|&b| b == b' ').skip(2).filter(|flag| !flag.is_empty());
    let with_value = flags().any(|flag| flag.first() == Some(&b'v'));
    if with_value {
        out.extend_from_slice(b"VA ");
        out.extend_from_slice(size.as_bytes());
    } else {
        out.extend_from_slice(b"HD");
    }
    for flag in flags() {
        let said: &[u8] = match flag.first() {
            Some(b'k') => request.key(),
            Some(b'O') => &flag[1..],
            Some(b'b') => b"",
            Some(b's') => size.as_bytes(),
            Some(letter @ (b'f' | b't' | b'c')) => item.flag(*letter).unwrap_or_default(),
            _ => continue,
        };
        out.extend_from_slice(&[b' ', flag[0]]);
        out.extend_from_slice(said);
    }
    out.extend_from_slice(b"\r\n");
    if with_value {
        out.extend_from_slice(item.value);
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Requests;

    fn request(command: &[u8], verb: Verb, expect: Expect, key: (u32, u32)) -> (Requests, u32) {
        let mut requests = Requests::default();
        let at = requests.insert().unwrap();
        let request = requests.request_mut(at);
        request.command.extend_from_slice(command);
        (request.verb, request.expect) = (verb, expect);
        request.keys.push(key);
        (requests, at)
    }

    #[test]
    fn a_read_back_becomes_what_the_client_asked_for() {
        let read = b"VA 3 f5 s3 t-1 c9\r\na\r\n\r\n";
        let check = |command: &[u8], verb, expect, expected: &[u8]| {
            let (mut requests, at) = request(
                command,
                verb,
                expect,
                (
                    3 + u32::from(verb == Verb::Gets) + u32::from(verb == Verb::Get),
                    5 + u32::from(verb == Verb::Gets) + u32::from(verb == Verb::Get),
                ),
            );
            let mut out = Vec::new();
            convert(requests.request_mut(at), read, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), String::from_utf8_lossy(expected));
        };
        let meta = Expect::Meta { get: true };
        check(b"get ab\r\n", Verb::Get, Expect::Values, b"VALUE ab 5 3\r\na\r\n\r\nEND\r\n");
        check(b"mg ab v k Ox c\r\n", Verb::MetaGet, meta, b"VA 3 kab Ox c9\r\na\r\n\r\n");
        check(b"mg ab t\r\n", Verb::MetaGet, meta, b"HD t-1\r\n");
        check(b"mg ab v0 t\r\n", Verb::MetaGet, meta, b"VA 3 t-1\r\na\r\n\r\n");
    }

    #[test]
    fn values_are_in_the_order_of_the_keys() {
        let command = b"get a b c a d\r\n";
        let ordered = |reply: &[u8], rest: &[u8]| {
            let (mut requests, at) = request(command, Verb::Get, Expect::Values, (4, 5));
            let request = requests.request_mut(at);
            request.keys = (0..5).map(|i| (4 + 2 * i, 5 + 2 * i)).collect();
            request.reply.extend_from_slice(reply);
            let pieces = in_order(request, rest).unwrap_or(vec![reply, rest]);
            String::from_utf8(pieces.concat()).unwrap()
        };
        let value = |key: &str| format!("VALUE {key} 0 2\r\n\r\n\r\n");
        let values = |keys: &str| keys.split(' ').map(value).collect::<String>();
        let end = |keys: &str| values(keys) + "END\r\n";
        for (reply, rest, expected) in [
            ("b d", "a c a", "a b c a d"),
            ("a c a d", "b", "a b c a d"),
            ("c b", "a a", "a b c a"),
            ("a b", "c d", "a b c d"),
            ("d", "b", "b d"),
        ] {
            assert_eq!(ordered(values(reply).as_bytes(), end(rest).as_bytes()), end(expected));
        }
        // What is not of the request is left as it is, as is an error.
        let strange = ordered(values("d e").as_bytes(), end("a").as_bytes());
        assert_eq!(strange, end("d e a"));
        let error = "SERVER_ERROR out of memory\r\n";
        assert_eq!(ordered(b"", error.as_bytes()), error);
    }

    #[test]
    fn parts_are_put_together_and_an_error_is_the_whole_reply() {
        let (mut requests, at) = request(b"get a b\r\n", Verb::Get, Expect::Values, (4, 5));
        let request = requests.request_mut(at);
        let mut outcome_before = Outcome::Error;
        let mut check = |part: &[u8], reply: &[u8], outcome_after: Outcome| {
            outcome_before = outcome(outcome_before, part, request.parts);
            assert_eq!(outcome_before, outcome_after);
            add(request, part);
            assert_eq!(String::from_utf8_lossy(&request.reply), String::from_utf8_lossy(reply));
        };
        check(b"END\r\n", b"END\r\n", Outcome::Miss);
        let value = b"VALUE a 0 1\r\nx\r\nEND\r\n";
        check(value, value, Outcome::Memory);
        let both = b"VALUE a 0 1\r\nx\r\nVALUE b 0 1\r\ny\r\nEND\r\n";
        check(b"VALUE b 0 1\r\ny\r\nEND\r\n", both, Outcome::Memory);
        let error = b"SERVER_ERROR out of memory\r\n";
        check(error, error, Outcome::Error);
        check(value, error, Outcome::Error);
    }
}
