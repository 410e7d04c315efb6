//! Settings of a simulation: processes, the network between them, the origin behind them, and
//! faults.

use std::sync::Arc;

use ground::window::{self, Nanos, SECOND};

use super::arrivals::Arrivals;
use super::law::{Law, Popularity};
use crate::route::Ring;
use crate::{gateway, node};

/// Index of a process: nodes first, in the order of the ring's members, then gateways.
pub type Process = u16;

/// The origin, as one end of a connection that can be cut.
pub const ORIGIN: Process = Process::MAX;
/// The membership service, as one end of a connection.
pub const MEMBERSHIP: Process = Process::MAX - 1;
/// All clients, as one end of a connection.
pub const CLIENTS: Process = Process::MAX - 2;

/// A cluster to simulate.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The seed of all random numbers.
    pub seed: u64,
    /// Assigns keys to nodes.
    pub ring: Arc<Ring>,
    /// The nodes, one for each member of the ring. Without [`node::Settings::cluster`], a single
    /// node.
    pub nodes: Vec<node::Settings>,
    /// Service times of reads for each device of each node.
    pub devices: Vec<Vec<Law>>,
    /// The gateways. Without gateways, clients send requests to a key's nodes directly.
    pub gateways: Vec<gateway::Settings>,
    /// The clients' requests.
    pub clients: Clients,
    /// The network between processes.
    pub network: Network,
    /// The origin behind the nodes.
    pub origin: Origin,
    /// Duration for which a membership is granted; `None` for a static membership.
    pub membership: Option<Nanos>,
    /// Random failures of devices, independent of `faults`.
    pub device_faults: DeviceFaults,
    /// Clocks of the processes, in the order of processes; further processes have exact clocks.
    pub clocks: Vec<Clock>,
    /// The faults, in order of time.
    pub faults: Vec<Fault>,
    /// A deliberate bug, to check that the search finds it.
    pub breakage: Option<Breakage>,
    /// Whether the history is judged. Costs a few tens of nanoseconds per request.
    pub check: bool,
    /// Windows of the clients' record (queue `load`).
    pub windows: window::Settings,
}

/// Shares of a device's operations that fail. The real process checks the checksum and key of each
/// record it reads, so damage appears as a failed read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DeviceFaults {
    /// Share of reads and writes that report a failure.
    pub failures: f64,
    /// Share of writes that are reported as done but were not written.
    pub lies: f64,
    /// Share of the writes under way at a crash that are found torn at the restart: the header
    /// complete, the object not.
    pub torn: f64,
}

/// The clients: an open loop of requests.
#[derive(Clone, Debug)]
pub struct Clients {
    /// Requests per second, with exponential times between them.
    pub rate: f64,
    /// When requests arrive instead, if the rate changes or the times are given.
    pub course: Option<Arrivals>,
    /// When they stop sending.
    pub until: Nanos,
    /// Keys are 0..keys.
    pub keys: u32,
    /// The popularity of the keys.
    pub popularity: Popularity,
    /// Share of requests that are writes.
    pub write_share: f64,
    /// Share of the writes that are deletions.
    pub delete_share: f64,
    /// Sizes of the smallest and the largest object in bytes; uniform in between.
    pub bytes: (u64, u64),
    /// Time after which a client stops waiting.
    pub deadline: Nanos,
    /// Share of reads that bypass the gateways and go to any of a key's nodes. Without gateways all
    /// requests go to nodes: this share to any of the key's nodes, the rest to its first.
    pub any_node: f64,
}

impl Clients {
    /// When requests arrive.
    pub(super) fn arrivals(&self) -> Arrivals {
        self.course.clone().unwrap_or(Arrivals::Poisson(self.rate))
    }
}

/// The network.
#[derive(Clone, Debug)]
pub struct Network {
    /// One-way latency of a message.
    pub delay: Law,
    /// Share of messages that are lost.
    pub loss: f64,
    /// Share of messages that arrive twice: reads, replies and all messages between nodes. A
    /// client's write does not arrive twice: it is sent again only if nothing was done (see
    /// [`Breakage::WriteSentTwice`]).
    pub duplicates: f64,
    /// Share of messages that are late, and their additional delay.
    pub late: (f64, Law),
    /// Time after which a caller counts a call as failed.
    pub timeout: Nanos,
}

