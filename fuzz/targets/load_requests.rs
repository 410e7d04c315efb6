//! Any text as a list of requests, as headers and as cookies of a load: what is accepted is valid HTTP, and messages
//! have no value of a header.

#![no_main]

mod edits;

use libfuzzer_sys::fuzz_target;
use load::client::{Header, cookies, parse_requests};

const TOML: &[u8] = b"[[request]]\nname = \"search\"\nweight = 3\npath = \"/search?k={key}\"\nbody = '{\"q\": \"{key}\"}'\n\
    [request.headers]\nauthorization = \"Bearer 0123456789\"\n[[request]]\nmethod = \"PUT\"\npath = \"/i/{key}\"\n\
    body_file = \"image\"\n";
const LINES: &[u8] =
    b"{\"path\": \"/\", \"weight\": 0.5, \"headers\": {\"x-key\": [\"0123456789\", \"b\"]}}\n\
    {\"path\": \"/b\", \"body\": {\"q\": [1, \"{key}\"]}}\n";
const JAR: &[u8] =
    b"# Netscape HTTP Cookie File\n#HttpOnly_.example\tTRUE\t/\tFALSE\t0\tsid\t0123456789\n";
const HEADERS: &[u8] = b"# of staging\nX-Api-Key: 0123456789\nAccept: text/plain\n";

fuzz_target!(|data: &[u8]| {
    let Ok(text) = String::from_utf8(edits::edited(&[TOML, LINES, JAR, HEADERS], data)) else {
        return;
    };
    match parse_requests(&text, &mut |_| Ok(b"bytes".to_vec())) {
        Ok(requests) => {
            assert!(!requests.is_empty());
            for request in &requests {
                assert!(
                    request.path.as_ref().is_some_and(
                        |path| path.starts_with('/') && !path.contains([' ', '\r', '\n'])
                    )
                );
                assert!(
                    request.headers.iter().all(|header| !header.value.contains(['\r', '\n', '\0']))
                );
            }
            assert!(!serde_json::to_string(&requests).unwrap().contains("Bearer 0123456789"));
        }
        Err(error) => assert!(!error.is_empty()),
    }
    for header in Header::parse_file(&text).unwrap_or_default() {
        assert!(
            !header.value.contains(['\r', '\n', '\0'])
                && !format!("{header:?}").contains("0123456789")
        );
    }
    if let Ok(header) = cookies(&text, "h.example", true, 1) {
        assert!(!header.value.contains(['\r', '\n', '\0']));
    }
});
