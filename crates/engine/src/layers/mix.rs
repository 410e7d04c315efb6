//! Which layer of a shard saves most, by the work of its queries.
//!
//! Searches locate rows and are made faster by layers of the suffix array (SA); reads of records and ranges
//! begin at a known position of the text and are made faster by layers of its inverse (ISA), or by a text
//! layer. Work is counted in steps of a walk, all of which take about the same time, so that steps
//! saved for each byte compare layers of all kinds. A layer of sampling rate r in place of 2r shortens
//! the mean walk from (2r − 1) / 2 to (r − 1) / 2, and the counted steps in proportion.
//!
//! **Cost.** Some arithmetic for each kind. **Limits.** Only single steps are compared: two further layers
//! that save most together but little each are not found. Where counts do not tell (nothing was
//! asked), no layer is best.

use ground::window::{Nanos, SECOND};

/// Work before this time counts 1/e.
const MEAN_LIFE_S: f64 = 20.0;
/// What a text layer takes to find a range, and for each byte of it, in steps: a read of 64 bytes takes 0.75 µs
/// and one of 1 KiB 2.2 µs, a step some 40 ns.
const RANGE_STEPS: f64 = 16.0;
const BYTE_STEPS: f64 = 0.04;

/// Work of queries, as the shard counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Rows that were located.
    pub located: f64,
    /// Steps of these.
    pub located_steps: f64,
    /// Ranges that were read by walks.
    pub ranges: f64,
    /// Steps before their first bytes.
    pub skipped_steps: f64,
    /// Their bytes, a step each.
    pub walked_bytes: f64,
    /// Ranges that the text layer answered.
    pub decoded_ranges: f64,
    /// Their bytes.
    pub decoded_bytes: f64,
}

/// The lowest layer of a kind: one to add, or one that is held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Layer {
    /// Of the suffix array, of this sampling rate.
    Sa(u32),
    /// Of its inverse.
    Isa(u32),
    /// Of the text.
    Text {
        /// While it is held, reads begin at samples of the inverse of this rate without it.
        isa: u32,
        /// The share of what reads now walk that it would answer ([`super::regions`]): 1 for a layer of the whole text.
        covered: f64,
    },
}

/// The work of a shard's queries in the last seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mix {
    work: Work,
    at: Nanos,
}

impl Mix {
    /// Adds work that was done by `now`.
    pub fn add(&mut self, now: Nanos, work: &Work) {
        let passed_s = now.saturating_sub(self.at) as f64 / SECOND as f64;
        let kept = (-passed_s / MEAN_LIFE_S).exp();
        self.at = self.at.max(now);
        for (sum, more) in [
            (&mut self.work.located, work.located),
            (&mut self.work.located_steps, work.located_steps),
            (&mut self.work.ranges, work.ranges),
            (&mut self.work.skipped_steps, work.skipped_steps),
            (&mut self.work.walked_bytes, work.walked_bytes),
            (&mut self.work.decoded_ranges, work.decoded_ranges),
            (&mut self.work.decoded_bytes, work.decoded_bytes),
        ] {
            *sum = *sum * kept + more;
        }
    }

    /// Forgets everything: the layers changed, and with them the steps of a query.
    pub fn clear(&mut self) {
        self.work = Work::default();
    }

    /// All steps.
    pub fn steps(&self) -> f64 {
        let decoded = RANGE_STEPS * self.work.decoded_ranges + BYTE_STEPS * self.work.decoded_bytes;
        self.work.located_steps + self.work.skipped_steps + self.work.walked_bytes + decoded
    }

    /// Steps that a further layer would have saved. Its rate is half of the one that is the lowest now.
    pub fn saved_by(&self, layer: Layer) -> f64 {
        let Work { located_steps, ranges, skipped_steps, walked_bytes, .. } = self.work;
        let part = |rate: u32| f64::from(rate) / (2.0 * f64::from(rate) - 1.0).max(1.0);
        let saved = match layer {
            Layer::Sa(rate) => located_steps * part(rate),
            Layer::Isa(rate) => skipped_steps * part(rate),
            Layer::Text { covered, .. } => {
                let whole =
                    skipped_steps + walked_bytes * (1.0 - BYTE_STEPS) - ranges * RANGE_STEPS;
                whole * covered
            }
        };
        saved.max(0.0)
    }

