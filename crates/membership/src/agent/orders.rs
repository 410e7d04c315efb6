//! The agent's part in orders: members that lose their keys or get them back, and this node's end.

use std::time::Duration;

use super::Agent;
use crate::etcd::{EtcdError, Put, Unchanged};
use crate::roster::Roster;
use crate::snapshot::Snapshot;

impl Agent {
    /// Carries out the operator's orders in turn, but for those that nobody waits for any more.
    pub(super) async fn drain(&mut self, snapshot: &Snapshot) -> Result<bool, EtcdError> {
        self.drains.retain(|(.., done)| !done.is_closed());
        let Some((name, drains, done)) = self.drains.pop_front() else { return Ok(false) };
        let Some(Ok(roster)) = &snapshot.roster else {
            let _ = done.send(Err("there is no list of members".to_owned()));
            return Ok(false);
        };
        let mut next = roster.clone();
        if let Err(why) = next.drain(&name, drains) {
            let _ = done.send(Err(why));
            return Ok(false);
        }
        if next == *roster {
            let _ = done.send(Ok(roster.epoch));
            return Ok(false);
        }
        let next = Roster { epoch: next.epoch + 1, ..next };
        let view = format!("{}/view", self.prefix);
        let value = match next.write() {
            Ok(value) => value,
            Err(why) => {
                let _ = done.send(Err(why));
                return Ok(false);
            }
        };
        let put = Put::Value(&view, &value, None);
        match self
            .etcd
            .change(&[Unchanged { key: &view, revision: snapshot.revision }], &[put])
            .await
        {
            Ok(true) => {
                let _ = done.send(Ok(next.epoch));
            }
            Ok(false) => self.drains.push_front((name, drains, done)),
            Err(error) => {
                let _ = done.send(Err(error.to_string()));
            }
        }
        Ok(true)
    }

    /// Says in etcd that this node ends, within two seconds.
    pub(super) async fn leave(&mut self, handed_over: bool) {
        let Some(me) = &mut self.me else { return };
        me.leaves = true;
        let (name, instance, lease) = (me.name.clone(), me.alive.instance.clone(), me.lease);
        let say = async {
            for _ in 0..20 {
                let Ok(pairs) = self.etcd.all(&format!("{}/", self.prefix)).await else { return };
                let snapshot = Snapshot::from_pairs(&self.prefix, pairs);
                let Some(Ok(roster)) = &snapshot.roster else { break };
                let mut next = roster.clone();
                let mine = next.find(&name).is_some_and(|at| next.members[at].instance == instance);
                if mine {
                    next.end(&name, handed_over);
                }
                if next == *roster {
                    break;
                }
                let changed = self.replace(&snapshot, next).await;
                if changed.is_err() {
                    break;
                }
            }
            if let Some(lease) = lease {
                let _ = self.etcd.revoke(lease).await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(2), say).await;
    }
}
