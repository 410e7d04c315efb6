//! The parser of requests.

use std::ops::RangeInclusive;

use memchr::memchr;

use crate::binary;
use crate::limits::{Limits, VALUE_BYTES_MAX};
use crate::reply::Expect;
use crate::token::{
    Tokens, is_base64, number, number_i64, number_u64, split_word, trim_end, trim_start,
};
use crate::verb::{Kind, Verb};

/// The longest line of a command without several keys, in bytes with its end. Past it
/// memcached closes the connection (`try_read_command_ascii` in `proto_text.c`): of a longer `gat` too, unless it arrives at once.
const LINE_BYTES_MAX: usize = 2048;
/// The most words in the line of a meta command: with more, a memcached of 1.6 replies `CLIENT_ERROR
/// options flags are too long`, and some releases then read the value as requests
/// (`MFLAG_MAX_OPT_LENGTH`, from which 1.6.18 counts one more than there are).
const META_WORDS_MAX: usize = 19;
/// The flags of meta commands that releases of 1.6 know.
const META_FLAGS: &[u8] = b"bCcDEFfhIJklLMNOPqRsTtuvx";
/// The digits of a length that every release accepts.
const LENGTH_DIGITS_MAX: usize = 10;

const ERROR: &str = "ERROR\r\n";
const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format\r\n";
const BAD_DELETE: &str = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";
const BAD_CHUNK: &str = "CLIENT_ERROR bad data chunk\r\n";
const BAD_EXPTIME: &str = "CLIENT_ERROR invalid exptime argument\r\n";
const BAD_DELTA: &str = "CLIENT_ERROR invalid numeric delta argument\r\n";
const BAD_FLAG: &str = "CLIENT_ERROR invalid flag\r\n";
const DUPLICATE_FLAG: &str = "CLIENT_ERROR duplicate flag\r\n";
const MANY_FLAGS: &str = "CLIENT_ERROR options flags are too long\r\n";
const NO_VALUES: &str = "END\r\n";
const BAD_BASE64: &str = "CLIENT_ERROR error decoding key\r\n";
const TOO_LARGE: &str = "SERVER_ERROR object too large for cache\r\n";
/// Not memcached's: it closes the connection without a word.
const LONG_LINE: &str = "CLIENT_ERROR line too long\r\n";
/// Not memcached's: it has no such bound.
const MANY_KEYS: &str = "CLIENT_ERROR too many keys\r\n";

/// What the bytes from a client begin with.
#[derive(Clone, Debug)]
pub enum Parsed<'a> {
    /// The beginning of a request.
    Incomplete {
        /// The bytes of the whole request, which it is not worth parsing again before; 0 while
        /// unknown. At most the largest line, value and their ends.
        needed: usize,
    },
    /// A whole request.
    Request(Request<'a>),
    /// Not a request: send `reply`, drop `consumed` bytes and the `skip` bytes after them, then go
    /// on, or close the connection.
    Invalid {
        /// The reply with its line end, as memcached has it for this mistake. Empty if nothing is to
        /// be sent: the request says `noreply`, or memcached closes without a reply.
        reply: &'static str,
        /// The bytes of the line. May be 0 with `close`.
        consumed: usize,
        /// The bytes of the value that belongs to the line, with its end, which may not have arrived
        /// yet: at most 2 GiB.
        skip: u64,
        /// Whether what follows cannot be told from requests: close the connection after the reply.
        close: bool,
        /// The item that has to go: of a value that is too large memcached also drops the old one,
        /// lest it be taken for the new one.
        drops: Option<Drops<'a>>,
    },
}

/// The key of an item that has to go, see [`Parsed::Invalid`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drops<'a> {
    /// The key as it stands in the line.
    pub key: &'a [u8],
    /// Whether it is base64.
    pub base64: bool,
}

