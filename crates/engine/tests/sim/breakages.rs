//! The search finds drivers that are wrong on purpose.

use engine::sim::Breakage;

use crate::seeds::{Sums, search};

/// So many seeds are enough to find each several times over; most are found within thirty,
/// the rarest after five hundred. A search ends at what it finds.
const SEEDS: u64 = 5_000;

fn is_found(breakage: Breakage) {
    let (found, Sums { requests, .. }) = search(0..SEEDS, Some(breakage));
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
