//! The thread that follows the members and the common configuration in etcd.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::agent::{self, Agent};
use super::common::{Common, Document, NotWritten};
use super::contact::{Contact, Order};
use super::error::Error;
use configuration::Config;

/// Maximum time that an operator waits for etcd.
pub(super) const CONFIGURE_MAX: Duration = Duration::from_secs(10);

/// The common configuration of a process whose members are in etcd, and the thread that follows both.
#[derive(Clone)]
pub struct Follower {
    pub(super) common: Arc<Common>,
    pub(super) orders: mpsc::UnboundedSender<Order>,
}

impl Follower {
    /// Starts the thread.
    pub(super) fn start(
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
