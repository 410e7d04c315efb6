//! The connections of HTTP/2 of a generator thread: which of them takes a request.
//!
//! All `connections` are used: a request goes to the one with the fewest in progress, which opens a
//! connection that is missing. A service that announces its end (GOAWAY) gets no further request, and
//! another connection takes its place at once.

use crate::client::Http2Connection;

/// The bit of an event's slot that says that it is of a link.
pub(super) const LINK: u32 = 1 << 31;

/// A place for a connection.
#[derive(Default)]
pub(super) struct Link {
    pub connection: Option<Http2Connection>,
    /// Incremented when the connection is closed, so that later events of it are recognised.
    pub generation: u32,
    /// Requests in progress.
    pub streams: usize,
    pub watches_write: bool,
    /// Whether a request has been answered on it.
    pub has_served: bool,
}

/// All connections.
pub(super) struct Links {
    pub links: Vec<Link>,
    /// The most connections that take requests.
    links_max: usize,
    /// The most requests in progress on each; `None` if the load is not HTTP/2.
    pub streams_max: Option<usize>,
    /// Connections with something to do.
    pub marked: Vec<u32>,
    /// Whether marked connections are being driven.
    pub driving: bool,
    /// Where the search for a connection begins, so that equals take turns.
    turn: usize,
}

impl Links {
    pub fn new(links_max: usize, streams_max: Option<usize>) -> Links {
        let (links, marked) = (Vec::new(), Vec::new());
        Links { links, links_max, streams_max, marked, driving: false, turn: 0 }
    }

    /// Whether the load is HTTP/2.
    pub fn is_used(&self) -> bool {
        self.streams_max.is_some()
    }

    /// Notes that a connection has something to do, if it is still that of `generation`.
    pub fn mark(&mut self, link: u32, generation: u32) {
        let same = self.links.get(link as usize).is_some_and(|it| it.generation == generation);
        if same && !self.marked.contains(&link) {
            self.marked.push(link);
        }
    }

    /// Notes that a request of a connection has ended: if it was given up, the service must be told.
    pub fn leave(&mut self, link: u32) {
        if let Some(it) = self.links.get_mut(link as usize) {
            it.streams = it.streams.saturating_sub(1);
            let generation = it.generation;
            self.mark(link, generation);
        }
    }

    /// Whether a request has been answered on a connection.
    pub fn has_served(&self, link: u32) -> bool {
        self.links.get(link as usize).is_some_and(|it| it.has_served)
    }

    /// Whether a connection takes a request now, or may be opened.
    pub fn has_room(&mut self) -> bool {
        self.choose(true).is_some()
    }

    /// The connection for the next request: the one with the fewest, or a place for a new one. With
    /// `within`, only if the bounds of streams allow it.
    pub fn choose(&mut self, within: bool) -> Option<u32> {
        let count = self.links.len();
        self.turn = self.turn.wrapping_add(1);
        let (mut best, mut empty, mut open) = (None, None, 0);
        for step in 0..count {
            let at = (self.turn + step) % count;
            let link = &mut self.links[at];
            let Some(connection) = &mut link.connection else {
                empty = Some(at);
                continue;
            };
            let room = connection.room();
            open += usize::from(room > 0);
            let fits = room > 0 && (!within || link.streams < room);
            if fits && best.is_none_or(|(streams, _)| link.streams < streams) {
                best = Some((link.streams, at));
            }
        }
        match best {
            Some((0, at)) => Some(at as u32),
            _ if open < self.links_max => Some(empty.unwrap_or(count) as u32),
            _ => best.map(|(_, at)| at as u32),
        }
    }
}
