//! The node's sense of time: ticks and views, on a thread of their own, which no other work holds up.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use engine::node::Event;
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;

use super::Membership;
use crate::drive::Drive;
use record::clock;

/// The thread. What the node decides at a tick (asking for leases, mostly) is carried out on it too.
pub struct Beat {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Beat {
    /// Starts it.
    pub fn start(
        drive: Arc<Drive>,
        membership: Arc<dyn Membership>,
        tick: Duration,
    ) -> anyhow::Result<Beat> {
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name("cluster".to_owned()).spawn(move || {
            runtime.block_on(run(drive, membership, tick, stopped));
            runtime.shutdown_background();
        })?;
        Ok(Beat { stop, thread })
    }

    /// Ends it.
    pub fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

async fn run(
    drive: Arc<Drive>,
    membership: Arc<dyn Membership>,
    tick: Duration,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut views = membership.views();
    views.mark_changed();
    let mut ticks = tokio::time::interval(tick);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = true;
    loop {
        tokio::select! {
            _ = &mut stopped => return,
            _ = ticks.tick() => drive.tell(clock::now(), Event::Tick),
            changed = views.changed(), if told => match changed {
                Ok(()) => {
                    let view = views.borrow_and_update().clone();
                    drive.tell(clock::now(), Event::View(view));
                }
                // Whoever told of changes has ended: the last view holds until its own end.
                Err(_) => told = false,
            },
        }
    }
}
