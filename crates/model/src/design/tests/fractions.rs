//! Fractional designs: words, aliases, and what they recover.

use super::*;

#[test]
fn jains_fractions_have_their_aliases() {
    // Section 19.1: 2^(7−4), D = AB, E = AC, F = BC, G = ABC: resolution III.
    let found = Fraction::from_generators(7, &["D=AB", "E=AC", "F=BC", "G=ABC"]).unwrap();
    assert_eq!((found.run_count(), found.resolution()), (8, Some(3)));
    assert!(found.defining_relation().starts_with("I = ABD = ACE = "));
    let of_a: Vec<String> = found.aliases(1).iter().map(Word::to_string).collect();
    assert_eq!(&of_a[..3], ["BD", "CE", "FG"]);
    assert_eq!(of_a.len(), 15);
    // Section 19.4: 2^(4−1), D = ABC is of resolution IV, D = AB of III.
    let four = Fraction::from_generators(4, &["D=ABC"]).unwrap();
    let three = Fraction::from_generators(4, &["d = ab"]).unwrap();
    assert_eq!((four.resolution(), three.resolution()), (Some(4), Some(3)));
    assert_eq!(four.aliases(0b1000)[0].to_string(), "ABC");
    let turned = Fraction::from_generators(4, &["D=-ABC"]).unwrap();
    assert_eq!(turned.defining_relation(), "I = -ABCD");
    assert_eq!(turned.runs()[0], 0b1000, "D is high where ABC is low");
    let full = Fraction::from_generators(3, &[]).unwrap();
    assert_eq!((full.resolution(), full.run_count()), (None, 8));
    assert_eq!((roman(3), roman(12)), ("III".to_owned(), "12".to_owned()));
}

#[test]
fn bad_generators_are_named() {
    for bad in [
        &["D"][..],
        &["D=ABX"],
        &["DE=AB"],
        &["D="],
        &["=AB"],
        &["D=AA"],
        &["D=AB", "D=AC"],
        &["D=AB", "C=AD"],
        &["D=AD"],
    ] {
        let error = Fraction::from_generators(4, bad).unwrap_err().to_string();
        assert!(error.contains("write it like D=ABC"), "{bad:?}: {error}");
    }
    assert!(Fraction::from_generators(99, &[]).is_err());
    // Three of four combinations; five; one twice.
    assert!(Fraction::from_runs(2, &[0, 1, 2]).is_err());
    assert!(Fraction::from_runs(3, &[0, 3, 5, 7]).is_err());
    assert!(Fraction::from_runs(2, &[0, 0]).is_err());
    assert!(Fraction::from_runs(2, &[]).is_err());
    assert!(Fraction::from_runs(2, &[9]).is_err());
}

#[test]
fn a_fraction_names_its_effects_by_the_shortest_alias() {
    // y = 10 + 4·A − 3·D, with D = −ABC.
    let found = Fraction::from_generators(4, &["D=-ABC"]).unwrap();
    let x = |run: u32, factor: u32| if run >> factor & 1 == 1 { 1.0 } else { -1.0 };
    let y = |run: &u32| {
        let y = 10.0 + 4.0 * x(*run, 0) - 3.0 * x(*run, 3);
        vec![y - 0.1, y + 0.1]
    };
    let cells: Vec<Vec<f64>> = found.runs().iter().map(y).collect();
    let analysed = found.analyse(&cells, Form::Additive, 0.95).unwrap();
    let value = |name: &str| {
        let effect = analysed.effects.iter().find(|e| e.name == name).unwrap();
        (effect.effect.value, effect.aliases.clone())
    };
    assert!((value("A").0 - 4.0).abs() < 1e-12 && (value("D").0 + 3.0).abs() < 1e-12);
    assert_eq!(value("D").1, ["-ABC"]);
    assert_eq!(value("AB").1, ["-CD"]);
    assert!(analysed.effects.iter().all(|e| e.name.len() <= 2));
    // The bootstrap keeps names and signs.
    let again = Bootstrap::new(&analysed, 500, &mut StdRng::seed_from_u64(3)).unwrap();
    let d = again.effects.iter().find(|e| e.name == "D").unwrap();
    assert!(d.effect[0] <= -3.0 + 0.1 && d.effect[1] >= -3.0 - 0.1, "{d:?}");
    assert!(found.analyse(&cells[..4], Form::Additive, 0.95).is_err());
}

proptest! {
    #[test]
    fn runs_give_their_fraction_back(k in 3usize..7, seed in any::<u64>()) {
        let mut random = StdRng::seed_from_u64(seed);
        let p = random.random_range(1..k - 1);
        let base = k - p;
        let generators: Vec<String> = (base..k)
            .map(|factor| {
                let mask = random.random_range(1u32..1 << base);
                let sign = if random.random_bool(0.5) { "-" } else { "" };
                format!("{}={sign}{}", letter(factor), letters(mask))
            })
            .collect();
        let names: Vec<&str> = generators.iter().map(String::as_str).collect();
        let made = Fraction::from_generators(k, &names).unwrap();
        let runs = made.runs();
        let mut mixed = runs.clone();
        mixed.reverse();
        let found = Fraction::from_runs(k, &mixed).unwrap();
        prop_assert_eq!(found.defining_relation(), made.defining_relation());
        prop_assert_eq!(found.run_count(), runs.len());
        // Every effect that is estimated is the sum of its aliases' true values, with signs.
        let q: Vec<f64> = (0..1 << k).map(|_| random.random_range(-9.0..9.0)).collect();
        let y = |run: &u32| -> Vec<f64> {
            let sum = |mask: u32| if (mask & !run).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
            vec![(0..1u32 << k).map(|m| sum(m) * q[m as usize]).sum()]
        };
        let cells: Vec<Vec<f64>> = found.runs().iter().map(y).collect();
        let analysed = found.analyse(&cells, Form::Additive, 0.95).unwrap();
        for effect in &analysed.effects {
            let aliases = found.aliases(effect.factors);
            let others = aliases.iter().map(|w| {
                let q = q[w.factors as usize];
                if w.negative { -q } else { q }
            });
            let sum = q[effect.factors as usize] + others.sum::<f64>();
            prop_assert!((effect.effect.value - sum).abs() < 1e-9, "{}", effect.name);
            prop_assert_eq!(effect.aliases.len(), (1 << p) - 1);
        }
    }
}
