//! Headers that a user adds to requests, and cookies from a file.
//!
//! Headers come as `Name: value` on the command line, or from files. Values from files are secret: they
//! are sent, and neither printed nor recorded.

use std::fmt;

use serde::{Serialize, Serializer};

/// Words in the names of headers whose values are secrets.
const SECRET_WORDS: [&str; 6] = ["authorization", "cookie", "api-key", "apikey", "token", "secret"];
/// Headers that delimit messages, which the generator writes itself.
const OWN: [&str; 3] = ["content-length", "transfer-encoding", "keep-alive"];

/// A header of requests.
#[derive(Clone, PartialEq, Eq)]
pub struct Header {
    /// The name, in lower case.
    pub name: String,
    /// The value; `{key}` in it is replaced by the key.
    pub value: String,
    /// Whether the value is printed and recorded nowhere.
    pub is_secret: bool,
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = if self.is_secret { "(not recorded)" } else { &self.value };
        write!(f, "{}: {value}", self.name)
    }
}

impl Serialize for Header {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Header {
    /// Parses `Name: value`.
    ///
    /// # Errors
    /// What is wrong, with the name and without the value, which may be a secret.
    pub fn parse(line: &str, is_secret: bool) -> Result<Header, String> {
        let (name, value) = line
            .split_once(':')
            .ok_or("a header is `Name: value`, but there is no colon in what was given")?;
        Header::new(name.trim(), value.trim(), is_secret)
    }

    /// A header with this name and value.
    ///
    /// # Errors
    /// What is wrong, with the name and without the value.
    pub fn new(name: &str, value: &str, is_secret: bool) -> Result<Header, String> {
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if name.is_empty() || !name.bytes().all(token) {
            return Err(format!("invalid header name `{}`", name.escape_debug()));
        }
        let name = name.to_ascii_lowercase();
        if OWN.contains(&name.as_str()) {
            return Err(format!(
                "header `{name}`: the load generator writes it itself; leave it out"
            ));
        }
        // Control characters would end the line, and so begin another header.
        if value.bytes().any(|b| (b < b' ' && b != b'\t') || b == 0x7f) {
            return Err(format!("header `{name}`: its value has control characters"));
        }
        Ok(Header { name, value: value.to_owned(), is_secret })
    }

    /// Parses a file of header lines. Empty lines and those that begin with `#` are skipped. All
    /// values are secret.
    ///
    /// # Errors
    /// The first line that is wrong, by its number.
    pub fn parse_file(text: &str) -> Result<Vec<Header>, String> {
        let lines = text.lines().enumerate().filter(|(_, line)| {
            let line = line.trim();
            !line.is_empty() && !line.starts_with('#')
        });
        let parse =
            |(at, line)| Header::parse(line, true).map_err(|why| format!("line {}: {why}", at + 1));
        lines.map(parse).collect()
    }

