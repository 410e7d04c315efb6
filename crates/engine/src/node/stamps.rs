//! When, and under which authority, records were last compared with the origin, as codes of ten bits.
//!
//! Many records were compared at about the same time under the same authority. So times are rounded
//! down, to a small part of [`Settings::revalidate`](super::Settings::revalidate), and each
//! different verification in use has a code. Rounding down is safe: a record is compared a little
//! earlier than it need be. So is a lack of codes: a record without one counts as never compared.

use std::collections::HashMap;

use ground::window::{Nanos, SECOND};

use super::authorities::{Authority, Verified};
use crate::tier::STAMPS;

/// Codes that verifications which still count may take, by all authorities. The others are for
/// those that count no more until a sweep has found all their records.
const WANTED: usize = STAMPS as usize / 2;
/// Codes in use from which on those that count no more are looked for.
const MANY: usize = STAMPS as usize / 2;

struct Stamp {
    verified: Verified,
    /// Records that have it.
    records: u32,
    /// It counts no more: its records are to be taken as never compared.
    over: bool,
}

/// The verifications in use. Code 0 is that of records which were never compared.
pub(super) struct Stamps {
    width: Nanos,
    /// By code less one.
    stamps: Vec<Stamp>,
    free: Vec<u16>,
    codes: HashMap<Verified, u16>,
}

impl Stamps {
    /// None yet. `revalidate` is how long a verification counts, `authorities` how many there may
    /// be at a time.
    pub fn new(revalidate: Option<Nanos>, authorities: usize) -> Stamps {
        // 64 steps or fewer: with n steps a record is compared a half of 1/n too early on average.
        let steps = (WANTED / authorities.max(1)).clamp(2, 64) as u64;
        let width = revalidate.map_or(3600 * SECOND, |bound| bound / steps);
        Stamps { width: width.max(1), stamps: Vec::new(), free: Vec::new(), codes: HashMap::new() }
    }

    /// No record has any code more.
    pub fn clear(&mut self) {
        (self.stamps, self.free) = (Vec::new(), Vec::new());
        self.codes.clear();
    }

    /// The verification of a code.
    pub fn verified(&self, code: u16) -> Option<Verified> {
        let stamp = self.stamps.get(usize::from(code).checked_sub(1)?)?;
        (!stamp.over).then_some(stamp.verified)
    }

    /// The code of a verification, rounded down; 0 if there is no code left. The caller holds it as
    /// a record does, until it gives it back ([`Stamps::remove_record`]). The second value says whether the
    /// code is new and many are in use, so that [`Stamps::expire`] is called for.
    pub fn code(&mut self, verified: Option<Verified>) -> (u16, bool) {
        let Some(mut verified) = verified else { return (0, false) };
        verified.at -= verified.at % self.width;
        if let Some(&code) = self.codes.get(&verified) {
            self.add_record(code);
            return (code, false);
        }
        let stamp = Stamp { verified, records: 1, over: false };
        let code = match self.free.pop() {
            Some(code) => {
                self.stamps[usize::from(code) - 1] = stamp;
                code
            }
            None if self.stamps.len() + 1 < usize::from(STAMPS) => {
                self.stamps.push(stamp);
                self.stamps.len() as u16
            }
            None => {
                let code = self.older(verified.authority, verified.at);
                self.add_record(code);
                return (code, true);
            }
        };
        self.codes.insert(verified, code);
        (code, self.codes.len() > MANY)
    }

    /// The code of the latest verification under an authority that is not later; 0 if there is none.
    fn older(&self, authority: Authority, at: Nanos) -> u16 {
        let fits = |stamp: &Stamp| {
            stamp.verified.authority == authority && stamp.verified.at <= at && !stamp.over
        };
        let stamps = (1u16..).zip(&self.stamps).filter(|(_, stamp)| fits(stamp));
        stamps.max_by_key(|(_, stamp)| stamp.verified.at).map_or(0, |(code, _)| code)
    }

    /// A record has the code.
    pub fn add_record(&mut self, code: u16) {
        self.add_records(code, 1);
    }

    /// So many records have the code.
    pub fn add_records(&mut self, code: u16, records: usize) {
        if let Some(stamp) = self.stamp_mut(code) {
            stamp.records += records as u32;
        }
    }

    /// A record has the code no more.
    pub fn remove_record(&mut self, code: u16) {
        let Some(stamp) = self.stamp_mut(code) else { return };
        stamp.records = stamp.records.saturating_sub(1);
        if stamp.records == 0 {
            let verified = stamp.verified;
            stamp.over = true;
            self.codes.remove(&verified);
            self.free.push(code);
        }
    }

    /// Whether the records with this code are to lose it.
    pub fn is_over(&self, code: u16) -> bool {
        code != 0 && self.stamps.get(usize::from(code) - 1).is_none_or(|stamp| stamp.over)
    }

    /// Marks the verifications that count no more.
    pub fn expire(&mut self, counts: &dyn Fn(&Verified) -> bool) {
        for stamp in &mut self.stamps {
            stamp.over |= !counts(&stamp.verified);
        }
    }

    fn stamp_mut(&mut self, code: u16) -> Option<&mut Stamp> {
        self.stamps.get_mut(usize::from(code).checked_sub(1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verified_at(at: Nanos) -> Option<Verified> {
        Some(Verified { at, authority: Authority::ALONE })
    }

    #[test]
    fn times_are_rounded_down_and_codes_used_again() {
        let mut stamps = Stamps::new(Some(6400), 1);
        let (code, many) = stamps.code(verified_at(1234));
        assert_eq!((stamps.verified(code).unwrap().at, many), (1200, false));
        assert_eq!(stamps.code(verified_at(1299)).0, code);
        stamps.remove_record(code);
        assert!(stamps.code(verified_at(1300)).0 != code && stamps.verified(0).is_none());
        stamps.remove_record(code);
        assert!(stamps.is_over(code) && stamps.verified(code).is_none());
        assert_eq!(stamps.code(verified_at(9900)).0, code, "it is free");
    }

    #[test]
    fn without_a_code_left_a_verification_counts_as_an_older_one_or_none() {
        let mut stamps = Stamps::new(Some(6400), 1);
        for step in 0..2000 {
            let (code, _) = stamps.code(verified_at(step * 100));
            assert!(stamps.verified(code).unwrap().at <= step * 100);
        }
        stamps.expire(&|verified| verified.at >= 50_000);
        let over = (1..STAMPS).filter(|&code| stamps.is_over(code)).collect::<Vec<u16>>();
        assert!(over.len() >= 400, "{}", over.len());
        assert!(over.iter().all(|&code| stamps.verified(code).is_none()));
        // What was over before the codes ran out does not come to count again.
        assert_eq!(stamps.code(verified_at(10_000)).0, 101);
        assert!(stamps.verified(101).is_none());
        // Another authority finds none.
        over.iter().for_each(|&code| stamps.remove_record(code));
        let (code, _) = stamps.code(verified_at(999_900));
        assert_eq!(stamps.verified(code).unwrap().at, 999_900);
    }
}
