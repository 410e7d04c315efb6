//! The end of a thread: its clients go on with another (see `reload`), with another process, or are answered and closed.

use std::sync::PoisonError;

use super::*;

/// How long a connection whose sending half is closed is read on, if its client does not close it.
const LINGER: Nanos = SECOND / 5;

impl Thread {
    /// Ends the connections to servers. Those with commands that have no reply are aborted, lest they be carried out later.
    pub(super) fn end(&mut self) {
        for server in &mut self.servers {
            server.close();
        }
        self.shared.left(self.index);
    }

    /// Takes no further connections, and gives up those whose requests are answered. Returns whether there are others.
    pub(super) fn leave(&mut self, begins: bool) -> bool {
        let drains = !self.shared.is_collecting() && self.shared.pass_on.is_none();
        if drains && begins {
            // Those that wait for it would be reset.
            self.accept();
        }
        if let Some(listener) = self.listener.take() {
            self.leave_listener(listener);
            self.shared.close();
        }
        match (drains, self.shared.is_collecting()) {
            (true, _) => self.drain(begins),
            (false, true) => self.carry(),
            (false, false) => self.pass_on(),
        }
    }

    /// Closes the listener, or leaves it to the threads that follow.
    fn leave_listener(&mut self, mut listener: Listener) {
        if !self.shared.is_collecting() {
            return;
        }
        if let Err(error) = listener.deregister(self.poll.registry()) {
            return warn!("cannot keep the listener: {error}");
        }
        let mut collected = self.shared.collected.lock().unwrap_or_else(PoisonError::into_inner);
        collected.0 = Some(listener);
    }

    /// Leaves the clients whose requests are answered to the threads that follow. Returns whether there are others.
    pub(super) fn carry(&mut self) -> bool {
        for stream in std::mem::take(&mut self.waiting) {
            self.leave_client(Carried::from(stream));
        }
        let mut others = false;
        for place in 0..self.clients.len() as u32 {
            let Some(client) = self.client(place) else { continue };
            if client.ending || !client.queue.is_empty() || !client.out.is_empty() {
                others = true;
                continue;
            }
            let Some(mut client) = self.clients.get_mut(place as usize).and_then(Option::take)
            else {
                continue;
            };
            self.free.push(place);
            self.shared.leave(self.index);
            if client.stream.deregister(self.poll.registry()).is_ok() {
                let Client { stream, rest, skip, .. } = client;
                self.leave_client(Carried { stream, rest, skip });
            }
        }
        others
    }

    /// Closes the connections on which all that came is answered. A connection that is closed while bytes on it are unread is
    /// reset, and takes replies with it that its client has not read: so each is read to its end first (`begins`: nothing was
    /// read for this yet), and then for a moment after our sending half is closed. Returns whether there were any.
    pub(super) fn drain(&mut self, begins: bool) -> bool {
        let now = self.now;
        let mut there = false;
        for place in 0..self.clients.len() as u32 {
            let Some(client) = self.client(place) else { continue };
            there = true;
            if begins {
                client.drained = false;
                self.read_again(place);
            } else if let Some(at) = client.closes_at {
                if now >= at {
                    self.close_client(place);
                }
            } else if client.drained && client.is_idle() {
                if client.stream.close_sending().is_err() {
                    self.close_client(place);
                    continue;
                }
                client.ending = true;
                client.closes_at = Some(now + LINGER);
            }
        }
        there
    }

    fn leave_client(&self, client: Carried) {
        let mut collected = self.shared.collected.lock().unwrap_or_else(PoisonError::into_inner);
        collected.1.push(client);
    }
}
