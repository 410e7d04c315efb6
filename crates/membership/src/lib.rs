//! Which processes belong to the cluster: the configuration's members, or those that etcd lists.
//!
//! The list ([`roster`]) is one value in etcd, changed by compare-and-set, and so there is one sequence of
//! views. A node renews a lease on a key of its own; when the key is gone, or others suspect the node, any
//! member marks it as lost. No node acts on its place for longer than `membership.valid_s` after it asked
//! etcd for the list and found it as it was: what the engine's views demand ([`engine::route::View`]), whatever
//! etcd's leases do. The simulator drives the same views (`engine::sim`). [`agent`] does all this.

mod agent;
mod common;
mod error;
mod etcd;
mod orders;
mod probes;
mod roster;
mod snapshot;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use engine::route::{NodeId, Ring, View};
use engine::status::{MemberStatus, MembershipStatus};
use ground::window::Nanos;
use record::clock;
use tokio::sync::{mpsc, oneshot, watch};

use agent::{Agent, Written};
pub use common::{Common, Document, NotWritten, add_metrics};
use configuration::Config;
pub use error::Error;
pub use etcd::{Etcd, EtcdError, If, Put, pairs as etcd_pairs, parse_change_reply};
pub use orders::{answer, configure};
pub use roster::{Roster, State};

/// What a process knows of the members, by number.
pub struct Members {
    /// Which view it is; 0 in a static membership.
    pub epoch: u64,
    /// Where keys belong.
    pub ring: Arc<Ring>,
    /// Where each listens.
    pub addresses: Vec<SocketAddr>,
    /// What each does.
    pub states: Vec<State>,
    /// Whether each lives.
    pub live: Vec<bool>,
    /// Whether each handed over before it ceased to live.
    handed_over: Vec<bool>,
    shares: OnceLock<Vec<f64>>,
}

impl Members {
    /// The primary of a key; `None` if none of its nodes lives.
    pub fn primary(&self, key: &[u8]) -> Option<NodeId> {
        self.ring.replicas(key).iter().find(|&node| self.live[node])
    }

    /// The share of all keys whose primary each is. Passes over the whole ring when it is asked for first.
    fn shares(&self) -> &[f64] {
        self.shares.get_or_init(|| self.ring.shares_of(&self.live))
    }

    fn from_roster(roster: &Roster, ring: Arc<Ring>) -> Members {
        let of = &roster.members;
        Members {
            epoch: roster.epoch,
            ring,
            addresses: of.iter().map(|entry| entry.address).collect(),
            states: of.iter().map(|entry| entry.state).collect(),
            live: of.iter().map(|entry| entry.live).collect(),
            handed_over: of.iter().map(|entry| entry.handed_over).collect(),
            shares: OnceLock::new(),
        }
    }
}

/// The members, and until when a node may act on its place among them.
#[derive(Clone)]
pub struct MembersView {
    /// The members.
    pub known: Arc<Members>,
    /// The time, a reading of [`clock::now`].
    pub until: Nanos,
}

impl MembersView {
    /// The view for a node's engine.
    pub fn view(&self) -> View {
        let Members { epoch, ring, live, handed_over, .. } = &*self.known;
        View {
            epoch: *epoch,
            live: live.clone(),
            until: self.until,
            ring: Some(ring.clone()),
            handed_over: handed_over.clone(),
        }
    }

    /// The view for a gateway's engine, which acts on no place of its own.
    pub fn of_gateway(&self) -> View {
        View { until: Nanos::MAX, ..self.view() }
    }
}

/// What an operator orders.
enum Order {
    /// This node serves now.
    Serve,
    /// This node ends, having handed over or not.
    Leave(bool, oneshot::Sender<()>),
    /// A member loses its keys (`true`) or gets them back.
    Drain(String, bool, oneshot::Sender<Result<u64, String>>),
    /// A new version of the common configuration.
    Configure(Document, Written),
}

/// How it stands with etcd.
#[derive(Clone, Debug, Default)]
struct Contact {
    /// When etcd last confirmed the list.
    confirmed: Option<Nanos>,
    /// Why it does not now.
    error: Option<String>,
    /// Who suspects whom.
    suspects: Vec<(String, String)>,
    /// Why this process has lost its place for good.
    lost: Option<String>,
}

