//! The buckets of the S3 front, and what is wrong with its section.

use origin::Checks;

use super::config::Config;
use super::sections::not_an_address;

impl Config {
    /// The buckets of the S3 front with the prefixes of their keys.
    pub fn s3_buckets(&self) -> Vec<(String, String)> {
        let parts = |text: &String| match text.split_once('=') {
            Some((name, prefix)) => (name.to_owned(), prefix.to_owned()),
            None => (text.clone(), String::new()),
        };
        if self.s3.buckets.is_empty() {
            let named = Some(self.origin.bucket.as_str()).filter(|name| !name.is_empty());
            return vec![(named.unwrap_or("objects").to_owned(), String::new())];
        }
        self.s3.buckets.iter().map(parts).collect()
    }

    pub(crate) fn check_s3(&self, mut checks: Checks<'_>) {
        checks.between("abandoned_s", self.s3.abandoned_s, 0.0, 1e9);
        let Some(listen) = &self.s3.listen else { return };
        if listen.parse::<std::net::SocketAddr>().is_err() {
            checks.must(false, "listen", not_an_address(listen));
        }
        checks.must(
            self.s3.keys.is_some(),
            "keys",
            "is missing; write a file of access keys (docs/s3.md) and name it here",
        );
        checks.must(
            !self.is_proxy() && (self.is_gateway() || !self.is_clustered()),
            "listen",
            "S3's protocol is spoken by a gateway, or by a node without members",
        );
        let is_domain = |name: &str| {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
            name.split('.').all(|label| !label.is_empty() && label.bytes().all(plain))
        };
        checks.must(
            self.s3.domain.as_deref().is_none_or(is_domain),
            "domain",
            "is not the name of a domain; write for instance \"s3.example.com\", without a port",
        );
        let buckets = self.s3_buckets();
        for (index, (name, prefix)) in buckets.iter().enumerate() {
            let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b);
            checks.must(
                (3..=63).contains(&name.len()) && name.bytes().all(plain),
                "buckets",
                format!(
                    "invalid name {name:?}; write 3 to 63 lower-case letters, digits, `-` or `.`"
                ),
            );
            checks.must(
                prefix.len() <= 512 && !prefix.starts_with("!s3/"),
                "buckets",
                format!(
                    "invalid prefix {prefix:?}; write at most 512 bytes that do not begin with !s3/"
                ),
            );
            let again = buckets[..index].iter().any(|(other, _)| other == name);
            checks.must(!again, "buckets", format!("{name:?} is there twice"));
        }
    }
}
