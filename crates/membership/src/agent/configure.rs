//! The agent's part in the common configuration: it writes new versions.

use super::{Agent, Written};
use crate::common::{self, NotWritten};
use crate::etcd::{EtcdError, Put, Unchanged};
use crate::snapshot::Snapshot;

impl Agent {
    /// Writes a new version of the common configuration that somebody waits for, or puts back the one that etcd has lost.
    pub(super) async fn configure(&mut self, snapshot: &Snapshot) -> Result<bool, EtcdError> {
        let roster = snapshot.roster.as_ref().and_then(|roster| roster.as_ref().ok());
        // An order whose caller was told that etcd does not answer may have been taken back since: the oldest of several would win.
        self.configures.retain(|(_, done)| !done.is_closed());
        let (new, done) = match self.configures.pop_front() {
            Some((new, done)) => (new, Some(done)),
            None => match self.common.lost(snapshot.config.as_ref()) {
                Some(lost) if self.me.is_some() => (lost, None),
                _ => return Ok(false),
            },
        };
        let told = |done: Option<Written>, what| _ = done.map(|done| done.send(what));
        if let (Some(Ok(there)), true) = (&snapshot.config, done.is_some()) {
            // It was written, and the reply to that was lost.
            if *there == new {
                told(done, Ok(new.version));
                return Ok(false);
            }
            // This process may have refused what others took.
            let taken = self.common.current().version == there.version;
            if there.version >= new.version && !taken {
                told(
                    done,
                    Err(NotWritten::Conflict(format!(
                        "version {} does not follow the one in etcd, {}, which this process has not taken; ask another",
                        new.version, there.version
                    ))),
                );
                return Ok(false);
            }
        }
        if done.is_some()
            && let Err(why) = self.common.may_write(&new, roster)
        {
            told(done, Err(why));
            return Ok(false);
        }
        let value = match new.write() {
            Ok(value) => value,
            Err(why) => {
                told(done, Err(NotWritten::Invalid(why)));
                return Ok(false);
            }
        };
        let key = common::key(&self.prefix);
        let put = Put::Value(&key, &value, None);
        match self
            .etcd
            .change(&[Unchanged { key: &key, revision: snapshot.config_revision }], &[put])
            .await
        {
            Ok(true) => {
                let version = new.version;
                self.common.read(Some(&Ok(new)));
                told(done, Ok(version));
            }
            Ok(false) => {
                done.into_iter().for_each(|done| self.configures.push_front((new.clone(), done)))
            }
            Err(error) => told(done, Err(NotWritten::Unknown(error.to_string()))),
        }
        Ok(true)
    }
}