/// The membership of a process.
pub struct Membership {
    seen: watch::Sender<MembersView>,
    me: Option<NodeId>,
    lag: Nanos,
    valid: Nanos,
    contact: Arc<Mutex<Contact>>,
    follower: Option<Follower>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The common configuration of a process whose members are in etcd, and the thread that follows both.
#[derive(Clone)]
pub struct Follower {
    common: Arc<Common>,
    orders: mpsc::UnboundedSender<Order>,
}

impl Follower {
    /// Starts the thread.
    fn start(
        config: &Config,
        common: Arc<Common>,
        contact: Arc<Mutex<Contact>>,
        first: agent::First,
    ) -> Result<(Follower, JoinHandle<()>), Error> {
        let (orders, received) = mpsc::unbounded_channel();
        let agent = Agent::new(config, contact, common.clone(), received, first)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(Error::Thread)?;
        let thread = std::thread::Builder::new().name("membership".to_owned());
        let thread = thread.spawn(move || {
            runtime.block_on(agent.run());
            runtime.shutdown_background();
        });
        Ok((Follower { common, orders }, thread.map_err(Error::Thread)?))
    }

    /// That of a process that needs no list of members. Its thread ends with it.
    ///
    /// # Errors
    ///
    /// If a certificate cannot be used.
    pub fn alone(config: &Config, common: Common) -> Result<Follower, Error> {
        let (first, _) = std::sync::mpsc::channel();
        Follower::start(config, Arc::new(common), Arc::default(), first).map(|(it, _)| it)
    }

    /// The common configuration.
    pub fn common(&self) -> &Common {
        &self.common
    }

    /// Writes a new version of the common configuration, which follows the present one.
    ///
    /// # Errors
    ///
    /// Why it was not written, or why that is not known.
    pub async fn configure(&self, new: Document) -> Result<u64, NotWritten> {
        let (done, wait) = oneshot::channel();
        let ended = |_: ()| NotWritten::Unknown("this process ends".to_owned());
        self.orders.send(Order::Configure(new, done)).map_err(|_| ended(()))?;
        match tokio::time::timeout(CONFIGURE_MAX, wait).await {
            Ok(told) => told.map_err(|_| ended(()))?,
            Err(_) => Err(NotWritten::Unknown("etcd does not answer".to_owned())),
        }
    }
}

/// Time between two looks for the loss of this process's place.
const LOOK: Duration = Duration::from_millis(250);
/// Maximum time that an operator waits for etcd.
const CONFIGURE_MAX: Duration = Duration::from_secs(10);

fn lock(contact: &Mutex<Contact>) -> MutexGuard<'_, Contact> {
    contact.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Membership {
    /// The membership of a configuration; `None` alone. One in etcd waits, for at most
    /// `membership.start_s`, until this node is entered, or a gateway knows a node.
    ///
    /// # Errors
    ///
    /// If etcd does not answer, or refuses, in that time.
    pub fn start(
        config: &Config,
        common: Option<Common>,
    ) -> Result<Option<Arc<Membership>>, Error> {
        if let Some(common) = common {
            return Membership::in_etcd(config, common).map(Some);
        }
        let Some(ring) = config.ring() else { return Ok(None) };
        let members = ring.members().len();
        let known = Members {
            epoch: 0,
            ring,
            addresses: config.addresses(),
            states: vec![State::In; members],
            live: vec![true; members],
            handed_over: Vec::new(),
            shares: OnceLock::new(),
        };
        Ok(Some(Arc::new(Membership {
            seen: watch::Sender::new(MembersView { known: Arc::new(known), until: Nanos::MAX }),
            me: config.me(),
            lag: 0,
            valid: 0,
            contact: Arc::default(),
            follower: None,
            thread: Mutex::new(None),
        })))
    }

    fn in_etcd(config: &Config, common: Common) -> Result<Arc<Membership>, Error> {
        let valid = (config.membership.valid_s * 1e9) as Nanos;
        let contact: Arc<Mutex<Contact>> = Arc::default();
        let (first, begun) = std::sync::mpsc::channel();
        let (follower, thread) = Follower::start(config, Arc::new(common), contact.clone(), first)?;
        let patience = Duration::from_secs_f64(config.membership.start_s);
        let (seen, me) = begun.recv_timeout(patience).map_err(|_| {
            let why = lock(&contact).error.clone();
            let why = why.unwrap_or_else(|| "no node has joined".to_owned());
            Error::not_in_time(&config.membership, why)
        })?;
        Ok(Arc::new(Membership {
            seen,
            me,
            lag: valid + valid / 16,
            valid,
            contact,
            follower: Some(follower),
            thread: Mutex::new(Some(thread)),
        }))
    }

    /// The members now.
    pub fn members(&self) -> Arc<Members> {
        self.seen.borrow().known.clone()
    }

    /// The number of this node; `None` on a gateway.
    pub fn me(&self) -> Option<NodeId> {
        self.me
    }

    /// The members now, and each later change or confirmation.
    pub fn subscribe(&self) -> watch::Receiver<MembersView> {
        self.seen.subscribe()
    }

    /// How long after a change all who hear of etcd know of it.
    pub fn valid(&self) -> Duration {
        Duration::from_nanos(self.valid)
    }

    /// How long after a change others may still act on the previous view.
    pub fn lag(&self) -> Nanos {
        self.lag
    }

    /// Whether members change at run time.
    pub fn is_leased(&self) -> bool {
        self.follower.is_some()
    }

    /// The common configuration of members in etcd.
    pub fn follower(&self) -> Option<&Follower> {
        self.follower.as_ref()
    }

    /// This node takes requests: it becomes live.
    pub fn serve(&self) {
        if let Some(Follower { orders, .. }) = &self.follower {
            let _ = orders.send(Order::Serve);
        }
    }

    /// Others take this node's place: at once if it handed over. Waits at most two seconds.
    pub fn leave(&self, handed_over: bool) {
        let Some(Follower { orders, .. }) = &self.follower else { return };
        let (done, wait) = oneshot::channel();
        if orders.send(Order::Leave(handed_over, done)).is_ok() {
            let _ = wait.blocking_recv();
        }
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            let _ = thread.join();
        }
    }

