//! Buckets in the name of the host: `photos.s3.example.com/cat.jpg` is `photos/cat.jpg` where `s3.domain` is `s3.example.com`.

use http::Request;
use http::header::{HOST, HeaderMap};
use s3s::host::{S3Host, VirtualHost};
use s3s::{S3Error, S3ErrorCode, S3Result};

/// The domain below which each bucket has a name.
#[derive(Clone, Debug, Default)]
pub struct Domain {
    /// Without a port, in lower case; `None`: buckets are in the path alone.
    name: Option<String>,
    buckets: Vec<String>,
}

/// A host without its port, and without the dot that ends a complete name.
fn name_of(host: &str) -> &str {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    name.strip_suffix('.').unwrap_or(name)
}

impl Domain {
    /// That of a configuration, for the buckets that there are.
    pub fn new(name: Option<&str>, buckets: impl Iterator<Item = String>) -> Domain {
        Domain { name: name.map(str::to_ascii_lowercase), buckets: buckets.collect() }
    }

    /// The bucket in the name of a host.
    ///
    /// # Errors
    ///
    /// `InvalidRequest` if the name looks as if it had one, and no domain says whether it has. Taking the first folder of the
    /// path for the bucket would write to another bucket than the client means.
    fn bucket_of<'a>(&'a self, host: &'a str) -> S3Result<Option<&'a str>> {
        // Without an allocation, since each request that is signed comes here.
        let host = name_of(host);
        if let Some(domain) = &self.name {
            let at = host.len().checked_sub(domain.len() + 1);
            let parts = at.and_then(|at| Some((host.get(..at)?, host.get(at..)?)));
            let is_below = |rest: &str| {
                rest.strip_prefix('.').is_some_and(|rest| rest.eq_ignore_ascii_case(domain))
            };
            let bucket = parts.filter(|(_, rest)| is_below(rest)).map(|(bucket, _)| bucket);
            // Upper and lower case are the same in the name of a host; the names of buckets are as they are configured.
            let own = |bucket| self.buckets.iter().find(|it| it.eq_ignore_ascii_case(bucket));
            return Ok(bucket.map(|bucket| own(bucket).map_or(bucket, String::as_str)));
        }
        let (first, rest) = host.split_once('.').unwrap_or((host, ""));
        if !rest.is_empty() && self.buckets.iter().any(|it| it.eq_ignore_ascii_case(first)) {
            let what = "the name of the host begins with that of a bucket: set s3.domain to what follows it if clients \
                name buckets so, and to the whole name if they do not";
            return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, what));
        }
        Ok(None)
    }

    /// Whether the path alone says which object is meant.
    pub fn is_in_path(&self, headers: &HeaderMap) -> bool {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        host.is_none_or(|host| matches!(self.bucket_of(host), Ok(None)))
    }
}

impl Domain {
    /// The bucket that a request names, in its host or its path; empty for none.
    pub fn bucket_in<'a, B>(&'a self, request: &'a Request<B>) -> &'a str {
        let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
        let in_host = host.and_then(|host| self.bucket_of(host).ok().flatten());
        in_host.or_else(|| request.uri().path().split('/').nth(1)).unwrap_or("")
    }
}

impl S3Host for Domain {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let found = VirtualHost::new(host);
        Ok(match self.bucket_of(host)? {
            Some(bucket) => found.with_bucket(bucket),
            None => found,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_in_the_path_or_in_the_host() {
        let buckets = || ["photos".to_owned(), "10".to_owned()].into_iter();
        let domain = Domain::new(Some("S3.example.com"), buckets());
        let of = |host| domain.bucket_of(host).unwrap();
        assert_eq!(of("photos.s3.example.com:9000"), Some("photos"));
        assert_eq!(of("Photos.s3.EXAMPLE.com"), Some("photos"));
        assert_eq!(of("photos.s3.example.com."), Some("photos"));
        assert_eq!(of("photos.s3.example.com.:9000"), Some("photos"));
        assert_eq!(of("Others.s3.example.com"), Some("Others"));
        assert_eq!(of("a.b.s3.example.com"), Some("a.b"));
        for host in [
            "s3.example.com",
            "s3.example.com:80",
            "s3.example.com.",
            "127.0.0.1:9000",
            "[::1]:9000",
            "xs3.example.com",
        ] {
            assert_eq!(of(host), None, "{host}");
        }
        // Without a domain, what may be meant is refused, not guessed.
        let none = Domain::new(None, buckets());
        assert!(none.bucket_of("photos.cache.example").is_err());
        assert!(none.bucket_of("Photos.cache.example.").is_err());
        for host in ["cache.example", "photos", "photos.", "localhost:9000", "127.0.0.1"] {
            assert_eq!(none.bucket_of(host).unwrap(), None, "{host}");
        }
        let whole = Domain::new(Some("photos.cache.example"), buckets());
        assert_eq!(whole.bucket_of("photos.cache.example").unwrap(), None);
    }
}
