//! A store that answers what a test asks it to.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

/// One that gives these answers.
pub fn scripted(answers: Vec<String>) -> String {
    recorded(answers).0
}

/// The same, with the requests as they come. Looks at the bucket's marker beside others are answered and not passed on, unless
/// the next answer is for one.
pub fn recorded(answers: Vec<String>) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (send, requests) = channel();
    std::thread::spawn(move || {
        let mut answers = answers.into_iter().peekable();
        while let Some(next) = answers.peek() {
            let is_of_marker = next.contains(MARKER) || next.contains("NoSuchBucket");
            let Ok((mut stream, _)) = listener.accept() else { return };
            let mut request = [0; 65536];
            let n = stream.read(&mut request).unwrap_or(0);
            let request = String::from_utf8_lossy(&request[..n]).into_owned();
            let target = request.split(' ').nth(1).unwrap_or_default();
            let is_look = request.starts_with("GET") && target.ends_with("/identity");
            if is_look && !is_of_marker {
                let _ = stream.write_all(marker(MARKER).as_bytes());
                continue;
            }
            let _ = send.send(request);
            let _ = stream.write_all(answers.next().unwrap_or_default().as_bytes());
        }
        // The last answer may be followed by looks.
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let mut request = [0; 65536];
            let _ = stream.read(&mut request);
            let is_look = String::from_utf8_lossy(&request).contains("/identity ");
            let answer = if is_look { marker(MARKER) } else { String::new() };
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (endpoint, requests)
}

pub fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    let kind = if body.starts_with("<ListBucketResult") {
        "content-type: application/xml\r\n"
    } else {
        ""
    };
    format!(
        "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n{kind}{headers}\r\n{body}"
    )
}

pub const MARKER: &str = "concertina-origin 1 0123456789abcdef0123456789abcdef\n";

pub fn empty() -> String {
    answer("200 OK", "", "<ListBucketResult></ListBucketResult>")
}

pub fn marker(text: &str) -> String {
    let headers = "etag: \"m\"\r\nlast-modified: Tue, 24 Nov 2026 08:00:00 GMT\r\n";
    answer("200 OK", headers, text)
}

pub fn coded(status: &str, code: &str) -> String {
    answer(status, "", &format!("<Error><Code>{code}</Code><Message>m</Message></Error>"))
}

/// What an opening asks of a bucket with a marker: a listing, the marker, and two writes whose
/// conditions do not hold.
pub fn opening() -> Vec<String> {
    let refused = || coded("412 Precondition Failed", "PreconditionFailed");
    vec![empty(), marker(MARKER), refused(), refused()]
}
