//! What no store takes: keys that are the server's own, and attributes that are too long.

use http::HeaderValue;
use origin::Attributes;

use super::error::Error;

/// Maximum bytes of user metadata, names and values together.
const META_BYTES_MAX: usize = 8 << 10;
/// Maximum bytes of a content type.
const CONTENT_TYPE_BYTES_MAX: usize = 1 << 10;
/// How the keys begin that are the server's own: parts of uploads, and the origin's names of keys that a bucket cannot have.
const RESERVED: [&[u8]; 2] = [b"!s3/", b"!key/"];

/// Refuses what of attributes is too long to be kept.
///
/// # Errors
///
/// [`Error::Invalid`], with the bound.
pub fn check_attributes(attributes: &Attributes) -> Result<(), Error> {
    let type_bytes = attributes.content_type.as_ref().map_or(0, String::len);
    if type_bytes > CONTENT_TYPE_BYTES_MAX {
        let what = format!("the content type is longer than {CONTENT_TYPE_BYTES_MAX} bytes");
        return Err(Error::Invalid(what));
    }
    let bytes: usize = attributes.user.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > META_BYTES_MAX {
        let what =
            format!("the user metadata has {bytes} bytes; at most {META_BYTES_MAX} are kept");
        return Err(Error::Invalid(what));
    }
    Ok(())
}

/// The text of a header that is kept with an object.
pub fn header_text(name: &str, value: &HeaderValue) -> Result<String, Error> {
    let text = std::str::from_utf8(value.as_bytes()).map(str::to_owned);
    text.map_err(|_| Error::Invalid(format!("the header {name} is not UTF-8")))
}

/// Refuses writes of reserved keys by clients of HTTP and of memcached's protocol. Reading them shows nothing that a client with
/// the token could not have. The cluster's processes write them: a gateway stores parts of uploads on nodes.
///
/// # Errors
///
/// [`Error::Reserved`].
pub fn refuse_reserved(key: &[u8]) -> Result<(), Error> {
    match RESERVED.iter().any(|start| key.starts_with(start)) {
        true => Err(Error::Reserved),
        false => Ok(()),
    }
}
