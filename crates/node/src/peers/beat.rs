//! The cluster thread: passes ticks and membership views to the node, undelayed by other work.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use engine::node::Event;
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;

use crate::drive::Drive;
use crate::error::Error;
use membership::Membership;
use record::clock;

/// The cluster thread. It also carries out what the node decides at a tick, mostly lease requests.
pub struct Beat {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Beat {
    /// Starts the thread, which sends [`Event::Tick`] every `tick` and [`Event::View`] at each
    /// change.
    ///
    /// # Errors
    ///
    /// If the runtime or the thread cannot be started.
    pub fn start(
        drive: Arc<Drive>,
        membership: Arc<Membership>,
        tick: Duration,
    ) -> Result<Beat, Error> {
        let (stop, stopped) = oneshot::channel();
        let failed = |source| Error::Thread { name: "cluster", source };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(failed)?;
        let thread = std::thread::Builder::new().name("cluster".to_owned());
        let thread = thread.spawn(move || {
            runtime.block_on(run(drive, membership, tick, stopped));
            runtime.shutdown_background();
        });
        Ok(Beat { stop, thread: thread.map_err(failed)? })
    }

    /// Stops the thread and waits for its end.
    pub fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

async fn run(
    drive: Arc<Drive>,
    membership: Arc<Membership>,
    tick: Duration,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut views = membership.subscribe();
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
                    let seen = views.borrow_and_update().clone();
                    // The engine may name new members at once.
                    if let Some(peers) = drive.peers() {
                        peers.roll.follow(&seen.known);
                    }
                    if membership.is_leased() {
                        drive.tell(clock::now(), Event::View(seen.view()));
                    }
                }
                // The sender of views has ended: the last view stays valid until it expires.
                Err(_) => told = false,
            },
        }
    }
}
