//! Requests to S3-compatible stores: URLs signed with AWS Signature Version 4 in their query
//! ("presigned", AWS: "Authenticating Requests: Using Query Parameters"). Bodies then need no hash,
//! and the rest of a request is the same as for other services.
//!
//! All signatures carry the date of [`Presigner::new`] and are valid for seven days, the most that
//! S3 allows. The signing key and the query without its signature are computed once, so a request
//! costs two hashes over its path and no allocation. The store rejects requests of a run that takes
//! longer than seven days.
//!
//! `rusty-s3` and `object_store` build URLs and strings anew for each request, and do not accept
//! paths that contain `..`.

use ground::hex;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ring::{digest, hmac};

/// The characters to encode: all but those that AWS calls unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Validity of a signature in seconds: seven days, the maximum of S3.
const EXPIRES_S: u32 = 604_800;

/// Credentials for an S3-compatible store.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The access key's identifier.
    pub access_key_id: String,
    /// The secret access key.
    pub secret_access_key: String,
    /// The token of a temporary session.
    pub session_token: Option<String>,
}

impl std::fmt::Debug for Credentials {
    // Omits the secret and the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({})", self.access_key_id)
    }
}

impl Credentials {
    /// Parses a credentials file in the format of the AWS tools (`aws_access_key_id = …`). Reads
    /// its first section only.
    ///
    /// The error names the missing line and shows no content of the file.
    pub fn parse(text: &str) -> Result<Credentials, String> {
        let mut sections = 0;
        let (mut id, mut secret, mut token) = (None, None, None);
        for line in text.lines().map(str::trim) {
            if line.starts_with('[') {
                sections += 1;
            }
            let Some((name, value)) = line.split_once('=') else { continue };
            if sections > 1 || line.starts_with(['#', ';']) || value.trim().is_empty() {
                continue;
            }
            let value = Some(value.trim().to_owned());
            match name.trim() {
                "aws_access_key_id" => id = value,
                "aws_secret_access_key" => secret = value,
                "aws_session_token" => token = value,
                _ => {}
            }
        }
        let missing = |name: &str| format!("the line `{name} = …` is missing in its first section");
        Ok(Credentials {
            access_key_id: id.ok_or_else(|| missing("aws_access_key_id"))?,
            secret_access_key: secret.ok_or_else(|| missing("aws_secret_access_key"))?,
            session_token: token,
        })
    }
}

/// Signs the URLs of one store.
#[derive(Clone)]
pub(super) struct Presigner {
    /// The signing key of one day, region and service.
    key: hmac::Key,
    /// The query without its signature.
    query: String,
    /// The part of the canonical request after the query.
    canonical_end: String,
    /// The part of the string to sign before the hash.
    scope: String,
}

impl Presigner {
    /// Creates a signer for requests to `host` (as in the `host` header), dated `unix_s` (seconds
    /// since 1970).
    pub fn new(credentials: &Credentials, region: &str, host: &str, unix_s: i64) -> Presigner {
        let (day, time) = stamp(unix_s);
        let scope = format!("{day}/{region}/s3/aws4_request");
        let secret = format!("AWS4{}", credentials.secret_access_key);
        let mut key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        for part in [&*day, region, "s3", "aws4_request"] {
            key = hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&key, part.as_bytes()).as_ref());
        }
        let encode = |text: &str| utf8_percent_encode(text, RESERVED).to_string();
        let credential = encode(&format!("{}/{scope}", credentials.access_key_id));
        let token = credentials.session_token.as_deref().map(encode);
        let token = token.map(|t| format!("&X-Amz-Security-Token={t}")).unwrap_or_default();
        let query = format!(
            "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={credential}&X-Amz-Date={time}\
             &X-Amz-Expires={EXPIRES_S}{token}&X-Amz-SignedHeaders=host"
        );
        Presigner {
            key,
            query,
            canonical_end: format!("\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD"),
            scope: format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n"),
        }
    }

    /// Appends the signed query for a request of `method` to the path in `out[path..]`.
    pub fn sign(&self, out: &mut Vec<u8>, method: &str, path: usize) {
        let mut request = digest::Context::new(&digest::SHA256);
        request.update(method.as_bytes());
        request.update(b"\n");
        request.update(out.get(path..).unwrap_or_default());
        request.update(b"\n");
        request.update(self.query.as_bytes());
        request.update(self.canonical_end.as_bytes());
        let mut signature = hmac::Context::with_key(&self.key);
        signature.update(self.scope.as_bytes());
        out.push(b'?');
        out.extend_from_slice(self.query.as_bytes());
        out.extend_from_slice(b"&X-Amz-Signature=");
        // Both hashes are written where the second stays, so that a request allocates nothing.
        let digits = out.len();
        hex::push(request.finish().as_ref(), out);
        signature.update(out.get(digits..).unwrap_or_default());
        out.truncate(digits);
        hex::push(signature.sign().as_ref(), out);
    }
}

