//! Meta commands: `mg`, `ms`, `md`, with the flags that a node can honour.

use std::borrow::Cow;

use ground::Key;
use memcached::Request;

use super::values::{Mode, NewValue, Stored, cas_of, expires, flags};
use super::{Session, unix_s};
use store::ReadRequest;

const BAD_FLAG: &[u8] = b"CLIENT_ERROR a Concertina node does not have this flag\r\n";
const BAD_TOKEN: &[u8] = b"CLIENT_ERROR bad token in command line format\r\n";

/// The key that names the object.
fn plain<'a>(request: &Request<'a>) -> Cow<'a, [u8]> {
    let mut decoded = Vec::new();
    if request.is_base64() && memcached::decode_base64(request.key(), &mut decoded) {
        return Cow::Owned(decoded);
    }
    Cow::Borrowed(request.key())
}

/// The number behind a flag's letter.
fn number(flag: &[u8]) -> Option<i64> {
    std::str::from_utf8(flag.get(1..)?).ok()?.parse().ok()
}

impl Session {
    /// Appends what the flags ask for that is in the request itself: `k`, `O`, `b`; and `c`.
    fn put_echo(&mut self, request: &Request<'_>, cas: Option<u64>) {
        for flag in request.flags() {
            match (flag.first(), cas) {
                (Some(b'k'), _) => {
                    self.out.extend_from_slice(b" k");
                    self.out.extend_from_slice(request.key());
                }
                (Some(b'O'), _) => {
                    self.out.push(b' ');
                    self.out.extend_from_slice(flag);
                }
                (Some(b'b'), _) => self.out.extend_from_slice(b" b"),
                (Some(b'c'), Some(cas)) => {
                    self.out.extend_from_slice(format!(" c{cas}").as_bytes())
                }
                _ => {}
            }
        }
        self.out.extend_from_slice(b"\r\n");
    }

    fn put_code(&mut self, code: &[u8], request: &Request<'_>, cas: Option<u64>) {
        self.out.extend_from_slice(code);
        self.put_echo(request, cas);
    }

    /// `mg KEY FLAG*` with the flags `b c f k O q s t v`.
    pub(super) async fn meta_get(&mut self, request: &Request<'_>) {
        if request.flags().any(|flag| !b"bcfkOqstv".contains(&flag[0])) {
            return self.out.extend_from_slice(BAD_FLAG);
        }
        let value = match self.read(&ReadRequest::get(Key::from(&*plain(request)))).await {
            Ok(Some(value)) => value,
            Ok(None) => return self.out.extend_from_slice(b"EN\r\n"),
            Err(error) => return self.fail(&error),
        };
        let (metadata, size) = (&value.version, value.bytes.len());
        let with_value = request.has_any_flag(b"v");
        let head = if with_value { format!("VA {size}") } else { "HD".to_owned() };
        self.out.extend_from_slice(head.as_bytes());
        for flag in request.flags() {
            let said = match flag.first() {
                Some(b'f') => format!(" f{}", flags(metadata)),
                Some(b's') => format!(" s{size}"),
                Some(b'c') => format!(" c{}", cas_of(&metadata.etag)),
                Some(b't') => match expires(metadata) {
                    Some(at) => format!(" t{}", (at - unix_s()).max(0)),
                    None => " t-1".to_owned(),
                },
                Some(b'b') => " b".to_owned(),
                Some(letter @ (b'k' | b'O')) => {
                    let text = if *letter == b'k' { request.key() } else { &flag[1..] };
                    self.out.extend_from_slice(&[b' ', *letter]);
                    self.out.extend_from_slice(text);
                    continue;
                }
                _ => continue,
            };
            self.out.extend_from_slice(said.as_bytes());
        }
        self.out.extend_from_slice(b"\r\n");
        if with_value {
            self.out.extend_from_slice(&value.bytes);
            self.out.extend_from_slice(b"\r\n");
        }
    }

    /// `ms KEY BYTES FLAG*` with the flags `b c C F k M O q T`; the modes are set, add and replace.
    pub(super) async fn meta_set(&mut self, request: &Request<'_>) {
        let (mut mode, mut cas, mut flags, mut exptime) = (Mode::Set, None, 0, 0);
        for flag in request.flags() {
            let valid = match flag {
                [b'b' | b'c' | b'k' | b'q' | b'O', ..] => true,
                [b'C', digits @ ..] => {
                    cas = std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok());
                    cas.is_some()
                }
                [b'F', ..] => {
                    let given = number(flag).and_then(|number| u32::try_from(number).ok());
                    flags = given.unwrap_or(0);
                    given.is_some()
                }
                [b'T', ..] => {
                    exptime = number(flag).unwrap_or(0);
                    number(flag).is_some()
                }
                b"MS" | b"Mset" => true,
                b"ME" | b"Madd" => {
                    mode = Mode::Add;
                    true
                }
                b"MR" | b"Mreplace" => {
                    mode = Mode::Replace;
                    true
                }
                _ => return self.out.extend_from_slice(BAD_FLAG),
            };
            if !valid {
                return self.out.extend_from_slice(BAD_TOKEN);
            }
        }
        if let Some(number) = cas {
            mode = Mode::Cas(number);
        }
        let value = NewValue { bytes: request.value().into(), flags, exptime };
        match self.write(&plain(request), &value, mode).await {
            Ok(Stored::Yes(cas)) => self.put_code(b"HD", request, Some(cas)),
            Ok(Stored::No) => self.put_code(b"NS", request, None),
            Ok(Stored::Exists) => self.put_code(b"EX", request, None),
            Ok(Stored::NotFound) => self.put_code(b"NF", request, None),
            Err(error) => self.fail(&error),
        }
    }

    /// `md KEY FLAG*` with the flags `b k O q`.
    pub(super) async fn meta_delete(&mut self, request: &Request<'_>) {
        if request.flags().any(|flag| !b"bkOq".contains(&flag[0])) {
            return self.out.extend_from_slice(BAD_FLAG);
        }
        match self.remove(&plain(request)).await {
            Ok(true) => self.put_code(b"HD", request, None),
            Ok(false) => self.put_code(b"NF", request, None),
            Err(error) => self.fail(&error),
        }
    }
}
