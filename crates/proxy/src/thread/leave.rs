//! The end of a thread whose clients go on with another: see `reload`.

use std::sync::PoisonError;

use super::*;

impl Thread {
    /// Ends the connections to servers. Those with commands that have no reply are aborted, lest they be carried out later.
    pub(super) fn end(&mut self) {
        for server in &mut self.servers {
            server.close();
        }
        self.shared.left(self.index);
    }

    /// Closes the listener, or leaves it to the threads that follow.
    pub(super) fn leave_listener(&mut self, mut listener: Listener) {
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

    fn leave_client(&self, client: Carried) {
        let mut collected = self.shared.collected.lock().unwrap_or_else(PoisonError::into_inner);
        collected.1.push(client);
    }
}