/// A request of a client, in the buffer that it was parsed from.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The command.
    pub verb: Verb,
    /// Every byte of the request: line, line end, value, line end. Its length is what was consumed.
    pub whole: &'a [u8],
    /// Whether a text command says `noreply`: the client waits for no reply.
    pub noreply: bool,
    /// Whether a meta command has the flag `q`: the client waits for some replies only, see
    /// [`is_suppressed`](crate::is_suppressed).
    pub quiet: bool,
    /// The line without its end, `noreply`, and spaces at the end.
    pub(crate) line: &'a [u8],
    keys: &'a [u8],
    arguments: &'a [u8],
    value: &'a [u8],
    /// A bit for each flag of a meta command, see [`flag_bit`].
    flags: u64,
}

impl<'a> Request<'a> {
    /// The keys as they stand in the line, in order: one, or for `get`, `gets`, `gat` and `gats` one
    /// or several, possibly repeated. None for the commands of [`Kind::Local`](crate::Kind::Local)
    /// and `flush_all`.
    pub fn keys(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        Tokens(self.keys)
    }

    /// The first key as it stands in the line; empty for a command without keys. With
    /// [`Request::is_base64`] it is encoded: [`decode_base64`](crate::decode_base64) has the bytes
    /// that name the item.
    pub fn key(&self) -> &'a [u8] {
        self.keys().next().unwrap_or_default()
    }

    /// The value without its line end; empty for a command without one.
    pub fn value(&self) -> &'a [u8] {
        self.value
    }

    /// The first word of the arguments: the kind of `stats` that is asked for. memcached passes by what follows, too.
    pub fn first_argument(&self) -> &'a [u8] {
        Tokens(self.arguments).next().unwrap_or_default()
    }

    /// What the line says beside the command, the keys, a meta request's length and `noreply`: of
    /// `stats`, `flush_all` and `verbosity` the arguments, of `gat` and `gats` the expiry, of meta
    /// commands the flags.
    pub fn arguments(&self) -> &'a [u8] {
        self.arguments
    }

    /// The flags of a meta command, in order: each begins with its letter. None for a text command.
    pub fn flags(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        Tokens(if self.flags == 0 { &[] } else { self.arguments })
    }

    /// Whether the key of a meta command is base64 (flag `b`), which [`parse`] has checked.
    pub fn is_base64(&self) -> bool {
        self.has_any_flag(b"b")
    }

    /// Whether this is a `gat` whose line is so long that memcached may close the connection: it reads such lines of a `get`
    /// alone.
    pub fn is_line_long(&self) -> bool {
        matches!(self.verb, Verb::Gat | Verb::Gats) && self.whole.len() > LINE_BYTES_MAX
    }

    /// Whether a meta command has a flag with one of these letters.
    pub fn has_any_flag(&self, letters: &[u8]) -> bool {
        letters.iter().any(|letter| self.flags & flag_bit(*letter) != 0)
    }
}

