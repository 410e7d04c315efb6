//! The section of the S3 front.

use std::path::PathBuf;

use origin::section;

section! {
    /// S3's protocol in front of a gateway, or of a node without members (docs/s3.md).
    pub struct S3 {
        /// Where S3's clients connect, for instance "127.0.0.1:9000". Unset: nowhere.
        pub listen: Option<String> = None,
        /// File of access keys: [[key]] with id, secret and scopes. Only its owner may have access to it. It
        /// is read again when it changes.
        pub keys: Option<PathBuf> = None,
        /// File of the master key with which secrets in the file of access keys are sealed (`concertina keys`). Only
        /// its owner may have access to it. Unset: systemd's credential "concertina-master-key", if there is one.
        pub master_key: Option<PathBuf> = None,
        /// The buckets: "NAME" has all objects, "NAME=PREFIX" those whose keys begin with the prefix,
        /// without it. Empty: one, with the name of origin.bucket, or "objects".
        pub buckets: Vec<String> = Vec::new(),
        /// The domain below which each bucket has a name, for clients that write the bucket into the name of the host:
        /// "s3.example.com" if "photos.s3.example.com" is the bucket "photos". Unset: buckets are in the path alone.
        pub domain: Option<String> = None,
        /// Seconds after which an upload in parts is removed to which nothing was added; 0: never.
        pub abandoned_s: f64 = 604_800.0,
        /// The region that clients are told. They may sign for any.
        pub region: String = "us-east-1".to_owned(),
    }
}
