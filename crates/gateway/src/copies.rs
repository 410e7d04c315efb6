//! Further replicas of hot shards: what nodes tell of their shards, what [`engine::act::replicas`] decides by it, and where reads
//! go then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::act::replicas::{Extras, Order, Room, Settings, ShardReport};
use engine::act::{Effect, Knob, Mode, Proposal, Status};
use engine::gateway::Event;
use engine::route::NodeId;
use ground::window::key_hash;
use http::{Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use record::clock;
use tracing::warn;

use super::gateway::Gateway;
use dataset::remote::key_of_file;
use datasets::ask::part_of;
use datasets::copies::{PATH, ShardsTold};
use peer::Outgoing;

/// Maximum bytes of what a node tells of its shards.
const TOLD_BYTES_MAX: usize = 4 << 20;

/// A shard, by its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Named {
    dataset: String,
    id: String,
    file: String,
}

impl Named {
    fn hash(&self) -> u64 {
        key_hash(&key_of_file(&self.dataset, &self.id, &self.file))
    }
}

/// What all nodes told, together.
#[derive(Default)]
pub struct Picture {
    /// The shards that nodes tell of.
    pub shards: Vec<ShardReport>,
    /// What nodes have left for copies.
    pub rooms: Vec<Room>,
    names: BTreeMap<u64, Named>,
}

impl Picture {
    /// The nodes' tellings; `homes` are a shard's nodes by the ring.
    pub fn from_reports(
        told: &[Option<ShardsTold>],
        homes: impl Fn(&Named) -> Vec<NodeId>,
    ) -> Picture {
        let mut picture = Picture::default();
        let mut seen: BTreeMap<u64, ShardReport> = BTreeMap::new();
        for (node, told) in told.iter().enumerate() {
            let Some(told) = told else { continue };
            let (length, bytes) = (told.length, told.room_bytes);
            picture.rooms.push(Room { node, length, bytes });
            for shard in &told.shards {
                let (dataset, id) = (shard.dataset.clone(), shard.id.clone());
                let named = Named { dataset, id, file: shard.file.clone() };
                let hash = named.hash();
                let of = seen.entry(hash).or_insert_with(|| ShardReport {
                    shard: hash,
                    bytes: shard.bytes,
                    homes: homes(&named),
                    holders: Vec::new(),
                    can_grow: false,
                });
                of.holders.push((node, shard.length));
                of.can_grow |= shard.can_grow;
                picture.names.insert(hash, named);
            }
        }
        for (_, mut of) in seen {
            // A shard's own node that tells nothing of it has no queue for it.
            for &home in &of.homes {
                let answers = told.get(home).is_some_and(Option::is_some);
                if answers && !of.holders.iter().any(|(node, _)| *node == home) {
                    of.holders.push((home, 0.0));
                }
            }
            picture.shards.push(of);
        }
        picture
    }

    /// The nodes that serve shards beside the shards' own, for the engine.
    fn extras(&self) -> Vec<(u64, Vec<NodeId>)> {
        let further = |seen: &ShardReport| -> Vec<NodeId> {
            let nodes = seen.holders.iter().map(|(node, _)| *node);
            nodes.filter(|node| !seen.homes.contains(node)).collect()
        };
        let all = self.shards.iter().map(|seen| (seen.shard, further(seen)));
        all.filter(|(_, nodes)| !nodes.is_empty()).collect()
    }
}

impl Gateway {
    /// Looks at the shards of all nodes, and has copies of hot ones made and given up; never returns.
    pub(super) async fn copy_shards(self: Arc<Self>) {
        if self.config.act.replicas == Mode::Off {
            return;
        }
        let settings = Settings::default();
        let look = Duration::from_nanos(settings.marks.interval);
        let lease_s = settings.lease / 1_000_000_000;
        // Gateways of a cluster differ in when they began.
        let who = format!(
            "{} {}",
            std::process::id(),
            clock::unix_offset_ns() + i128::from(clock::now())
        );
        let by = key_hash(who.as_bytes());
        let mut extras = match Extras::new(settings, by) {
            Ok(extras) => extras,
            Err(error) => return warn!("no further replicas of shards: {error}"),
        };
        let mut routed = Vec::new();
        loop {
            tokio::time::sleep(look).await;
            let nodes = self.router.backend.roll.count();
            let told = (0..nodes).map(|node| self.shards_told(node, look));
            let told = futures_util::future::join_all(told).await;
            let picture = Picture::from_reports(&told, |named| {
                let key = key_of_file(&named.dataset, &named.id, &named.file);
                self.membership.members().ring.replicas(&key).iter().collect()
            });
            let now = picture.extras();
            if now != routed {
                routed = now;
                let event = Event::Extras(Arc::new(routed.clone()));
                let decided = self.router.drive.tell(None, event);
                self.router.ping_all(decided.pings);
            }
            let figure = |seen: &ShardReport| {
                let lengths = seen.holders.iter().map(|(_, length)| length);
                let mean = lengths.sum::<f64>() / seen.holders.len().max(1) as f64;
                Some((target(picture.names.get(&seen.shard)?), mean))
            };
            self.live.note_shards(picture.shards.iter().filter_map(figure).collect());
            for order in extras.observe(clock::now(), &picture.shards, &picture.rooms) {
                self.carry_out(&mut extras, &picture, order, by, lease_s).await;
            }
        }
    }

