//! Parameters of a query that name a part of an object or a bucket: its ACL, its tags, one of its versions.
//!
//! `s3s` chooses the operation by them, and passes one by that the operation of the method does not have: `DELETE KEY?acl` would
//! remove the object, `PUT KEY?partNumber=1` would replace it by one of its parts.

use s3s::{S3Error, S3ErrorCode, S3Result};

use super::messages;

/// All that S3 has, in lower and upper case as there.
const ALL: [&str; 40] = [
    "accelerate",
    "acl",
    "analytics",
    "attributes",
    "cors",
    "delete",
    "encryption",
    "intelligent-tiering",
    "inventory",
    "legal-hold",
    "lifecycle",
    "location",
    "logging",
    "metadataConfiguration",
    "metadataInventoryTable",
    "metadataJournalTable",
    "metadataTable",
    "metrics",
    "notification",
    "object-lock",
    "ownershipControls",
    PART_NUMBER,
    "policy",
    "policyStatus",
    "publicAccessBlock",
    "renameObject",
    "replication",
    "requestPayment",
    "restore",
    "retention",
    "select",
    "session",
    "tagging",
    "torrent",
    UPLOAD_ID,
    "uploads",
    VERSION_ID,
    "versioning",
    "versions",
    "website",
];
const PART_NUMBER: &str = "partNumber";
const UPLOAD_ID: &str = "uploadId";
const VERSION_ID: &str = "versionId";

/// Those that an operation reads; `None` for one that is not supported, which says so.
fn read_by(operation: &str) -> Option<&'static [&'static str]> {
    Some(match operation {
        "GetObject" | "HeadObject" => &[PART_NUMBER, VERSION_ID],
        "DeleteObject" => &[VERSION_ID],
        "GetObjectAttributes" => &["attributes", VERSION_ID],
        "GetObjectTagging" | "PutObjectTagging" | "DeleteObjectTagging" => &["tagging", VERSION_ID],
        "DeleteObjects" => &["delete"],
        "CreateMultipartUpload" | "ListMultipartUploads" => &["uploads"],
        "UploadPart" | "UploadPartCopy" => &[PART_NUMBER, UPLOAD_ID],
        "CompleteMultipartUpload" | "AbortMultipartUpload" | "ListParts" => &[UPLOAD_ID],
        "GetBucketLocation" => &["location"],
        "GetBucketVersioning" => &["versioning"],
        "ListObjectVersions" => &["versions"],
        "GetBucketCors" => &["cors"],
        "GetBucketEncryption" => &["encryption"],
        "GetBucketLifecycleConfiguration" => &["lifecycle"],
        "GetBucketLogging" => &["logging"],
        "GetBucketNotificationConfiguration" => &["notification"],
        "GetBucketPolicy" => &["policy"],
        "GetBucketReplication" => &["replication"],
        "GetBucketTagging" => &["tagging"],
        "GetBucketWebsite" => &["website"],
        "GetObjectLockConfiguration" => &["object-lock"],
        "GetPublicAccessBlock" => &["publicAccessBlock"],
        "GetBucketAcl" | "PutBucketAcl" => &["acl"],
        "GetObjectAcl" | "PutObjectAcl" => &["acl", VERSION_ID],
        "PutObject" | "CopyObject" | "CreateBucket" | "HeadBucket" | "ListBuckets"
        | "ListObjects" | "ListObjectsV2" => &[],
        _ => return None,
    })
}

/// Refuses a parameter that the operation would pass by; `names` are those of the query, decoded.
///
/// # Errors
///
/// `InvalidArgument` for a version or a part, `MethodNotAllowed` for all others, as at AWS.
pub fn check(operation: &str, names: impl Iterator<Item = Vec<u8>>) -> S3Result<()> {
    let Some(read) = read_by(operation) else { return Ok(()) };
    for name in names {
        let known = ALL.iter().find(|known| known.as_bytes() == name);
        let Some(known) = known.filter(|known| !read.contains(known)) else { continue };
        let invalid = |what| Err(S3Error::with_message(S3ErrorCode::InvalidArgument, what));
        return match *known {
            VERSION_ID => invalid(messages::NO_VERSION),
            PART_NUMBER | UPLOAD_ID => invalid(messages::NOT_OF_A_PART),
            _ => {
                let what = format!(
                    "The specified method is not allowed against this resource: `{known}`."
                );
                Err(messages::error(S3ErrorCode::MethodNotAllowed, what))
            }
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(operation: &str, names: &[&str]) -> Option<S3ErrorCode> {
        let names = names.iter().map(|name| name.as_bytes().to_vec());
        check(operation, names).err().map(|error| error.code().clone())
    }

    #[test]
    fn what_an_operation_would_pass_by_is_refused() {
        use S3ErrorCode::{InvalidArgument, MethodNotAllowed};
        for (operation, names, expected) in [
            ("DeleteObject", &["acl"][..], Some(MethodNotAllowed)),
            ("DeleteObject", &["retention", "x-id"], Some(MethodNotAllowed)),
            ("DeleteObject", &["versionId", "x-id"], None),
            ("DeleteObject", &["partNumber"], Some(InvalidArgument)),
            ("PutObject", &["x-id"], None),
            ("PutObject", &["restore"], Some(MethodNotAllowed)),
            ("PutObject", &["versionId"], Some(InvalidArgument)),
            ("PutObject", &["partNumber"], Some(InvalidArgument)),
            ("PutObject", &["uploadId"], Some(InvalidArgument)),
            ("CopyObject", &["attributes"], Some(MethodNotAllowed)),
            ("GetObject", &["partNumber", "versionId", "response-expires"], None),
            ("GetObject", &["policy"], Some(MethodNotAllowed)),
            ("UploadPart", &["partNumber", "uploadId", "x-id"], None),
            ("UploadPart", &["partNumber", "uploadId", "versionId"], Some(InvalidArgument)),
            ("CreateBucket", &["uploads"], Some(MethodNotAllowed)),
            ("ListObjectsV2", &["list-type", "prefix", "Policy"], None),
            ("GetObjectAcl", &["acl", "versionId"], None),
            ("PutBucketAcl", &["acl", "versionId"], Some(InvalidArgument)),
            ("ListObjectVersions", &["versions", "uploads"], Some(MethodNotAllowed)),
            // Not supported at all, and answered so.
            ("GetObjectRetention", &["retention"], None),
        ] {
            assert_eq!(judged(operation, names), expected, "{operation} {names:?}");
        }
    }

    #[test]
    fn each_operation_that_is_supported_is_judged() {
        for name in crate::guard::supported() {
            assert!(read_by(&name).is_some(), "read_by says nothing of {name}");
        }
        assert!(ALL.is_sorted_by_key(|name| name.to_ascii_lowercase()));
    }
}
