//! The thread that keeps a process's membership in etcd.
//!
//! Each round asks for all keys of the cluster. What the list says is published; then, on a node, what
//! should be otherwise is changed: the node's own key and its entry, the entries of members that are lost,
//! and the list of members that this node suspects. Changes of the list are one compare-and-set of the whole; one that came too
//! late is made again from what the next round finds.

mod backoff;
mod configure;
mod me;
mod orders;

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::route::{NodeId, Ring};
use ground::window::Nanos;
use record::clock;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tracing::{info, warn};

use super::common::{Common, Document};
use super::contact::{Contact, Order, Written, lock};
use super::error::Error;
use super::etcd::{Etcd, EtcdError, Put, Unchanged};
use super::members::{Members, MembersView};
use super::probes::Probes;
use super::roster::{Roster, State};
use super::snapshot::{Alive, Snapshot};
use backoff::Backoff;
use configuration::{Class, Config};
use me::Me;

/// What the process that started the agent waits for.
pub type First = std::sync::mpsc::Sender<(watch::Sender<MembersView>, Option<NodeId>)>;

/// An operator's order: the member, whether it loses its keys, and who is told.
type Drain = (String, bool, oneshot::Sender<Result<u64, String>>);

/// A pause after a change that came too late, or failed.
const AGAIN: Duration = Duration::from_millis(5);

/// See the module.
pub struct Agent {
    prefix: String,
    etcd: Etcd,
    bell: Arc<Notify>,
    me: Option<Me>,
    replicas: usize,
    valid: Nanos,
    lease_s: f64,
    probes: Arc<Probes>,
    config: configuration::Membership,
    contact: Arc<Mutex<Contact>>,
    common: Arc<Common>,
    orders: mpsc::UnboundedReceiver<Order>,
    drains: VecDeque<Drain>,
    configures: VecDeque<(Document, Written)>,
    first: Option<First>,
    seen: Option<watch::Sender<MembersView>>,
    /// The newest list, with its revision.
    last: Option<Roster>,
    ring: Option<Arc<Ring>>,
    /// What was last complained of.
    said: Option<String>,
    /// The values of etcd's that are refused, as they were last told of.
    refused: BTreeSet<String>,
    /// This node's number, which is its own as long as the process lives.
    number: Option<NodeId>,
}

impl Agent {
    /// The agent of a configuration.
    ///
    /// # Errors
    ///
    /// If a certificate cannot be used.
    pub fn new(
        config: &Config,
        contact: Arc<Mutex<Contact>>,
        common: Arc<Common>,
        orders: mpsc::UnboundedReceiver<Order>,
        first: First,
    ) -> Result<Agent, Error> {
        let of = &config.membership;
        let prefix = of.prefix.clone();
        let valid = (of.valid_s * 1e9) as Nanos;
        let me = match (config.is_node(), &config.cluster.name) {
            (true, Some(name)) => {
                let address = config.node_address();
                let address: SocketAddr = address
                    .parse()
                    .map_err(|source| Error::Address { address: address.to_owned(), source })?;
                Some(Me {
                    key: format!("{prefix}/live/{name}"),
                    name: name.clone(),
                    alive: Alive {
                        instance: format!("{:016x}", rand::random::<u64>()),
                        address,
                        valid_s: Some(of.valid_s),
                    },
                    weight: of.weight,
                    hot: of.class == Class::Hot,
                    lease: None,
                    renewed: 0,
                    serves: false,
                    leaves: false,
                    backoff: Backoff::default(),
                })
            }
            _ => None,
        };
        // A server that does not answer must leave time to ask another before the view ends.
        let within = Duration::from_nanos(valid / 2);
        Ok(Agent {
            etcd: Etcd::new(of, within)?,
            prefix,
            bell: Arc::default(),
            me,
            replicas: config.cluster.replicas as usize,
            valid,
            lease_s: of.lease_s,
            probes: Probes::new((of.suspect_s * 1e9) as Nanos, wire::tls::dialer(config)?),
            config: of.clone(),
            contact,
            common,
            orders,
            drains: VecDeque::new(),
            configures: VecDeque::new(),
            first: Some(first),
            seen: None,
            last: None,
            ring: None,
            said: None,
            refused: BTreeSet::new(),
            number: None,
        })
    }

