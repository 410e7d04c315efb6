//! Whether a reply can be that to a request: a server that replies twice to a command, or to none, puts its connection out of
//! step, and every later reply is another request's.

use crate::reply::split_line;
use crate::token::{Tokens, decode_base64, number_u64, trim_end};
use crate::verb::Verb;

/// Whether a whole reply can be that to a request with this verb, whose line is `line`.
///
/// Compared are the word of the reply, which each command has its own of; of meta commands also whether there is a value
/// (`VA`) exactly if one was asked for, and the key (`k`) and the opaque text (`O`) that the reply repeats. Without a line the
/// word alone counts. Errors fit every request; so do replies to `get` and its like, which name their keys, and to `stats`.
/// Costs a comparison or two for text commands, and the words of two lines for meta commands.
pub fn fits(verb: Verb, line: &[u8], reply: &[u8]) -> bool {
    let Some((first, _)) = split_line(reply) else { return false };
    let mut words = Tokens(first);
    let word = words.next().unwrap_or_default();
    if matches!(word, b"ERROR" | b"CLIENT_ERROR" | b"SERVER_ERROR" | b"SERVER_ERROR:") {
        return true;
    }
    match verb {
        Verb::Get | Verb::Gets | Verb::Gat | Verb::Gats | Verb::Stats | Verb::Quit => true,
        Verb::Set | Verb::Add | Verb::Replace | Verb::Append | Verb::Prepend | Verb::Cas => {
            matches!(word, b"STORED" | b"NOT_STORED" | b"EXISTS" | b"NOT_FOUND")
        }
        Verb::Delete => matches!(word, b"DELETED" | b"NOT_FOUND"),
        Verb::Touch => matches!(word, b"TOUCHED" | b"NOT_FOUND"),
        Verb::Incr | Verb::Decr => word == b"NOT_FOUND" || number_u64(trim_end(first)).is_some(),
        Verb::FlushAll | Verb::Verbosity => word == b"OK",
        Verb::Version => word == b"VERSION",
        Verb::MetaNoop => word == b"MN",
        Verb::MetaDebug => matches!(word, b"ME" | b"EN"),
        Verb::MetaGet => matches!(word, b"HD" | b"VA" | b"EN") && fits_flags(line, 2, word, words),
        Verb::MetaSet => {
            matches!(word, b"HD" | b"NS" | b"EX" | b"NF") && fits_flags(line, 3, word, words)
        }
        Verb::MetaDelete => {
            matches!(word, b"HD" | b"EX" | b"NF") && fits_flags(line, 2, word, words)
        }
        Verb::MetaArithmetic => {
            matches!(word, b"HD" | b"VA" | b"NS" | b"EX" | b"NF")
                && fits_flags(line, 2, word, words)
        }
    }
}

/// Whether what follows the word of a meta reply fits the line of its request, whose flags begin with its word at `first`.
fn fits_flags(line: &[u8], first: usize, word: &[u8], reply: Tokens<'_>) -> bool {
    let key = Tokens(line).nth(1);
    let Some(key) = key else { return true };
    let asked = || Tokens(line).skip(first);
    let is_encoded = |mut flags: Tokens<'_>| flags.any(|flag| flag == b"b");
    // `ms` has no value in its reply.
    let is_value_asked = first == 2 && asked().any(|flag| flag.first() == Some(&b'v'));
    if matches!(word, b"HD" | b"VA") && is_value_asked != (word == b"VA") {
        return false;
    }
    let opaque = || asked().find(|flag| flag.first() == Some(&b'O'));
    reply.clone().skip(usize::from(word == b"VA")).all(|said| match said {
        // As the item was stored, which may be encoded where the request's is not.
        [b'k', said @ ..] => {
            said == key || {
                let is_key_encoded = asked().any(|flag| flag == b"b");
                is_same_key(said, is_encoded(reply.clone()), key, is_key_encoded)
            }
        }
        [b'O', ..] => opaque() == Some(said),
        _ => true,
    })
}