impl Request<'_> {
    /// What this request does to items.
    ///
    /// Of the meta commands: `mg` is a read unless one of its flags may change the item (`E`, `N`,
    /// `R`, `T`); `ms` a write if its mode is `S` (or none is given) and it compares nothing (`C`,
    /// `I`); `md` a write without `C`, `I` and `x`; `ma` an update.
    pub fn kind(&self) -> Kind {
        match self.verb {
            Verb::Get | Verb::Gets | Verb::MetaDebug => Kind::Read,
            Verb::MetaGet if self.has_any_flag(b"ENRT") => Kind::Update,
            Verb::MetaGet => Kind::Read,
            Verb::Set | Verb::Delete | Verb::Touch | Verb::FlushAll => Kind::Write,
            Verb::MetaSet if self.has_any_flag(b"CI") || !self.is_mode_set() => Kind::Update,
            Verb::MetaSet => Kind::Write,
            Verb::MetaDelete if self.has_any_flag(b"CIx") => Kind::Update,
            Verb::MetaDelete => Kind::Write,
            Verb::Add | Verb::Replace | Verb::Append | Verb::Prepend | Verb::Cas => Kind::Update,
            Verb::Incr | Verb::Decr | Verb::Gat | Verb::Gats | Verb::MetaArithmetic => Kind::Update,
            Verb::Version | Verb::Verbosity | Verb::Stats | Verb::Quit | Verb::MetaNoop => {
                Kind::Local
            }
        }
    }

    /// Whether the reply to a read has what one server alone can say of an item: its compare-and-swap number (`gets`, `mg` with
    /// `c`), or when it was read there (`mg` with `h` or `l`, `me`).
    pub fn asks_one_server(&self) -> bool {
        match self.verb {
            Verb::Gets | Verb::Gats | Verb::MetaDebug => true,
            Verb::MetaGet => self.has_any_flag(b"chl"),
            _ => false,
        }
    }

    /// Whether `ms` stores unconditionally: mode `S`, or none.
    fn is_mode_set(&self) -> bool {
        self.flags().all(|flag| flag.first() != Some(&b'M') || flag == b"MS")
    }

    /// How a server's reply to this request ends. (To `quit` there is none.)
    pub fn expect(&self) -> Expect {
        match self.verb {
            Verb::Get | Verb::Gets | Verb::Gat | Verb::Gats => Expect::Values,
            Verb::Stats => Expect::Lines,
            Verb::MetaGet | Verb::MetaDebug => Expect::Meta { get: true },
            Verb::MetaSet | Verb::MetaDelete | Verb::MetaArithmetic | Verb::MetaNoop => {
                Expect::Meta { get: false }
            }
            _ => Expect::Line,
        }
    }
}

/// The bit of a flag's letter.
fn flag_bit(letter: u8) -> u64 {
    1 << (letter & 63)
}

/// Parses the request that `buffer` begins with.
///
/// However the bytes of a connection are cut into buffers, the requests are the same, as long as
/// each buffer begins where the last request (or what was to be dropped) ended.
pub fn parse<'a>(buffer: &'a [u8], limits: &Limits) -> Parsed<'a> {
    // Its refusal is `refuse_binary`.
    if buffer.first() == Some(&binary::REQUEST) {
        return close("");
    }
    let bytes_max = line_bytes_max(buffer, limits);
    let window = buffer.get(..bytes_max).unwrap_or(buffer);
    match memchr(b'\n', window) {
        Some(end) => Line::new(buffer, end, limits).parse(),
        None if buffer.len() >= bytes_max => close(LONG_LINE),
        None => Parsed::Incomplete { needed: 0 },
    }
}

