//! Replies split at any byte, and malformed replies.

use proptest::prelude::*;

use super::*;

/// Feeds a reply in pieces that end at the given cuts.
fn read(stream: &[u8], cuts: &[usize]) -> Result<(bool, Reply, Vec<u8>), ReplyError> {
    let mut reader = ReplyReader::default();
    reader.start(false);
    let mut body = Vec::new();
    let mut done = false;
    let mut from = 0;
    for &cut in cuts.iter().chain([&stream.len()]) {
        let cut = cut.clamp(from, stream.len());
        done = reader.feed(&stream[from..cut], &mut |piece| body.extend_from_slice(piece))?;
        from = cut;
    }
    Ok((done, *reader.reply(), body))
}

const SIZED: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\nconcertina-outcome: hot_device\r\n\
    concertina-queue-length: 17\r\n\r\nhello world";
const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
    5;note=x\r\nhello\r\n1\r\n \r\n5\r\nworld\r\n0\r\nafter: word\r\n\r\n";
const INTERIM: &[u8] =
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno";

#[test]
fn replies_may_be_cut_at_every_byte() {
    for (stream, body) in [(SIZED, "hello world"), (CHUNKED, "hello world"), (INTERIM, "no")] {
        for cut in 0..=stream.len() {
            let (done, reply, got) = read(stream, &[cut]).unwrap();
            assert!(done, "cut at {cut}");
            assert_eq!(got, body.as_bytes(), "cut at {cut}");
            assert_eq!(reply.body_bytes as usize, body.len());
            assert!(reply.keep_alive);
        }
        let every: Vec<usize> = (0..stream.len()).collect();
        assert_eq!(read(stream, &every).unwrap().2, body.as_bytes());
        for end in 0..stream.len() {
            assert!(!read(&stream[..end], &[]).unwrap().0, "done after {end} bytes");
        }
    }
    let (_, reply, _) = read(SIZED, &[]).unwrap();
    assert_eq!(reply.outcome, Some(Outcome::HotDevice));
    assert_eq!(reply.queue_length, Some(17));
}

#[test]
fn what_is_not_http_is_an_error() {
    let rows: &[(&[u8], ReplyError)] = &[
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", ReplyError::Length),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", ReplyError::Length),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n", ReplyError::Coding),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nx\r\n", ReplyError::Chunk),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabc", ReplyError::Chunk),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\nmore", ReplyError::Extra),
        (b"ERROR\r\n", ReplyError::Head(httparse::Error::Version)),
    ];
    for (stream, error) in rows {
        assert_eq!(read(stream, &[]).unwrap_err(), *error, "{}", String::from_utf8_lossy(stream));
    }
    let endless = [&b"HTTP/1.1 200 OK\r\nx: "[..], &vec![b'a'; HEAD_MAX + 1]].concat();
    assert_eq!(read(&endless, &[]).unwrap_err(), ReplyError::HeadTooLong);
}

#[test]
fn replies_without_a_body_end_with_their_head() {
    let mut reader = ReplyReader::default();
    reader.start(true);
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n";
    assert_eq!(reader.feed(head, &mut |_| {}), Ok(true));
    assert!(read(b"HTTP/1.1 204 No Content\r\n\r\n", &[]).unwrap().0);
    assert!(!read(b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n", &[]).unwrap().1.keep_alive);
}

#[test]
fn a_closed_stream_ends_only_what_it_delimits() {
    let mut reader = ReplyReader::default();
    reader.start(false);
    assert_eq!(reader.feed(b"HTTP/1.1 200 OK\r\n\r\nabc", &mut |_| {}), Ok(false));
    assert_eq!(reader.end_of_stream(), Ok(()));
    assert_eq!(reader.reply().body_bytes, 3);
    for cut in 0..SIZED.len() {
        reader.start(false);
        reader.feed(&SIZED[..cut], &mut |_| {}).unwrap();
        assert!(matches!(reader.end_of_stream(), Err(ReplyError::Closed(_))), "cut at {cut}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200),
                                   cuts in prop::collection::vec(0usize..200, 0..4)) {
        let _ = read(&bytes, &cuts);
    }

    #[test]
    fn mutated_replies_never_panic(which in 0usize..3, at in any::<prop::sample::Index>(),
                                   byte in any::<u8>(), cut in 0usize..200) {
        let mut stream = [SIZED, CHUNKED, INTERIM][which].to_vec();
        let at = at.index(stream.len());
        stream[at] = byte;
        if let Ok((_, reply, body)) = read(&stream, &[cut]) {
            prop_assert_eq!(reply.body_bytes as usize, body.len());
        }
    }
}
