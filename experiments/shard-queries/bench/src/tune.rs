//! Which sampling rates and which density of Ψ give sdsl-lite's indexes the most at a footprint.
//!
//! A look-up takes steps of Ψ (or LF) from where it starts to a sample. The time of a step depends on the
//! density of Ψ and is measured on a *pilot* of each; the number of steps is known: sampled by row, one row in
//! `sa`, a position is `sa − 1` steps away on average; sampled by position, a row is `(isa − 1)/2` away. What
//! the samples may take is what the pilot's Ψ leaves of the footprint. They get at least as many bytes as
//! there are: rounding is in the rival's favour.

use crate::config::Rivals;

/// A kind of index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `csa_sada` over `enc_vector<coder::elias_gamma>`, one value of Ψ in so many stored in full.
    Sada {
        /// Values of Ψ for one that is stored in full.
        psi_density: u32,
    },
    /// `csa_wt` over a Huffman-shaped wavelet tree of `rrr_vector<63>`.
    Wavelet,
}

/// An index with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Of this kind.
    pub kind: Kind,
    /// Rows for one whose position is stored.
    pub sa: u32,
    /// Positions for one whose row is stored.
    pub isa: u32,
}

/// What was found out about a kind of index.
#[derive(Clone, Copy, Debug)]
pub struct Pilot {
    /// The kind.
    pub kind: Kind,
    /// Bytes without samples.
    pub fixed_bytes: f64,
    /// Nanoseconds of a step.
    pub step_ns: f64,
}

/// What a configuration is to do well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Favour {
    /// Finding positions: many samples of the suffix array.
    Search,
    /// Reading: many samples of its inverse.
    Extract,
}

/// Bytes of the samples of one array over a text of `len` bytes, one value in `rate`.
pub fn samples_bytes(len: usize, rate: u32) -> f64 {
    let width = (usize::BITS - len.leading_zeros()) as f64;
    (len + 1) as f64 / f64::from(rate) * width / 8.0
}

/// The best choice among the pilots' kinds at a footprint of `bytes`; `None` where none is so small.
pub fn choose(
    pilots: &[Pilot],
    len: usize,
    bytes: f64,
    favour: Favour,
    rivals: &Rivals,
) -> Option<Choice> {
    let cost = |(step_ns, choice): &(f64, Choice)| {
        step_ns
            * match favour {
                Favour::Search => f64::from(choice.sa - 1),
                Favour::Extract => 64.0 + f64::from(choice.isa - 1) / 2.0,
            }
    };
    pilots
        .iter()
        .filter_map(|pilot| Some((pilot.step_ns, sampled(pilot, len, bytes, favour, rivals)?)))
        .min_by(|a, b| cost(a).total_cmp(&cost(b)))
        .map(|(_, choice)| choice)
}

/// The sampling rates of one kind at a footprint.
fn sampled(
    pilot: &Pilot,
    len: usize,
    bytes: f64,
    favour: Favour,
    rivals: &Rivals,
) -> Option<Choice> {
    let left = bytes - pilot.fixed_bytes;
    let all = samples_bytes(len, 1);
    let most = rivals.sampling_max;
    if left < 2.0 * all / f64::from(most) {
        return None;
    }
    // The favoured array's rate is the nearest one that leaves room for the other; that one's is rounded
    // down, so that the whole is not below the footprint.
    let rate = |bytes: f64| (all / bytes).clamp(1.0, f64::from(most));
    let least = all / f64::from(most);
    let mut first = rate(rivals.share * left).round();
    while left - all / first < least && first < f64::from(most) {
        first += 1.0;
    }
    let second = rate((left - all / first).max(least)).floor();
    let (first, second) = (first as u32, second as u32);
    let (sa, isa) = match favour {
        Favour::Search => (first, second),
        Favour::Extract => (second, first),
    };
    Some(Choice { kind: pilot.kind, sa, isa })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEN: usize = 100_000_000;

    fn rivals() -> Rivals {
        Rivals { psi_densities: vec![], share: 0.8, wavelet_below: 0.5, sampling_max: 512 }
    }

    fn sada(psi_density: u32, fixed: f64, step_ns: f64) -> Pilot {
        Pilot { kind: Kind::Sada { psi_density }, fixed_bytes: fixed * LEN as f64, step_ns }
    }

    fn bytes(pilot: &Pilot, choice: &Choice) -> f64 {
        pilot.fixed_bytes + samples_bytes(LEN, choice.sa) + samples_bytes(LEN, choice.isa)
    }

    #[test]
    fn a_sample_takes_the_bits_of_a_position() {
        assert_eq!(samples_bytes(LEN, 1), 100_000_001.0 * 27.0 / 8.0);
        assert_eq!(samples_bytes(255, 32), 8.0);
    }

    proptest! {
        #[test]
        fn the_rival_is_given_the_footprint(
            fixed in 0.2..0.5f64, more in 0.02..1.0f64, search: bool
        ) {
            let pilot = sada(128, fixed, 300.0);
            let target = (fixed + more) * LEN as f64;
            let favour = if search { Favour::Search } else { Favour::Extract };
            let choice = choose(&[pilot], LEN, target, favour, &rivals()).unwrap();
            prop_assert!(bytes(&pilot, &choice) >= target * 0.999, "{choice:?}");
            prop_assert!(choice.sa <= 512 && choice.isa <= 512);
            prop_assert_eq!(search, choice.sa <= choice.isa, "{:?}", choice);
        }
    }

    #[test]
    fn dense_psi_pays_where_there_is_room() {
        let pilots = [sada(32, 0.55, 150.0), sada(128, 0.38, 300.0)];
        let best = |footprint: f64| {
            choose(&pilots, LEN, footprint * LEN as f64, Favour::Search, &rivals())
                .map(|choice| choice.kind)
        };
        assert_eq!(best(0.5), Some(Kind::Sada { psi_density: 128 }));
        assert_eq!(best(1.3), Some(Kind::Sada { psi_density: 32 }));
        assert_eq!(best(0.38), None);
    }
}
