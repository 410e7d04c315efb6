//! Parameters in the query of a read: the number of a part, and headers that the reply is to have.

use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, EXPIRES,
    HeaderMap, HeaderName, HeaderValue,
};
use percent_encoding::percent_decode_str;
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::kept_parts::PARTS_MAX;
use super::messages::PART_NUMBER;
use super::query::parameters;

/// Parameters that set a header of the reply.
const OVERRIDES: [(&str, HeaderName); 6] = [
    ("response-cache-control", CACHE_CONTROL),
    ("response-content-disposition", CONTENT_DISPOSITION),
    ("response-content-encoding", CONTENT_ENCODING),
    ("response-content-language", CONTENT_LANGUAGE),
    ("response-content-type", CONTENT_TYPE),
    ("response-expires", EXPIRES),
];
/// Judges the number of a part that a read names.
///
/// # Errors
///
/// `InvalidArgument` for what is no number of a part, `InvalidRequest` for a range beside it.
pub fn part(number: Option<i32>, has_range: bool) -> S3Result<()> {
    let Some(number) = number else { return Ok(()) };
    if has_range {
        let what = "Cannot specify both Range header and partNumber query parameter";
        return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, what));
    }
    check_number(number)
}

/// Refuses what cannot be the number of a part.
///
/// # Errors
///
/// `InvalidArgument`.
pub fn check_number(number: i32) -> S3Result<()> {
    if usize::try_from(number).is_ok_and(|number| (1..=PARTS_MAX).contains(&number)) {
        return Ok(());
    }
    Err(S3Error::with_message(S3ErrorCode::InvalidArgument, PART_NUMBER))
}

/// The headers that a query sets. What cannot be the value of a header is passed by.
pub fn overrides(query: Option<&str>) -> HeaderMap {
    let mut set = HeaderMap::new();
    for one in parameters(query).filter(|one| !one.encoded.is_empty()) {
        let Some((_, header)) = OVERRIDES.iter().find(|(of, _)| one.is(of)) else { continue };
        let value: Vec<u8> = percent_decode_str(&one.encoded.replace('+', " ")).collect();
        if let Ok(value) = HeaderValue::from_bytes(&value) {
            set.insert(header, value);
        }
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_a_number_and_no_range() {
        assert!(part(None, true).is_ok() && part(Some(1), false).is_ok());
        assert!(part(Some(10_000), false).is_ok());
        assert_eq!(part(Some(1), true).unwrap_err().code().as_str(), "InvalidRequest");
        for number in [0, -3, 10_001] {
            let error = part(Some(number), false).unwrap_err();
            assert_eq!(error.code().as_str(), "InvalidArgument", "{number}");
        }
    }

    #[test]
    fn a_query_sets_headers() {
        let set = overrides(Some(
            "x-id=HeadObject&response-content-type=text%2Fplain&response-expires=a%2C+b&response-x=1\
             &response-cache-control=a%0Ab&response-content-language",
        ));
        let of = |name: HeaderName| set.get(name).map(|it| it.to_str().unwrap().to_owned());
        assert_eq!(
            (of(CONTENT_TYPE).as_deref(), of(EXPIRES).as_deref()),
            (Some("text/plain"), Some("a, b"))
        );
        assert_eq!(set.len(), 2);
        assert!(overrides(None).is_empty());
    }
}