    async fn carry_out(
        &self,
        extras: &mut Extras,
        picture: &Picture,
        order: Order,
        by: u64,
        lease_s: u64,
    ) {
        let (shard, node) = match order {
            Order::Add { shard, node, .. }
            | Order::Remove { shard, node, .. }
            | Order::Renew { shard, node } => (shard, node),
        };
        let Some(named) = picture.names.get(&shard) else { return };
        let name = self.router.backend.roll.name(node);
        if let Some(proposal) = proposal(named, name, &order)
            && self.live.propose(&proposal) != Some(Status::Made)
        {
            return;
        }
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let (dataset, file) = (encoded(&named.dataset), encoded(&named.file));
        let query = format!("dataset={dataset}&file={file}&by={by}");
        let now = clock::now();
        if matches!(order, Order::Remove { .. }) {
            // If the request is lost, the lease ends by itself.
            let _ =
                self.ask_of_shards(node, &Method::POST, &format!("{PATH}/return?{query}")).await;
            return extras.gone(now, shard, node);
        }
        let path = format!("{PATH}/lease?{query}&seconds={lease_s}");
        match self.ask_of_shards(node, &Method::POST, &path).await {
            Some((StatusCode::OK, _)) => extras.record_agreement(now, shard, node),
            _ => extras.refused(now, shard, node),
        }
    }

    async fn shards_told(&self, node: NodeId, within: Duration) -> Option<ShardsTold> {
        let asked = self.ask_of_shards(node, &Method::GET, PATH);
        let (status, bytes) = tokio::time::timeout(within, asked).await.ok()??;
        (status == StatusCode::OK).then(|| serde_json::from_slice(&bytes).ok())?
    }

    async fn ask_of_shards(
        &self,
        node: NodeId,
        method: &Method,
        path: &str,
    ) -> Option<(StatusCode, bytes::Bytes)> {
        let pool = self.router.backend.roll.pool(node)?;
        let asked = async {
            let reply = pool.send(method, path, &[], Outgoing::Empty).await.ok()?;
            let status = reply.status;
            Some((status, reply.body.gather(TOLD_BYTES_MAX).await.ok()?))
        };
        tokio::time::timeout(self.router.backend.origin_timeout, asked).await.ok()?
    }
}

/// What a shard is called in the journal: as its queue.
fn target(named: &Named) -> String {
    format!("shard/{}/{}", named.dataset, part_of(&named.file))
}

/// A change as a proposal; `None` for what is no change.
fn proposal(named: &Named, node: &str, order: &Order) -> Option<Proposal> {
    let (kind, change, reason, before, after) = match *order {
        Order::Add { average, expected, .. } => (
            format!("replica on {node}"),
            format!("one more replica, on {node}"),
            format!(
                "its queue is {average:.2} on average at each of its nodes, and none can make it faster by a layer"
            ),
            average,
            expected,
        ),
        Order::Remove { average, expected, .. } => (
            format!("no replica on {node}"),
            format!("one replica less, on {node}"),
            format!("its queue is {average:.2} on average: the other nodes can carry its load"),
            average,
            expected,
        ),
        Order::Renew { .. } => return None,
    };
    let quantity = "mean queue length at a node".to_owned();
    Some(Proposal {
        knob: Knob::Replicas,
        target: target(named),
        kind,
        change,
        reason,
        expected: Effect { quantity, before, after },
        must: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use datasets::copies::ShardTold;

    fn shards_of_node(length: f64, shards: &[(&str, f64)]) -> Option<ShardsTold> {
        let shard = |(file, length): &(&str, f64)| ShardTold {
            dataset: "d".to_owned(),
            id: "1".to_owned(),
            file: (*file).to_owned(),
            bytes: 100,
            length: *length,
            can_grow: false,
        };
        let shards = shards.iter().map(shard).collect();
        Some(ShardsTold { length, room_bytes: 1000, shards })
    }

    #[test]
    fn what_nodes_tell_becomes_a_picture() {
        let told = [
            shards_of_node(9.0, &[("1.shard", 8.0)]),
            shards_of_node(1.0, &[]),
            None,
            shards_of_node(2.0, &[("1.shard", 2.0)]),
        ];
        let picture = Picture::from_reports(&told, |_| vec![0, 1, 2]);
        let [seen] = &picture.shards[..] else { panic!("{:?}", picture.shards) };
        // Node 1 tells nothing of the shard; node 2 does not answer.
        assert_eq!(seen.holders, [(0, 8.0), (3, 2.0), (1, 0.0)]);
        assert_eq!(picture.extras(), [(seen.shard, vec![3])]);
        assert_eq!(picture.rooms.len(), 3);
        let named = &picture.names[&seen.shard];
        assert_eq!(target(named), "shard/d/1");
        let order = Order::Add { shard: seen.shard, node: 3, average: 8.0, expected: 1.5 };
        let proposal = proposal(named, "n3", &order).unwrap();
        assert_eq!(proposal.change, "one more replica, on n3");
        assert!(proposal.reason.contains("8.00"), "{}", proposal.reason);
    }
}