    /// Runs until this node leaves, or the process ends.
    pub async fn run(mut self) {
        tokio::spawn(watch(
            self.config.clone(),
            self.prefix.clone(),
            self.valid,
            self.bell.clone(),
        ));
        if self.me.is_some() {
            tokio::spawn(self.probes.clone().run(self.bell.clone()));
        }
        let every = Duration::from_nanos(self.valid / 4);
        loop {
            let pause = match self.round().await {
                Ok(true) => AGAIN,
                Ok(false) => every,
                Err(error) => {
                    self.complain(error.to_string());
                    every / 4
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.bell.notified() => {}
                order = self.orders.recv() => match order {
                    // The process ends without an order, or failed to start.
                    None => return self.leave(false).await,
                    Some(Order::Leave(handed_over, done)) => {
                        self.leave(handed_over).await;
                        let _ = done.send(());
                        return;
                    }
                    Some(Order::Serve) => {
                        if let Some(me) = &mut self.me {
                            me.serves = true;
                        }
                    }
                    // Those that nobody waits for any more leave here too: while etcd is away no round gets to them.
                    Some(Order::Drain(name, drains, done)) => {
                        self.drains.retain(|(.., done)| !done.is_closed());
                        self.drains.push_back((name, drains, done));
                    }
                    Some(Order::Configure(new, done)) => {
                        self.configures.retain(|(_, done)| !done.is_closed());
                        self.configures.push_back((new, done));
                    }
                },
            }
        }
    }

    /// Notes what is wrong, and logs it once.
    fn complain(&mut self, what: String) {
        lock(&self.contact).error = Some(what.clone());
        if self.said.as_ref() != Some(&what) {
            match &self.last {
                Some(last) => {
                    warn!("membership: {what}; keeping the members of epoch {}", last.epoch)
                }
                None => warn!("membership: {what}"),
            }
            self.said = Some(what);
        }
    }

    /// One round. Returns whether something was changed, so that the next should follow at once.
    async fn round(&mut self) -> Result<bool, EtcdError> {
        let asked = clock::now();
        let pairs = self.etcd.all(&format!("{}/", self.prefix)).await?;
        let snapshot = Snapshot::from_pairs(&self.prefix, pairs);
        let refused: BTreeSet<String> = snapshot.refused.iter().cloned().collect();
        for refused in refused.difference(&self.refused) {
            warn!("membership: etcd holds a value that is refused: {refused}");
        }
        self.refused = refused;
        self.common.read(snapshot.config.as_ref());
        if self.configure(&snapshot).await? {
            return Ok(true);
        }
        let current = match &snapshot.roster {
            Some(Err(why)) => {
                let what =
                    format!("the list of members in etcd ({}/view) is refused: {why}", self.prefix);
                self.complain(what);
                return Ok(false);
            }
            Some(Ok(roster)) => Some(roster.clone()),
            None => None,
        };
        // A list of the same epoch that says something else follows from an older one that etcd came back with.
        let is_older = |last: &Roster| {
            let is_later = |now: &Roster| now.epoch > last.epoch || now == last;
            !current.as_ref().is_some_and(is_later)
        };
        if self.last.as_ref().is_some_and(is_older) {
            return self.restore(&snapshot).await;
        }
        if let Some(roster) = &current {
            self.publish(roster, &snapshot, asked);
        }
        if self.me.is_none() {
            if current.is_none() {
                self.complain("there is no list of members yet".to_owned());
            }
            return self.drain(&snapshot).await;
        }
        Ok(self.own(&snapshot).await?
            || self.entries(&snapshot).await?
            || self.drain(&snapshot).await?)
    }

    /// etcd lost what it had confirmed: a node puts back the list that it knows. The epoch leaves one out,
    /// so that all take every key for changed.
    async fn restore(&mut self, snapshot: &Snapshot) -> Result<bool, EtcdError> {
        let Some(last) = self.last.clone() else { return Ok(false) };
        self.complain(format!("etcd has lost the members of epoch {}", last.epoch));
        if self.me.is_none() {
            return Ok(false);
        }
        let mut next = Roster { epoch: last.epoch + 1, ..last };
        for entry in &mut next.members {
            entry.live &= snapshot.alive.contains_key(&entry.name);
        }
        self.replace(snapshot, next).await
    }

    /// Tells the process what the list says, and a node until when it may act on it.
    fn publish(&mut self, roster: &Roster, snapshot: &Snapshot, asked: Nanos) {
        if let Some((was, is)) = self.misnumbered(roster) {
            let what = format!(
                "etcd had lost the list of members when this node entered it as number {was}, and the list that came \
                 back has {is}: this process cannot go on; start it again"
            );
            lock(&self.contact).lost = Some(what.clone());
            return self.complain(what);
        }
        let is_new = self.last.as_ref().is_none_or(|last| last.epoch < roster.epoch);
        let same =
            |last: &Roster| (last.replicas, last.placed()) == (roster.replicas, roster.placed());
        let ring = match (&self.ring, &self.last) {
            (Some(ring), Some(last)) if !is_new || same(last) => ring.clone(),
            _ => match roster.ring() {
                Ok(ring) => Arc::new(ring),
                Err(error) => {
                    return self.complain(format!("the list of members makes no ring: {error}"));
                }
            },
        };
        self.ring = Some(ring.clone());
        let suspects = snapshot.suspects.iter();
        let suspects =
            suspects.flat_map(|(whom, by)| by.iter().map(|by| (whom.clone(), by.clone())));
        *lock(&self.contact) =
            Contact { confirmed: Some(asked), suspects: suspects.collect(), ..Contact::default() };
        if self.said.take().is_some() {
            info!("membership: etcd confirms the members of epoch {}", roster.epoch);
        }
        let mine = |me: &Me| {
            let entry = roster.find(&me.name).map(|at| &roster.members[at])?;
            (entry.instance == me.alive.instance).then_some(())
        };
        let is_mine = self.me.as_ref().and_then(mine).is_some();
        let before = self.seen.as_ref().map(|seen| seen.borrow().clone());
        let until = match (&before, is_mine) {
            (_, true) => asked.saturating_add(self.valid),
            (Some(before), false) => before.until,
            (None, false) => 0,
        };
        let known = match before {
            Some(before) if !is_new => before.known,
            _ => Arc::new(Members::from_roster(roster, ring)),
        };
        if is_new {
            self.say_what_changed(roster);
            self.last = Some(roster.clone());
        }
        let seen = MembersView { known, until };
        match (&self.seen, self.first.take()) {
            (Some(sender), _) => {
                sender.send_replace(seen);
            }
            // A node begins when it is entered.
            (None, first) if self.me.is_some() && !is_mine => self.first = first,
            (None, first) => {
                let sender = watch::Sender::new(seen);
                let me = self.me.as_ref().and_then(|me| roster.find(&me.name));
                self.number = me;
                if let Some(first) = first {
                    let _ = first.send((sender.clone(), me));
                }
                self.seen = Some(sender);
            }
        }
    }

    /// This node's number and the other one that a list gives it: it would take the keys of another.
    fn misnumbered(&self, roster: &Roster) -> Option<(NodeId, String)> {
        let (me, was) = (self.me.as_ref()?, self.number?);
        match roster.find(&me.name) {
            Some(is) if is == was => None,
            Some(is) => Some((was, format!("number {is}"))),
            None => roster.members.get(was).map(|_| (was, "another node there".to_owned())),
        }
    }

    fn say_what_changed(&self, roster: &Roster) {
        let before = |name: &str| {
            let last = self.last.as_ref()?;
            last.find(name).map(|at| (last.members[at].live, last.members[at].state))
        };
        let mut news = Vec::new();
        for entry in &roster.members {
            let (was, now) = (before(&entry.name), (entry.live, entry.state));
            if was != Some(now) {
                let live = if entry.live { "live" } else { "not live" };
                let state = match entry.state {
                    State::In => "",
                    State::Draining => ", draining",
                    State::Left => ", left",
                };
                news.push(format!("{} is {live}{state}", entry.name));
            }
        }
        info!("membership: epoch {}: {}", roster.epoch, news.join(", "));
    }

    /// Keeps this node's lease, and its key.
    async fn own(&mut self, snapshot: &Snapshot) -> Result<bool, EtcdError> {
        let now = clock::now();
        let Some(me) = &mut self.me else { return Ok(false) };
        let is_due = now.saturating_sub(me.renewed) as f64 > self.lease_s / 4.0 * 1e9;
        if let Some(lease) = me.lease.filter(|_| is_due) {
            me.lease = self.etcd.renew(lease).await?.then_some(lease);
            me.renewed = now;
        }
        let lease = match me.lease {
            Some(lease) => lease,
            None => {
                let lease = self.etcd.grant(self.lease_s.ceil() as i64).await?;
                (me.lease, me.renewed) = (Some(lease), now);
                lease
            }
        };
        let revision = match snapshot.alive.get(&me.name) {
            Some((alive, _, under)) if *alive == me.alive && *under == lease => return Ok(false),
            // The process before this one, which cannot listen any more, or an earlier lease.
            Some((alive, revision, _)) if alive.address == me.alive.address => *revision,
            Some((alive, ..)) => {
                let what = format!(
                    "another process lives under the name {:?}, at {}; waiting until it ends",
                    me.name, alive.address
                );
                self.complain(what);
                return Ok(false);
            }
            None => 0,
        };
        let value = serde_json::to_vec(&me.alive).unwrap_or_default();
        let put = Put::Value(&me.key, &value, Some(lease));
        self.etcd.change(&[Unchanged { key: &me.key, revision }], &[put]).await?;
        Ok(true)
    }

    /// Changes the list where it is not as it should be, and says whom this node suspects.
    async fn entries(&mut self, snapshot: &Snapshot) -> Result<bool, EtcdError> {
        if let Some(Ok(roster)) = &snapshot.roster
            && self.misnumbered(roster).is_some()
        {
            return self.withdraw(snapshot, roster).await;
        }
        let Some(me) = &mut self.me else { return Ok(false) };
        if let Some(Ok(roster)) = &snapshot.roster {
            let entry = roster.find(&me.name).map(|at| &roster.members[at]);
            let mine = entry.filter(|entry| entry.instance == me.alive.instance);
            me.backoff.note(mine.is_some_and(|entry| entry.live), clock::now());
        }
        let me = &*me;
        if !snapshot.alive.get(&me.name).is_some_and(|(alive, ..)| *alive == me.alive) {
            return Ok(false);
        }
        let before = match &snapshot.roster {
            Some(Ok(roster)) => roster.clone(),
            _ => Roster::empty(self.replicas),
        };
        if before.epoch > 0 && before.replicas != self.replicas {
            let what = format!(
                "the cluster keeps {} nodes for each key, this node's cluster.replicas is {}",
                before.replicas, self.replicas
            );
            self.complain(what);
            return Ok(false);
        }
        // `None`: nobody knows which weights are meant, and they stay as they are.
        let weights = self.common.weights();
        let next = match me.amended(&before, snapshot, weights.as_ref()) {
            Ok(next) => next,
            Err(why) => {
                self.complain(why);
                return Ok(false);
            }
        };
        let name = me.name.clone();
        if next != before {
            return self.replace(snapshot, next).await;
        }
        self.suspicions(snapshot, &before, &name).await
    }

    /// Takes this process off the list: others order its keys' writes.
    async fn withdraw(&mut self, snapshot: &Snapshot, roster: &Roster) -> Result<bool, EtcdError> {
        let Some(me) = &self.me else { return Ok(false) };
        let mut next = roster.clone();
        if next.find(&me.name).is_some_and(|at| next.members[at].instance == me.alive.instance) {
            next.end(&me.name, false);
        }
        if next == *roster { Ok(false) } else { self.replace(snapshot, next).await }
    }

    async fn suspicions(
        &mut self,
        snapshot: &Snapshot,
        roster: &Roster,
        name: &str,
    ) -> Result<bool, EtcdError> {
        self.probes.watch(&snapshot.watched(roster, name));
        let suspected = self.probes.suspected();
        let is_now = |whom: &str| suspected.iter().any(|(other, late)| other == whom && *late);
        let said = |whom: &str| snapshot.suspects.get(whom).is_some_and(|by| by.contains(name));
        let lease = self.me.as_ref().and_then(|me| me.lease);
        let key = |whom: &str| format!("{}/suspect/{whom}/{name}", self.prefix);
        let mut changes: Vec<(String, bool)> = Vec::new();
        for (whom, late) in &suspected {
            if *late && !said(whom) {
                changes.push((key(whom), true));
            }
        }
        let spoken = snapshot.suspects.keys().filter(|whom| said(whom) && !is_now(whom));
        changes.extend(spoken.map(|whom| (key(whom), false)));
        if changes.is_empty() {
            return Ok(false);
        }
        let puts: Vec<Put<'_>> = changes
            .iter()
            .map(|(key, late)| match late {
                true => Put::Value(key, b"1", lease),
                false => Put::Delete(key),
            })
            .collect();
        self.etcd.change(&[], &puts).await?;
        Ok(true)
    }

    /// Replaces the list by compare-and-set.
    async fn replace(&mut self, snapshot: &Snapshot, next: Roster) -> Result<bool, EtcdError> {
        let next = Roster { epoch: next.epoch + 1, ..next };
        let value = match next.write() {
            Ok(value) => value,
            Err(why) => {
                self.complain(format!("the list of members is not changed: {why}"));
                return Ok(false);
            }
        };
        let view = format!("{}/view", self.prefix);
        let put = Put::Value(&view, &value, None);
        self.etcd.change(&[Unchanged { key: &view, revision: snapshot.revision }], &[put]).await?;
        Ok(true)
    }
}

/// Rings when a key of the cluster changes.
async fn watch(config: configuration::Membership, prefix: String, valid: Nanos, bell: Arc<Notify>) {
    // The certificates were read a moment ago.
    let Ok(mut etcd) = Etcd::new(&config, Duration::from_nanos(valid)) else { return };
    loop {
        let _ = etcd.watch(&format!("{prefix}/"), || bell.notify_one()).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
