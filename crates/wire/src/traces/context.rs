//! The place of a request in a trace: W3C's `traceparent`, read from clients and written for nodes.
//!
//! Source: W3C Recommendation "Trace Context", 23 November 2021, sections 3.2 and 4.3.

use http::header::{HeaderMap, HeaderName, HeaderValue};

/// The header that has it.
pub static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Characters of version 00: two of the version, 32 of the trace, 16 of the span, two of the flags, three dashes.
const LENGTH: usize = 55;

/// The trace that a request belongs to, and the caller's span in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace; never 0.
    pub trace: u128,
    /// The span that the next one is a child of; never 0.
    pub span: u64,
}

impl TraceParent {
    /// Reads a header's value; `None` if it is not valid. A later version may have more parts at its end.
    ///
    /// The caller's flag `sampled` has no meaning here: what is traced follows from the key.
    ///
    /// ```
    /// use wire::traces::TraceParent;
    ///
    /// let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    /// let parent = TraceParent::parse(text.as_bytes()).unwrap();
    /// assert_eq!(parent.span, 0xb7ad_6b71_6920_3331);
    /// assert_eq!(parent.to_string(), text);
    /// ```
    pub fn parse(value: &[u8]) -> Option<TraceParent> {
        let text = std::str::from_utf8(value).ok()?;
        let (known, more) = (text.get(..LENGTH)?, text.get(LENGTH..)?);
        let mut parts = known.split('-');
        let mut digits = |count: usize| {
            let part = parts.next()?;
            let lower = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
            (part.len() == count && part.bytes().all(lower)).then_some(part)
        };
        let (version, trace, span, _flags) = (digits(2)?, digits(32)?, digits(16)?, digits(2)?);
        let fits = match version {
            "ff" => false,
            "00" => more.is_empty(),
            _ => more.is_empty() || more.starts_with('-'),
        };
        let trace = u128::from_str_radix(trace, 16).ok().filter(|trace| *trace != 0)?;
        let span = u64::from_str_radix(span, 16).ok().filter(|span| *span != 0)?;
        fits.then_some(TraceParent { trace, span })
    }

    /// Reads the header of a request; `None` without a valid one, or with several.
    pub fn from_headers(headers: &HeaderMap) -> Option<TraceParent> {
        let mut values = headers.get_all(&TRACEPARENT).iter();
        let value = values.next()?;
        if values.next().is_some() {
            return None;
        }
        TraceParent::parse(value.as_bytes())
    }

    /// The header for the process that is asked next.
    pub fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        let value = HeaderValue::try_from(self.to_string()).ok()?;
        Some((TRACEPARENT.clone(), value))
    }
}

/// Version 00, with the flag `sampled`: only requests whose spans are recorded are passed on with it.
impl std::fmt::Display for TraceParent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "00-{:032x}-{:016x}-01", self.trace, self.span)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rows() {
        let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
        for (text, valid) in [
            (format!("00-{trace}-{span}-01"), true),
            (format!("00-{trace}-{span}-00"), true),
            (format!("cc-{trace}-{span}-01-more"), true),
            (format!("cc-{trace}-{span}-01"), true),
            (format!("cc-{trace}-{span}-01x"), false),
            (format!("00-{trace}-{span}-01-more"), false),
            (format!("ff-{trace}-{span}-01"), false),
            (format!("00-{}-{span}-01", "0".repeat(32)), false),
            (format!("00-{trace}-{}-01", "0".repeat(16)), false),
            (format!("00-{}-{span}-01", trace.to_uppercase()), false),
            (format!("00-{trace}-{span}-0"), false),
            (format!("00-{trace}{span}--01"), false),
            (format!("00_{trace}_{span}_01"), false),
            (format!("00-{trace}-{span}-ä"), false),
            (format!(" 00-{trace}-{span}-01"), false),
            (String::new(), false),
        ] {
            assert_eq!(TraceParent::parse(text.as_bytes()).is_some(), valid, "{text:?}");
        }
        let value = HeaderValue::try_from(format!("00-{trace}-{span}-01")).unwrap();
        let mut headers = HeaderMap::new();
        assert_eq!(TraceParent::from_headers(&headers), None);
        headers.append(&TRACEPARENT, value.clone());
        assert!(TraceParent::from_headers(&headers).is_some());
        headers.append(&TRACEPARENT, value);
        assert_eq!(
            TraceParent::from_headers(&headers),
            None,
            "a request has one place in one trace"
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(trace in 1u128.., span in 1u64..) {
            let parent = TraceParent { trace, span };
            let (name, value) = parent.header().unwrap();
            prop_assert_eq!(TraceParent::from_headers(&HeaderMap::from_iter([(name, value)])), Some(parent));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = TraceParent::parse(&bytes);
        }
    }
}