/// Formats the day (`20130524`) and the time (`20130524T000000Z`).
fn stamp(unix_s: i64) -> (String, String) {
    use chrono::{DateTime, Datelike, Timelike};
    let time = DateTime::from_timestamp(unix_s, 0).unwrap_or_default();
    let day = format!("{:04}{:02}{:02}", time.year(), time.month(), time.day());
    let all = format!("{day}T{:02}{:02}{:02}Z", time.hour(), time.minute(), time.second());
    (day, all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials() -> Credentials {
        Credentials {
            access_key_id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret_access_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            session_token: None,
        }
    }

    /// The example of AWS ("Authenticating Requests: Using Query Parameters") is good for a day; with its
    /// length of time put in, the signature must be the one that is printed there.
    #[test]
    fn the_signature_is_that_of_the_published_example() {
        let host = "examplebucket.s3.amazonaws.com";
        let mut signer = Presigner::new(&credentials(), "us-east-1", host, 1_369_353_600);
        signer.query = signer.query.replace("X-Amz-Expires=604800", "X-Amz-Expires=86400");
        let mut out = b"GET /test.txt".to_vec();
        signer.sign(&mut out, "GET", 4);
        let expected = "GET /test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=\
             AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=\
             20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature=\
             aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn signatures_depend_on_all_that_is_signed() {
        let sign = |method: &str, path: &str, credentials: &Credentials, host: &str| {
            let signer = Presigner::new(credentials, "us-east-1", host, 0);
            let mut out = path.as_bytes().to_vec();
            signer.sign(&mut out, method, 0);
            String::from_utf8(out).unwrap().rsplit_once('=').unwrap().1.to_owned()
        };
        let token = Credentials { session_token: Some("a/b=".to_owned()), ..credentials() };
        let all = [
            sign("GET", "/b/k", &credentials(), "h"),
            sign("PUT", "/b/k", &credentials(), "h"),
            sign("GET", "/b/l", &credentials(), "h"),
            sign("GET", "/b/k", &token, "h"),
            sign("GET", "/b/k", &credentials(), "g"),
        ];
        for (i, one) in all.iter().enumerate() {
            assert!(!all[..i].contains(one), "{i}: {all:?}");
        }
        let signer = Presigner::new(&token, "us-east-1", "h", 0);
        assert!(signer.query.contains("&X-Amz-Security-Token=a%2Fb%3D&X-Amz-SignedHeaders"));
        assert_eq!(stamp(951_782_399).1, "20000228T235959Z");
    }

    #[test]
    fn credentials_are_read_and_never_shown() {
        let text = "# mine\n[default]\naws_access_key_id = AK\n aws_secret_access_key=se=cret\n\
                    [other]\naws_access_key_id = NO\n";
        let read = Credentials::parse(text).unwrap();
        assert_eq!((&*read.access_key_id, &*read.secret_access_key), ("AK", "se=cret"));
        assert_eq!(format!("{read:?}"), "Credentials(AK)");
        for text in ["", "aws_access_key_id = AK", "[a]\n[b]\naws_access_key_id = AK\n", "=\n=="] {
            let error = Credentials::parse(text).unwrap_err();
            assert!(error.contains("is missing") && !error.contains("AK"), "{error}");
        }
    }
}
