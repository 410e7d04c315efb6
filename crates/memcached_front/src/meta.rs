//! Meta commands: `mg`, `ms`, `md`, `ma`, `me`.
//!
//! Marks of stale values and of readers that were told to replace them (`W`) are metadata of the object, so they hold for all
//! processes before one origin, and a change of them is a write. A number of `C` that is not the value's is taken for an
//! older one by `ms` with `I`: clients have no others, and numbers that come from etags have no order.

use std::borrow::Cow;

use bytes::Bytes;
use ground::Key;
use memcached::{Request, Verb};

use super::change::{Change, Changed, NOT_NUMERIC, next_number};
use super::notes::{Notes, expiry, number_of, unix_s};
use super::values::{Mode, NewValue, Stored};
use super::{Session, Value};
use store::{Error, ReadRequest};

const BAD_FLAG: &[u8] = b"CLIENT_ERROR invalid flag\r\n";
/// What `md` and `ma` say of any mistake in their flags but a long opaque text.
const BAD_FLAGS: &[u8] = b"CLIENT_ERROR invalid or duplicate flag\r\n";
const NOT_KEPT: &[u8] =
    b"CLIENT_ERROR a Concertina node does not tell whether or when a value was read (flags h, l)\r\n";
const BAD_TOKEN: &[u8] = b"CLIENT_ERROR bad token in command line format\r\n";
const BAD_FORMAT: &[u8] = b"CLIENT_ERROR bad command line format\r\n";
const BAD_MODE_LENGTH: &[u8] = b"CLIENT_ERROR incorrect length for M token\r\n";
const BAD_SET_MODE: &[u8] = b"CLIENT_ERROR invalid mode for ms M token\r\n";
const BAD_COUNT_MODE: &[u8] = b"CLIENT_ERROR invalid mode for ma M token\r\n";
const BAD_INITIAL: &[u8] = b"CLIENT_ERROR invalid numeric initial value\r\n";
const BAD_DELTA: &[u8] = b"CLIENT_ERROR invalid numeric delta value\r\n";
const LONG_OPAQUE: &[u8] = b"CLIENT_ERROR opaque token too long\r\n";

/// The longest opaque flag with its letter (`MFLAG_MAX_OPAQUE_LENGTH`).
const OPAQUE_BYTES_MAX: usize = 32;
/// How often a command begins again that finds no value and then is not the first to store one.
const ATTEMPTS: u32 = 100;

/// The reply to a command about a value that has another number than its client says.
const EXISTS: &[u8] = b"EX";
/// The refusal of a change by `mg` with `T`, `N` or `R` that finds nothing to be changed; no client sees it.
const UNCHANGED: &[u8] = b"";

/// The key that names the object.
fn plain<'a>(request: &Request<'a>) -> Cow<'a, [u8]> {
    let mut decoded = Vec::new();
    if request.is_base64() && memcached::decode_base64(request.key(), &mut decoded) {
        return Cow::Owned(decoded);
    }
    Cow::Borrowed(request.key())
}

/// The arguments of the flags of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Flags {
    /// `C`: the number that the value must have.
    compared: Option<u64>,
    /// `E`: the number that it gets.
    number: Option<u64>,
    /// `F`.
    client_flags: u32,
    /// `T`.
    exptime: Option<i64>,
    /// `N`.
    vivify: Option<i64>,
    /// `R`.
    recache: Option<i64>,
    /// `J`.
    initial: u64,
    /// `D`.
    delta: Option<u64>,
    /// `M`.
    mode: Option<u8>,
    /// `I`.
    is_invalidating: bool,
    /// `x`.
    is_emptying: bool,
}