    /// Whether a header of this name usually holds a secret, which must not be in a command line.
    pub fn is_secret_name(&self) -> bool {
        SECRET_WORDS.iter().any(|word| self.name.contains(word))
    }
}

/// Reads the cookies for a host from a file: either the value of a `Cookie` header (`name=value;
/// name=value`), or a cookie file of Netscape's format, as `curl -c` and browsers' exports write
/// it, of which the cookies are taken that are for the host and have not expired at `unix_s`.
///
/// Paths of cookies are not compared: a list of requests has many. `is_tls`: cookies for TLS alone
/// are sent as well.
///
/// # Errors
/// What is wrong, without a value; also if the file has no cookie for the host.
pub fn cookies(text: &str, host: &str, is_tls: bool, unix_s: i64) -> Result<Header, String> {
    let mut pairs = Vec::new();
    let is_jar = text.lines().any(|line| line.contains('\t')) || text.starts_with("# ");
    for (at, line) in text.lines().enumerate() {
        // curl marks cookies that scripts may not read by a prefix which looks like a comment.
        let line = line.strip_prefix("#HttpOnly_").unwrap_or(line);
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        if !is_jar {
            pairs.push(line.trim().trim_end_matches(';').to_owned());
            continue;
        }
        let fields: Vec<&str> = line.split('\t').collect();
        let [domain, others, _path, secure, expires, name, value] = fields[..] else {
            let number = fields.len();
            return Err(format!(
                "line {}: 7 fields expected in a cookie file, not {number}",
                at + 1
            ));
        };
        let expires: i64 = expires.trim().parse().unwrap_or(0);
        let domain = domain.trim_start_matches('.').to_ascii_lowercase();
        let host = host.to_ascii_lowercase();
        let below = || host.strip_suffix(&domain).is_some_and(|before| before.ends_with('.'));
        let is_for_host = host == domain || others.eq_ignore_ascii_case("TRUE") && below();
        let is_over = expires > 0 && expires < unix_s;
        if is_for_host && !is_over && (is_tls || !secure.eq_ignore_ascii_case("TRUE")) {
            pairs.push(format!("{name}={value}"));
        }
    }
    if pairs.is_empty() {
        return Err(format!("it has no cookie for {host} that is valid now"));
    }
    Header::new("cookie", &pairs.join("; "), true)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn headers_are_lines_that_cannot_end_early() {
        let header = Header::parse("X-Tenant:  a b ", false).unwrap();
        assert_eq!((header.name.as_str(), header.value.as_str()), ("x-tenant", "a b"));
        assert!(!header.is_secret_name());
        for (line, words) in [
            ("no colon", "no colon"),
            (": v", "invalid header name"),
            ("a b: v", "invalid header name"),
            ("content-length: 3", "writes it itself"),
            ("x: hush\r\ny: z", "control characters"),
        ] {
            let error = Header::parse(line, false).unwrap_err();
            assert!(error.contains(words) && !error.contains("hush"), "{error}");
        }
        let secret = Header::parse("Authorization: Basic hush", true).unwrap();
        assert!(secret.is_secret_name());
        let shown = format!("{secret:?} {secret} {}", serde_json::to_string(&secret).unwrap());
        assert!(!shown.contains("hush"), "{shown}");
        let file = Header::parse_file("# of staging\n\nX-Api-Key: hush\n").unwrap();
        assert!(file.len() == 1 && file[0].is_secret);
        assert!(Header::parse_file("a: b\nhush\n").unwrap_err().starts_with("line 2: "));
    }

    #[test]
    fn cookies_are_those_of_the_host() {
        let value = |text, host, tls| cookies(text, host, tls, 1000).map(|header| header.value);
        assert_eq!(value("sid=1; lang=de\n", "h", false), Ok("sid=1; lang=de".to_owned()));
        let jar = "# Netscape HTTP Cookie File\n\
            h.example\tFALSE\t/\tFALSE\t0\tsid\t1\n\
            #HttpOnly_.example\tTRUE\t/\tTRUE\t2000\tall\t2\n\
            h.example\tFALSE\t/\tFALSE\t999\told\t3\n\
            other\tFALSE\t/\tFALSE\t0\tnot\t4\n";
        assert_eq!(value(jar, "H.example", true), Ok("sid=1; all=2".to_owned()));
        assert_eq!(value(jar, "h.example", false), Ok("sid=1".to_owned()));
        for (text, words) in
            [("", "no cookie for h"), (jar, "no cookie for h"), ("a\tb", "7 fields")]
        {
            assert!(value(text, "h", true).unwrap_err().contains(words), "{words}");
        }
    }

    proptest! {
        #[test]
        fn any_file_is_headers_or_an_error(text in "\\PC{0,40}(\n|\t|: )\\PC{0,20}") {
            for header in Header::parse_file(&text).unwrap_or_default() {
                prop_assert!(!header.value.contains(['\r', '\n', '\0']));
            }
            let _ = cookies(&text, "h", true, 0);
        }
    }
}
