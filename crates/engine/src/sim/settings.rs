//! What is simulated: processes, what lies between them, what is behind them, and what goes wrong.

use std::sync::Arc;

use model::window::{self, Nanos, SECOND};

use super::law::{Law, Popularity};
use crate::route::Ring;
use crate::{gateway, node};

/// A process: nodes come first, in the order of the ring's members, then gateways.
pub type Process = u16;

/// The origin, as an end of a connection that can be cut.
pub const ORIGIN: Process = Process::MAX;
/// The service that keeps the membership, as such an end.
pub const MEMBERSHIP: Process = Process::MAX - 1;
/// All clients, as such an end.
pub const CLIENTS: Process = Process::MAX - 2;

/// A cluster to be simulated.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where all random numbers come from.
    pub seed: u64,
    /// Where keys belong.
    pub ring: Arc<Ring>,
    /// The nodes, one for each member of the ring. With [`node::Settings::cluster`] absent, one
    /// alone.
    pub nodes: Vec<node::Settings>,
    /// How long each device of each node takes for a read.
    pub devices: Vec<Vec<Law>>,
    /// The gateways. Without any, clients ask a key's nodes themselves.
    pub gateways: Vec<gateway::Settings>,
    /// What clients ask for.
    pub clients: Clients,
    /// What lies between processes.
    pub network: Network,
    /// What is behind the nodes.
    pub origin: Origin,
    /// For how long a membership is granted; `None`: it is static.
    pub membership: Option<Nanos>,
    /// What goes wrong at devices without a fault of its own.
    pub device_faults: DeviceFaults,
    /// Clocks of the processes, in their order; those that are not named agree with the true time.
    pub clocks: Vec<Clock>,
    /// What goes wrong, in order of time.
    pub faults: Vec<Fault>,
    /// What is wrong on purpose, to see that it is found.
    pub breakage: Option<Breakage>,
    /// Whether the history is judged. It costs a few tens of nanoseconds a request.
    pub check: bool,
    /// How windows of the clients' record (queue `load`) are cut.
    pub windows: window::Settings,
}

/// Shares of a device's operations that go wrong. Readers of the process check a record's checksum
/// and key, so damage shows as a failed read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DeviceFaults {
    /// Share of reads and writes that fail and say so.
    pub failures: f64,
    /// Share of writes that are reported as done and are not there.
    pub lies: f64,
    /// Share of the writes under way at a crash of which a part is found at the restart, with the
    /// header whole and the object torn.
    pub torn: f64,
}

/// What clients do: an open loop.
#[derive(Clone, Debug)]
pub struct Clients {
    /// Requests each second, with exponential times between them.
    pub rate: f64,
    /// When they stop.
    pub until: Nanos,
    /// Keys are 0..keys.
    pub keys: u32,
    /// Which of them.
    pub popularity: Popularity,
    /// Share of requests that write.
    pub write_share: f64,
    /// Share of the writes that delete.
    pub delete_share: f64,
    /// Smallest and largest object, bytes; uniform between.
    pub bytes: (u64, u64),
    /// When a client stops waiting.
    pub deadline: Nanos,
    /// Share of reads that go to any of a key's nodes past the gateways. Without gateways all
    /// requests go to nodes: so many of them to any, the others to the key's first.
    pub any_node: f64,
}

/// What messages meet on their way.
#[derive(Clone, Debug)]
pub struct Network {
    /// How long each takes one way.
    pub delay: Law,
    /// Share that is lost.
    pub loss: f64,
    /// Share that arrives twice: reads, answers and all that passes between nodes. A client's write
    /// is sent once, and only if nothing was done again ([`Breakage::WriteSentTwice`]).
    pub duplicates: f64,
    /// Share that is late, and by how much more.
    pub late: (f64, Law),
    /// After which a caller takes a call for failed.
    pub timeout: Nanos,
}

/// The store behind the nodes. Puts are atomic; their order is that in which they take effect.
#[derive(Clone, Debug)]
pub struct Origin {
    /// How long half a call takes: the way there, and the way back.
    pub half: Law,
    /// Share of calls that fail. A put that failed has happened half of the time.
    pub failures: f64,
    /// Share of puts that take effect late, and by how much: after their client has given up. As
    /// many take effect in time, and their answers are late. Their writer holds the key's turn
    /// meanwhile.
    pub late: (f64, Law),
    /// After which a reader gives up, and a writer tells its client so.
    pub timeout: Nanos,
    /// Bytes of an object's metadata: memory and devices hold them beside it.
    pub metadata_bytes: u64,
}

/// A process' clock: it shows `offset` + time × (1 + `ppm`/10⁶).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// What it shows at time 0.
    pub offset: Nanos,
    /// How much it is too fast, in millionths.
    pub ppm: i32,
}

impl Clock {
    /// What it shows at a time.
    pub fn local(self, time: Nanos) -> Nanos {
        if self.ppm == 0 {
            return self.offset + time;
        }
        let drift = i128::from(time) * i128::from(self.ppm) / 1_000_000;
        (i128::from(self.offset + time) + drift).max(0) as Nanos
    }

    /// The same clock after a jump by so many nanoseconds.
    pub fn jumped(self, by: i64) -> Clock {
        Clock { offset: self.offset.saturating_add_signed(by), ..self }
    }

    /// The first time at which it shows this or more; a nanosecond or two later at most.
    pub fn when(self, local: Nanos) -> Nanos {
        let shown = local.saturating_sub(self.offset);
        if self.ppm == 0 || local == Nanos::MAX {
            return shown;
        }
        let time = i128::from(shown) * 1_000_000 / (1_000_000 + i128::from(self.ppm));
        (time + 1).max(0) as Nanos
    }
}