impl Flags {
    /// Reads them; otherwise the reply, with memcached's text.
    fn read(request: &Request<'_>) -> Result<Flags, &'static [u8]> {
        fn number<N: std::str::FromStr>(
            text: &[u8],
            wrong: &'static [u8],
        ) -> Result<N, &'static [u8]> {
            std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(wrong)
        }
        let exptime = |text| number::<i64>(text, BAD_TOKEN).map(Some);
        let mut flags = Flags::default();
        for flag in request.flags() {
            match flag {
                [b'C', text @ ..] => flags.compared = Some(number(text, BAD_TOKEN)?),
                [b'E', text @ ..] => flags.number = Some(number(text, BAD_TOKEN)?),
                [b'F', text @ ..] => flags.client_flags = number(text, BAD_FORMAT)?,
                [b'T', text @ ..] => flags.exptime = exptime(text)?,
                [b'N', text @ ..] => flags.vivify = exptime(text)?,
                [b'R', text @ ..] => flags.recache = exptime(text)?,
                [b'J', text @ ..] => flags.initial = number(text, BAD_INITIAL)?,
                [b'D', text @ ..] => flags.delta = Some(number(text, BAD_DELTA)?),
                [b'M', mode] => flags.mode = Some(*mode),
                [b'M', ..] => return Err(BAD_MODE_LENGTH),
                [b'O', ..] if flag.len() > OPAQUE_BYTES_MAX => return Err(LONG_OPAQUE),
                [b'I', ..] => flags.is_invalidating = true,
                [b'x', ..] => flags.is_emptying = true,
                [letter, ..] if b"OPLkstcfvhlubq".contains(letter) => {}
                _ => return Err(BAD_FLAG),
            }
        }
        Ok(flags)
    }

    /// Whether `C` names another number than the value's.
    fn differs(&self, value: &Value) -> bool {
        self.compared.is_some_and(|number| number != number_of(&value.version))
    }
}

/// What a reply says of a value.
struct Described {
    number: u64,
    size: usize,
    notes: Notes,
    /// When it expires after the command; before that, it is `notes.expires`.
    expires: Option<i64>,
}

impl Session {
    /// Appends what the flags ask for, in their order; without a value what is in the request itself, `k` and `O`.
    ///
    /// `letters` are the flags that the command answers.
    fn put_flags(&mut self, request: &Request<'_>, letters: &[u8], value: Option<&Described>) {
        let mut expires = value.and_then(|value| value.notes.expires);
        for flag in request.flags() {
            let Some(letter) = flag.first().filter(|letter| letters.contains(letter)) else {
                continue;
            };
            let said = match (letter, value) {
                (b'k', _) => {
                    self.out.extend_from_slice(b" k");
                    self.out.extend_from_slice(request.key());
                    // The key is as it came: encoded.
                    self.out.extend_from_slice(if request.is_base64() { b" b" } else { b"" });
                    continue;
                }
                (b'O', _) => {
                    self.out.push(b' ');
                    self.out.extend_from_slice(flag);
                    continue;
                }
                // What comes before `T` is told as it was.
                (b'T' | b'N', Some(value)) => {
                    expires = value.expires;
                    continue;
                }
                (b'f', Some(value)) => format!(" f{}", value.notes.flags),
                (b's', Some(value)) => format!(" s{}", value.size),
                (b'c', Some(value)) => format!(" c{}", value.number),
                (b't', Some(_)) => match expires {
                    Some(at) => format!(" t{}", (at - unix_s()).max(0)),
                    None => " t-1".to_owned(),
                },
                _ => continue,
            };
            self.out.extend_from_slice(said.as_bytes());
        }
    }

    /// Appends a code with `k` and `O`.
    fn put_code(&mut self, code: &[u8], request: &Request<'_>) {
        self.out.extend_from_slice(code);
        self.put_flags(request, b"kO", None);
        self.out.extend_from_slice(b"\r\n");
    }