fn close(reply: &'static str) -> Parsed<'static> {
    Parsed::Invalid { reply, consumed: 0, skip: 0, close: true, drops: None }
}

fn line_bytes_max(buffer: &[u8], limits: &Limits) -> usize {
    let several: [&[u8]; 4] = [b"get ", b"gets ", b"gat ", b"gats "];
    match several.iter().any(|name| buffer.starts_with(name)) {
        true => limits.line_bytes_max,
        false => limits.line_bytes_max.min(LINE_BYTES_MAX),
    }
}

/// A line that has arrived, and what is known of it so far.
struct Line<'a, 'l> {
    buffer: &'a [u8],
    limits: &'l Limits,
    /// The bytes of the line with its end.
    bytes: usize,
    /// The line without its end.
    text: &'a [u8],
    /// The bytes of the value with its end, from where it is known.
    block: u64,
    noreply: bool,
    /// Whether what was dropped of the line is clean, see [`is_clean`].
    is_rest_clean: bool,
}

impl<'a, 'l> Line<'a, 'l> {
    fn new(buffer: &'a [u8], end: usize, limits: &'l Limits) -> Line<'a, 'l> {
        let text = buffer.get(..end).unwrap_or_default();
        // memcached accepts lines that end without a carriage return, and so do its servers behind
        // a proxy.
        let text = trim_start(text.strip_suffix(b"\r").unwrap_or(text));
        let bytes = end + 1;
        Line { buffer, limits, bytes, text, block: 0, noreply: false, is_rest_clean: true }
    }

    fn parse(mut self) -> Parsed<'a> {
        let (name, rest) = split_word(trim_end(self.text));
        match Verb::from_name(name) {
            None => self.unknown(),
            Some(verb @ (Verb::Get | Verb::Gets | Verb::Gat | Verb::Gats)) => self.get(verb, rest),
            Some(
                verb @ (Verb::MetaGet | Verb::MetaSet | Verb::MetaDelete | Verb::MetaArithmetic),
            ) => self.meta(verb, rest),
            Some(verb @ Verb::MetaDebug) => self.meta(verb, rest),
            Some(verb @ (Verb::Version | Verb::Stats | Verb::Quit | Verb::MetaNoop)) => {
                self.finish(verb, &[], Tokens(rest).remaining(), 0)
            }
            Some(verb) => {
                let rest = self.take_noreply(rest);
                if verb.has_value() { self.store(verb, rest) } else { self.simple(verb, rest) }
            }
        }
    }

    /// The arguments of a text command, if the line has as many words as memcached takes for it (`WANT_TOKENS` in
    /// `proto_text.c`), `noreply` among them. A word in its place that is another one says nothing there, and is dropped.
    fn take_words(
        &mut self,
        arguments: &'a [u8],
        words: RangeInclusive<usize>,
    ) -> Option<&'a [u8]> {
        let count = Tokens(arguments).count();
        if !words.contains(&(count + usize::from(self.noreply))) {
            return None;
        }
        let last = Tokens(arguments).last().unwrap_or_default();
        if count == *words.end() {
            self.is_rest_clean = is_clean(last);
            let before = trim_end(arguments.strip_suffix(last).unwrap_or(arguments));
            self.text = trim_end(trim_end(self.text).strip_suffix(last).unwrap_or(self.text));
            return Some(before);
        }
        Some(arguments)
    }

    /// Takes `noreply` from the end of the arguments, and of the line.
    ///
    /// What precedes it is parsed as if it were not there. So `delete noreply` lacks a key: memcached
    /// would delete the key `noreply`, and current releases would not say so.
    fn take_noreply(&mut self, arguments: &'a [u8]) -> &'a [u8] {
        let Some(before @ ([] | [.., b' '])) = arguments.strip_suffix(b"noreply") else {
            return arguments;
        };
        self.noreply = true;
        let before = trim_end(before);
        let dropped = arguments.len() - before.len();
        let line = trim_end(self.text);
        self.text = line.get(..line.len() - dropped).unwrap_or_default();
        before
    }

    /// `get KEY*`, `gat EXPTIME KEY*`.
    fn get(&self, verb: Verb, rest: &'a [u8]) -> Parsed<'a> {
        let mut words = Tokens(rest);
        let touches = matches!(verb, Verb::Gat | Verb::Gats);
        let exptime = if touches { words.next().unwrap_or_default() } else { &[] };
        let (count, longest) =
            words.clone().fold((0, 0), |(count, longest), key| (count + 1, key.len().max(longest)));
        if rest.is_empty() {
            self.refuse(ERROR)
        } else if touches && number_i64(exptime).is_none() {
            self.refuse(BAD_EXPTIME)
        } else if count == 0 {
            // Of a `gat`, as memcached answers it: all values of no keys.
            self.refuse(NO_VALUES)
        } else if longest > self.limits.key_bytes_max {
            self.refuse(BAD_FORMAT)
        } else if count > self.limits.keys_max {
            self.refuse(MANY_KEYS)
        } else {
            self.finish(verb, words.remaining(), exptime, 0)
        }
    }

    /// `set KEY FLAGS EXPTIME BYTES`, `cas KEY FLAGS EXPTIME BYTES CAS`.
    fn store(&mut self, verb: Verb, rest: &'a [u8]) -> Parsed<'a> {
        let words = if verb == Verb::Cas { 5..=6 } else { 4..=5 };
        // As every release: the line is none of the command, and what follows is read as requests.
        let Some(rest) = self.take_words(rest, words) else { return self.refuse(ERROR) };
        let mut words = Tokens(rest);
        let key = words.next().unwrap_or_default();
        let arguments = words.clone().remaining();
        let [flags, exptime, bytes] = [(); 3].map(|()| words.next().unwrap_or_default());
        if !self.take_length(bytes) {
            return self.refuse(BAD_FORMAT);
        }
        let cas = words.next();
        let valid = key.len() <= self.limits.key_bytes_max
            && number(flags, 10, u64::from(u32::MAX)).is_some()
            && number_i64(exptime).is_some()
            && cas.map(|cas| number_u64(cas).is_some()) == (verb == Verb::Cas).then_some(true)
            && words.next().is_none();
        if valid { self.finish(verb, key, arguments, 0) } else { self.refuse(BAD_FORMAT) }
    }

    /// Takes the length of the value that follows the line. If it cannot be read then, as with
    /// memcached, what follows is read as requests.
    fn take_length(&mut self, bytes: &[u8]) -> bool {
        let length = number(bytes, LENGTH_DIGITS_MAX, VALUE_BYTES_MAX);
        self.block = length.map_or(0, |length| length + 2);
        length.is_some()
    }

    /// `delete KEY [0]`, `incr KEY DELTA`, `touch KEY EXPTIME`, `flush_all [DELAY]`, `verbosity
    /// LEVEL`. (Old clients send the 0, and all releases of 1.6 accept it.)
    fn simple(&mut self, verb: Verb, rest: &'a [u8]) -> Parsed<'a> {
        let words = match verb {
            Verb::FlushAll => 0..=2,
            Verb::Verbosity => 1..=2,
            Verb::Delete => 1..=3,
            _ => 2..=3,
        };
        // `delete` names its own mistakes.
        let taken = match verb {
            Verb::Delete if Tokens(rest).count() == 3 => Some(rest),
            _ => self.take_words(rest, words),
        };
        let Some(rest) = taken else { return self.refuse(ERROR) };
        let mut words = Tokens(rest);
        let has_key = !matches!(verb, Verb::FlushAll | Verb::Verbosity);
        let key = if has_key { words.next() } else { None }.unwrap_or_default();
        let arguments = words.clone().remaining();
        let argument = words.next();
        if words.next().is_some()
            || key.len() > self.limits.key_bytes_max
            || (has_key && key.is_empty())
        {
            let usage = verb == Verb::Delete && argument.is_some();
            return self.refuse(if usage { BAD_DELETE } else { BAD_FORMAT });
        }
        let wrong = match (verb, argument) {
            (Verb::Delete, None | Some(b"0")) | (Verb::FlushAll, None) => None,
            (Verb::Delete, Some(_)) => Some(BAD_DELETE),
            (_, None) => Some(BAD_FORMAT),
            (Verb::Touch | Verb::FlushAll, Some(exptime)) => {
                number_i64(exptime).is_none().then_some(BAD_EXPTIME)
            }
            (Verb::Verbosity, Some(level)) => {
                number(level, 10, u64::from(u32::MAX)).is_none().then_some(BAD_FORMAT)
            }
            (_, Some(delta)) => number_u64(delta).is_none().then_some(BAD_DELTA),
        };
        match wrong {
            Some(reply) => self.refuse(reply),
            None => self.finish(verb, key, arguments, 0),
        }
    }

    /// `mg KEY FLAG*`, `ms KEY BYTES FLAG*`. The arguments of flags are left to the server, which
    /// replies to a wrong one with one line and drops the value.
    fn meta(&mut self, verb: Verb, rest: &'a [u8]) -> Parsed<'a> {
        let mut words = Tokens(rest);
        let key = words.next().unwrap_or_default();
        if key.is_empty() && verb != Verb::MetaDebug {
            return self.refuse(ERROR);
        }
        let mut count = 2;
        if verb == Verb::MetaSet {
            count += 1;
            if !self.take_length(words.next().unwrap_or_default()) {
                return self.refuse(BAD_FORMAT);
            }
        }
        if key.is_empty() || key.len() > self.limits.key_bytes_max {
            return self.refuse(BAD_FORMAT);
        }
        let (mut seen, mut is_known) = (0, true);
        for flag in words.clone() {
            let letter = flag.first().copied().unwrap_or_default();
            count += 1;
            if count > META_WORDS_MAX {
                return self.refuse(MANY_FLAGS);
            } else if !letter.is_ascii_alphabetic() {
                return self.refuse(BAD_FLAG);
            } else if seen & flag_bit(letter) != 0 {
                // A server names the first mistake. (It may know flags that this does not, so these alone are left to it.)
                return self.refuse(if is_known { DUPLICATE_FLAG } else { BAD_FLAG });
            }
            seen |= flag_bit(letter);
            is_known &= META_FLAGS.contains(&letter);
        }
        if seen & flag_bit(b'b') != 0 && !is_base64(key) {
            return self.refuse(BAD_BASE64);
        }
        self.finish(verb, key, words.remaining(), seen)
    }

    /// The checks that every request passes, and its value.
    fn finish(&self, verb: Verb, keys: &'a [u8], arguments: &'a [u8], flags: u64) -> Parsed<'a> {
        if !self.is_rest_clean || !is_clean(self.text) {
            return self.refuse(BAD_FORMAT);
        }
        let mut value: &[u8] = &[];
        let mut bytes = self.bytes;
        if verb.has_value() {
            if self.block - 2 > self.limits.value_bytes_max as u64 {
                let mut refused = self.refuse(TOO_LARGE);
                if let (Parsed::Invalid { drops, .. }, Verb::Set | Verb::MetaSet) =
                    (&mut refused, verb)
                {
                    *drops = Some(Drops { key: keys, base64: flags & flag_bit(b'b') != 0 });
                }
                return refused;
            }
            bytes += self.block as usize;
            match self.buffer.get(self.bytes..bytes) {
                None => return Parsed::Incomplete { needed: bytes },
                Some([data @ .., b'\r', b'\n']) => value = data,
                Some(_) => return self.refuse(BAD_CHUNK),
            }
        }
        Parsed::Request(Request {
            verb,
            whole: self.buffer.get(..bytes).unwrap_or_default(),
            noreply: self.noreply,
            quiet: flags & flag_bit(b'q') != 0,
            line: trim_end(self.text),
            keys,
            arguments,
            value,
            flags,
        })
    }

    /// A line whose first word is not a command.
    fn unknown(&mut self) -> Parsed<'a> {
        let (_, rest) = split_word(trim_end(self.text));
        // A browser that was tricked into sending requests to a cache: memcached closes without a
        // reply, before the headers and the body are read as requests.
        if Tokens(rest).last().is_some_and(|word| word.starts_with(b"HTTP/")) {
            return close("");
        }
        self.take_noreply(rest);
        self.refuse(ERROR)
    }

    fn refuse(&self, reply: &'static str) -> Parsed<'a> {
        let reply = if self.noreply { "" } else { reply };
        Parsed::Invalid { reply, consumed: self.bytes, skip: self.block, close: false, drops: None }
    }
}

/// Whether every release reads the line to its end: until 1.6.22 a zero byte ended it. Other control characters are bytes
/// as any to memcached, in keys too (`doc/protocol.txt` forbids them there).
fn is_clean(line: &[u8]) -> bool {
    memchr(0, line).is_none()
}
