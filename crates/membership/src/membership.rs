//! The membership of a process: the members now, what is wrong with the contact to etcd, and the orders of an operator.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use engine::route::NodeId;
use engine::status::{MemberStatus, MembershipStatus};
use ground::window::Nanos;
use record::clock;
use tokio::sync::{oneshot, watch};

use super::common::Common;
use super::contact::{Contact, Order, lock};
use super::error::Error;
use super::follower::{CONFIGURE_MAX, Follower};
use super::members::{Members, MembersView};
use super::roster::State;
use configuration::Config;

/// Time between two looks for the loss of this process's place.
const LOOK: Duration = Duration::from_millis(250);

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
