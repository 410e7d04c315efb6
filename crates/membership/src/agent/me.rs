//! This node, as the list of members should have it.

use std::collections::BTreeMap;

use ground::window::Nanos;
use record::clock;

use super::backoff::Backoff;
use crate::roster::{Entry, Roster, State};
use crate::snapshot::{Alive, Snapshot};

/// This node.
pub(super) struct Me {
    pub(super) name: String,
    pub(super) alive: Alive,
    pub(super) weight: f64,
    pub(super) hot: bool,
    /// The key that ends with its lease.
    pub(super) key: String,
    pub(super) lease: Option<i64>,
    pub(super) renewed: Nanos,
    pub(super) serves: bool,
    pub(super) leaves: bool,
    pub(super) backoff: Backoff,
}

/// The weights that the common configuration gives to members.
type Weights = BTreeMap<String, f64>;

impl Me {
    /// The list as it should be, as far as this node may say so.
    ///
    /// # Errors
    ///
    /// If this node cannot be a member, with the reason.
    pub(super) fn amended(
        &self,
        before: &Roster,
        snapshot: &Snapshot,
        weights: Option<&Weights>,
    ) -> Result<Roster, String> {
        let mut next = before.clone();
        if self.entered(&next).is_none() && !self.leaves {
            self.enter(&mut next, snapshot, weights)?;
        }
        let may = self.serves
            && !self.leaves
            && self.backoff.is_over(clock::now())
            && !snapshot.is_suspected(before, &self.name);
        if let (true, Some(at)) = (may, next.find(&self.name)) {
            next.members[at].live = true;
        }
        // Only who is live itself says that others are not, or what they weigh.
        let speaks = self.entered(before) == Some(true);
        self.weigh(&mut next, weights, speaks);
        if speaks {
            for entry in next.members.iter_mut().filter(|e| e.live && e.name != self.name) {
                let there = snapshot.alive.get(&entry.name);
                let gone = there.is_none_or(|(alive, ..)| alive.instance != entry.instance);
                entry.live = !gone && !snapshot.is_suspected(before, &entry.name);
            }
        }
        Ok(next)
    }

    /// Whether this process is live in a list; `None` if the list does not have it.
    fn entered(&self, roster: &Roster) -> Option<bool> {
        let entry = &roster.members[roster.find(&self.name)?];
        (entry.instance == self.alive.instance).then_some(entry.live)
    }

    fn enter(
        &self,
        next: &mut Roster,
        snapshot: &Snapshot,
        weights: Option<&Weights>,
    ) -> Result<(), String> {
        if let Some(why) = snapshot.disagreement(next, &self.name, &self.alive) {
            return Err(why);
        }
        snapshot.free(next, &self.name, self.alive.address);
        let listed = next.find(&self.name).map(|at| &next.members[at]);
        let drains = listed.map(|it| it.state) == Some(State::Draining);
        let weight = match weights {
            Some(all) => all.get(&self.name).copied().unwrap_or(self.weight),
            None => listed.map_or(self.weight, |it| it.weight),
        };
        next.enter(Entry {
            name: self.name.clone(),
            address: self.alive.address,
            weight,
            hot: self.hot,
            state: if drains { State::Draining } else { State::In },
            live: false,
            handed_over: false,
            instance: self.alive.instance.clone(),
        })
    }

    fn weigh(&self, next: &mut Roster, weights: Option<&Weights>, speaks: bool) {
        let Some(weights) = weights else { return };
        for entry in next.members.iter_mut().filter(|entry| entry.state != State::Left) {
            let mine = entry.name == self.name && entry.instance == self.alive.instance;
            let meant = match weights.get(&entry.name) {
                Some(weight) if mine || speaks => Some(*weight),
                None if mine => Some(self.weight),
                _ => None,
            };
            entry.weight = meant.unwrap_or(entry.weight);
        }
    }
}
