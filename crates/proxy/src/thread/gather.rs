//! Gets of several keys that are asked for one by one: while keys are moved from another pool, each
//! may have to be looked for there. And deletes that the proxy sends of its own accord.

use super::clients::PoolRequest;
use super::*;
use crate::local;

const END: &[u8] = b"END\r\n";

impl Thread {
    /// Asks for each key of a get by itself.
    pub(super) fn split(&mut self, place: u32, request: &memcached::Request<'_>) {
        let Some(whole) = self.begin(place, request) else {
            return self.answer(place, b"SERVER_ERROR too many requests under way\r\n");
        };
        let Some(at) = self.requests.place(self.index, whole) else { return };
        let count = request.keys().count();
        let under_way = self.requests.request_mut(at);
        under_way.received = 0;
        under_way.left = 1;
        let (place, generation) = under_way.client;
        let client = self.client_name(place, generation);
        let gather = Gather { left: count, replies: vec![Vec::new(); count] };
        self.gathers.insert(whole, gather);
        for (part, key) in request.keys().enumerate() {
            self.ask_one(client, whole, part as u16, request, key);
        }
    }

    fn ask_one(
        &mut self,
        client: u64,
        whole: RequestId,
        part: u16,
        request: &memcached::Request<'_>,
        key: &[u8],
    ) {
        let Some(at) = self.requests.insert() else {
            let refusal = b"SERVER_ERROR too many requests under way\r\n".to_vec();
            return self.gathered(whole, part, refusal);
        };
        let (now, hash) = (self.now, self.shared.key_hash(key, false));
        let recorded = local::recorded(request.verb, false);
        let under_way = self.requests.request_mut(at);
        under_way.client = (u32::MAX, 0);
        under_way.gather = Some((whole, part));
        under_way.verb = request.verb;
        (under_way.noreply, under_way.quiet, under_way.base64) = (false, false, false);
        under_way.expect = request.expect();
        (under_way.received, under_way.started, under_way.served) = (now, 0, 0);
        under_way.outcome = Outcome::Error;
        (under_way.length_met, under_way.hits, under_way.left) = (0, 0, 0);
        under_way.changes = Changes::of_request(request);
        (under_way.operation, under_way.hash) = (recorded, hash.id);
        under_way.in_engine = true;
        let exptime = request.arguments();
        memcached::put_get(request.verb, exptime, std::iter::once(key), &mut under_way.command);
        let end = under_way.command.len().saturating_sub(2);
        under_way.keys.push((end.saturating_sub(key.len()) as u32, end as u32));
        under_way.exptime = (0, 0);
        let operation = match request.verb {
            Verb::Get => Operation::Read,
            // Of a get that is split the numbers are of values that may be moved here first.
            _ => Operation::Update,
        };
        let request = self.requests.name(self.index, at);
        let keys = Keys::One(hash);
        self.ask(PoolRequest { request, client, operation, recorded, keys, bytes: 0 }, None);
    }

    /// The reply of a key is there; the last one ends the get.
    pub(super) fn gathered(&mut self, whole: RequestId, part: u16, reply: Vec<u8>) {
        let Some(gather) = self.gathers.get_mut(&whole) else { return };
        if let Some(own) = gather.replies.get_mut(usize::from(part)) {
            *own = reply;
        }
        gather.left = gather.left.saturating_sub(1);
        if gather.left > 0 {
            return;
        }
        let replies = self.gathers.remove(&whole).map(|gather| gather.replies).unwrap_or_default();
        let mut bytes = Vec::new();
        for reply in &replies {
            match reply.strip_suffix(END) {
                Some(items) => bytes.extend_from_slice(items),
                None => {
                    // An error is the whole reply.
                    bytes.clone_from(reply);
                    break;
                }
            }
        }
        if replies.iter().all(|reply| reply.ends_with(END)) {
            bytes.extend_from_slice(END);
        }
        let Some(at) = self.requests.place(self.index, whole) else { return };
        let under_way = self.requests.request_mut(at);
        under_way.left = 0;
        match under_way.state {
            State::Open => self.finish(at, &bytes),
            _ => self.requests.release(at),
        }
    }

    /// Deletes an item of which the client has sent a value that is too large.
    pub(super) fn drop_value(&mut self, place: u32, drops: memcached::Drops<'_>) {
        let mut command = Vec::new();
        memcached::put_delete(drops.key, drops.base64, &mut command);
        if let Parsed::Request(mut request) = memcached::parse(&command, &self.shared.limits) {
            // The client is told only that the value is too large.
            request.noreply = true;
            self.request(place, &request);
        }
    }
}