/// Something that goes wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// When it begins.
    pub at: Nanos,
    /// What it is.
    pub kind: FaultKind,
}

/// What can go wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum FaultKind {
    /// A process ends without notice and starts again after a while with an empty memory and,
    /// perhaps, another clock.
    Kill {
        /// Which.
        process: Process,
        /// For how long it is gone; for ever with `Nanos::MAX`.
        down: Nanos,
        /// Whether what its devices hold is lost too.
        devices_lost: bool,
        /// Its clock afterwards.
        clock: Clock,
    },
    /// A process is stopped: it handles nothing, its clock goes on, and then it handles all at
    /// once.
    Pause {
        /// Which.
        process: Process,
        /// For how long.
        time: Nanos,
    },
    /// Devices of a node take so many times as long.
    Slow {
        /// Which.
        process: Process,
        /// The factor.
        factor: f64,
        /// For how long.
        time: Nanos,
    },
    /// No message passes from a process to others, while theirs arrive.
    CutOneWay {
        /// From which.
        process: Process,
        /// To which; empty: to all.
        to: Vec<Process>,
        /// For how long.
        time: Nanos,
    },
    /// A process' clock jumps. Safe while jumps and drift together stay below 1/16 of a lease.
    ClockJump {
        /// Which.
        process: Process,
        /// By how many nanoseconds, forward or back.
        by: i64,
    },
    /// A node's devices take no further record: each write fails.
    DiskFull {
        /// Which.
        process: Process,
        /// For how long.
        time: Nanos,
    },
    /// Records on a node's devices rot: the checksum of each fails from now on, with this
    /// probability.
    Rot {
        /// Which.
        process: Process,
        /// The probability.
        share: f64,
    },
    /// No message passes between a process and others, in either direction.
    Cut {
        /// Which.
        process: Process,
        /// From which; empty: from all.
        from: Vec<Process>,
        /// For how long.
        time: Nanos,
    },
    /// The origin answers nothing and takes nothing.
    OriginDead {
        /// For how long.
        time: Nanos,
    },
    /// The origin takes so many times as long.
    OriginSlow {
        /// The factor.
        factor: f64,
        /// For how long.
        time: Nanos,
    },
}

/// Wrong drivers and broken assumptions, each of which must be found by the checker. What is wrong
/// in the engine itself is a mutant (`crate::mutant`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breakage {
    /// Invalidations are reported as done and not sent.
    NoInvalidation,
    /// A client is told of its write so long before its node is.
    LateWriteEnd(Nanos),
    /// A lease, once granted, lasts for ever on its holder's clock.
    LeaseForEver,
    /// A lease counts from when its grant arrived, not from when it was asked for.
    LeaseFromArrival,
    /// A fill that is under way is kept, though an invalidation voided it.
    VoidIgnored,
    /// A process that was taken out of the membership acts on as if it had not been.
    MembershipForEver,
    /// The others act on a change of the membership at once.
    NoViewLag,
    /// A writer that gave up on the origin lets the key's next write begin, though its put may yet
    /// land.
    TurnGivenUp,
    /// A write is begun however late it comes, though its client waits no longer.
    LateWriteBegun,
    /// A client's write arrives twice, as from a proxy that tries again.
    WriteSentTwice,
    /// A put lands after the process that sent it has died.
    OrphanedPut,
    /// A damaged record passes for whole: its checksum is not compared.
    ChecksumIgnored,
    /// A peer answers fills with the version before the one that it has.
    StalePeer,
    /// A member's copies are kept when it is told to drop them, and it says that it did.
    InvalidationLied,
    /// Clocks whose rates differ by a half, where a sixteenth is promised.
    ClocksDriftTooFar,
    /// Clocks that jump by half a lease.
    ClocksJumpTooFar,
}

impl Settings {
    /// Whether anything can go wrong, so that callers need to give up.
    pub(super) fn is_faulty(&self) -> bool {
        !self.faults.is_empty()
            || self.network.loss > 0.0
            || self.network.late.0 > 0.0
            || self.origin.failures > 0.0
            || self.origin.late.0 > 0.0
    }

    /// The longest that some may still act on a view that was replaced: how
    /// [`node::ClusterSettings`]'s `view_lag` must be set for a membership granted for `granted`,
    /// with clocks whose rates differ by up to 1/16.
    pub fn view_lag(granted: Nanos) -> Nanos {
        granted + granted / 16
    }
}

impl Default for Network {
    fn default() -> Network {
        Network {
            delay: Law::constant(0.0),
            loss: 0.0,
            duplicates: 0.0,
            late: (0.0, Law::constant(0.0)),
            timeout: SECOND / 4,
        }
    }
}

impl Default for Origin {
    fn default() -> Origin {
        Origin {
            half: Law::constant(0.0025),
            failures: 0.0,
            late: (0.0, Law::constant(0.0)),
            timeout: 10 * SECOND,
            metadata_bytes: 40,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_clock_shows_a_time_when_it_says(
            offset in 0u64..1 << 50, ppm in -20_000i32..20_000, after in 0u64..1 << 45,
        ) {
            let clock = Clock { offset, ppm };
            let local = clock.local(0) + after;
            let when = clock.when(local);
            prop_assert!(clock.local(when) >= local);
            prop_assert!(clock.local(when.saturating_sub(3)) <= local);
        }
    }
}
