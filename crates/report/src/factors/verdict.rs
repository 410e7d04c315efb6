//! What an analysis of factors says first, in plain words: which of them matter, by how much, and what to do next.

use model::design::{Anova, Effect, Factor, Factorial, Form, letter as letter_of};
use model::regression::Estimated;

use crate::objective::digits;

/// The share of the variation from which an effect is named.
const NAMED: f64 = 0.05;
/// The most effects that are named.
const EFFECTS_MAX: usize = 3;
/// The share of the variation from which noise is the finding.
const NOISE: f64 = 0.3;

/// What an analysis found, whatever its kind.
pub(super) struct FactorEffects {
    /// A sentence for each effect that is named, the largest first.
    pub effects: Vec<String>,
    /// The share of the variation that nothing explains.
    pub noise: f64,
    /// Whether combinations were run more than once.
    pub is_repeated: bool,
    /// Whether the runs do not tell a named effect from that of another factor, or of two.
    pub is_confounded: bool,
}

/// The verdict as named sentences.
pub(super) fn lines(
    found: FactorEffects,
    factors: &[Factor],
    response: &str,
) -> Vec<(&'static str, String)> {
    let names: Vec<&str> = factors.iter().map(|factor| factor.name.as_str()).collect();
    let asked = format!("Which of {} move {response}, and by how much?", names.join(", "));
    let FactorEffects { effects, noise, is_repeated, is_confounded } = found;
    let mut answer: Vec<(&'static str, String)> =
        effects.into_iter().map(|effect| ("Answer", effect)).collect();
    if answer.is_empty() {
        let nothing =
            format!("None beyond chance: no factor explains {response} as it varied here.");
        answer.push(("Answer", nothing));
    }
    let percent = |share: f64| format!("{} %", digits(100.0 * share, 3));
    let checked = match is_repeated {
        true => format!("Noise between repetitions is {} of the variation.", percent(noise)),
        false => "Each combination was run once: noise is guessed, not measured.".to_owned(),
    };
    let next = match (is_repeated, noise > NOISE) {
        _ if is_confounded => {
            "Run the combinations that are missing: they tell apart what was changed together."
                .to_owned()
        }
        (false, _) => "Repeat every run at least once, in another order.".to_owned(),
        (true, true) => "Repeat the runs: noise hides what is smaller than it.".to_owned(),
        (true, false) => {
            "Change what explains most first; more levels between show whether it is in proportion."
                .to_owned()
        }
    };
    let mut lines = vec![("Asked", asked)];
    lines.extend(answer);
    lines.extend([("Checked", checked), ("Next", next)]);
    lines
}

/// The effects that the runs do not tell from this one, by the names of their factors: those of one factor, or of two. (Of more they are
/// small by experience.)
fn confounded(effect: &Effect, factors: &[Factor]) -> Vec<String> {
    let name = |letter: char| {
        let found = factors.iter().enumerate().find(|(i, _)| letter_of(*i) == letter);
        found.map_or_else(|| letter.to_string(), |(_, factor)| factor.name.clone())
    };
    let aliases = effect.aliases.iter().map(|alias| alias.trim_start_matches('-'));
    let few = aliases.filter(|alias| alias.chars().count() <= 2);
    few.map(|alias| alias.chars().map(name).collect::<Vec<_>>().join(" and ")).collect()
}

/// The names of the factors of an effect.
fn names(mask: u32, factors: &[Factor]) -> Vec<&Factor> {
    factors.iter().enumerate().filter(|(i, _)| mask >> i & 1 == 1).map(|(_, f)| f).collect()
}

/// Of two levels of each factor.
pub(super) fn of_two(two: &Factorial, factors: &[Factor]) -> FactorEffects {
    let mut effects: Vec<&Effect> = two
        .effects
        .iter()
        .filter(|effect| effect.fraction >= NAMED && effect.effect.excludes(0.0))
        .collect();
    effects.sort_by(|a, b| b.fraction.total_cmp(&a.fraction));
    let change = match two.form {
        Form::Additive => "adds",
        Form::Multiplicative => "multiplies by",
    };
    let sentence = |effect: &&Effect| {
        let share = digits(100.0 * effect.fraction, 3);
        let by = interval(effect.low_to_high);
        let said = match names(effect.factors, factors)[..] {
            [one] => {
                let level = |at: usize| one.levels.get(at).map_or("", String::as_str);
                let (low, high) = (level(0), level(1));
                format!(
                    "{} explains {share} % of the variation: from {low} to {high} it {change} {by}.",
                    one.name
                )
            }
            ref several => {
                let all: Vec<&str> = several.iter().map(|factor| factor.name.as_str()).collect();
                format!(
                    "{} together explain {share} % more: the effect of one depends on the other.",
                    all.join(" and ")
                )
            }
        };
        match confounded(effect, factors)[..] {
            [] => said,
            ref others => {
                format!("{said} Or {}: the runs do not tell them apart.", others.join(", or "))
            }
        }
    };
    effects.truncate(EFFECTS_MAX);
    FactorEffects {
        effects: effects.iter().map(sentence).collect(),
        noise: two.error_fraction,
        is_repeated: two.replications > 1,
        is_confounded: effects.iter().any(|effect| !confounded(effect, factors).is_empty()),
    }
}

/// Of any number of levels.
pub(super) fn of_any(any: &Anova, factors: &[Factor]) -> FactorEffects {
    let mut terms: Vec<_> = any
        .terms
        .iter()
        .filter(|term| term.fraction >= NAMED && term.p.is_none_or(|p| p < 1.0 - any.confidence))
        .collect();
    terms.sort_by(|a, b| b.fraction.total_cmp(&a.fraction));
    let sentence = |term: &&model::design::Term| {
        let all: Vec<&str> =
            names(term.factors, factors).iter().map(|factor| factor.name.as_str()).collect();
        let chance = term.p.map_or(String::new(), |p| format!(" (chance {})", digits(p, 2)));
        let verb = if all.len() > 1 { "together explain" } else { "explains" };
        let share = digits(100.0 * term.fraction, 3);
        format!("{} {verb} {share} % of the variation{chance}.", all.join(" and "))
    };
    let effects = terms.iter().take(EFFECTS_MAX).map(sentence).collect();
    FactorEffects {
        effects,
        noise: any.error_fraction,
        is_repeated: any.replications > 1,
        is_confounded: false,
    }
}

/// Formats a number with its interval.
pub(super) fn interval(e: Estimated) -> String {
    match (e.low, e.high) {
        (Some(low), Some(high)) => {
            format!("{} [{}, {}]", digits(e.value, 4), digits(low, 4), digits(high, 4))
        }
        _ => digits(e.value, 4),
    }
}
