//! A bounded queue in front of one or more servers, which records its own windows.

use std::collections::VecDeque;

use ground::window::{Finished, Nanos, Recorder, Settings, Window};

/// A first-come-first-served queue: requests of type `J` wait for one of `servers` servers.
///
/// The end of one service and the start of the next share one timestamp: a dispatch gap between
/// them would count as idle time and make the server look faster than it is.
pub struct Queue<J> {
    waiting: VecDeque<(J, Nanos)>,
    in_service: u32,
    servers: u32,
    length_max: u32,
    recorder: Recorder,
}

/// A request whose service starts.
pub struct Started<J> {
    /// The request.
    pub job: J,
    /// When it entered the queue.
    pub queued: Nanos,
    /// When its service starts.
    pub start: Nanos,
}

impl<J> Queue<J> {
    /// An empty queue for at most `length_max` requests, those in service included.
    pub fn new(name: &str, servers: u32, length_max: u32, windows: Settings, now: Nanos) -> Self {
        let servers = servers.max(1);
        Queue {
            waiting: VecDeque::new(),
            in_service: 0,
            servers,
            length_max: length_max.max(servers),
            recorder: Recorder::new(name, servers, windows, now),
        }
    }

    /// Requests waiting and in service.
    pub fn length(&self) -> u32 {
        self.waiting.len() as u32 + self.in_service
    }

    /// Maximum number of requests, those in service included.
    pub fn length_max(&self) -> u32 {
        self.length_max
    }

    /// Changes that number; at least the number of servers. Requests beyond a smaller one stay.
    pub fn set_length_max(&mut self, length_max: u32) {
        self.length_max = length_max.max(self.servers);
    }

    /// Requests in service.
    pub fn in_service(&self) -> u32 {
        self.in_service
    }

    /// Whether requests wait because all servers are busy.
    pub fn is_backed_up(&self) -> bool {
        self.in_service >= self.servers && !self.waiting.is_empty()
    }

    /// Changes the number of servers. Services in progress go on, also those beyond a smaller number.
    pub fn set_servers(&mut self, servers: u32) {
        self.servers = servers.max(1);
        self.length_max = self.length_max.max(self.servers);
        self.recorder.set_servers(self.servers);
    }

    /// Appends a request; if the queue is full, returns it as the error.
    pub fn push(&mut self, job: J, now: Nanos) -> Result<(), J> {
        if self.length() >= self.length_max {
            self.recorder.refuse(now);
            return Err(job);
        }
        self.recorder.arrive(now);
        self.waiting.push_back((job, now));
        Ok(())
    }

    /// Starts the service of the next request, if a server is free and a request waits.
    pub fn start(&mut self, now: Nanos) -> Option<Started<J>> {
        if self.in_service >= self.servers {
            return None;
        }
        let (job, queued) = self.waiting.pop_front()?;
        self.in_service += 1;
        let start = now.max(queued);
        self.recorder.start(start);
        Some(Started { job, queued, start })
    }

    /// Moves a request in service to the end of the queue: the rest of its service follows when its
    /// turn comes again. Call [`Queue::start`] with the same time next.
    pub fn again(&mut self, job: J, now: Nanos) {
        assert!(self.in_service > 0, "a service paused that had not started");
        self.in_service -= 1;
        self.recorder.pause(now);
        self.waiting.push_back((job, now));
    }

    /// All requests that wait leave without service.
    pub fn clear_waiting(&mut self, now: Nanos) {
        while self.waiting.pop_front().is_some() {
            self.recorder.abandon(now);
        }
    }

    /// Records the end of a service. Call [`Queue::start`] with the same time next.
    pub fn finish(&mut self, now: Nanos, finished: &Finished) {
        assert!(self.in_service > 0, "a service ended that had not started");
        self.in_service -= 1;
        self.recorder.finish(now, finished);
    }

    /// The windows that ended by `now`.
    pub fn windows(&mut self, now: Nanos) -> Vec<Window> {
        self.recorder.roll(now)
    }

    /// The windows that ended by `now`, and the one still open.
    pub fn flush(&mut self, now: Nanos) -> Vec<Window> {
        self.recorder.flush(now)
    }
}
