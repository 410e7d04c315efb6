//! Configurations of a bucket that S3 has and that no bucket has here: policies, rules, notifications and the like.
//!
//! Tools ask for all of them before they show or change a bucket (`s3cmd info`, Terraform, browsers of buckets), and stop at a
//! `NotImplemented`. That there is none is the truth, and S3 has an answer for it: an error of its own for most, an empty
//! configuration for some. Setting one stays `NotImplemented`.

use http::StatusCode;
use s3s::{S3Error, S3ErrorCode, S3Response, S3Result};

use super::inner::Inner;
use super::messages::error;

/// A configuration that is not there.
#[derive(Clone, Copy, Debug)]
pub enum Absent {
    /// Rules for requests of scripts in browsers.
    Cors,
    /// Encryption by default.
    Encryption,
    /// Rules that remove objects.
    Lifecycle,
    /// Locks by default.
    Locks,
    /// Who may do what.
    Policy,
    /// What no policy may allow.
    PublicAccessBlock,
    /// Copies in other buckets.
    Replication,
    /// Tags of the bucket.
    Tags,
    /// Pages.
    Website,
}

impl Absent {
    /// The error that says so, with the words of AWS.
    fn error(self) -> S3Error {
        let (code, what) = match self {
            Absent::Cors => {
                (S3ErrorCode::NoSuchCORSConfiguration, "The CORS configuration does not exist")
            }
            Absent::Encryption => (
                S3ErrorCode::ServerSideEncryptionConfigurationNotFoundError,
                "The server side encryption configuration was not found",
            ),
            Absent::Lifecycle => (
                S3ErrorCode::NoSuchLifecycleConfiguration,
                "The lifecycle configuration does not exist",
            ),
            Absent::Locks => (
                S3ErrorCode::ObjectLockConfigurationNotFoundError,
                "Object Lock configuration does not exist for this bucket",
            ),
            Absent::Policy => (S3ErrorCode::NoSuchBucketPolicy, "The bucket policy does not exist"),
            Absent::PublicAccessBlock => (
                S3ErrorCode::Custom("NoSuchPublicAccessBlockConfiguration".into()),
                "The public access block configuration was not found",
            ),
            Absent::Replication => (
                S3ErrorCode::ReplicationConfigurationNotFoundError,
                "The replication configuration was not found",
            ),
            Absent::Tags => (S3ErrorCode::NoSuchTagSet, "The TagSet does not exist"),
            Absent::Website => (
                S3ErrorCode::NoSuchWebsiteConfiguration,
                "The specified bucket does not have a website configuration",
            ),
        };
        let mut error = error(code, what);
        error.set_status_code(StatusCode::NOT_FOUND);
        error
    }
}

impl Inner {
    /// Answers that a bucket has no such configuration.
    ///
    /// # Errors
    ///
    /// Always: `NoSuchBucket`, or that of the configuration.
    pub(super) fn absent<T>(&self, bucket: &str, what: Absent) -> S3Result<S3Response<T>> {
        self.bucket(bucket)?;
        Err(what.error())
    }

    /// Answers with the configuration of a bucket where nothing is configured.
    ///
    /// # Errors
    ///
    /// `NoSuchBucket`.
    pub(super) fn unconfigured<T: Default>(&self, bucket: &str) -> S3Result<S3Response<T>> {
        self.bucket(bucket)?;
        Ok(S3Response::new(T::default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_absent_is_not_found_and_not_a_failure() {
        for (what, code) in [
            (Absent::Cors, "NoSuchCORSConfiguration"),
            (Absent::Encryption, "ServerSideEncryptionConfigurationNotFoundError"),
            (Absent::Lifecycle, "NoSuchLifecycleConfiguration"),
            (Absent::Locks, "ObjectLockConfigurationNotFoundError"),
            (Absent::Policy, "NoSuchBucketPolicy"),
            (Absent::PublicAccessBlock, "NoSuchPublicAccessBlockConfiguration"),
            (Absent::Replication, "ReplicationConfigurationNotFoundError"),
            (Absent::Tags, "NoSuchTagSet"),
            (Absent::Website, "NoSuchWebsiteConfiguration"),
        ] {
            let error = what.error();
            let found = (error.code().as_str(), error.status_code());
            assert_eq!(found, (code, Some(StatusCode::NOT_FOUND)), "{what:?}");
        }
    }
}
