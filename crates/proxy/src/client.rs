//! A client's connection.

use std::collections::VecDeque;
use std::io::{IoSlice, Write as _};

use ground::window::Nanos;

use crate::buffer::Out;
use crate::stream::Stream;

/// Requests of one connection that may be under way. Further ones are read when some have ended.
pub(crate) const PIPELINE_MAX: usize = 4096;

/// Bytes of replies that may wait for a client to read them. Then no more of its requests are read.
pub(crate) const OUT_MAX: usize = 8 << 20;

/// Requests that may be under way however large the replies are, and on a new connection.
const PIPELINE_MIN: usize = 16;

/// A reply so many times as large as the recent ones says that they do not tell how large the next will be.
const SURPRISE: usize = 8;
/// Replies of fewer bytes are no surprise.
const SMALL: usize = 4 << 10;

/// How many requests of a connection may be under way: so many that their replies, if they are as large as the recent ones, fit in
/// [`OUT_MAX`] bytes. The number doubles while replies come, as that of TCP's segments: small replies must not let thousands of requests
/// begin at once whose replies then have a megabyte each.
struct Pipeline {
    /// The mean size of recent replies, bytes.
    reply_bytes: usize,
    /// The most by the number of replies so far.
    window: usize,
}

impl Pipeline {
    const NEW: Pipeline = Pipeline { reply_bytes: 0, window: PIPELINE_MIN };

    /// Notes a reply, behind which `waiting` others are under way.
    fn replied(&mut self, bytes: usize, waiting: usize) {
        if bytes > SURPRISE * self.reply_bytes.max(SMALL) {
            *self = Pipeline { reply_bytes: bytes, window: PIPELINE_MIN };
            return;
        }
        // Only what was used is known to be right.
        if waiting + 1 >= self.most() {
            self.window = (self.window + 1).min(PIPELINE_MAX);
        }
        self.reply_bytes = self.reply_bytes - self.reply_bytes / 8 + bytes / 8;
    }

    fn most(&self) -> usize {
        (OUT_MAX / self.reply_bytes.max(1)).clamp(PIPELINE_MIN, PIPELINE_MAX).min(self.window)
    }
}

/// Pieces of a reply that are sent without a copy. More of them are values of many keys: the kernel then takes longer over the list
/// than a copy takes.
const PIECES_MAX: usize = 32;

/// A client's connection.
pub(crate) struct Client {
    pub(crate) stream: Stream,
    /// Tells it from others that had its place before.
    pub(crate) generation: u32,
    /// The beginning of a request.
    pub(crate) rest: Vec<u8>,
    /// Bytes that `rest` must have before it is worth parsing.
    pub(crate) needed: usize,
    /// Bytes of a refused value that are still to come.
    pub(crate) skip: u64,
    pub(crate) out: Out,
    /// Indexes of its requests in their order. The first is the next to be answered.
    pub(crate) queue: VecDeque<u32>,
    pipeline: Pipeline,
    /// Whether it is listed among those with something to write.
    pub(crate) listed: bool,
    /// Whether it is listed among those to be read again.
    pub(crate) again: bool,
    /// Whether no more is read: it sent `quit`, or something that cannot be understood.
    pub(crate) ending: bool,
    /// Whether the socket may have bytes that were not read, since too much was under way.
    pub(crate) paused: bool,
    /// Whether nothing more is read before all that was read is answered: a `flush_all` is next, or under way.
    pub(crate) waits_for_replies: bool,
    /// Whether it has closed its sending half.
    pub(crate) hung_up: bool,
    /// Whether its socket was empty when it was read last.
    pub(crate) drained: bool,
    /// When it is closed at the latest: our sending half is closed, and what it still sends is passed by.
    pub(crate) closes_at: Option<Nanos>,
    /// When bytes last moved while it owed us some, or we it.
    pub(crate) moved: Nanos,
}

