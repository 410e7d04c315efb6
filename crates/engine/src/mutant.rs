//! Deliberate breakages of the engine, each of which the simulator must find.
//!
//! A search that finds no violation says something only if it would find one. Each [`Mutant`] is a
//! mistake that the protocol's code could contain, at the one place where it would be made; a unit
//! test (`sim/mutants.rs`) runs seeds with each until a check fails. Outside of this crate's unit
//! tests [`is`] is a constant `false`, so no branch of it is left in a program that serves.

/// A mistake. Wrong drivers are [`crate::sim::Breakage`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A write does not tell the key's other nodes.
    InvalidationSkipped,
    /// A write is acknowledged before the key's other nodes have confirmed.
    AckBeforePeers,
    /// An invalidation leaves the copies in the tiers.
    InvalidationKeepsCopies,
    /// An invalidation leaves the fills that are under way.
    InvalidationKeepsFlights,
    /// Copies are served after the primary's lease is over.
    ServeAfterLease,
    /// A lease counts from when its grant came, not from when it was requested.
    LeaseFromArrival,
    /// A lease that lapsed and was granted again passes for the same one.
    GenerationIgnored,
    /// A primary takes a lease for over when its holder does, without the margin for drift.
    NoMargin,
    /// A primary that was restarted forgets the leases that it had granted.
    RestartForgetsLeases,
    /// A changed view is acted on at once, while others may act on the one before.
    ViewLagIgnored,
    /// A member acts on after its own membership is over.
    MembershipIgnored,
    /// A primary fills from its peers while they may hold what its write replaced.
    AsksPeersWhilePending,
    /// A fill from a peer is kept although a write voided it.
    StalePeerFillKept,
    /// A fill from the origin is kept although a write voided it.
    StaleOriginFillKept,
    /// A copy that the origin says is changed is served as current.
    ChangedTakenForCurrent,
    /// A reader joins a flight of a lease or view that is over.
    JoinsOldFlight,
    /// A reader that joins a flight is forgotten.
    ReaderLost,
    /// The next of a key's waiting writes is dropped from its queue.
    WriterLost,
    /// A write gets its turn although another has it.
    TurnShared,
    /// A primary keeps its own copies when its write ends.
    OwnCopyKept,
    /// A primary's own fills go on when its write ends.
    OwnFlightsKept,
    /// Only the memory tier forgets a key.
    ForgetsMemoryOnly,
    /// A record that is being written is indexed although a write replaced it.
    AppendsNotVoided,
    /// What a restart finds on a device is served without being compared with the origin.
    RestoredTrusted,
    /// A device's segments are never dropped.
    BudgetIgnored,
}

#[cfg(test)]
thread_local! {
    static CURRENT: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Whether this thread runs a mutant.
#[cfg(test)]
pub(crate) fn is(mutant: Mutant) -> bool {
    CURRENT.get() == Some(mutant)
}

/// Whether this thread runs a mutant: never, outside of unit tests.
#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn is(_: Mutant) -> bool {
    false
}

/// Runs something as a mutant, on this thread.
#[cfg(test)]
pub(crate) fn with<T>(mutant: Option<Mutant>, run: impl FnOnce() -> T) -> T {
    let before = CURRENT.replace(mutant);
    let result = run();
    CURRENT.set(before);
    result
}