    /// The flags of a request; otherwise the client is told what is wrong.
    fn flags_of(&mut self, request: &Request<'_>) -> Option<Flags> {
        match Flags::read(request) {
            Ok(flags) => Some(flags),
            Err(line) => {
                let is_named = matches!(request.verb, Verb::MetaGet | Verb::MetaSet);
                let line = if is_named || line == LONG_OPAQUE { line } else { BAD_FLAGS };
                self.out.extend_from_slice(line);
                None
            }
        }
    }

    /// `mg KEY FLAG*`.
    pub(super) async fn meta_get(&mut self, request: &Request<'_>) {
        let Some(flags) = self.flags_of(request) else { return };
        if request.has_any_flag(b"hl") {
            return self.out.extend_from_slice(NOT_KEPT);
        }
        let key = plain(request);
        let found = match request.has_any_flag(b"NRT") {
            true => self.get_changing(&key, &flags).await,
            // A stale value is won by its first reader, which is a change.
            false => match self.read(&ReadRequest::get(Key::from(&*key))).await {
                Ok(Some(value)) if Notes::read(&value.version).is_to_win(&flags) => {
                    self.get_changing(&key, &flags).await
                }
                found => found.map(|found| found.map(Gotten::unchanged)),
            },
        };
        let gotten = match found {
            Ok(Some(gotten)) => gotten,
            Ok(None) => return self.put_code(b"EN", request),
            Err(error) => return self.fail(&error),
        };
        let (bytes, described) = (&gotten.bytes, &gotten.described);
        let with_value = request.has_any_flag(b"v");
        let head = if with_value { format!("VA {}", bytes.len()) } else { "HD".to_owned() };
        self.out.extend_from_slice(head.as_bytes());
        self.put_flags(request, b"kOfsctTN", Some(described));
        for (is_set, mark) in [
            (described.notes.is_won, b" Z"),
            (described.notes.is_stale, b" X"),
            (gotten.is_winner, b" W"),
        ] {
            self.out.extend_from_slice(if is_set { mark } else { b"" });
        }
        self.out.extend_from_slice(b"\r\n");
        if with_value {
            self.out.extend_from_slice(bytes);
            self.out.extend_from_slice(b"\r\n");
        }
    }

    /// An `mg` that may change the value, or make one.
    async fn get_changing(&self, key: &[u8], flags: &Flags) -> Result<Option<Gotten>, Error> {
        for _ in 0..ATTEMPTS {
            let change = |value: &Value| {
                let notes = Notes::read(&value.version);
                let is_won = notes.is_to_win(flags);
                if !is_won && flags.exptime.is_none() {
                    return Change::Refused(UNCHANGED);
                }
                let expires = flags.exptime.map_or(notes.expires, expiry);
                let mut new = value.touched(expires);
                new.notes.is_won |= is_won;
                Change::Into(new)
            };
            match self.change(key, change).await? {
                Some(Changed { old, number, refused }) => {
                    let mut gotten = Gotten::unchanged(old);
                    gotten.is_winner = gotten.described.notes.is_to_win(flags);
                    if refused.is_none()
                        && let Some(exptime) = flags.exptime
                    {
                        gotten.described.expires = expiry(exptime);
                    }
                    gotten.described.number = number;
                    return Ok(Some(gotten));
                }
                None => {
                    let Some(exptime) = flags.vivify else { return Ok(None) };
                    let expires = flags.exptime.map_or(expiry(exptime), expiry);
                    let number = flags.number;
                    let notes = Notes { expires, number, is_won: true, ..Notes::default() };
                    let new = NewValue { notes, ..NewValue::default() };
                    if let Stored::Yes(number) = self.write(key, new, &Mode::Add).await? {
                        // It was not won before.
                        let notes = Notes { is_won: false, ..notes };
                        let described = Described { number, size: 0, notes, expires };
                        let bytes = Bytes::new();
                        return Ok(Some(Gotten { bytes, described, is_winner: true }));
                    }
                }
            }
        }
        Err(Error::busy("writes"))
    }

