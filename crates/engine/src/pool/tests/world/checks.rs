//! What a reply that a client gets must be.

use super::server::Item;
use super::{Answer, AttemptId, Operation, RequestId, World};

impl World {
    /// The last value of a key that a request before another has left, as far as acknowledged.
    pub(super) fn latest(&self, key: u64, before: RequestId) -> u64 {
        let all = self.acknowledged.get(&key).into_iter().flatten();
        all.filter(|(request, _)| *request < before).map(|(_, value)| *value).max().unwrap_or(0)
    }

    pub(super) fn uses(&mut self, request: RequestId, attempt: AttemptId) {
        let client = &self.clients[&request];
        assert!(!client.answered);
        let (answer, values) = &self.replies[&attempt];
        if client.operation == Operation::ReadMarked && !self.plan.faults {
            let mark = self.marks.get(&client.keys[0]).filter(|(_, acked)| request > *acked);
            if let Some((invalidation, _)) = mark {
                let stale = values.first().is_some_and(|item| item.stale);
                assert!(stale, "read {request} missed what invalidation {invalidation} left");
            }
        }
        match (client.operation, *answer) {
            (operation, Answer::Hit) if operation.is_read() => {
                for item in values {
                    let (key, value) = (item.key, item.value);
                    self.hits += 1;
                    let least = client.least[&key].max(self.latest(key, request));
                    assert!(
                        value.order >= least,
                        "key {key}: read {value:?} since {}, but {least} was acknowledged before",
                        client.began
                    );
                    let floor = client.floors.get(&key);
                    assert!(
                        floor.is_none_or(|floor| value.order >> 8 > *floor),
                        "key {key}: read {value:?} after a flush of what {floor:?} set"
                    );
                    let same = self.writers.get(&value.writer) == Some(&client.name);
                    assert!(
                        value.writer < request || !same,
                        "key {key}: read {value:?}, which the same client wrote after read {request}"
                    );
                    if operation == Operation::ReadFirst {
                        self.numbers.insert((client.name, key), (item.number, value));
                    }
                }
            }
            (_, Answer::Done) => {
                for Item { key, value, .. } in values {
                    self.acknowledged.entry(*key).or_default().push((request, value.order));
                }
                let key = client.keys[0];
                let last = self.last_writes.get(&key) == Some(&request);
                if client.operation == Operation::Invalidate && last {
                    self.marks.insert(key, (request, self.serial));
                }
                if client.deletes {
                    // What came before must not come back.
                    let after = (request, request << 8);
                    self.acknowledged.entry(client.keys[0]).or_default().push(after);
                }
            }
            _ => {}
        }
    }
}
