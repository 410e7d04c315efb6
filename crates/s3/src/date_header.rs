//! Signatures whose time is the header `Date`.
//!
//! Signature version 4 takes the time from `x-amz-date`, or from `Date` where that is missing; `s3s` knows the former alone. The
//! text that is signed has the time in it, so the header that is made here needs no signature of its own: with another
//! time the signature does not match.

use chrono::{DateTime, NaiveDateTime, Utc};
use http::header::{AUTHORIZATION, DATE, HeaderMap, HeaderName, HeaderValue};

const AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
/// As in `x-amz-date`.
const BASIC: &str = "%Y%m%dT%H%M%SZ";

/// Adds `x-amz-date` to signed headers that have `Date` alone. What is not a date is left: the signature lacks its time then.
pub fn apply(headers: &mut HeaderMap) {
    if headers.contains_key(AMZ_DATE) || !headers.contains_key(AUTHORIZATION) {
        return;
    }
    let mut dates = headers.get_all(DATE).iter();
    let date = dates.next().and_then(|date| date.to_str().ok());
    let Some(text) = date.filter(|_| dates.next().is_none()).and_then(basic) else { return };
    headers.extend(HeaderValue::try_from(text).ok().map(|value| (AMZ_DATE, value)));
}

/// A date of HTTP's, or one that has the form already, as `x-amz-date` has it.
fn basic(text: &str) -> Option<String> {
    let time = match NaiveDateTime::parse_from_str(text, BASIC) {
        Ok(time) => time,
        Err(_) => DateTime::parse_from_rfc2822(text).ok()?.with_timezone(&Utc).naive_utc(),
    };
    // A year of four digits, as `s3s` reads it.
    let text = time.format(BASIC).to_string();
    (text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_alphanumeric())).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(pairs: &[(HeaderName, &'static str)]) -> Option<String> {
        let pair = |(name, value): &(HeaderName, &'static str)| {
            (name.clone(), HeaderValue::from_static(value))
        };
        let mut headers = HeaderMap::new();
        for (name, value) in pairs.iter().map(pair) {
            headers.append(name, value);
        }
        apply(&mut headers);
        assert!(headers.get_all(AMZ_DATE).iter().count() <= 1);
        headers.get(AMZ_DATE).map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn a_date_is_taken_where_there_is_no_other() {
        let signed = (AUTHORIZATION, "AWS4-HMAC-SHA256 x");
        let date = (DATE, "Mon, 30 Nov 2026 11:47:16 GMT");
        let expected = Some("20261130T114716Z".to_owned());
        assert_eq!(applied(&[signed.clone(), date.clone()]), expected);
        assert_eq!(applied(&[signed.clone(), (DATE, "20261130T114716Z")]), expected);
        let other = (AMZ_DATE, "20200101T000000Z");
        let kept = Some("20200101T000000Z".to_owned());
        assert_eq!(applied(&[signed.clone(), other, date.clone()]), kept);
        assert_eq!(applied(std::slice::from_ref(&date)), None);
        assert_eq!(applied(&[signed.clone(), date.clone(), date]), None);
        for wrong in ["", "yesterday", "Mon, 30 Nov 99999 11:47:16 GMT", "20261130T994716Z", "-1"] {
            assert_eq!(applied(&[signed.clone(), (DATE, wrong)]), None, "{wrong}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_date_is_judged(text in "[ -~]{0,40}") {
            if let Some(date) = basic(&text) {
                proptest::prop_assert_eq!(date.len(), 16);
            }
        }
    }
}