    /// `ms KEY BYTES FLAG*`.
    pub(super) async fn meta_set(&mut self, request: &Request<'_>) {
        let Some(flags) = self.flags_of(request) else { return };
        let key = plain(request);
        let mode = match (flags.mode, flags.compared) {
            (Some(b'A' | b'P'), _) => return self.meta_join(request, &key, &flags).await,
            (Some(b'E'), _) => Mode::Add,
            (None | Some(b'S' | b'R'), Some(number)) => Mode::Cas(number),
            (None | Some(b'S'), None) => Mode::Set,
            (Some(b'R'), None) => Mode::Replace,
            (Some(_), _) => return self.out.extend_from_slice(BAD_SET_MODE),
        };
        let notes = Notes {
            number: flags.number,
            ..Notes::new(flags.client_flags, flags.exptime.unwrap_or(0))
        };
        let size = request.value().len();
        let mut stored = self.write(&key, NewValue::sent(request, notes), &mode).await;
        if flags.is_invalidating && matches!(stored, Ok(Stored::Exists)) {
            stored = self.set_stale(request, &key, &flags).await;
        }
        self.put_stored(request, stored, size);
    }

    /// `ms` with `I` and an older number: the value is stored, and is stale as the one before it.
    async fn set_stale(
        &self,
        request: &Request<'_>,
        key: &[u8],
        flags: &Flags,
    ) -> Result<Stored, Error> {
        let change = |old: &Value| {
            let before = Notes::read(&old.version);
            let notes =
                Notes { flags: flags.client_flags, number: flags.number, is_stale: true, ..before };
            Change::Into(NewValue::sent(request, notes))
        };
        let changed = self.change(key, change).await?;
        Ok(changed.map_or(Stored::NotFound, |changed| Stored::Yes(changed.number)))
    }

    /// `ms` with the modes append and prepend.
    async fn meta_join(&mut self, request: &Request<'_>, key: &[u8], flags: &Flags) {
        let (behind, max) = (flags.mode == Some(b'A'), self.stored_bytes_max());
        for _ in 0..ATTEMPTS {
            let change = |value: &Value| {
                if flags.differs(value) {
                    return Change::Refused(EXISTS);
                }
                match value.joined(request.value(), behind, max) {
                    Change::Into(mut new) => {
                        new.notes.number = flags.number;
                        Change::Into(new)
                    }
                    refused => refused,
                }
            };
            match self.change(key, change).await {
                Ok(Some(Changed { refused: Some(EXISTS), .. })) => {
                    return self.put_stored(request, Ok(Stored::Exists), 0);
                }
                Ok(Some(Changed { refused: Some(line), .. })) => {
                    return self.out.extend_from_slice(line);
                }
                Ok(Some(Changed { old, number, .. })) => {
                    let size = old.bytes.len() + request.value().len();
                    return self.put_stored(request, Ok(Stored::Yes(number)), size);
                }
                Ok(None) => {
                    let Some(exptime) = flags.vivify else {
                        return self.put_stored(request, Ok(Stored::No), 0);
                    };
                    let notes =
                        Notes { number: flags.number, ..Notes::new(flags.client_flags, exptime) };
                    let new = NewValue::sent(request, notes);
                    match self.write(key, new, &Mode::Add).await {
                        // Another client was first: there is a value to be changed.
                        Ok(Stored::No) => {}
                        stored => return self.put_stored(request, stored, request.value().len()),
                    }
                }
                Err(error) => return self.fail(&error),
            }
        }
        self.fail(&Error::busy("writes"));
    }

