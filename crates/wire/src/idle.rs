//! The limit of silence between requests: one timer for a connection, however many requests pass.
//!
//! hyper sets a timer whenever it begins to wait for a head. Plain reads pass before hyper has seen a
//! head, so that its timer runs on; when it ends, this one looks when the last of them was answered.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};

use crate::refusal::Phase;

/// hyper's timer for a connection.
pub struct IdleTimer {
    phase: Arc<Phase>,
    silent: Duration,
}

struct Idle {
    sleep: Pin<Box<tokio::time::Sleep>>,
    began: Instant,
    phase: Arc<Phase>,
    silent: Duration,
}

impl IdleTimer {
    /// A timer of a connection that may be silent for `silent`.
    pub fn new(phase: Arc<Phase>, silent: Duration) -> IdleTimer {
        IdleTimer { phase, silent }
    }
}

impl Timer for IdleTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(Instant::now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Idle {
            sleep: Box::pin(tokio::time::sleep_until(deadline.into())),
            began: Instant::now(),
            phase: self.phase.clone(),
            silent: self.silent,
        })
    }
}

impl Future for Idle {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let idle = &mut *self;
        loop {
            ready!(idle.sleep.as_mut().poll(context));
            // Nothing passed since the timer began, or the last plain read is as long ago.
            let Some(last) = idle.phase.last_passed(idle.began) else { return Poll::Ready(()) };
            let until = last + idle.silent;
            if until <= Instant::now() {
                return Poll::Ready(());
            }
            idle.sleep.as_mut().reset(until.into());
        }
    }
}

impl Sleep for Idle {}
