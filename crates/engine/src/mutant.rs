//! Deliberate bugs in the engine, each of which the simulator must find.
//!
//! A search that finds no violation is evidence only if it would have found one. Each [`Mutant`] is
//! a bug that the protocol's code could contain, placed where it would occur; a unit test
//! (`sim/mutants.rs`) runs seeds with each mutant until a check fails. Outside this crate's unit
//! tests [`is`] is a constant `false`, so that no mutant's branch remains in a serving program.

/// A bug in the engine. Bugs in a driver are [`crate::sim::Breakage`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A write does not invalidate the copies on the key's other nodes.
    InvalidationSkipped,
    /// A write is acknowledged before the key's other nodes have confirmed.
    AckBeforePeers,
    /// An invalidation leaves the copies in the tiers.
    InvalidationKeepsCopies,
    /// An invalidation does not void the fills that are under way.
    InvalidationKeepsFlights,
    /// Copies are served after the primary's lease has expired.
    ServeAfterLease,
    /// A lease counts from when its grant arrived, not from when it was requested.
    LeaseFromArrival,
    /// A lease that lapsed and was granted again counts as the same lease.
    GenerationIgnored,
    /// A primary counts a lease as expired when its holder does, without the margin for clock
    /// drift.
    NoMargin,
    /// A restarted primary forgets the leases that it had granted.
    RestartForgetsLeases,
    /// A node acts on a changed view at once, while others may still act on the previous one.
    ViewLagIgnored,
    /// A write is made, or made again, though another primary may have written since its turn began.
    WritesUnasked,
    /// A node makes a write that was sent to it before it ceased to order the key, and began again.
    EpochUnasked,
    /// A gateway gives up the writes at a node that was lost while others may still act on the earlier view.
    GivenUpAtOnce,
    /// A write that is under way when another node begins to order its key counts as made however long it
    /// takes.
    GraceForEver,
    /// A node says that it has handed over while it makes a write.
    HandsOverWhileWriting,
    /// A node says that it has handed over while others hold its leases.
    HandsOverLeased,
    /// A node that has handed over serves its copies of the keys that it ordered.
    ServesAfterHandover,
    /// A node that has handed over keeps the leases that it has from others.
    HandoverKeepsLeases,
    /// A lease that a later process of a member's name was granted ends with the handover of the one before.
    LaterLeaseEnded,
    /// A lease that its granter took back is revived by a grant that was on its way.
    ReturnedLeaseRevived,
    /// A node orders the keys of one that handed over although others may still act on an earlier view.
    HandoverHidesEarlier,
    /// A node that missed a view takes only those keys for changed that the last one changed.
    MissedViewTrusted,
    /// A node serves copies of keys that it just became a replica of.
    NewReplicaTrusted,
    /// A view in which members have other weights and the same members have keys changes nobody's keys.
    WeightsTrusted,
    /// A primary does not invalidate the copies of nodes that were replicas until just now.
    EarlierRingForgotten,
    /// A member goes on acting after its own membership has expired.
    MembershipIgnored,
    /// A primary fills from its peers while they may still hold the version that its write
    /// replaced.
    AsksPeersWhilePending,
    /// A fill from a peer is kept although a write voided it.
    StalePeerFillKept,
    /// A fill from the origin is kept although a write voided it.
    StaleOriginFillKept,
    /// A copy is served as current although the origin reports another version.
    ChangedTakenForCurrent,
    /// A reader joins a flight that belongs to an expired lease or view.
    JoinsOldFlight,
    /// A flight whose first piece was read stays open for readers after a write ended.
    OpenedFlightJoined,
    /// A reader that joins a flight never gets a reply.
    ReaderLost,
    /// A key's next waiting write is dropped from the queue.
    WriterLost,
    /// A write gets its turn while another write has it.
    TurnShared,
    /// A primary keeps its own copies when its write ends.
    OwnCopyKept,
    /// A primary's own fills are not voided when its write ends.
    OwnFlightsKept,
    /// A key is removed from the memory tier but not from the devices.
    ForgetsMemoryOnly,
    /// An invalidation leaves the copy on a hot device.
    HotCopyKept,
    /// A record that is being written is indexed although a write has replaced it.
    AppendsNotVoided,
    /// Objects found on a device at a restart are served without comparing them with the origin.
    RestoredTrusted,
    /// A device's segments are never dropped, whatever its budget.
    BudgetIgnored,
    /// A write does not invalidate the copies on the key's hot nodes.
    HotNodeNotInvalidated,
    /// A hot node serves copies after the primary's lease has expired.
    HotNodeServesAfterLease,
    /// A hot node takes keys of which it is no hot node.
    HotNodeTakesAnyKey,
    /// A hot node serves copies of keys whose hot node it just became.
    NewHotNodeTrusted,
    /// Of pools of memcached servers: a server that may have missed writes is read.
    PoolStaleServerRead,
    /// A server is emptied while writes that were given up may still reach it.
    PoolFlushBeforeLateWrites,
    /// A server that missed a write since it was out of reach counts as current.
    PoolMissedWriteIgnored,
    /// A write is acknowledged when the first of its servers has replied.
    PoolFirstReplyEndsWrite,
    /// The value of an update is not copied to the key's other servers.
    PoolUpdateNotCopied,
    /// An update runs on a server that may have missed writes.
    PoolUpdatesStaleServer,
    /// Two writes of a key are under way at once.
    PoolKeyShared,
    /// A read does not wait for an update of its key.
    PoolReadsDuringUpdate,
    /// A read of several keys does not wait for an update of one of them.
    PoolMultiGetDoesNotWait,
    /// A value is moved from a former server while a write of its key is under way.
    PoolMovesDuringWrite,
    /// A write leaves the value that the key's former server has.
    PoolFormerValueKept,
    /// A write leaves the value that its key has where it was moved to before.
    PoolMovedValueKept,
    /// Pools that take the place of others do not know where these had keys.
    PoolFormerRingForgotten,
    /// A read is hedged although a write of the same client is behind it.
    PoolHedgesPastWrite,
    /// A read that failed is sent to another server although a write of the same client is behind it.
    PoolRetriesPastWrite,
    /// A write does not wait for an earlier read of the same client, which waits for another key.
    PoolWritePassesWaitingRead,
    /// A compare-and-swap number is any server's.
    PoolNumberOfAny,
    /// A read that may say that an item is stale takes another server's miss for a miss.
    PoolMissNotAskedAtFirst,
    /// What an invalidation has left is read back, as if it could be copied.
    PoolReadsBackStale,
    /// A flush does not wait for the updates that came before it.
    PoolFlushPassesUpdates,
    /// Updates do not wait for the flush that came before them.
    PoolUpdatesPassFlush,
    /// A copy of a request counts as one of the request's own attempts.
    PoolCopyCounts,
    /// Of questions to datasets: answers of an earlier view are kept.
    QuestionKeepsEarlierAnswers,
    /// A part that did not answer is not listed as missing.
    QuestionForgetsMissing,
    /// A page that left parts out says that it is the last.
    QuestionForgetsMore,
    /// Of the memory budget: a limit rises before the other party has given up the bytes.
    BudgetRaisedBeforeFreed,
    /// Bytes move back and forth for any difference, at once.
    BudgetWithoutMargin,
    /// Of changes of datasets: a change is acknowledged before its chunk is in the store.
    DatasetAckBeforeStored,
    /// A manifest replaces the one that is known now, not the one whose log was sealed.
    DatasetPublishesOver,
    /// Chunks are removed before the manifest that has sealed them is current.
    DatasetRemovesUnsealed,
    /// A shard is removed because the reply to its manifest was lost.
    DatasetRemovesListed,
    /// Copies of shards are removed although the view uses them.
    DatasetDiscardsUsed,
    /// A chunk counts although its number may have been sealed before it was put.
    DatasetLateChunkCounts,
    /// A change is written again although its chunk may have been sealed at once.
    DatasetSealedNotCompared,
    /// A view is used although the manifest may have changed while its chunks were read.
    DatasetViewNotCompared,
    /// A chunk whose number is taken counts as another's, although it may be one's own, sealed and removed before the store looked.
    DatasetTakenTrusted,
    /// Chunks that an interrupted removal left are not looked for.
    DatasetLeavesChunks,
    /// Of further replicas of shards: a node holds copies beyond the room that it has.
    ReplicaIgnoresRoom,
    /// A copy that nobody leases any more is kept.
    ReplicaNeverLapses,
    /// A node that refused a copy is asked again at once, whatever room it tells of.
    ReplicaRefusalForgotten,
    /// A further replica is asked for while one is being made.
    ReplicaUnderWayIgnored,
    /// A process that comes up takes whatever is at the place of its origin, or makes an origin there.
    OriginNotCompared,
    /// Processes whose origins differ rely on each other.
    OriginOfOthersNotCompared,
}

#[cfg(test)]
thread_local! {
    static CURRENT: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Whether this thread runs the given mutant.
#[cfg(test)]
pub(crate) fn is(mutant: Mutant) -> bool {
    CURRENT.get() == Some(mutant)
}

/// Always `false` outside unit tests.
#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn is(_: Mutant) -> bool {
    false
}

/// Runs a closure with a mutant enabled on this thread.
#[cfg(test)]
pub(crate) fn with<T>(mutant: Option<Mutant>, run: impl FnOnce() -> T) -> T {
    let before = CURRENT.replace(mutant);
    let result = run();
    CURRENT.set(before);
    result
}
