//! Any bytes as replies of a service under load, in any two pieces: the reader ends the same, and passes on the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use load::client::{Reply, ReplyReader};

fn read(pieces: &[&[u8]], head_only: bool) -> (Option<Reply>, Vec<u8>) {
    let (mut reader, mut body) = (ReplyReader::default(), Vec::new());
    reader.start(head_only);
    for piece in pieces {
        // What may be passed over unread is passed over.
        let skipped = reader.skippable().min(piece.len() as u64) as usize;
        body.extend_from_slice(&piece[..skipped]);
        let done = skipped > 0 && reader.skipped(skipped as u64);
        if done && skipped == piece.len() {
            continue;
        }
        if reader.feed(&piece[skipped..], &mut |piece| body.extend_from_slice(piece)).is_err() {
            return (None, body);
        }
    }
    let whole = reader.end_of_stream().is_ok();
    assert!(head_only || reader.reply().body_bytes <= body.len() as u64);
    (whole.then(|| *reader.reply()), body)
}

// Input: where it is cut and whether it is the reply to a HEAD, then the bytes.
fuzz_target!(|data: &[u8]| {
    let [first, bytes @ ..] = data else { return };
    let (head_only, cut) = (first & 1 == 1, usize::from(first >> 1) % (bytes.len() + 1));
    let (one, two) = bytes.split_at(cut);
    let whole = read(&[bytes], head_only);
    let apart = read(&[one, two], head_only);
    assert_eq!(apart.0, whole.0);
    if whole.0.is_some() {
        assert_eq!(apart.1, whole.1);
    }
});
