//! A gateway's part of the loop: what nodes tell of their devices, the weights that follow from it, and the bound of requests in
//! progress that is found by itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::act::concurrency::{Advice, Order};
use engine::act::weights::{Advice as Weight, Member, Weights};
use engine::act::{Effect, Knob, Mode, Proposal, Status};
use engine::gateway::Event;
use http::{Method, StatusCode};
use record::clock;
use tracing::warn;

use super::gateway::Gateway;
use configuration::Concurrency;
use live::{DeviceWindows, WINDOWS_PATH, WindowIntake};
use peer::Outgoing;

/// Maximum bytes of what a node tells of its devices.
const TOLD_BYTES_MAX: usize = 16 << 20;
/// What the bound of requests is called in the journal.
const TARGET: &str = "gateway";

impl Gateway {
    /// Asks the nodes for the windows of their devices, once in a window; never returns. A process that is
    /// a node too has a model of its own devices.
    pub(super) async fn hear(self: Arc<Self>) {
        let window = Duration::from_secs_f64(self.config.observe.window_s.max(0.1));
        let mut heard: Vec<WindowIntake> = Vec::new();
        let mut weights = Weights::default();
        // The version of what the processes share, and since when it is known.
        let mut shared = (0, Instant::now());
        loop {
            tokio::time::sleep(window).await;
            let nodes = self.router.backend.roll.count();
            heard.resize_with(heard.len().max(nodes), WindowIntake::default);
            let told = (0..nodes).map(|node| self.device_windows(node, window));
            let told = futures_util::future::join_all(told).await;
            let members = self.members(&told);
            members.iter().for_each(|it| self.live.note(&it.name, it.utilisation));
            let advised = weights.look(&members);
            match self.config.act.weights {
                Mode::Auto => self.weigh(&advised, &mut shared).await,
                _ => {
                    for it in &advised {
                        // One that is only advised is made if an operator approved it.
                        if self.live.propose(&it.proposal) == Some(Status::Made) {
                            self.write_weight(it).await;
                        }
                    }
                }
            }
            let now = i128::from(clock::now()) + clock::unix_offset_ns();
            let now_unix_us = (now / 1000).max(0) as u64;
            for (node, told) in told.into_iter().enumerate() {
                let name = self.router.backend.roll.name(node);
                if let (Some(told), Some(heard)) = (told, heard.get_mut(node)) {
                    self.live.hear(heard, name, told, now_unix_us);
                }
            }
        }
    }

    /// Shares the first of the weights that are advised, if nothing that is shared has changed for
    /// `act.weights_every_s`. Of gateways that do so at the same time one comes first.
    async fn weigh(&self, advised: &[Weight], shared: &mut (u64, Instant)) {
        let Some(follower) = self.membership.follower() else { return };
        let current = follower.common().current();
        if shared.0 != current.version {
            *shared = (current.version, Instant::now());
        }
        let rests = shared.1.elapsed().as_secs_f64() < self.config.act.weights_every_s;
        // What etcd holds is refused: an operator's to mend.
        let refused = follower.common().weights().is_none();
        let Some(weight) = advised.first().filter(|_| !rests && !refused) else { return };
        if self.live.propose(&weight.proposal) == Some(Status::Made) {
            self.write_weight(weight).await;
        }
    }

    /// Writes a weight into what the cluster's processes share.
    async fn write_weight(&self, Weight { weight, proposal }: &Weight) {
        let Some(follower) = self.membership.follower() else { return };
        let mut next = follower.common().current();
        next.version += 1;
        next.weights.insert(proposal.target.clone(), *weight);
        if let Err(why) = follower.configure(next).await {
            warn!("{}: {} was not written: {why:?}", proposal.target, proposal.change);
        }
    }

    /// The members that have keys and told of their devices.
    fn members(&self, told: &[Option<DeviceWindows>]) -> Vec<Member> {
        let known = self.membership.members();
        let of = |(node, told): (usize, &Option<DeviceWindows>)| {
            let name = self.router.backend.roll.name(node);
            let member = known.ring.members().iter().find(|member| member.name == name)?;
            let utilisation = told.as_ref()?.utilisation()?;
            let weight = member.weight;
            (weight > 0.0).then(|| Member { name: name.to_owned(), weight, utilisation })
        };
        told.iter().enumerate().filter_map(of).collect()
    }

    /// What a node tells; `None` if it tells nothing in time.
    async fn device_windows(&self, node: usize, within: Duration) -> Option<DeviceWindows> {
        let pool = self.router.backend.roll.pool(node)?;
        let asked = async {
            let reply = pool.send(&Method::GET, WINDOWS_PATH, &[], Outgoing::Empty).await.ok()?;
            let status = reply.status;
            let bytes = reply.body.gather(TOLD_BYTES_MAX).await.ok()?;
            (status == StatusCode::OK).then(|| serde_json::from_slice(&bytes).ok())?
        };
        tokio::time::timeout(within, asked).await.ok()?
    }

    /// Asks, once a second, whether the bound of requests may go where it wants to; never returns.
    pub(super) async fn bound(self: Arc<Self>) {
        if self.config.gateway.concurrency != Concurrency::Auto {
            return;
        }
        let off = self.config.act.concurrency == Mode::Off;
        let mut frozen = false;
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let hold = off || self.live.is_held();
            if hold != frozen {
                frozen = hold;
                self.order(Order::Freeze(frozen));
            }
            let (advice, response_s) = self.router.drive.advice();
            self.live.note(TARGET, response_s);
            if let Some(advice) = advice
                && self.live.propose(&proposal(&advice)) == Some(Status::Made)
            {
                self.order(Order::Move);
            }
        }
    }

    fn order(&self, order: Order) {
        let decided = self.router.drive.tell(None, Event::Concurrency(order));
        self.router.ping_all(decided.pings);
    }
}

/// Another bound as a proposal.
fn proposal(advice: &Advice) -> Proposal {
    let Advice { from, to, elasticity, response_s } = *advice;
    let reason = if to < from {
        format!(
            "responses grow by {elasticity:.2} % where requests in progress grow by 1 %: more only wait"
        )
    } else {
        format!(
            "responses grow by {elasticity:.2} % only where requests in progress grow by 1 %: servers have room"
        )
    };
    let factor = (f64::from(to.max(1)) / f64::from(from.max(1))).powf(elasticity);
    Proposal {
        knob: Knob::Concurrency,
        target: TARGET.to_owned(),
        kind: if to < from { "lower" } else { "raise" }.to_owned(),
        change: format!("bound of {to} requests in progress instead of {from}"),
        reason,
        expected: Effect {
            quantity: "mean response at the bound, s".to_owned(),
            before: response_s,
            after: response_s * factor,
        },
        must: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proposal_says_why_and_what_is_expected() {
        let advice = Advice { from: 128, to: 64, elasticity: 1.0, response_s: 0.2 };
        let down = proposal(&advice);
        assert!(down.reason.contains("more only wait"), "{}", down.reason);
        assert_eq!((down.expected.before, down.expected.after), (0.2, 0.1));
        let up = proposal(&Advice { to: 256, elasticity: 0.0, ..advice });
        assert!(up.reason.contains("have room") && up.expected.after == 0.2, "{up:?}");
    }
}
