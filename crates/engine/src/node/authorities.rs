//! Authorities under which copies are verified, and their numbers, which entries of memory have in place of them.
//!
//! There is an entry for each small object, and few authorities: one for each primary at a time, and another after each change of
//! the view and each lease that had lapsed. A number takes 4 bytes where an [`Authority`] takes 24.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;

use ground::window::Nanos;

use crate::route::NodeId;

/// The primary, lease and view under which a copy may be served. A copy that was verified under
/// another authority than the present one is compared with the origin first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Authority {
    pub primary: NodeId,
    pub generation: u32,
    pub epoch: u64,
}

impl Authority {
    /// The authority of a node without peers.
    pub const ALONE: Authority = Authority::new(0, 0, 0);

    /// That of a primary under a lease of this generation and the view of this epoch.
    pub const fn new(primary: NodeId, generation: u32, epoch: u64) -> Authority {
        Authority { primary, generation, epoch }
    }
}

/// When, and under which authority, a copy was last compared with the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Verified {
    pub at: Nanos,
    pub authority: Authority,
}

/// Authorities that are remembered: of those beyond it the first is forgotten, which is an old one unless there are as many
/// primaries.
const AUTHORITIES_MAX: usize = 1 << 14;

/// The number of an authority. None is given twice.
pub(super) type AuthorityNumber = NonZeroU32;

/// Authorities by number and numbers by authority.
#[derive(Default)]
pub(super) struct Authorities {
    /// In the order of their numbers.
    order: VecDeque<Authority>,
    numbers: HashMap<Authority, AuthorityNumber>,
    /// Authorities that were forgotten. The first in the order has the number after that.
    forgotten: u32,
}

impl Authorities {
    /// The number of an authority, a new one if it has none. `None` after 2^32 of them: what was verified under it then counts
    /// as not verified. Cost: a look-up, or less for the latest.
    pub fn number_of(&mut self, authority: Authority) -> Option<AuthorityNumber> {
        let last = self.forgotten.checked_add(self.order.len() as u32);
        if self.order.back() == Some(&authority) {
            return last.and_then(AuthorityNumber::new);
        }
        if let Some(&number) = self.numbers.get(&authority) {
            return Some(number);
        }
        let number = last.and_then(|last| AuthorityNumber::new(last.checked_add(1)?))?;
        if self.order.len() >= AUTHORITIES_MAX
            && let Some(first) = self.order.pop_front()
        {
            self.numbers.remove(&first);
            self.forgotten += 1;
        }
        self.order.push_back(authority);
        self.numbers.insert(authority, number);
        Some(number)
    }

    /// The authority of a number; `None` if it was forgotten.
    pub fn get(&self, number: AuthorityNumber) -> Option<Authority> {
        let index = number.get().checked_sub(self.forgotten)?.checked_sub(1)?;
        self.order.get(index as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares with a naive twin, a list of all authorities that were numbered. In half of the cases so many come first that
        /// some are forgotten.
        #[test]
        fn a_number_is_that_of_its_authority_until_it_is_forgotten(
            before in prop_oneof![Just(0), AUTHORITIES_MAX - 20..AUTHORITIES_MAX + 20],
            primaries in prop::collection::vec(0usize..60, 1..100),
        ) {
            let mut authorities = Authorities::default();
            let mut twin: Vec<Authority> = Vec::new();
            let earlier = (0..before).map(|epoch| Authority::new(100, 0, epoch as u64));
            let later = primaries.iter().map(|&primary| Authority::new(primary, 0, 0));
            for authority in earlier.chain(later) {
                let remembered = twin.len().saturating_sub(AUTHORITIES_MAX);
                let known = twin[remembered..].iter().position(|other| *other == authority);
                let index = known.map_or(twin.len(), |index| remembered + index);
                if known.is_none() {
                    twin.push(authority);
                }
                let number = authorities.number_of(authority).unwrap();
                prop_assert_eq!(number.get() as usize, index + 1);
                prop_assert_eq!(authorities.get(number), Some(authority));
                if twin.len() > before {
                    let first = twin.len().saturating_sub(AUTHORITIES_MAX);
                    for index in (first.saturating_sub(30)..first + 5).chain([twin.len()]) {
                        let number = AuthorityNumber::new(index as u32 + 1).unwrap();
                        let expected = twin.get(index).copied().filter(|_| index >= first);
                        prop_assert_eq!(authorities.get(number), expected);
                    }
                }
            }
            prop_assert!(authorities.numbers.len() == authorities.order.len());
        }
    }
}
