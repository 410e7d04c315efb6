//! The membership service, and how it informs processes.
//!
//! A member that has not renewed for its granted time plus a sixteenth is removed, and one that
//! others suspect at any time; a process that renews is added again. The ring changes by the
//! operator's orders. Each change is sent to all processes at once (these messages may be late
//! or lost), and again in the reply to each renewal. So a process that never learnt of a change has
//! lost its own membership after [`Settings::view_lag`]: the nodes' protocol depends on this bound.
//! In the process the service is etcd: `membership`.

use std::sync::Arc;

use ground::window::Nanos;

use super::happening::{Happening, Life};
use super::settings::{Breakage, MEMBERSHIP, Process, Settings};
use super::state::{Members, Simulation};
use crate::route::{Ring, View};
use crate::{gateway, node};

impl Simulation {
    /// A process renews its membership and requests the view.
    pub(super) fn renew(&mut self, process: Process, life: Life) {
        let Some(granted) = self.settings.membership else { return };
        self.schedule.push(self.now + granted / 4, Happening::Renew { process, life });
        let asked = self.local(usize::from(process));
        self.send(process, MEMBERSHIP, Happening::Renewing { process, life, asked });
    }

    pub(super) fn renewing(&mut self, process: Process, life: Life, asked: Nanos) {
        let member = usize::from(process);
        let has_left = self.members.left.get(member) == Some(&Some(life));
        if member < self.nodes.len() && !has_left {
            self.members.newest[member] = self.members.newest[member].max(life);
            let Some(granted) = self.settings.membership else { return };
            self.members.renewed[member] = self.now;
            let expires = self.now + Settings::view_lag(granted);
            self.schedule.push(expires, Happening::Expire { member, renewed: self.now });
            if !self.members.live[member] {
                self.change(member, true);
            }
        }
        self.show(process, life, Some(asked));
    }

    pub(super) fn expire(&mut self, member: usize, renewed: Nanos) {
        if self.members.renewed[member] == renewed && self.members.live[member] {
            self.change(member, false);
        }
    }

    /// A member that stops has handed over; a message of an earlier process of its name changes nothing.
    pub(super) fn leaving(&mut self, member: usize, life: Life) {
        if self.members.newest[member] > life {
            return;
        }
        self.members.left[member] = Some(life);
        if self.members.live[member] {
            self.members.handed_over[member] = true;
            self.change(member, false);
        }
    }

    /// Others suspect a member, and it is removed until it renews.
    pub(super) fn suspect(&mut self, member: usize) {
        if self.members.live.get(member) == Some(&true) {
            self.change(member, false);
        }
    }

    /// The operator changes the ring: members join, are drained or get other weights.
    pub(super) fn change_ring(&mut self, ring: Arc<Ring>) {
        if ring.members().len() == self.members.live.len() {
            self.members.ring = ring;
            self.changed();
        }
    }

    fn change(&mut self, member: usize, live: bool) {
        self.members.live[member] = live;
        self.members.handed_over[member] &= !live;
        self.changed();
    }

    fn changed(&mut self) {
        self.members.epoch += 1;
        for process in 0..self.processes.len() {
            self.show(process as Process, self.life(process), None);
        }
    }

    fn show(&mut self, process: Process, life: Life, asked: Option<Nanos>) {
        let Members { epoch, live, ring, handed_over, .. } = &self.members;
        let (epoch, live, handed_over) = (*epoch, live.clone(), handed_over.clone());
        let view = View { epoch, live, until: 0, ring: Some(ring.clone()), handed_over };
        self.send(MEMBERSHIP, process, Happening::Viewed { process, life, view, asked });
    }

    /// A process receives a view. The time for which it may act on its own place counts from when
    /// it sent its renewal.
    pub(super) fn viewed(&mut self, process: Process, mut view: View, asked: Option<Nanos>) {
        let at = usize::from(process);
        let Some(granted) = self.settings.membership else { return };
        if at >= self.nodes.len() {
            view.until = Nanos::MAX;
            let gateway = at - self.nodes.len();
            return self.tell_gateway(gateway, gateway::Event::View(view), None);
        }
        let state = &mut self.processes[at];
        if let Some(asked) = asked {
            state.until = state.until.max(asked + granted);
        } else if !self.nodes[at].joined {
            return;
        }
        view.until = state.until;
        if self.settings.breakage == Some(Breakage::MembershipForEver) {
            view.until = Nanos::MAX;
        }
        self.nodes[at].joined = true;
        self.tell_node(at, node::Event::View(view));
    }
}