/// The store behind the nodes. Puts are atomic and ordered by the time at which they take effect.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Time of half a call: the way there, or the way back.
    pub half: Law,
    /// Share of calls that fail. Half of the failed puts take effect nevertheless.
    pub failures: f64,
    /// Share of puts that take effect late, after their client gave up, and the delay. For an equal
    /// share the put takes effect in time and its reply is late. In both cases the writer holds the
    /// key's turn meanwhile.
    pub late: (f64, Law),
    /// Whether a put may land after the process that sent it has ended: a request to a store may, a
    /// write to a folder may not.
    pub orphans: bool,
    /// Whether a writer reads the store's version of the key and the store refuses its put if
    /// another is there (`origin::S3`).
    pub conditional: bool,
    /// Time after which a reader gives up, and a writer reports a timeout to its client.
    pub timeout: Nanos,
    /// Bytes of an object's metadata, which memory and devices hold in addition to the object.
    pub metadata_bytes: u64,
}

/// A process's clock: it shows `offset` + time × (1 + `ppm`/10⁶).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// The time that it shows at true time 0.
    pub offset: Nanos,
    /// Its rate error in millionths; positive if it is fast.
    pub ppm: i32,
}

impl Clock {
    /// The time that it shows at a true time.
    pub fn local(self, time: Nanos) -> Nanos {
        if self.ppm == 0 {
            return self.offset + time;
        }
        let drift = i128::from(time) * i128::from(self.ppm) / 1_000_000;
        (i128::from(self.offset + time) + drift).max(0) as Nanos
    }

    /// The same clock after a jump by a number of nanoseconds.
    pub fn jumped(self, by: i64) -> Clock {
        Clock { offset: self.offset.saturating_add_signed(by), ..self }
    }

    /// The first true time at which it shows at least this; at most a nanosecond or two late.
    pub fn when(self, local: Nanos) -> Nanos {
        let shown = local.saturating_sub(self.offset);
        if self.ppm == 0 || local == Nanos::MAX {
            return shown;
        }
        let time = i128::from(shown) * 1_000_000 / (1_000_000 + i128::from(self.ppm));
        (time + 1).max(0) as Nanos
    }
}

/// A fault with its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// When the fault begins.
    pub at: Nanos,
    /// The kind of fault.
    pub kind: FaultKind,
}

/// A kind of fault.
#[derive(Clone, Debug, PartialEq)]
pub enum FaultKind {
    /// A process crashes and restarts after a while with an empty memory and perhaps another clock.
    Kill {
        /// The process or node.
        process: Process,
        /// Time until the restart; `Nanos::MAX` for never.
        down: Nanos,
        /// Whether the contents of its devices are lost too.
        devices_lost: bool,
        /// Its clock after the restart.
        clock: Clock,
    },
    /// A node of a leased membership stops in order, and is started again: it hands over, or ends after
    /// `within` without having done so.
    Stop {
        /// The node.
        process: Process,
        /// The time that it has for it.
        within: Nanos,
        /// How long it answers after it has.
        lingers: Nanos,
        /// Time until the restart.
        down: Nanos,
        /// Its clock after the restart.
        clock: Clock,
    },
    /// A process is paused: it handles nothing while its clock goes on, and then handles all
    /// deferred events at once.
    Pause {
        /// The process or node.
        process: Process,
        /// The duration.
        time: Nanos,
    },
    /// The devices of a node become slower by a factor.
    Slow {
        /// The process or node.
        process: Process,
        /// The factor.
        factor: f64,
        /// The duration.
        time: Nanos,
    },
    /// Messages from a process to others are lost; messages in the other direction arrive.
    CutOneWay {
        /// The process whose messages are lost.
        process: Process,
        /// The recipients; empty for all.
        to: Vec<Process>,
        /// The duration.
        time: Nanos,
    },
    /// A process's clock jumps. Safe while jumps and drift together stay below 1/16 of a lease.
    ClockJump {
        /// The process or node.
        process: Process,
        /// The jump in nanoseconds; negative for back.
        by: i64,
    },
    /// A node's devices are full: each write fails.
    DiskFull {
        /// The process or node.
        process: Process,
        /// The duration.
        time: Nanos,
    },
    /// Records on a node's devices are damaged: with this probability, the checksum of a record
    /// fails from now on.
    Rot {
        /// The process or node.
        process: Process,
        /// The probability.
        share: f64,
    },
    /// Messages between a process and others are lost in both directions.
    Cut {
        /// The process or node.
        process: Process,
        /// The other processes; empty for all.
        from: Vec<Process>,
        /// The duration.
        time: Nanos,
    },
    /// The membership removes a member that others suspect, though it may be well; it is added again
    /// when it renews. Nothing happens in a static membership.
    Suspect {
        /// The node.
        process: Process,
    },
    /// The operator changes the ring of a leased membership: members join, are drained or get other
    /// weights. The ring must list the same nodes.
    Ring {
        /// The new ring.
        ring: Arc<Ring>,
    },
    /// Other keys become popular: from now on each key that clients ask for stands for the one so many further.
    Shift {
        /// Number of keys.
        by: u32,
    },
    /// At the place of a node's origin is something else: a node that runs finds its origin lost, one that is started
    /// meanwhile finds an empty place or another origin.
    WrongOrigin {
        /// The node.
        process: Process,
        /// Whether the place is empty; otherwise another origin is there.
        empty: bool,
        /// The duration.
        time: Nanos,
    },
    /// The origin is down: it neither answers nor stores anything.
    OriginDead {
        /// The duration.
        time: Nanos,
    },
    /// The origin answers everything with an error and does nothing, as one that denies access or is damaged; another program in
    /// its place, whose replies are not taken for its own, is the same to nodes.
    OriginRefuses {
        /// The duration.
        time: Nanos,
    },
    /// The origin becomes slower by a factor.
    OriginSlow {
        /// The factor.
        factor: f64,
        /// The duration.
        time: Nanos,
    },
}