    /// Steps that a layer that is held, the lowest of its kind, has saved.
    pub fn lost_without(&self, layer: Layer) -> f64 {
        let Work { located, located_steps, ranges, skipped_steps, .. } = self.work;
        let Work { decoded_ranges, decoded_bytes, .. } = self.work;
        let more = |rate: u32, walks: f64, steps: f64| match rate {
            0 | 1 => walks / 2.0,
            _ => steps * f64::from(rate) / f64::from(rate - 1),
        };
        let lost = match layer {
            Layer::Sa(rate) => more(rate, located, located_steps),
            Layer::Isa(rate) => more(rate, ranges, skipped_steps),
            Layer::Text { isa, .. } => {
                let skipped = decoded_ranges * f64::from(isa.saturating_sub(1)) / 2.0;
                skipped + decoded_bytes * (1.0 - BYTE_STEPS) - decoded_ranges * RANGE_STEPS
            }
        };
        lost.max(0.0)
    }

    /// The place of the layer that saves most steps for each of its bytes; `None` if none saves any.
    pub fn best(&self, layers: &[(Layer, u64)]) -> Option<usize> {
        let each = |(layer, bytes): &(Layer, u64)| self.saved_by(*layer) / (*bytes).max(1) as f64;
        let of = layers.iter().map(each).enumerate().filter(|(_, each)| *each > 0.0);
        of.max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(place, _)| place)
    }

    /// The place of the layer that is held and saves fewest steps for each of its bytes; of several that save
    /// none, the largest.
    pub fn least(&self, layers: &[(Layer, u64)]) -> Option<usize> {
        let each =
            |(layer, bytes): &(Layer, u64)| self.lost_without(*layer) / (*bytes).max(1) as f64;
        let of = layers.iter().enumerate();
        let of = of.min_by(|(_, a), (_, b)| each(a).total_cmp(&each(b)).then(b.1.cmp(&a.1)));
        of.map(|(place, _)| place)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The naive twin: it walks. A search's row is at some offset, and walks to the next multiple of the rate; a
    /// read begins at the multiple before its first byte. The text layer holds the reads that begin before an offset.
    #[derive(Clone, Debug)]
    struct Naive {
        sa: u32,
        isa: u32,
        text: Option<u32>,
        rows: Vec<u32>,
        reads: Vec<(u32, u32)>,
    }

    impl Naive {
        fn work(&self) -> Work {
            let mut work = Work::default();
            for row in &self.rows {
                work.located += 1.0;
                work.located_steps += f64::from((self.sa - row % self.sa) % self.sa);
            }
            for (offset, len) in &self.reads {
                if self.text.is_some_and(|end| *offset < end) {
                    work.decoded_ranges += 1.0;
                    work.decoded_bytes += f64::from(*len);
                } else {
                    work.ranges += 1.0;
                    work.skipped_steps += f64::from(offset % self.isa);
                    work.walked_bytes += f64::from(*len);
                }
            }
            work
        }

        /// Where a layer ends that holds this share of the bytes read.
        fn end_of(&self, covered: f64) -> u32 {
            let mut reads = self.reads.clone();
            reads.sort();
            let all: u32 = reads.iter().map(|read| read.1).sum();
            let mut sum = 0;
            let reaches = |read: &&(u32, u32)| {
                sum += read.1;
                f64::from(sum) > covered * f64::from(all)
            };
            reads.iter().find(reaches).map_or(TEXT, |read| read.0)
        }

        fn steps(&self) -> f64 {
            let mut mix = Mix::default();
            mix.add(0, &self.work());
            mix.steps()
        }

        /// With one layer more.
        fn with(&self, layer: Layer) -> Naive {
            match layer {
                Layer::Sa(sa) => Naive { sa, ..self.clone() },
                Layer::Isa(isa) => Naive { isa, ..self.clone() },
                Layer::Text { covered, .. } => {
                    Naive { text: Some(self.end_of(covered)), ..self.clone() }
                }
            }
        }

        /// With one layer less.
        fn without(&self, layer: Layer) -> Naive {
            match layer {
                Layer::Sa(sa) => Naive { sa: 2 * sa, ..self.clone() },
                Layer::Isa(isa) => Naive { isa: 2 * isa, ..self.clone() },
                Layer::Text { .. } => Naive { text: None, ..self.clone() },
            }
        }
    }

    const TEXT: u32 = 1 << 16;

    fn naive() -> impl Strategy<Value = Naive> {
        let rows = prop::collection::vec(0..TEXT, 0..2000);
        let reads = prop::collection::vec((0..TEXT, 1u32..300), 0..2000);
        (0u32..6, 0u32..6, any::<bool>(), rows, reads).prop_map(|(sa, isa, text, rows, reads)| {
            Naive { sa: 1 << sa, isa: 1 << isa, text: text.then_some(TEXT), rows, reads }
        })
    }

    proptest! {
        /// The best of all single steps, by trying them all: the chosen one saves as much, but for what a
        /// sample of walks differs from its mean.
        #[test]
        fn the_best_step_is_that_of_trying_all(
            shard in naive(),
            sizes in [1u64..1000, 1..1000, 1..1000],
            covered in prop::sample::select(vec![0.2, 0.6, 1.0]),
        ) {
            let mut mix = Mix::default();
            mix.add(0, &shard.work());
            let mut more = vec![(Layer::Sa(shard.sa / 2), sizes[0]), (Layer::Isa(shard.isa / 2), sizes[1])];
            more.retain(|(layer, _)| !matches!(layer, Layer::Sa(0) | Layer::Isa(0)));
            let text = |covered| Layer::Text { isa: shard.isa, covered };
            if shard.text.is_none() {
                more.push((text(covered), sizes[2]));
            }
            let each = |(layer, bytes): (Layer, u64), saved: f64| {
                let noise = match layer {
                    Layer::Sa(rate) => f64::from(rate) * (shard.rows.len() as f64).sqrt(),
                    Layer::Isa(rate) => f64::from(rate) * (shard.reads.len() as f64).sqrt(),
                    // Of a part, the reads that are not walked may be longer or shorter than the others.
                    Layer::Text { covered: 1.0, .. } => 0.0,
                    Layer::Text { .. } => {
                        (f64::from(shard.isa) + 300.0) * (shard.reads.len() as f64).sqrt() + 300.0
                    }
                };
                (saved / bytes as f64, 3.0 * noise / bytes as f64)
            };
            let tried: Vec<_> = more
                .iter()
                .map(|of| each(*of, shard.steps() - shard.with(of.0).steps()))
                .collect();
            match mix.best(&more) {
                None => prop_assert!(tried.iter().all(|(saved, noise)| saved - noise <= 0.0)),
                Some(place) => for (saved, noise) in &tried {
                    prop_assert!(tried[place].0 + tried[place].1 >= saved - noise, "{place}: {tried:?}");
                },
            }
            let mut held = vec![(Layer::Sa(shard.sa), sizes[0]), (Layer::Isa(shard.isa), sizes[1])];
            if shard.text.is_some() {
                held.push((text(1.0), sizes[2]));
            }
            let tried: Vec<_> = held
                .iter()
                .map(|of| {
                    let (lost, noise) = each(*of, shard.without(of.0).steps() - shard.steps());
                    // Of reads that the text layer answers, the skipped steps are not counted.
                    let unseen = matches!(of.0, Layer::Text { .. });
                    let noise_more = f64::from(shard.isa) * 3.0 * (shard.reads.len() as f64).sqrt();
                    (lost, if unseen { noise_more / of.1 as f64 } else { noise })
                })
                .collect();
            let place = mix.least(&held).unwrap();
            for (lost, noise) in &tried {
                prop_assert!(tried[place].0.max(0.0) - tried[place].1 <= lost.max(0.0) + noise, "{place}: {tried:?}");
            }
        }
    }

    #[test]
    fn a_mix_fades_and_what_nobody_asks_for_saves_nothing() {
        let mut mix = Mix::default();
        let layers = [
            (Layer::Sa(16), 100),
            (Layer::Isa(16), 100),
            (Layer::Text { isa: 32, covered: 1.0 }, 10),
        ];
        assert_eq!(mix.best(&layers), None);
        assert_eq!(mix.least(&layers), Some(0), "none saves anything: the largest");
        let search = Work { located: 10.0, located_steps: 155.0, ..Work::default() };
        mix.add(SECOND, &search);
        assert_eq!(mix.best(&layers), Some(0));
        assert_eq!(mix.least(&layers), Some(1));
        let get = Work { ranges: 1.0, skipped_steps: 15.5, walked_bytes: 200.0, ..Work::default() };
        mix.add(200 * SECOND, &get);
        assert_eq!(mix.best(&layers), Some(2), "reads, and searches long ago");
        let part = [layers[0], layers[1], (Layer::Text { isa: 32, covered: 0.001 }, 10)];
        assert_eq!(mix.best(&part), Some(1), "a text layer of what nearly nobody reads");
        assert!(mix.saved_by(Layer::Sa(16)) < 0.01);
        // Far into the future, and back.
        mix.add(Nanos::MAX, &get);
        mix.add(0, &get);
        assert!(mix.steps().is_finite() && mix.steps() < 1000.0);
    }
}
