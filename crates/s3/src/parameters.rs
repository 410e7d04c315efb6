//! Parameters in the query of a read: the number of a part, and headers that the reply is to have.

use http::StatusCode;
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_RANGE,
    CONTENT_TYPE, EXPIRES, HeaderMap, HeaderName, HeaderValue,
};
use percent_encoding::percent_decode_str;
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::messages;

/// Parameters that set a header of the reply.
const OVERRIDES: [(&str, HeaderName); 6] = [
    ("response-cache-control", CACHE_CONTROL),
    ("response-content-disposition", CONTENT_DISPOSITION),
    ("response-content-encoding", CONTENT_ENCODING),
    ("response-content-language", CONTENT_LANGUAGE),
    ("response-content-type", CONTENT_TYPE),
    ("response-expires", EXPIRES),
];
/// The largest number of a part.
const PART_MAX: i32 = 10_000;

/// Judges the number of a part that a read names. Objects are whole here, however they were uploaded: each is its part 1.
///
/// # Errors
///
/// `InvalidArgument` for what is no number of a part, `InvalidPartNumber` for all but the first, `InvalidRequest` for a range
/// beside it.
pub fn part(number: Option<i32>, has_range: bool) -> S3Result<()> {
    if number.is_some() && has_range {
        let what = "Cannot specify both Range header and partNumber query parameter";
        return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, what));
    }
    match number {
        None | Some(1) => Ok(()),
        Some(2..=PART_MAX) => {
            let code = S3ErrorCode::Custom("InvalidPartNumber".into());
            let mut error = S3Error::with_message(code, messages::NO_SUCH_PART);
            error.set_status_code(StatusCode::RANGE_NOT_SATISFIABLE);
            Err(error)
        }
        Some(_) => Err(S3Error::with_message(S3ErrorCode::InvalidArgument, messages::PART_NUMBER)),
    }
}

/// Makes a whole object's reply that of its only part, as S3 does unless the object is empty.
pub fn as_part(status: &mut StatusCode, size: u64, given: &mut HeaderMap) {
    if *status != StatusCode::OK || size == 0 {
        return;
    }
    let range = format!("bytes 0-{}/{size}", size - 1);
    if let Ok(range) = HeaderValue::try_from(range) {
        given.insert(CONTENT_RANGE, range);
        *status = StatusCode::PARTIAL_CONTENT;
    }
}

/// The headers that a query sets. What cannot be the value of a header is passed by.
pub fn overrides(query: Option<&str>) -> HeaderMap {
    let mut set = HeaderMap::new();
    for pair in query.unwrap_or("").split('&') {
        let Some((name, value)) = pair.split_once('=') else { continue };
        let Some((_, header)) = OVERRIDES.iter().find(|(of, _)| *of == name) else { continue };
        let value: Vec<u8> = percent_decode_str(&value.replace('+', " ")).collect();
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
    fn each_object_is_its_part_1() {
        assert!(part(None, true).is_ok() && part(Some(1), false).is_ok());
        assert_eq!(part(Some(1), true).unwrap_err().code().as_str(), "InvalidRequest");
        for (number, code, status) in [
            (2, "InvalidPartNumber", 416),
            (10_000, "InvalidPartNumber", 416),
            (0, "InvalidArgument", 400),
            (-3, "InvalidArgument", 400),
            (10_001, "InvalidArgument", 400),
        ] {
            let error = part(Some(number), false).unwrap_err();
            let said = error.status_code().map(|status| status.as_u16());
            assert_eq!((error.code().as_str(), said), (code, Some(status)), "{number}");
        }
        let reply = |status: u16, size: u64| {
            let mut status = StatusCode::from_u16(status).unwrap();
            let mut given = HeaderMap::new();
            as_part(&mut status, size, &mut given);
            let range = given.get(CONTENT_RANGE).map(|it| it.to_str().unwrap().to_owned());
            (status.as_u16(), range)
        };
        assert_eq!(reply(200, 10), (206, Some("bytes 0-9/10".to_owned())));
        assert_eq!(reply(200, 0), (200, None));
        assert_eq!(reply(304, 10), (304, None));
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