    /// The reply to `ms`.
    fn put_stored(&mut self, request: &Request<'_>, stored: Result<Stored, Error>, size: usize) {
        let (code, number) = match stored {
            Ok(Stored::Yes(number)) => (b"HD", number),
            Ok(Stored::No) => (b"NS", 0),
            Ok(Stored::Exists) => (b"EX", 0),
            Ok(Stored::NotFound) => (b"NF", 0),
            Err(error) => return self.fail(&error),
        };
        // What is not stored has the size that was sent.
        let size = if code == b"HD" { size } else { request.value().len() };
        let described = Described { number, size, notes: Notes::default(), expires: None };
        self.out.extend_from_slice(code);
        self.put_flags(request, b"kOsc", Some(&described));
        self.out.extend_from_slice(b"\r\n");
    }

    /// `md KEY FLAG*`: deletes, or with `I` marks as stale, or with `x` empties a value.
    pub(super) async fn meta_delete(&mut self, request: &Request<'_>) {
        let Some(flags) = self.flags_of(request) else { return };
        let key = plain(request);
        let done = if flags.is_invalidating || flags.is_emptying {
            self.invalidate(&key, &flags).await
        } else if flags.compared.is_some() {
            self.delete_compared(&key, &flags).await
        } else {
            self.remove(&key).await.map(|there| if there { b"HD" } else { b"NF" })
        };
        match done {
            Ok(code) => self.put_code(code, request),
            Err(error) => self.fail(&error),
        }
    }

