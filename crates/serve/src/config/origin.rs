//! The section of the origin: the keys of [`origin::Settings`], and what their values may be.

use super::Origin;
use super::field::Visitor;

const MIB: u64 = 1 << 20;

/// How the settings of an origin are read, printed and checked.
pub(super) trait Keys {
    /// Visits every key.
    fn visit(&mut self, v: &mut dyn Visitor);
    /// Visits the keys that only an S3-compatible store has.
    fn visit_s3(&mut self, v: &mut dyn Visitor);
    /// Checks the values.
    fn check(&self, must: &mut dyn FnMut(bool, &str, String));
}

impl Keys for Origin {
    fn visit(&mut self, v: &mut dyn Visitor) {
        v.field(
            "kind",
            "\"folder\": a local folder, durable (temporary file, fsync, rename). \"s3\": a bucket \
            of an S3-compatible store.",
            &mut self.kind,
        );
        v.field("path", "folder: where it is; made if it is not there.", &mut self.path);
        self.visit_s3(v);
        v.field("parallel", "Requests to the origin at once.", &mut self.parallel);
        v.field(
            "queue_length_max",
            "Fetches waiting and under way; past it requests are answered 503.",
            &mut self.queue_length_max,
        );
        v.field(
            "timeout_s",
            "How long the origin may take; past it the client is answered 504.",
            &mut self.timeout_s,
        );
    }

    fn visit_s3(&mut self, v: &mut dyn Visitor) {
        v.field(
            "endpoint",
            "s3: where the store answers, as \"https://s3.example.com\"; AWS itself if unset.",
            &mut self.endpoint,
        );
        v.field("bucket", "s3: the bucket; it must be there.", &mut self.bucket);
        v.field("region", "s3: its region.", &mut self.region);
        v.field(
            "prefix",
            "s3: what all names in the bucket begin with: empty, or text that ends in \"/\".",
            &mut self.prefix,
        );
        v.field(
            "allow_http",
            "s3: take an endpoint without TLS. Secrets are not sent, but objects are readable on \
            the way.",
            &mut self.allow_http,
        );
        v.field(
            "access_key_id",
            "s3: who we are to the store; AWS_ACCESS_KEY_ID of the environment if unset.",
            &mut self.access_key_id,
        );
        v.field(
            "secret_access_key",
            "s3: what proves it; AWS_SECRET_ACCESS_KEY of the environment if unset. Never shown.",
            &mut self.secret_access_key,
        );
        v.field(
            "session_token",
            "s3: goes with temporary credentials; AWS_SESSION_TOKEN of the environment if none of \
            these keys is set. Never shown.",
            &mut self.session_token,
        );
        v.field(
            "uploads_bytes_max",
            "s3: bytes of uploads held in memory, at most 16MiB of each; past it a PUT is \
            answered 503.",
            &mut self.uploads_bytes_max,
        );
    }

    fn check(&self, must: &mut dyn FnMut(bool, &str, String)) {
        must(
            matches!(self.kind.as_str(), "folder" | "s3"),
            "origin.kind",
            format!("{:?} is not known; \"folder\" and \"s3\" are", self.kind),
        );
        must(
            (1..=256).contains(&self.parallel),
            "origin.parallel",
            "must be between 1 and 256".to_owned(),
        );
        if self.kind != "s3" {
            return;
        }
        let named = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        must(
            !self.bucket.is_empty() && self.bucket.bytes().all(named),
            "origin.bucket",
            format!(
                "{:?} is no name of a bucket; name the one that holds the objects",
                self.bucket
            ),
        );
        if let Some(endpoint) = &self.endpoint {
            let url: Option<http::Uri> = endpoint.parse().ok();
            let scheme = url.as_ref().and_then(http::Uri::scheme_str);
            must(
                matches!(scheme, Some("http" | "https")),
                "origin.endpoint",
                format!("{endpoint:?} is no address; write it as \"https://s3.example.com\""),
            );
            must(
                scheme != Some("http") || self.allow_http,
                "origin.endpoint",
                "is without TLS; set origin.allow_http = true if the network is to be trusted"
                    .to_owned(),
            );
        }
        let prefix = self.prefix.strip_suffix('/');
        must(
            self.prefix.is_empty() || prefix.is_some_and(origin::is_plain_prefix),
            "origin.prefix",
            format!(
                "{:?} must be empty or end in \"/\", at most 256 bytes without control characters, \
                 empty parts, \".\" and \"..\"",
                self.prefix
            ),
        );
        must(
            self.uploads_bytes_max.0 >= 16 * MIB,
            "origin.uploads_bytes_max",
            "must be at least 16MiB, which one upload may take".to_owned(),
        );
    }
}
