//! What every reply in XML has, whatever made it: characters that XML parsers would change are escaped, and an error says which
//! request it is of and, in words, what is wrong.

use bytes::Bytes;

/// Words for errors that `s3s` makes without any, as AWS has them.
const MESSAGES: [(&str, &str); 9] = [
    ("InvalidURI", "Couldn't parse the specified URI."),
    ("KeyTooLongError", "Your key is too long"),
    ("MalformedXML", super::messages::MALFORMED_XML),
    ("MissingContentLength", "You must provide the Content-Length HTTP header."),
    ("MethodNotAllowed", "The specified method is not allowed against this resource."),
    (
        "RequestTimeTooSkewed",
        "The difference between the request time and the current time is too large.",
    ),
    (
        "SignatureDoesNotMatch",
        "The request signature we calculated does not match the signature you provided. Check your key and signing \
         method.",
    ),
    (
        "BadDigest",
        "The Content-MD5 or checksum value that you specified did not match what the server received.",
    ),
    ("InternalError", "An internal error occurred. Try again."),
];
const END: &[u8] = b"</Error>";

/// Writes control characters as references. A parser turns a carriage return that stands for itself into a line feed, that is,
/// into another key; the others XML 1.0 does not have, and AWS writes them so.
fn escape_controls(body: Bytes) -> Bytes {
    let is_escaped = |byte: u8| byte < b' ' && byte != b'\n' && byte != b'\t';
    if !body.iter().any(|byte| is_escaped(*byte)) {
        return body;
    }
    let mut escaped = Vec::with_capacity(body.len() + 64);
    for byte in &body {
        match is_escaped(*byte) {
            true => escaped.extend_from_slice(format!("&#x{byte:X};").as_bytes()),
            false => escaped.push(*byte),
        }
    }
    escaped.into()
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    Some(text.split_once(start)?.1.split_once(end)?.0)
}

/// The root of the reply of `GetObjectAttributes`.
const ATTRIBUTES: &str = "<GetObjectAttributesResponse";
/// The most bytes before the root of a reply.
const ROOT_AT_MAX: usize = 128;

/// Takes the quotes off an etag among the attributes of an object. AWS has them everywhere but there, and `s3s` everywhere.
fn unquote_attributes(body: Bytes) -> Bytes {
    let start = &body[..body.len().min(ROOT_AT_MAX)];
    if !start.windows(ATTRIBUTES.len()).any(|it| it == ATTRIBUTES.as_bytes()) {
        return body;
    }
    let Ok(text) = std::str::from_utf8(&body) else { return body };
    text.replacen("<ETag>\"", "<ETag>", 1).replacen("\"</ETag>", "</ETag>", 1).into()
}

/// The body of a reply in XML as it is sent. An error gets the id of its request, and a message if it has none.
pub fn finish(body: Bytes, request_id: &str) -> Bytes {
    let body = unquote_attributes(escape_controls(body));
    let Some(rest) = body.strip_suffix(END) else { return body };
    let Ok(rest) = std::str::from_utf8(rest) else { return body };
    let mut text = rest.to_owned();
    if !text.contains("<Message>") {
        let code = between(rest, "<Code>", "</Code>").unwrap_or_default();
        let known = MESSAGES.iter().find(|(of, _)| *of == code).map(|(_, words)| *words);
        let words =
            known.map_or_else(|| format!("The request was refused: {code}."), str::to_owned);
        text.push_str(&format!("<Message>{words}</Message>"));
    }
    if !text.contains("<RequestId>") {
        text.push_str(&format!("<RequestId>{request_id}</RequestId>"));
    }
    text.push_str("</Error>");
    text.into()
}

/// The code and the message of an error.
pub fn words(body: &[u8]) -> Option<(&str, &str)> {
    let text = std::str::from_utf8(body).ok()?;
    let code = between(text, "<Code>", "</Code>")?;
    Some((code, between(text, "<Message>", "</Message>").unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(body: &str) -> String {
        String::from_utf8(finish(Bytes::copy_from_slice(body.as_bytes()), "ID").to_vec()).unwrap()
    }

    #[test]
    fn keys_survive_a_parser() {
        assert_eq!(finished("<Key>a\rb\n\tc\u{1}d</Key>"), "<Key>a&#xD;b\n\tc&#x1;d</Key>");
        assert_eq!(finished("<Key>é</Key>"), "<Key>é</Key>");
    }

    #[test]
    fn an_etag_has_quotes_but_among_attributes() {
        let head = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>";
        for (body, expected) in [
            ("<ETag>\"a-1\"</ETag><Key>b</Key>", "<ETag>a-1</ETag><Key>b</Key>"),
            ("<ObjectSize>3</ObjectSize>", "<ObjectSize>3</ObjectSize>"),
        ] {
            let of = |root: &str, body: &str| format!("{head}<{root} xmlns=\"x\">{body}</{root}>");
            let root = "GetObjectAttributesResponse";
            assert_eq!(finished(&of(root, body)), of(root, expected));
            assert_eq!(finished(&of("CopyObjectResult", body)), of("CopyObjectResult", body));
        }
    }

    #[test]
    fn every_error_has_words_and_an_id() {
        let text = finished("<Error><Code>KeyTooLongError</Code></Error>");
        let is = "<Error><Code>KeyTooLongError</Code><Message>Your key is too long</Message>\
                  <RequestId>ID</RequestId></Error>";
        assert_eq!(text, is);
        assert_eq!(finished(is), is);
        let text = finished("<Error><Code>Odd</Code><Message>x</Message></Error>");
        assert!(text.contains("<Message>x</Message><RequestId>ID<"), "{text}");
        assert!(finished("<Error><Code>Odd</Code></Error>").contains("refused: Odd."));
        assert_eq!(words(is.as_bytes()), Some(("KeyTooLongError", "Your key is too long")));
    }
}