    /// Returns when this process has lost its place among the members for good, with the reason.
    pub async fn lost(&self) -> String {
        loop {
            if let Some(why) = lock(&self.contact).lost.clone() {
                return why;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Takes a member's keys away (`drains`), or gives them back. Returns the epoch of the change.
    ///
    /// # Errors
    ///
    /// Why that cannot be, or why etcd does not answer.
    pub async fn drain(&self, name: &str, drains: bool) -> Result<u64, String> {
        let Some(Follower { orders, .. }) = &self.follower else {
            return Err(
                "the members are listed in the configuration; change it everywhere, and start \
                        all processes again"
                    .to_owned(),
            );
        };
        let (done, wait) = oneshot::channel();
        let ended = || "this process ends".to_owned();
        orders.send(Order::Drain(name.to_owned(), drains, done)).map_err(|_| ended())?;
        match tokio::time::timeout(CONFIGURE_MAX, wait).await {
            Ok(told) => told.map_err(|_| ended())?,
            // What was not sent to etcd by now is not: nobody waits for it any more.
            Err(_) => {
                let why = lock(&self.contact).error.clone();
                let why = why.unwrap_or_else(|| "etcd does not answer".to_owned());
                Err(format!("{why}; see `concertina status` before you try again"))
            }
        }
    }

    /// What is wrong with the contact to etcd, if it has not confirmed the members in time.
    pub fn problem(&self) -> Option<String> {
        if !self.is_leased() {
            return None;
        }
        let contact = lock(&self.contact).clone();
        let ago = contact.confirmed.map(|at| clock::now().saturating_sub(at));
        let late = ago.is_none_or(|ago| ago > 2 * self.valid);
        let epoch = self.seen.borrow().known.epoch;
        late.then(|| {
            let why = contact.error.unwrap_or_else(|| "it does not answer".to_owned());
            let ago = ago.map_or(0.0, |ago| ago as f64 * 1e-9);
            format!(
                "etcd has not confirmed the members for {ago:.1} s ({why}); serving with those of epoch \
                 {epoch}: reads are compared with the origin, nodes order no writes"
            )
        })
    }

    /// The status.
    pub fn status(&self) -> MembershipStatus {
        let known = self.members();
        let contact = lock(&self.contact).clone();
        let member = |(at, &share): (usize, &f64)| {
            let name = known.ring.name(at).to_owned();
            let suspects = contact.suspects.iter().filter(|(whom, _)| *whom == name);
            MemberStatus {
                address: known.addresses[at],
                weight: known.ring.members()[at].weight,
                hot: Some(known.ring.is_hot(at)),
                share: Some(share),
                state: known.states[at].as_str().to_owned(),
                live: known.live[at],
                suspected_by: suspects.map(|(_, by)| by.clone()).collect(),
                name,
            }
        };
        let now = clock::now();
        MembershipStatus {
            kind: if self.is_leased() { "etcd" } else { "static" }.to_owned(),
            epoch: known.epoch,
            confirmed_s_ago: contact.confirmed.map(|at| now.saturating_sub(at) as f64 * 1e-9),
            problem: self.problem(),
            configuration: self.follower.as_ref().map(|it| it.common.status()),
            members: known
                .shares()
                .iter()
                .enumerate()
                .filter(|(at, _)| known.states[*at] != State::Left)
                .map(member)
                .collect(),
        }
    }
}