/// Bugs in the driver and broken assumptions, each of which the checker must find. Bugs in the
/// engine itself are mutants (`crate::mutant`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breakage {
    /// Invalidations are reported as done but not sent.
    NoInvalidation,
    /// A client gets the acknowledgement of its write this long before its node learns the result.
    LateWriteEnd(Nanos),
    /// A lease, once granted, never expires for its holder.
    LeaseForEver,
    /// A lease counts from when its grant arrived, not from when it was requested.
    LeaseFromArrival,
    /// A fill that is under way is kept although an invalidation voided it.
    VoidIgnored,
    /// A process that was removed from the membership goes on acting as a member.
    MembershipForEver,
    /// The other processes act on a change of the membership at once.
    NoViewLag,
    /// A writer that timed out at the origin passes on the key's turn although its put may still
    /// land.
    TurnGivenUp,
    /// A write is started however late it arrives, even if its client has stopped waiting.
    LateWriteBegun,
    /// A client's write arrives twice, as from a proxy that retries.
    WriteSentTwice,
    /// A put lands after the process that sent it has crashed, and names no version.
    OrphanedPut,
    /// A put lands after the process that sent it has crashed, on a key without object, which got one
    /// and lost it meanwhile: the store cannot tell one absence from another. What conditional puts
    /// leave open.
    OrphanedPutAfterDelete,
    /// A damaged record is read as valid: its checksum is not checked.
    ChecksumIgnored,
    /// A record is read as an object whatever its key.
    KeyIgnored,
    /// A peer answers fills with the version before the one that it holds.
    StalePeer,
    /// A member keeps its copies on an invalidation, and confirms it.
    InvalidationLied,
    /// The rates of clocks differ by a half; the assumed bound is a sixteenth.
    ClocksDriftTooFar,
    /// Clocks jump by half a lease.
    ClocksJumpTooFar,
}

impl Settings {
    /// Whether anything can fail, so that callers need timeouts.
    pub(super) fn is_faulty(&self) -> bool {
        !self.faults.is_empty()
            || self.network.loss > 0.0
            || self.network.late.0 > 0.0
            || self.origin.failures > 0.0
            || self.origin.late.0 > 0.0
    }

    /// The maximum time for which a process may still act on a replaced view.
    /// [`node::ClusterSettings`]'s `view_lag` must be set to it for a membership granted for
    /// `granted`, with clocks whose rates differ by up to 1/16.
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
            orphans: false,
            conditional: false,
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
