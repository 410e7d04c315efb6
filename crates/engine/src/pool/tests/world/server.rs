//! A memcached in virtual time: items with numbers and marks, and a queue of commands.

use std::collections::{BTreeMap, VecDeque};

use ground::window::Nanos;

use super::{Answer, AttemptId, OWN, Reply, RequestId};

/// What a key has: later values have a higher order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Value {
    /// The set that it was made of, and how often it was changed since (the lower 8 bits).
    pub(super) order: u64,
    /// The write that left it.
    pub(super) writer: RequestId,
}

/// A value as a server holds it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Item {
    pub(super) key: u64,
    pub(super) value: Value,
    /// The server's compare-and-swap number.
    pub(super) number: u64,
    pub(super) stale: bool,
    /// Whether a reader has the right to replace it.
    pub(super) won: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Job {
    Read,
    /// A read that wins the right to replace a stale item, if no other has.
    ReadMarked,
    Set(Value),
    /// Adds one to what is there.
    Update(RequestId),
    /// The same, if the item has the number that was read with a value.
    Compare {
        number: u64,
        read: Value,
        writer: RequestId,
    },
    /// Marks what is there as stale.
    Invalidate,
    ReadBack,
    Copy(Option<Value>),
    Add(Option<Value>),
    Delete,
}

#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) attempt: AttemptId,
    pub(super) keys: Vec<u64>,
    pub(super) job: Job,
    /// A flush, in the place of all others.
    pub(super) flush: Option<RequestId>,
}

pub(super) struct Memcached {
    pub(super) values: BTreeMap<u64, Item>,
    pub(super) queue: VecDeque<Sent>,
    pub(super) stalled_until: Nanos,
    pub(super) down_until: Nanos,
    /// Replies of an earlier connection do not come.
    pub(super) connection: u32,
    pub(super) busy: bool,
    number: u64,
    /// Whether every number that it compares is its own.
    compares: bool,
    faults: bool,
}

impl Memcached {
    /// A server. Where servers fail, numbers of two servers never agree by chance, which nothing could prevent; where they do
    /// not, they agree often.
    pub(super) fn new(at: usize, faults: bool) -> Memcached {
        Memcached {
            values: BTreeMap::new(),
            queue: VecDeque::new(),
            stalled_until: 0,
            down_until: 0,
            connection: 0,
            busy: false,
            number: if faults { (at as u64) << 32 } else { 2 * at as u64 },
            compares: at < OWN,
            faults,
        }
    }

    pub(super) fn store(&mut self, key: u64, value: Value) {
        self.number += 1;
        let item = Item { key, value, number: self.number, stale: false, won: false };
        self.values.insert(key, item);
    }

    /// Carries a command out, and checks what no command of the proxy may do.
    pub(super) fn carry_out(&mut self, sent: &Sent) -> Reply {
        let held = |key: &u64| self.values.get(key).copied();
        let found: Vec<Item> = sent.keys.iter().filter_map(held).collect();
        let key = sent.keys[0];
        let unchanged = (Answer::Unchanged, Vec::new());
        match sent.job {
            Job::Read => (if found.is_empty() { Answer::Miss } else { Answer::Hit }, found),
            Job::ReadMarked | Job::ReadBack => {
                let Some(item) = self.values.get_mut(&key) else {
                    return (Answer::Miss, Vec::new());
                };
                let wins = item.stale && !item.won;
                assert!(sent.job != Job::ReadBack || !wins, "key {key}: won by nobody's read");
                item.won |= wins;
                (Answer::Hit, vec![*item])
            }
            Job::Set(value) | Job::Copy(Some(value)) => self.stored(key, value),
            Job::Add(Some(value)) if found.is_empty() => self.stored(key, value),
            Job::Update(writer) => match found.first() {
                Some(Item { value, .. }) => {
                    self.stored(key, Value { order: value.order + 1, writer })
                }
                None => unchanged,
            },
            Job::Compare { number, read, writer } => match found.first() {
                Some(item) if item.number == number => {
                    let same = item.value == read || !self.compares;
                    assert!(same, "key {key}: {:?} lost to a swap of {read:?}", item.value);
                    self.stored(key, Value { order: read.order + 1, writer })
                }
                Some(item) => {
                    // An invalidation gives another number to the same value.
                    let same = item.value == read && !item.stale && self.compares && !self.faults;
                    assert!(!same, "key {key}: {read:?} is there, and another number was read");
                    unchanged
                }
                None => unchanged,
            },
            Job::Invalidate => {
                self.number += 1;
                let number = self.number;
                let Some(item) = self.values.get_mut(&key) else { return unchanged };
                (item.number, item.stale, item.won) = (number, true, false);
                (Answer::Done, vec![*item])
            }
            Job::Add(_) => unchanged,
            Job::Copy(None) | Job::Delete => {
                self.values.remove(&key);
                (Answer::Done, Vec::new())
            }
        }
    }

    fn stored(&mut self, key: u64, value: Value) -> Reply {
        self.store(key, value);
        (Answer::Done, self.values.get(&key).copied().into_iter().collect())
    }
}