/// Whether two keys are the same, of which each may be encoded in base64. Cost: decodes them, which only keys in two forms need.
fn is_same_key(a: &[u8], is_a_encoded: bool, b: &[u8], is_b_encoded: bool) -> bool {
    let decoded = |key: &[u8], is_encoded: bool| {
        let mut bytes = Vec::new();
        if !is_encoded {
            return Some(key.to_vec());
        }
        decode_base64(key, &mut bytes).then_some(bytes)
    };
    let a = decoded(a, is_a_encoded);
    a.is_some() && a == decoded(b, is_b_encoded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Parsed, parse};

    fn check(request: &str, reply: &str) -> bool {
        let request = format!("{request}\r\n");
        let Parsed::Request(parsed) = parse(request.as_bytes(), &Limits::default()) else {
            panic!("{request:?}")
        };
        let line = request.split("\r\n").next().unwrap_or_default();
        fits(parsed.verb, line.as_bytes(), format!("{reply}\r\n").as_bytes())
    }

    #[test]
    fn each_command_has_its_own_words() {
        let commands = [
            ("set k 0 0 1\r\nx", &["STORED", "NOT_STORED"][..]),
            ("cas k 0 0 1 5\r\nx", &["STORED", "EXISTS", "NOT_FOUND", "NOT_STORED"]),
            ("delete k", &["DELETED", "NOT_FOUND"]),
            ("touch k 1", &["TOUCHED", "NOT_FOUND"]),
            ("incr k 1", &["17", "17  ", "NOT_FOUND"]),
            ("flush_all", &["OK"]),
            ("version", &["VERSION 1.6.38"]),
            ("mn", &["MN"]),
            ("me k", &["EN", "ME k exp=-1 la=1"]),
            ("mg k", &["HD", "EN"]),
            ("mg k v", &["VA 1\r\nx", "VA 1 W\r\nx", "EN"]),
            ("mg k s t f", &["HD s1 t-1 f0", "EN"]),
            ("ms k 1\r\nx", &["HD", "NS", "EX", "NF"]),
            ("md k", &["HD", "NF", "EX"]),
            ("ma k", &["HD", "NF", "NS"]),
            ("ma k v", &["VA 2\r\n17", "NF"]),
        ];
        let all: Vec<&str> = commands.iter().flat_map(|(_, replies)| *replies).copied().collect();
        for (request, own) in commands {
            for reply in ["ERROR", "CLIENT_ERROR bad", "SERVER_ERROR out of memory"] {
                assert!(check(request, reply), "{request:?} {reply:?}");
            }
            assert!(own.iter().all(|reply| check(request, reply)), "{request:?}");
        }
        // Those that no two of these commands have in common.
        for (request, reply) in [
            ("delete k", "STORED"),
            ("incr k 1", "STORED"),
            ("incr k 1", "OK"),
            ("set k 0 0 1\r\nx", "DELETED"),
            ("set k 0 0 1\r\nx", "5"),
            ("touch k 1", "DELETED"),
            ("version", "OK"),
            ("mg k v", "HD"),
            ("mg k", "VA 1\r\nx"),
            ("mg k v", "NF"),
            ("ma k v", "HD"),
            ("ms k 1\r\nx", "VA 1\r\nx"),
            ("md k", "MN"),
        ] {
            assert!(
                all.iter().any(|one| one.split(' ').next() == reply.split(' ').next())
                    || reply == "5"
            );
            assert!(!check(request, reply), "{request:?} {reply:?}");
        }
    }

    #[test]
    fn a_key_and_an_opaque_text_come_back_as_they_were_sent() {
        for (request, reply, fitting) in [
            ("mg k v k Oab", "VA 1 kk Oab\r\nx", true),
            ("mg k v k Oab", "VA 1 Oab kk\r\nx", true),
            ("mg k v k Oab", "VA 1 kk Oac\r\nx", false),
            ("mg k v k Oab", "VA 1 kother Oab\r\nx", false),
            ("mg k v O1", "VA 1 O12\r\nx", false),
            ("mg k v", "VA 1 O1\r\nx", false),
            // A flag is its letter, whatever follows.
            ("mg k v0", "VA 1\r\nx", true),
            ("ma k v0", "2", false),
            ("mg a2V5 b k", "HD ka2V5 b", true),
            ("mg a2V5 b k", "HD kkey b", false),
            // memcached returns the key in the form in which the item was stored.
            ("mg a2V5 b k", "HD kkey", true),
            ("mg key k", "HD ka2V5 b", true),
            ("mg key k v", "VA 1 b ka2V5\r\nx", true),
            ("mg key k", "HD ka2V6 b", false),
            ("mg key k", "HD ka2V5", false),
            ("ms k 1 O7\r\nx", "HD O7", true),
            ("ms k 1 O7\r\nx", "NS O8", false),
            ("md k k q O7", "NF kk O7", true),
            ("md k k q O7", "NF kx O7", false),
            ("ma k v k", "VA 1 kx\r\n1", false),
        ] {
            assert_eq!(check(request, reply), fitting, "{request:?} {reply:?}");
        }
        // Without the line, the word alone is known.
        assert!(fits(Verb::MetaSet, b"", b"HD kany O1\r\n"));
        assert!(!fits(Verb::MetaSet, b"", b"EN\r\n"));
    }
}
