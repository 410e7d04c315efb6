//! The nodes of a cluster by number, with the connections to each. Nodes are added while requests use it.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, Guard};
use engine::route::{NodeId, Ring};
use http::HeaderValue;

use super::error::Error;
use membership::{MEMBERS_MAX, Members};
use peer::{Limits, Pool, RequestHead};
use wire::tls::Dialer;

/// A node.
struct Slot {
    name: String,
    header: HeaderValue,
    pool: ArcSwap<Pool>,
    /// How far its clock is ahead of this process's, nanoseconds; `i64::MIN` if not known.
    ahead: AtomicI64,
}

/// The nodes. See the module. A number belongs to one name for good.
pub struct Roll {
    slots: Box<[OnceLock<Slot>]>,
    length: AtomicUsize,
    ring: ArcSwap<Ring>,
    head: RequestHead,
    limits: Limits,
    dialer: Option<Arc<Dialer>>,
}

impl Roll {
    /// The nodes that are known. Every request to one begins with `head`. Connects to none.
    ///
    /// # Errors
    ///
    /// If a name is not a valid header value.
    pub fn new(
        known: &Members,
        is_leased: bool,
        head: RequestHead,
        limits: Limits,
        dialer: Option<Arc<Dialer>>,
    ) -> Result<Roll, Error> {
        let members = known.ring.members();
        for member in members {
            let invalid = |source| Error::Name { name: member.name.clone(), source };
            HeaderValue::from_str(&member.name).map_err(invalid)?;
        }
        let room = if is_leased { MEMBERS_MAX } else { members.len() };
        let roll = Roll {
            slots: (0..room).map(|_| OnceLock::new()).collect(),
            length: AtomicUsize::new(0),
            ring: ArcSwap::new(known.ring.clone()),
            head,
            limits,
            dialer,
        };
        roll.follow(known);
        Ok(roll)
    }

    /// Takes what is known now: adds nodes, and follows those whose addresses changed.
    pub fn follow(&self, known: &Members) {
        let members = known.ring.members().iter().zip(&known.addresses);
        for (slot, (member, &address)) in self.slots.iter().zip(members) {
            let dialer = || self.dialer.clone();
            let pool = || Pool::encrypted(address, &self.head, self.limits, dialer());
            let it = slot.get_or_init(|| Slot {
                name: member.name.clone(),
                // The list's names are letters, digits and the like.
                header: HeaderValue::from_str(&member.name)
                    .unwrap_or(HeaderValue::from_static("?")),
                pool: ArcSwap::from_pointee(pool()),
                ahead: AtomicI64::new(i64::MIN),
            });
            if it.pool.load().address() != address {
                it.pool.store(Arc::new(pool()));
                it.ahead.store(i64::MIN, Ordering::Relaxed);
            }
        }
        self.length.store(known.ring.members().len().min(self.slots.len()), Ordering::Release);
        self.ring.store(known.ring.clone());
    }

    fn slot(&self, node: NodeId) -> Option<&Slot> {
        self.slots.get(node)?.get()
    }

    /// The ring.
    pub fn ring(&self) -> Guard<Arc<Ring>> {
        self.ring.load()
    }

    /// The number of nodes, those that have left included.
    pub fn count(&self) -> usize {
        self.length.load(Ordering::Acquire)
    }

    /// The connections to a node.
    pub fn pool(&self, node: NodeId) -> Option<Guard<Arc<Pool>>> {
        self.slot(node).map(|slot| slot.pool.load())
    }

    /// A node's name.
    pub fn name(&self, node: NodeId) -> &str {
        self.slot(node).map_or("?", |slot| &slot.name)
    }

    /// A node's name as a header value.
    pub fn header(&self, node: NodeId) -> Option<&HeaderValue> {
        self.slot(node).map(|slot| &slot.header)
    }

    /// How far a node's clock is ahead of this process's.
    pub fn ahead(&self, node: NodeId) -> Option<i64> {
        let ahead = self.slot(node)?.ahead.load(Ordering::Relaxed);
        (ahead != i64::MIN).then_some(ahead)
    }

    /// Notes how far a node's clock is ahead.
    pub fn set_ahead(&self, node: NodeId, ahead: i64) {
        if let Some(slot) = self.slot(node) {
            slot.ahead.store(ahead, Ordering::Relaxed);
        }
    }
}
