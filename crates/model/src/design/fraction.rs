//! Fractional factorial designs 2^(k−p): a subset of the combinations, and the effects that it
//! confounds ([`Fraction`] has the method).

use serde::Serialize;

use super::factorial::{Effect, Factorial};
use super::form::Form;
use super::letters::{FACTORS_MAX, LETTERS, letter, letters};
use crate::error::Error;
use crate::regression::Estimated;

/// A product of factors with its sign, returned by [`Fraction::aliases`].
///
/// ```
/// assert_eq!(model::design::Word { factors: 0b1100, negative: true }.to_string(), "-CD");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Word {
    /// The factors, one bit for each.
    pub factors: u32,
    /// Whether the product has the sign −1.
    pub negative: bool,
}

impl Word {
    fn times(self, other: Word) -> Word {
        Word { factors: self.factors ^ other.factors, negative: self.negative != other.negative }
    }
}

impl std::fmt::Display for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", if self.negative { "-" } else { "" }, letters(self.factors))
    }
}

/// A regular fraction of a two-level design, 2^(k−p): the runs to make, and the effects that they
/// confound.
///
/// Source: Jain, "The Art of Computer Systems Performance Analysis" (1991), chapter 19. p factors
/// are set to products of others (generators, such as D = ABC). Some products of factors are then
/// constant over all runs: the defining relation I = ABCD = …, 2^p − 1 words that are the products
/// of the generators' words. An effect and its products with the words cannot be told apart
/// (aliases). The resolution is the length of the shortest word: III confounds factors with
/// interactions of two, IV confounds these among themselves, V keeps both clear of each other.
/// Cost: 2^(k−p) runs instead of 2^k; the algebra is negligible.
///
/// Limitation of the conclusions: a significant effect belongs to *some* alias. That it belongs to
/// the shortest one is an assumption (high interactions are small), not a finding.
///
/// ```
/// use model::design::Fraction;
/// // Jain, section 19.2: 2^(4−1) with D = ABC.
/// let half = Fraction::from_generators(4, &["D=ABC"])?;
/// assert_eq!(half.defining_relation(), "I = ABCD");
/// assert_eq!((half.run_count(), half.resolution()), (8, Some(4)));
/// // AB and CD are one number.
/// assert_eq!(half.aliases(0b0011)[0].to_string(), "CD");
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fraction {
    factor_count: usize,
    /// Generated factors with the product that each is set to, ascending by factor.
    generators: Vec<(usize, Word)>,
    /// All words of the defining relation except I, shortest first.
    words: Vec<Word>,
}

impl Fraction {
    /// A fraction of k factors from generators such as `D=ABC` or `E=-AB`. Letters are A, B, C …
    /// without I. Each generated factor appears once, and on no right side.
    pub fn from_generators(factor_count: usize, generators: &[&str]) -> Result<Self, Error> {
        check_count(factor_count)?;
        let wrong = |text: &str, why: &str| Error::Design {
            what: format!("generator {text:?}"),
            why: format!("{why}; write it like D=ABC or D=-ABC"),
        };
        let mut found: Vec<(usize, Word)> = Vec::new();
        for text in generators {
            let (left, right) = text.split_once('=').ok_or_else(|| wrong(text, "no `=`"))?;
            let unknown = || {
                wrong(text, &format!("a letter does not name one of the {factor_count} factors"))
            };
            let left = parse(left.trim(), factor_count).ok_or_else(unknown)?;
            let right = right.trim();
            let (negative, product) =
                right.strip_prefix(['-', '−']).map_or((false, right), |rest| (true, rest));
            let factors = parse(product.trim(), factor_count).ok_or_else(unknown)?;
            if left.count_ones() != 1 || factors == 0 {
                return Err(wrong(text, "it sets one factor to a product of others"));
            }
            found.push((left.trailing_zeros() as usize, Word { factors, negative }));
        }
        found.sort();
        let left = found.iter().fold(0, |mask: u32, (factor, _)| mask | 1 << factor);
        if left.count_ones() as usize != found.len()
            || found.iter().any(|(_, word)| word.factors & left != 0)
        {
            let why = "a generated factor is set once, and by factors that are not generated";
            return Err(wrong(&generators.join(", "), why));
        }
        Ok(Fraction::with(factor_count, found))
    }

