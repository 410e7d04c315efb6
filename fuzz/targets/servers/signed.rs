//! Requests of S3's, signed as clients sign them (Signature Version 4).

use std::time::{SystemTime, UNIX_EPOCH};

use ring::{digest, hmac};

/// How a request is signed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum How {
    /// In its header, with the hash of its body.
    Header,
    /// In its header, the body unsigned.
    Unsigned,
    /// In its URL.
    Url,
    /// In its header, the body in signed chunks.
    Chunks,
    /// The same without signatures of the chunks, and a checksum after them.
    Trailer,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn mac(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
}

fn encoded(bytes: &[u8], slash: bool) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let one = |&byte: &u8| match byte {
        byte if plain(byte) || (slash && byte == b'/') => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    bytes.iter().map(one).collect()
}

fn decoded(text: &str) -> Vec<u8> {
    let (mut rest, mut out) = (text.as_bytes(), Vec::new());
    let digit = |byte: u8| char::from(byte).to_digit(16);
    loop {
        rest = match rest {
            [b'%', high, low, after @ ..] if digit(*high).is_some() && digit(*low).is_some() => {
                let value = |byte: &u8| digit(*byte).unwrap_or(0);
                out.push((16 * value(high) + value(low)) as u8);
                after
            }
            [byte, after @ ..] => {
                out.push(*byte);
                after
            }
            [] => return out,
        };
    }
}

/// The time now as signatures have it.
fn date() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, second) = (now / 86_400, now % 86_400);
    // Civil date of days since 1970-01-01, with years that begin in March.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let part = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * part + 2) / 5 + 1, (part + 2) % 12 + 1);
    let year = year + 400 * era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second % 3600 / 60, second % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// A request as it is written by hand: `METHOD TARGET`, lines of headers, an empty line, the body.
pub struct Request<'a> {
    method: &'a str,
    target: &'a str,
    headers: Vec<(String, &'a str)>,
    body: &'a [u8],
}