    /// `md` with `I` or `x`.
    async fn invalidate(&self, key: &[u8], flags: &Flags) -> Result<&'static [u8; 2], Error> {
        let change = |value: &Value| {
            if flags.differs(value) {
                return Change::Refused(EXISTS);
            }
            let before = Notes::read(&value.version);
            let mut new = value.with(Notes { number: flags.number, ..before });
            if flags.is_emptying {
                // A tombstone, with the number of the value that it replaces.
                let number = flags.number.unwrap_or_else(|| number_of(&value.version));
                let notes = Notes::new(flags.client_flags, flags.exptime.unwrap_or(0));
                new = NewValue {
                    notes: Notes { number: Some(number), ..notes },
                    ..NewValue::default()
                };
            }
            if flags.is_invalidating {
                new.notes.expires = flags.exptime.map_or(new.notes.expires, expiry);
                new.notes.is_stale = true;
                // The next reader wins.
                new.notes.is_won = false;
                new.notes.number = flags.number;
            }
            Change::Into(new)
        };
        Ok(match self.change(key, change).await? {
            Some(Changed { refused: None, .. }) => b"HD",
            Some(_) => b"EX",
            None => b"NF",
        })
    }

    /// `md` with `C`.
    async fn delete_compared(&self, key: &[u8], flags: &Flags) -> Result<&'static [u8; 2], Error> {
        for _ in 0..ATTEMPTS {
            let Some(value) = self.read(&ReadRequest::get(Key::from(key))).await? else {
                return Ok(b"NF");
            };
            if flags.differs(&value) {
                self.store.revalidate(&Key::from(key));
                return Ok(b"EX");
            }
            if self.remove_version(key, &value.version.etag).await? {
                return Ok(b"HD");
            }
            self.store.revalidate(&Key::from(key));
        }
        Err(Error::busy("writes"))
    }

    /// `ma KEY FLAG*`.
    pub(super) async fn meta_arithmetic(&mut self, request: &Request<'_>) {
        let Some(flags) = self.flags_of(request) else { return };
        let up = match flags.mode {
            None | Some(b'I' | b'+') => true,
            Some(b'D' | b'-') => false,
            Some(_) => return self.out.extend_from_slice(BAD_COUNT_MODE),
        };
        let (key, delta) = (plain(request), flags.delta.unwrap_or(1));
        for _ in 0..ATTEMPTS {
            let change = |value: &Value| {
                if flags.differs(value) {
                    return Change::Refused(EXISTS);
                }
                match value.counted(up, delta) {
                    Change::Into(mut new) => {
                        new.notes.number = flags.number;
                        new.notes.expires = flags.exptime.map_or(new.notes.expires, expiry);
                        Change::Into(new)
                    }
                    refused => refused,
                }
            };
            match self.change(&key, change).await {
                Ok(Some(Changed { refused: Some(EXISTS), .. })) => {
                    return self.put_code(EXISTS, request);
                }
                Ok(Some(Changed { refused: Some(line), .. })) => {
                    return self.out.extend_from_slice(line);
                }
                Ok(Some(Changed { old, number, .. })) => {
                    let Some(count) = next_number(&old.bytes, up, delta) else {
                        return self.out.extend_from_slice(NOT_NUMERIC);
                    };
                    let notes = Notes::read(&old.version);
                    let expires = flags.exptime.map_or(notes.expires, expiry);
                    let described = Described { number, size: 0, notes, expires };
                    return self.put_count(request, count, &described);
                }
                Ok(None) => {
                    let Some(exptime) = flags.vivify else { return self.put_code(b"NF", request) };
                    let notes = Notes { number: flags.number, ..Notes::new(0, exptime) };
                    let bytes = flags.initial.to_string().into_bytes().into();
                    match self.write(&key, NewValue { bytes, notes }, &Mode::Add).await {
                        Ok(Stored::Yes(number)) => {
                            let expires = notes.expires;
                            let described = Described { number, size: 0, notes, expires };
                            return self.put_count(request, flags.initial, &described);
                        }
                        // Another client was first: there is a number to be changed.
                        Ok(_) => {}
                        Err(error) => return self.fail(&error),
                    }
                }
                Err(error) => return self.fail(&error),
            }
        }
        self.fail(&Error::busy("writes"));
    }

    /// The reply to `ma`.
    fn put_count(&mut self, request: &Request<'_>, count: u64, described: &Described) {
        let (text, with_value) = (count.to_string(), request.has_any_flag(b"v"));
        let head = if with_value { format!("VA {}", text.len()) } else { "HD".to_owned() };
        self.out.extend_from_slice(head.as_bytes());
        self.put_flags(request, b"kOctT", Some(described));
        self.out.extend_from_slice(b"\r\n");
        if with_value {
            self.out.extend_from_slice(text.as_bytes());
            self.out.extend_from_slice(b"\r\n");
        }
    }

    /// `me KEY`: what is known of a value. When it was read, and its slab, are not.
    pub(super) async fn meta_debug(&mut self, request: &Request<'_>) {
        let key = plain(request);
        let value = match self.read(&ReadRequest::get(Key::from(&*key))).await {
            Ok(Some(value)) => value,
            Ok(None) => return self.out.extend_from_slice(b"EN\r\n"),
            Err(error) => return self.fail(&error),
        };
        let expires = Notes::read(&value.version).expires;
        let seconds = expires.map_or(-1, |at| (at - unix_s()).max(0));
        self.out.extend_from_slice(b"ME ");
        self.out.extend_from_slice(request.key());
        let number = number_of(&value.version);
        let rest = format!(" exp={seconds} cas={number} size={}\r\n", value.bytes.len());
        self.out.extend_from_slice(rest.as_bytes());
    }
}

impl Notes {
    /// Whether a reader of the value is to replace it, and nobody was told so before.
    fn is_to_win(&self, flags: &Flags) -> bool {
        let is_old = flags.recache.is_some_and(|exptime| match (self.expires, expiry(exptime)) {
            (Some(at), Some(limit)) => at < limit,
            _ => false,
        });
        !self.is_won && (self.is_stale || is_old)
    }
}

/// What `mg` has to say of a value.
struct Gotten {
    bytes: Bytes,
    described: Described,
    /// Whether its reader is told to replace it.
    is_winner: bool,
}

impl Gotten {
    fn unchanged(value: Value) -> Gotten {
        let notes = Notes::read(&value.version);
        let number = number_of(&value.version);
        let (size, expires) = (value.bytes.len(), notes.expires);
        let described = Described { number, size, notes, expires };
        Gotten { bytes: value.bytes, described, is_winner: false }
    }
}
