//! The search finds deliberately wrong drivers and broken assumptions.

use engine::sim::Breakage;

use crate::seeds::search;

/// Maximum number of seeds for each search. It is enough to find each breakage several times; most
/// are found within thirty seeds, the rarest after five hundred. A search ends at its first
/// finding.
const SEEDS: u64 = 10_000;

fn is_found(breakage: Breakage) {
    let (found, sums) = search(0..SEEDS, Some(breakage));
    let requests = sums.requests();
    let found =
        found.unwrap_or_else(|| panic!("{breakage:?} was not found in {requests} requests"));
    println!("{breakage:?}: seed {}: {}", found.seed, found.violations[0]);
}

#[test]
fn a_node_that_acknowledges_without_invalidating() {
    is_found(Breakage::NoInvalidation);
}

#[test]
fn a_driver_that_tells_a_client_before_its_node() {
    is_found(Breakage::LateWriteEnd(20_000_000));
}

#[test]
fn a_lease_that_never_ends() {
    is_found(Breakage::LeaseForEver);
}

#[test]
fn a_lease_that_counts_from_when_its_grant_came() {
    is_found(Breakage::LeaseFromArrival);
}

#[test]
fn a_fill_that_ignores_that_it_is_void() {
    is_found(Breakage::VoidIgnored);
}

#[test]
fn a_member_that_acts_on_after_its_membership_ended() {
    is_found(Breakage::MembershipForEver);
}

#[test]
fn nodes_that_act_at_once_on_a_changed_membership() {
    is_found(Breakage::NoViewLag);
}

/// A bug that the simulator itself had until its checker numbered writes by client. The real
/// process holds the turn.
#[test]
fn a_writer_that_gives_its_turn_away_while_its_put_may_land() {
    is_found(Breakage::TurnGivenUp);
}

#[test]
fn a_write_that_is_begun_after_its_client_left() {
    is_found(Breakage::LateWriteBegun);
}

#[test]
fn a_write_that_is_sent_twice() {
    is_found(Breakage::WriteSentTwice);
}

#[test]
fn a_put_that_outlives_its_process() {
    is_found(Breakage::OrphanedPut);
}

#[test]
fn a_put_that_outlives_its_process_where_an_object_came_and_went() {
    is_found(Breakage::OrphanedPutAfterDelete);
}

#[test]
fn a_damaged_record_that_passes_for_whole() {
    is_found(Breakage::ChecksumIgnored);
}

/// Keys that the index does not tell apart.
#[test]
fn a_record_that_is_taken_for_another_keys() {
    is_found(Breakage::KeyIgnored);
}

#[test]
fn a_peer_that_sends_an_older_version() {
    is_found(Breakage::StalePeer);
}

#[test]
fn a_peer_that_keeps_what_it_said_it_dropped() {
    is_found(Breakage::InvalidationLied);
}

#[test]
fn clocks_that_drift_further_than_promised() {
    is_found(Breakage::ClocksDriftTooFar);
}

#[test]
fn clocks_that_jump_further_than_promised() {
    is_found(Breakage::ClocksJumpTooFar);
}
