//! Where a bucket is, and how the target of a request is written.

use http::Uri;
use http::header::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What is escaped in a parameter: all but the characters that AWS calls unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// What is escaped in a name.
const RESERVED_IN_NAMES: &AsciiSet = &RESERVED.remove(b'/');

/// The address of a bucket. The bucket is in the path, not in the name of the host: so it is for all stores, and a
/// certificate need not name each bucket.
pub struct Endpoint {
    /// The name of the host or its address, without brackets.
    pub host: String,
    pub port: u16,
    /// Whether connections are encrypted.
    pub is_encrypted: bool,
    /// The header `host`: with the port if it is not the usual one.
    pub authority: HeaderValue,
    /// The path of the bucket, without a slash at its end.
    path: String,
}

/// Whether a text is the URL of a store, encrypted or not.
pub fn is_endpoint(url: &str) -> bool {
    Endpoint::parse(url, "", true).is_ok()
}

impl Endpoint {
    /// A bucket of the store with this URL.
    ///
    /// # Errors
    ///
    /// What is wrong with the URL.
    pub fn parse(url: &str, bucket: &str, allow_http: bool) -> Result<Endpoint, String> {
        let invalid = || format!("{url:?} is not the URL of a store");
        let uri: Uri = url.parse().map_err(|_| invalid())?;
        let is_encrypted = match uri.scheme_str() {
            Some("https") => true,
            Some("http") if allow_http => false,
            Some("http") => return Err(format!("{url:?} has no TLS, and allow_http is not set")),
            _ => return Err(invalid()),
        };
        let host = uri.host().map(str::to_ascii_lowercase).filter(|host| !host.is_empty());
        let host = host.ok_or_else(invalid)?;
        let usual = if is_encrypted { 443 } else { 80 };
        // A port past 65535 is none to this parser.
        let has_port = uri.authority().is_some_and(|it| it.as_str().len() > it.host().len());
        let port = uri.port_u16().or((!has_port).then_some(usual)).ok_or_else(invalid)?;
        let authority = if port == usual { host.clone() } else { format!("{host}:{port}") };
        Ok(Endpoint {
            authority: HeaderValue::try_from(authority).map_err(|_| invalid())?,
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port,
            is_encrypted,
            path: format!("{}/{}", uri.path().trim_end_matches('/'), bucket),
        })
    }

    /// The target of a request for an object, or for the bucket if the name is empty. The parameters are in the order of
    /// their names, which is the order in which they are signed.
    pub fn target(&self, name: &str, parameters: &[(&str, &str)]) -> String {
        let mut target = String::with_capacity(self.path.len() + name.len() + 64);
        target.push_str(&self.path);
        if !name.is_empty() {
            target.push('/');
            target.extend(utf8_percent_encode(name, RESERVED_IN_NAMES));
        }
        for (at, (name, value)) in parameters.iter().enumerate() {
            target.push(if at == 0 { '?' } else { '&' });
            target.push_str(name);
            target.push('=');
            target.extend(utf8_percent_encode(value, RESERVED));
        }
        target
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_below_its_store() {
        let of = |url| Endpoint::parse(url, "b", true).unwrap();
        let aws = of("https://s3.eu-west-1.amazonaws.com");
        assert_eq!((aws.port, aws.is_encrypted), (443, true));
        assert_eq!(
            (&*aws.host, aws.target("", &[])),
            ("s3.eu-west-1.amazonaws.com", "/b".to_owned())
        );
        assert_eq!(aws.authority, "s3.eu-west-1.amazonaws.com");
        let local = of("http://Store:9000/base//");
        assert_eq!((&*local.host, local.port, local.is_encrypted), ("store", 9000, false));
        assert_eq!(local.authority, "store:9000");
        assert_eq!(local.target("", &[]), "/base/b");
        let six = of("https://[::1]:443");
        assert_eq!((&*six.host, six.port), ("::1", 443));
        assert_eq!(six.authority, "[::1]");
        for url in
            ["", "store", "ftp://store", "http://", "http:///b", "http://a:99999", "http://a:x"]
        {
            assert!(Endpoint::parse(url, "b", true).is_err(), "{url:?}");
        }
        assert!(Endpoint::parse("http://a", "b", false).is_err_and(|told| told.contains("TLS")));
    }

    #[test]
    fn targets_are_escaped_as_they_are_signed() {
        let endpoint = Endpoint::parse("http://store", "b", true).unwrap();
        let target = endpoint.target("a b/ä+~%", &[("prefix", "c/d e"), ("start-after", "")]);
        assert_eq!(target, "/b/a%20b/%C3%A4%2B~%25?prefix=c%2Fd%20e&start-after=");
    }
}