    /// The fraction that runs form; each run is given by its factors at the high level, one bit for
    /// each. An error if they do not form a regular fraction (2^(k−p) different runs over which 2^p
    /// products are constant). Cost: 2^k products, most of them rejected after two runs.
    pub(crate) fn from_runs(factor_count: usize, runs: &[u32]) -> Result<Self, Error> {
        check_count(factor_count)?;
        let irregular = |why: String| Error::Design { what: "the runs".to_owned(), why };
        let mut different = runs.to_vec();
        different.sort_unstable();
        different.dedup();
        let cells = 1usize << factor_count;
        let Some(&first) = runs.first() else { return Err(irregular("there are none".to_owned())) };
        if different.len() != runs.len()
            || different.last().is_some_and(|run| *run as usize >= cells)
        {
            let why = format!(
                "each must be listed once, with one bit for each of {factor_count} factors"
            );
            return Err(irregular(why));
        }
        let sign = |mask: u32, run: u32| (mask & !run).count_ones() % 2 == 1;
        let constant = |mask: u32| runs.iter().all(|run| sign(mask, *run) == sign(mask, first));
        let words: Vec<Word> = (1..cells as u32)
            .filter(|mask| constant(*mask))
            .map(|factors| Word { factors, negative: sign(factors, first) })
            .collect();
        if (words.len() + 1) * runs.len() != cells {
            let why = format!(
                "{} of {cells} combinations, which are not a regular fraction; run the missing ones, \
                 or a fraction made from generators",
                runs.len()
            );
            return Err(irregular(why));
        }
        // Elimination: each row ends with a highest factor that no other row contains.
        let mut rows: Vec<Word> = Vec::new();
        for word in words {
            let reduced = rows.iter().fold(word, |word, row| match word.factors & top(*row) {
                0 => word,
                _ => word.times(*row),
            });
            if reduced.factors != 0 {
                let pivot = top(reduced);
                for row in rows.iter_mut().filter(|row| row.factors & pivot != 0) {
                    *row = row.times(reduced);
                }
                rows.push(reduced);
            }
        }
        let mut generators: Vec<(usize, Word)> = rows
            .into_iter()
            .map(|row| {
                let factor = top(row);
                (factor.trailing_zeros() as usize, Word { factors: row.factors ^ factor, ..row })
            })
            .collect();
        generators.sort();
        Ok(Fraction::with(factor_count, generators))
    }

    fn with(factor_count: usize, generators: Vec<(usize, Word)>) -> Self {
        let mut words = vec![Word { factors: 0, negative: false }];
        for (factor, word) in &generators {
            let own = Word { factors: word.factors | 1 << factor, ..*word };
            let more: Vec<Word> = words.iter().map(|w| w.times(own)).collect();
            words.extend(more);
        }
        words.remove(0);
        words.sort_by_key(|w| (w.factors.count_ones(), w.factors));
        Fraction { factor_count, generators, words }
    }

    /// k: number of factors.
    pub fn factor_count(&self) -> usize {
        self.factor_count
    }

    /// p: number of generated factors; 0 for a full design.
    pub fn generated(&self) -> usize {
        self.generators.len()
    }

    /// 2^(k−p): number of runs.
    pub fn run_count(&self) -> usize {
        1 << (self.factor_count - self.generators.len())
    }

    /// The generators, such as `D=ABC`.
    pub fn generators(&self) -> Vec<String> {
        let text = |(factor, word): &(usize, Word)| format!("{}={word}", letter(*factor));
        self.generators.iter().map(text).collect()
    }

    /// The words that are constant over all runs, such as `I = ABD = ACE = BCDE`.
    pub fn defining_relation(&self) -> String {
        let words: Vec<String> = self.words.iter().map(Word::to_string).collect();
        [vec!["I".to_owned()], words].concat().join(" = ")
    }

    /// Length of the shortest word; `None` for a full design.
    pub fn resolution(&self) -> Option<u32> {
        self.words.first().map(|word| word.factors.count_ones())
    }

    /// The effects confounded with that of a set of factors (one bit for each), shortest first.
    pub fn aliases(&self, factors: u32) -> Vec<Word> {
        let own = Word { factors, negative: false };
        let mut found: Vec<Word> = self.words.iter().map(|word| own.times(*word)).collect();
        found.sort_by_key(|w| (w.factors.count_ones(), w.factors));
        found
    }

    /// The runs to make, in standard order of the factors that are not generated; for each run, its
    /// factors at the high level, one bit for each.
    pub fn runs(&self) -> Vec<u32> {
        let run = |index: usize| {
            let base = self.spread(index as u32);
            let high =
                |word: &Word| ((word.factors & !base).count_ones() % 2 == 1) == word.negative;
            let generated = self.generators.iter().filter(|(_, word)| high(word));
            generated.fold(base, |run, (factor, _)| run | 1 << factor)
        };
        (0..self.run_count()).map(run).collect()
    }