impl<'a> Request<'a> {
    /// Reads one. Lines that could not be headers are left out, as a client's library would refuse them.
    pub fn parse(text: &'a [u8]) -> Option<Request<'a>> {
        let end = text.windows(2).position(|two| two == b"\n\n");
        let (head, body) = end.map_or((text, &[][..]), |end| (&text[..end], &text[end + 2..]));
        let mut lines = std::str::from_utf8(head).ok()?.lines();
        let (method, target) = lines.next()?.split_once(' ')?;
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let printed = |byte: u8| (b' '..=b'~').contains(&byte);
        let of_target = |byte: u8| byte > b' ' && byte < 127 && !b"#\"<>\\^`{|}".contains(&byte);
        let fits = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
        if !fits || !target.starts_with('/') || !target.bytes().all(of_target) {
            return None;
        }
        let mut headers: Vec<(String, &str)> = Vec::new();
        for line in lines {
            let Some((name, value)) = line.split_once(':') else { continue };
            let name = name.trim().to_ascii_lowercase();
            let own =
                ["host", "content-length", "transfer-encoding", "connection", "authorization"];
            let taken = headers.iter().any(|(other, _)| *other == name);
            if !name.is_empty()
                && name.bytes().all(token)
                && value.bytes().all(printed)
                && !own.contains(&&*name)
                && !taken
            {
                headers.push((name, value.trim()));
            }
        }
        Some(Request { method, target, headers, body })
    }

    /// The request's bytes, signed.
    pub fn signed(&self, how: How, host: &str, id: &str, secret: &str) -> Vec<u8> {
        let date = date();
        let scope = format!("{}/us-east-1/s3/aws4_request", &date[..8]);
        let day = mac(format!("AWS4{secret}").as_bytes(), &date[..8]);
        let region = mac(day.as_ref(), "us-east-1");
        let key = mac(mac(region.as_ref(), "s3").as_ref(), "aws4_request");
        let mut headers = self.headers.clone();
        headers.retain(|(name, _)| name != "x-amz-date" && name != "x-amz-content-sha256");
        headers.push(("host".to_owned(), host));
        let hash = sha256(self.body);
        let payload = match how {
            How::Header => &*hash,
            How::Unsigned | How::Url => "UNSIGNED-PAYLOAD",
            How::Chunks => "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
            How::Trailer => "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        };
        let length = self.body.len().to_string();
        if how != How::Url {
            headers.push(("x-amz-date".to_owned(), &date));
            headers.push(("x-amz-content-sha256".to_owned(), payload));
        }
        if matches!(how, How::Chunks | How::Trailer) {
            headers.retain(|(name, _)| name != "x-amz-decoded-content-length");
            headers.push(("x-amz-decoded-content-length".to_owned(), &length));
            let coded = headers.iter().any(|(name, _)| name == "content-encoding");
            if !coded {
                headers.push(("content-encoding".to_owned(), "aws-chunked"));
            }
        }
        headers.sort();
        let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join(";");
        let (path, query) = self.target.split_once('?').unwrap_or((self.target, ""));
        let mut query = query.to_owned();
        if how == How::Url {
            let between = if query.is_empty() { "" } else { "&" };
            let credential = encoded(format!("{id}/{scope}").as_bytes(), false);
            query += &format!(
                "{between}X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={credential}&X-Amz-Date={date}\
                 &X-Amz-Expires=900&X-Amz-SignedHeaders={}",
                encoded(names.as_bytes(), false)
            );
        }
        let mut pairs: Vec<(String, String)> = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                (encoded(&decoded(name), false), encoded(&decoded(value), false))
            })
            .collect();
        pairs.sort();
        let pairs: Vec<String> = pairs.iter().map(|(n, v)| format!("{n}={v}")).collect();
        let mut canonical =
            format!("{}\n{}\n{}\n", self.method, encoded(&decoded(path), true), pairs.join("&"));
        for (name, value) in &headers {
            let value: Vec<&str> = value.split_ascii_whitespace().collect();
            canonical += &format!("{name}:{}\n", value.join(" "));
        }
        canonical += &format!("\n{names}\n{payload}");
        let string = |hash: &str| format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{hash}");
        let signature = hex(mac(key.as_ref(), &string(&sha256(canonical.as_bytes()))).as_ref());
        if how == How::Url {
            query += &format!("&X-Amz-Signature={signature}");
        }
        let body = self.coded(how, &date, &scope, key.as_ref(), &signature);
        let mark = if query.is_empty() { "" } else { "?" };
        let mut out = format!("{} {path}{mark}{query} HTTP/1.1\r\n", self.method);
        for (name, value) in &headers {
            out += &format!("{name}: {value}\r\n");
        }
        if how != How::Url {
            out += &format!(
                "authorization: AWS4-HMAC-SHA256 Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}\r\n"
            );
        }
        if !body.is_empty() || matches!(self.method, "PUT" | "POST") {
            out += &format!("content-length: {}\r\n", body.len());
        }
        out += "\r\n";
        [out.as_bytes(), &body].concat()
    }

    /// The body as it is sent.
    fn coded(&self, how: How, date: &str, scope: &str, key: &[u8], seed: &str) -> Vec<u8> {
        if !matches!(how, How::Chunks | How::Trailer) {
            return self.body.to_vec();
        }
        let (mut out, mut before) = (Vec::new(), seed.to_owned());
        let pieces = self.body.chunks(37).chain([&[][..]]);
        for piece in pieces {
            if how == How::Trailer {
                out.extend(format!("{:x}\r\n", piece.len()).bytes());
                if piece.is_empty() {
                    break;
                }
            } else {
                let text = format!(
                    "AWS4-HMAC-SHA256-PAYLOAD\n{date}\n{scope}\n{before}\n{}\n{}",
                    sha256(&[]),
                    sha256(piece)
                );
                before = hex(mac(key, &text).as_ref());
                out.extend(format!("{:x};chunk-signature={before}\r\n", piece.len()).bytes());
            }
            out.extend_from_slice(piece);
            out.extend_from_slice(b"\r\n");
        }
        if how == How::Trailer {
            let named = self.headers.iter().find(|(name, _)| name == "x-amz-trailer");
            if let Some((_, name)) = named {
                let crc = crc32fast::hash(self.body).to_be_bytes();
                out.extend(format!("{name}:{}\r\n", base64(&crc)).bytes());
            }
            out.extend_from_slice(b"\r\n");
        }
        out
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0u32, |bits, &byte| bits << 8 | u32::from(byte));
        let bits = bits << (8 * (3 - three.len()));
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at)) as usize & 63];
            out.push(if at <= three.len() { char::from(digit) } else { '=' });
        }
    }
    out
}