impl Client {
    pub(crate) fn new(stream: Stream, generation: u32, now: Nanos) -> Client {
        Client {
            stream,
            generation,
            rest: Vec::new(),
            needed: 0,
            skip: 0,
            out: Out::default(),
            queue: VecDeque::new(),
            pipeline: Pipeline::NEW,
            listed: false,
            again: false,
            ending: false,
            paused: false,
            waits_for_replies: false,
            hung_up: false,
            drained: false,
            closes_at: None,
            moved: now,
        }
    }

    /// Sends the pieces of a reply. Where no other reply is to follow they leave at once, without a copy unless they are many;
    /// otherwise with the others at the end of the turn. So does what the socket does not take; so is an error of the socket
    /// found.
    pub(crate) fn send(&mut self, pieces: &[&[u8]]) {
        let mut sent = 0;
        if self.queue.is_empty() && self.out.is_empty() {
            let written = match pieces {
                [[], one] | [one, []] => (!one.is_empty()).then(|| self.stream.write(one)),
                several => (several.len() <= PIECES_MAX).then(|| {
                    let mut slices = [IoSlice::new(&[]); PIECES_MAX];
                    for (slice, piece) in slices.iter_mut().zip(several) {
                        *slice = IoSlice::new(piece);
                    }
                    self.stream.write_vectored(&slices[..several.len()])
                }),
            };
            sent = written.and_then(Result::ok).unwrap_or(0);
        }
        for piece in pieces {
            let skipped = sent.min(piece.len());
            sent -= skipped;
            self.out.end().extend_from_slice(&piece[skipped..]);
        }
    }

    /// Whether all that was read is answered, so that another process can go on with the connection.
    pub(crate) fn is_idle(&self) -> bool {
        let owed = self.rest.is_empty() && self.skip == 0;
        owed && self.queue.is_empty() && self.out.is_empty() && !self.ending && !self.paused
    }

    /// Whether there is something to be done for it at the end of the turn.
    pub(crate) fn wants_turn(&self) -> bool {
        !self.out.is_empty() || self.ending || self.paused
    }

    /// Notes the size of a reply.
    pub(crate) fn replied(&mut self, bytes: usize) {
        self.pipeline.replied(bytes, self.queue.len());
    }

    /// Whether it has as much under way as it may have: until a `flush_all` is answered nothing else, otherwise as many requests as its
    /// [`Pipeline`] allows. All of their replies may arrive before the client reads any.
    pub(crate) fn is_full(&self) -> bool {
        let most = self.pipeline.most();
        let waits = self.waits_for_replies && !self.queue.is_empty();
        waits || self.queue.len() >= most || self.out.len() >= OUT_MAX
    }

    /// Whether one of the two owes the other bytes: the rest of a request, or a reply.
    pub(crate) fn is_moving(&self) -> bool {
        !self.rest.is_empty() || self.skip > 0 || !self.out.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The requests under way at most while replies of these sizes come and as many requests are sent as may be.
    fn most_after(sizes: impl IntoIterator<Item = usize>) -> usize {
        let mut pipeline = Pipeline::NEW;
        for bytes in sizes {
            pipeline.replied(bytes, pipeline.most() - 1);
        }
        pipeline.most()
    }

    #[test]
    fn as_many_requests_are_under_way_as_their_replies_allow() {
        assert_eq!(most_after([]), PIPELINE_MIN);
        assert_eq!(most_after([100; 100]), PIPELINE_MIN + 100);
        assert_eq!(most_after([100; 10_000]), PIPELINE_MAX);
        // One larger one after many small ones: the next may all be so.
        assert_eq!(most_after([100; 10_000].into_iter().chain([1 << 20])), PIPELINE_MIN);
        assert_eq!(most_after([1 << 20; 10_000]), PIPELINE_MIN);
        // Replies of 64 KiB: 128 of them fit.
        assert!((120..=160).contains(&most_after([64 << 10; 10_000])));
    }

    #[test]
    fn a_client_that_sends_one_request_after_the_other_earns_no_more() {
        let mut pipeline = Pipeline::NEW;
        for _ in 0..10_000 {
            pipeline.replied(5, 0);
        }
        assert_eq!(pipeline.most(), PIPELINE_MIN);
    }
}
