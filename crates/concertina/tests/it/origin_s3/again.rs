//! What is asked of a store when an object is written again.

use super::*;

/// A request's method, and the condition that it states.
fn method_and_condition(request: &str) -> (String, Option<String>) {
    let method = request.split(' ').next().unwrap_or_default().to_owned();
    let condition = request.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        let name = name.to_ascii_lowercase();
        ["if-match", "if-none-match"].contains(&&*name).then(|| format!("{name}: {value}"))
    });
    (method, condition)
}

/// The first write of an object looks at what it replaces. A further one names the etag of the one before, or of a read, and looks
/// only if the store refuses that because another process wrote meanwhile.
#[test]
fn a_process_does_not_look_at_what_it_wrote_itself() {
    let absent = || answer("404 Not Found", "", "");
    let there = |etag: &str| {
        let headers =
            format!("etag: \"{etag}\"\r\nlast-modified: Tue, 24 Nov 2026 08:00:00 GMT\r\n");
        answer("200 OK", &headers, "")
    };
    let refused = || coded("412 Precondition Failed", "PreconditionFailed");
    let first = vec![absent(), there("e1")];
    let again = vec![there("e2")];
    // Refused; whether it was done already, and if not what is there; the write.
    let after_another = vec![refused(), there("e9"), there("e10")];
    let removed = vec![there("e10"), answer("204 No Content", "", "")];
    let after_removal = vec![absent(), there("e11")];
    let read = vec![there("e12"), there("e13"), there("e14"), there("e15")];
    let script = [opening(), first, again, after_another, removed, after_removal, read].concat();
    let (endpoint, requests) = recorded(script);
    let origin = S3::open(&config_of(&endpoint)).unwrap();
    let write = |body: &'static [u8]| {
        run(async { staged(&origin, "a", body).await.commit(None).await }).unwrap();
    };
    write(b"1");
    write(b"2");
    write(b"3");
    assert!(run(origin.delete(&key("a"))).unwrap());
    write(b"4");
    assert!(run(origin.get(&key("a"), None)).unwrap().is_some());
    write(b"5");
    assert!(run(origin.head(&key("a"))).unwrap().is_some());
    write(b"6");
    let all: Vec<_> =
        requests.try_iter().skip(4).map(|request| method_and_condition(&request)).collect();
    let request =
        |method: &str, condition: Option<&str>| (method.to_owned(), condition.map(str::to_owned));
    let expected = [
        request("HEAD", None),
        request("PUT", Some("if-none-match: *")),
        request("PUT", Some("if-match: \"e1\"")),
        request("PUT", Some("if-match: \"e2\"")),
        request("HEAD", None),
        request("PUT", Some("if-match: \"e9\"")),
        request("HEAD", None),
        request("DELETE", Some("if-match: \"e10\"")),
        request("HEAD", None),
        request("PUT", Some("if-none-match: *")),
        request("GET", None),
        request("PUT", Some("if-match: \"e12\"")),
        request("HEAD", None),
        request("PUT", Some("if-match: \"e14\"")),
    ];
    assert_eq!(all, expected);
}