    /// Moves the bits of an index to the factors that are not generated.
    fn spread(&self, index: u32) -> u32 {
        let base = (0..self.factor_count).filter(|f| self.generators.iter().all(|(g, _)| g != f));
        base.enumerate().map(|(bit, factor)| (index >> bit & 1) << factor).sum()
    }

    /// Sorts cells of runs in any order into the order of [`Fraction::runs`].
    pub fn ordered<T: Clone>(&self, runs: &[u32], cells: &[T]) -> Result<Vec<T>, Error> {
        let find = |run: u32| {
            let at = runs.iter().position(|r| *r == run);
            at.and_then(|at| cells.get(at)).cloned().ok_or_else(|| Error::Design {
                what: format!("the run with {} high", letters(run)),
                why: "it is missing; run it".to_owned(),
            })
        };
        self.runs().into_iter().map(find).collect()
    }

    /// Analyses observations of the [`runs`](Fraction::runs), in their order, the same number for
    /// each. An effect is named by its shortest alias; the others are in `aliases`.
    pub fn analyse(
        &self,
        cells: &[Vec<f64>],
        form: Form,
        confidence: f64,
    ) -> Result<Factorial, Error> {
        if cells.len() != self.run_count() {
            let why = format!("{} where the fraction has {} runs", cells.len(), self.run_count());
            return Err(Error::Design { what: "cells".to_owned(), why });
        }
        let base = Factorial::new(cells, form, confidence)?;
        let mut effects: Vec<Effect> = base.effects.iter().map(|e| self.named(e, form)).collect();
        effects.sort_by_key(|e| e.factors);
        let mut warnings = base.warnings.clone();
        if let Some(least @ ..=3) = self.resolution() {
            warnings.push(format!(
                "resolution {}: factors are confounded with each other or with interactions of two; \
                 see their aliases",
                roman(least)
            ));
        }
        Ok(Factorial { factor_count: self.factor_count, effects, warnings, ..base })
    }

    /// An effect of the base design under the name of its shortest alias.
    fn named(&self, effect: &Effect, form: Form) -> Effect {
        let own = Word { factors: self.spread(effect.factors), negative: false };
        let mut chain = self.aliases(own.factors);
        chain.push(own);
        chain.sort_by_key(|w| (w.factors.count_ones(), w.factors));
        let shortest = chain.remove(0);
        let turned = |e: Estimated| match shortest.negative {
            false => e,
            true => Estimated { value: -e.value, low: e.high.map(|x| -x), high: e.low.map(|x| -x) },
        };
        let value = turned(effect.effect);
        let relative = |w: &Word| Word { negative: w.negative != shortest.negative, ..*w };
        Effect {
            name: letters(shortest.factors),
            factors: shortest.factors,
            effect: value,
            low_to_high: match form {
                Form::Additive => value.map(|q| 2.0 * q),
                Form::Multiplicative => value.map(|q| (2.0 * q).exp()),
            },
            contrast: (effect.contrast.0, shortest.negative),
            aliases: chain.iter().map(|w| relative(w).to_string()).collect(),
            ..effect.clone()
        }
    }
}

/// A small number as a Roman numeral, as used for resolutions.
///
/// ```
/// assert_eq!(model::design::roman(4), "IV");
/// ```
pub fn roman(n: u32) -> String {
    let names = ["0", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X"];
    names.get(n as usize).map_or(n.to_string(), |name| (*name).to_owned())
}

fn top(word: Word) -> u32 {
    1 << word.factors.ilog2()
}

fn check_count(factor_count: usize) -> Result<(), Error> {
    if (1..=FACTORS_MAX).contains(&factor_count) {
        return Ok(());
    }
    let why = format!("{factor_count} where 1 to {FACTORS_MAX} can be analysed");
    Err(Error::Design { what: "the number of factors".to_owned(), why })
}

/// The factors of letters, each at most once.
fn parse(text: &str, factor_count: usize) -> Option<u32> {
    text.bytes().try_fold(0u32, |mask, byte| {
        let at = LETTERS[..factor_count].iter().position(|l| *l == byte.to_ascii_uppercase())?;
        (mask >> at & 1 == 0).then_some(mask | 1 << at)
    })
}
