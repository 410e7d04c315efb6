//! What others than the store say at its address, and what other tools do to objects in it.

use super::*;

/// An object's success, as no S3-compatible store gives it.
#[test]
fn a_success_of_another_is_neither_an_object_nor_a_write() {
    let page =
        |status: &str| answer(status, "content-type: text/html\r\n", "<html>maintenance</html>");
    let replies = || {
        let range = "content-type: text/html\r\netag: \"q\"\r\n";
        [
            page("200 OK"),
            answer("204 No Content", "", ""),
            page("203 Other"),
            answer("206 Partial Content", range, "ab"),
        ]
    };
    for reply in replies() {
        let open = || {
            S3::open(&config_of(&scripted([opening(), vec![reply.clone(); 8]].concat()))).unwrap()
        };
        let is_stranger = |error: Option<Error>, what: &str| {
            let text = error.map(|error| error.to_string()).unwrap_or_default();
            assert!(text.contains("something else answers"), "{what} after {reply}: {text}");
        };
        is_stranger(run(open().get(&key("a"), None)).err(), "GET");
        is_stranger(run(open().head(&key("a"))).err(), "HEAD");
        let origin = open();
        let put = run(async { staged(&origin, "a", b"x").await.commit(None).await });
        is_stranger(put.err(), "PUT");
        is_stranger(run(open().delete(&key("a"))).err(), "DELETE");
        is_stranger(run(open().list(b"", None, 9)).err(), "LIST");
    }
}

/// Objects as the store's own tools write them, with the metadata that was there before.
async fn rewrite(store: &Store, name: &str, body: &[u8]) {
    use object_store::{ObjectStore, ObjectStoreExt, PutOptions};
    let client = client(store, ACCESS, SECRET);
    let path = object_store::path::Path::from(name);
    let attributes = client.get(&path).await.unwrap().attributes;
    let options = PutOptions { attributes, ..PutOptions::default() };
    client.put_opts(&path, body.to_vec().into(), options).await.unwrap();
}

#[test]
fn a_rewritten_object_that_keeps_our_metadata_is_the_other_tools() {
    const TEST: &str =
        "origin_s3::strangers::a_rewritten_object_that_keeps_our_metadata_is_the_other_tools";
    let Some(store) = Store::start(TEST) else { return };
    let origin = store.open();
    for (name, old) in [("small", b"old".to_vec()), ("large", large())] {
        run(write(&origin, name, &old, Attributes::default()));
        let before = run(origin.head(&key(name))).unwrap().unwrap();
        let new = vec![b'N'; old.len()];
        run(rewrite(&store, name, &new));
        // Who saw it before sees that it is another; so a copy of it is found out of date when it is compared.
        let after = run(origin.head(&key(name))).unwrap().unwrap();
        assert_ne!(after.etag, before.etag, "{name}");
        assert_eq!(run(read(&origin, name, None)), new);
        assert_eq!(run(origin.head(&key(name))).unwrap().unwrap().etag, after.etag);
        // Ours again.
        run(write(&origin, name, &old, Attributes::default()));
        assert_eq!(run(read(&origin, name, None)), old);
    }
    // Who has not seen it before finds twice that its bytes do not match, and serves it from then on.
    run(rewrite(&store, "small", b"new"));
    let other = store.open();
    for _ in 0..2 {
        let first = run(async {
            let mut found = other.get(&key("small"), None).await.unwrap().unwrap();
            found.body.next().await.unwrap()
        });
        assert!(matches!(&first, Err(Error::Damaged(_))), "{first:?}");
    }
    assert_eq!(run(read(&other, "small", None)), b"new");
}

/// Bytes that are damaged on their way, or none at all, under the object's etag and metadata: they are never served, however
/// often that happens, and the right ones are what they were.
#[test]
fn bytes_that_were_damaged_on_their_way_are_no_other_object() {
    let mut hasher = VersionHasher::default();
    hasher.update(b"right");
    let version = hasher.finish(&Attributes::default());
    let headers = format!(
        "etag: \"e\"\r\nlast-modified: Tue, 24 Nov 2026 08:00:00 GMT\r\nx-amz-meta-concertina-version: {version}\r\n"
    );
    for bodies in [&["righu", "sight", "right", "rigit", "right"][..], &[""]] {
        let script = bodies.iter().map(|body| answer("200 OK", &headers, body));
        let script = opening().into_iter().chain(script).collect();
        let origin = S3::open(&config_of(&scripted(script))).unwrap();
        for body in bodies {
            let found = run(async {
                let mut found = origin.get(&key("a"), None).await?.unwrap();
                let first = found.body.next().await.unwrap_or_else(|| Ok(Bytes::new()))?;
                Ok((found.metadata.etag, first))
            });
            match found {
                Ok((etag, bytes)) => {
                    assert_eq!((&*etag, &*bytes, *body), (&*version, &b"right"[..], "right"));
                }
                Err(error) => {
                    assert!(*body != "right" && matches!(error, Error::Damaged(_)), "{error:?}");
                }
            }
        }
    }
}

/// A reply that was cut off on its way, whose length fits what is left: of an object whose version is not a hash of its bytes, its
/// length alone tells.
#[test]
fn a_reply_with_another_length_under_the_same_etag_is_an_error() {
    const TIME: &str = "last-modified: Tue, 24 Nov 2026 08:00:00 GMT\r\n";
    let drawn = "x-amz-meta-concertina-version: u-0123456789abcdef0123456789abcdef\r\n";
    for version in ["", drawn] {
        let headers = format!("etag: \"e\"\r\n{TIME}{version}");
        let head = |bytes: u64| {
            format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\nconnection: close\r\n{headers}\r\n"
            )
        };
        let (whole, cut) =
            (answer("200 OK", &headers, "123456789"), answer("200 OK", &headers, "1234"));
        // Known from a HEAD; the store is asked again.
        let script = vec![head(9), cut.clone(), head(9), whole.clone()];
        let origin = S3::open(&config_of(&scripted([opening(), script].concat()))).unwrap();
        assert_eq!(run(origin.head(&key("a"))).unwrap().unwrap().size, 9);
        let error = run(origin.get(&key("a"), None)).err().map(|error| error.to_string());
        let error = error.unwrap_or_default();
        assert!(error.contains("with 4 bytes and says that it has 9"), "{error}");
        assert_eq!(run(read(&origin, "a", None)), b"123456789");
        // Taken for whole at first, and not once the store is asked: a kept copy is then out of date.
        let script = vec![cut, head(9), head(9), whole];
        let origin = S3::open(&config_of(&scripted([opening(), script].concat()))).unwrap();
        let first = run(origin.get(&key("a"), None)).unwrap().unwrap().metadata;
        let then = run(origin.head(&key("a"))).unwrap().unwrap();
        assert_eq!((first.size, then.size), (4, 9));
        assert_eq!(first.etag == then.etag, !version.is_empty());
        assert_eq!(run(read(&origin, "a", None)), b"123456789");
    }
}
