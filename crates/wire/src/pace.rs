//! How long a client is waited for: a silent one for `idle`, and a slow one until it falls below a least
//! rate over `stall`.
//!
//! Without the rate one byte now and then keeps a connection, its buffers and a descriptor for ever. Only
//! time in which the client alone holds things up counts, so a slow origin never ends an upload.

use std::pin::pin;
use std::time::{Duration, Instant};

use configuration::Serve;

/// How slow a client may be.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The longest silence.
    pub idle: Duration,
    /// Time spent waiting after which the rate is judged.
    pub stall: Duration,
    /// Least bytes per second.
    pub rate: u64,
}

impl Pace {
    /// That of a configuration.
    pub fn from_settings(serve: &Serve) -> Pace {
        Pace {
            idle: Duration::from_secs_f64(serve.idle_s),
            stall: Duration::from_secs_f64(serve.stall_s),
            rate: serve.rate_bytes_min.0,
        }
    }

    /// Whether `bytes` in `stall` are too few.
    pub fn is_stalled(&self, bytes: u64) -> bool {
        (bytes as f64) < self.rate as f64 * self.stall.as_secs_f64()
    }

    /// What is said of a client that is too slow.
    pub fn in_words(&self) -> String {
        format!(
            "fewer than {} bytes/s over {} s of waiting (serve.rate_bytes_min, serve.stall_s)",
            self.rate,
            self.stall.as_secs_f64()
        )
    }
}

/// Judges the rate of a body that is being received.
pub struct Meter {
    pace: Pace,
    waited: Duration,
    bytes: u64,
}

impl Meter {
    /// A meter that has seen nothing.
    pub fn new(pace: Pace) -> Meter {
        Meter { pace, waited: Duration::ZERO, bytes: 0 }
    }

    /// Counts bytes that came.
    pub fn took(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Waits for the next piece; the reason, if the client is too slow.
    pub async fn wait<T>(&mut self, next: impl Future<Output = T>) -> Result<T, String> {
        let mut next = pin!(next);
        let silent = Instant::now() + self.pace.idle;
        loop {
            let before = Instant::now();
            let left = self.pace.stall.saturating_sub(self.waited);
            let limit = left.min(silent.saturating_duration_since(before));
            let got = tokio::time::timeout(limit, next.as_mut()).await;
            self.waited += before.elapsed();
            if let Ok(got) = got {
                return Ok(got);
            }
            if Instant::now() >= silent {
                return Err(format!("nothing came for {} s", self.pace.idle.as_secs_f64()));
            }
            if self.waited >= self.pace.stall {
                if self.pace.is_stalled(self.bytes) {
                    return Err(format!("it came too slowly: {}", self.pace.in_words()));
                }
                (self.waited, self.bytes) = (Duration::ZERO, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `bytes` every `every_ms`, and says after how many pieces the client was given up.
    async fn check(bytes: usize, every_ms: u64, expected: Option<&str>) {
        let ms = Duration::from_millis;
        let mut meter = Meter::new(Pace { idle: ms(500), stall: ms(200), rate: 1000 });
        let mut told = None;
        for _ in 0..40 {
            match meter.wait(tokio::time::sleep(ms(every_ms))).await {
                Ok(()) => meter.took(bytes),
                Err(why) => {
                    told = Some(why);
                    break;
                }
            }
        }
        match (&told, expected) {
            (None, None) => {}
            (Some(told), Some(part)) if told.contains(part) => {}
            _ => panic!("{bytes} bytes every {every_ms} ms: {told:?}"),
        }
    }

    #[tokio::test]
    async fn a_client_is_given_up_by_its_rate_and_not_by_its_pieces() {
        check(1, 10, Some("too slowly")).await;
        check(100, 10, None).await;
        check(5_000, 150, None).await;
        check(0, 0, None).await;
        check(1_000_000, 600, Some("")).await;
    }
}
