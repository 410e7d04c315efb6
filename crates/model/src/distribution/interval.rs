//! A gamma law of what somebody expects: a low, a middle and a high value, and how sure they are.

use crate::error::{Error, check, positive};

use super::{Gamma, ServiceTime as _};

/// SCVs that are tried: sixteen to a decade, from 1e6 down to 1e-6.
const PER_DECADE: u32 = 16;
const DECADES: u32 = 12;

impl Gamma {
    /// The law of an expectation: the mean is `mid`, and a value lies between `low` and `high` with probability
    /// `confidence` (0.01 to 0.999999). For questions that are asked before anything is measured; in seconds,
    /// or in any one unit: the SCV is the same.
    ///
    /// The shape k solves P(low < T ≤ high) = P(k, k·high/mid) − P(k, k·low/mid) = `confidence`, with P the
    /// regularised lower incomplete gamma function. Once the mean is given a gamma law has one number to
    /// choose, so its two tails are together 1 − `confidence`, not half of that each. Where the equation has
    /// several solutions (`high` just above `mid`, `low` far below) the widest law is taken.
    ///
    /// Source: ours. The question is that of `gamma_for_interval` in Netflix's service-capacity-modeling,
    /// whose answer is another law: low/2 and a gamma law of mean m = mid − low/2, its shape from
    /// P(k, p·k/m) / P(k, (1−p)·k/m) = high/(low/2), p = (1 + confidence)/2. There probabilities stand where
    /// values belong: nearly k = ln(2·high/low) / ln(p/(1−p)), so that a wider interval makes a *narrower*
    /// law, `mid` hardly counts, and the unit does. Its law for 1,000 to 20,000 around 5,000 at 98 % has
    /// 83 % in there.
    ///
    /// Wrong where nothing is near 0 (see [`super::Shifted`]), where the tail is heavier than exponential
    /// ([`super::Lognormal`]), and for an interval of a *mean*: that of single values is wider. An error unless
    /// low < mid < high, or if the interval is too narrow for an SCV of 0.000001.
    /// Cost: some 300 CDFs; milliseconds for SCVs near the least.
    ///
    /// ```
    /// use model::distribution::{Gamma, ServiceTime};
    /// // Some 5 ms, and we are 98 % sure of 1 to 20 ms.
    /// let law = Gamma::from_interval(0.001, 0.005, 0.020, 0.98)?;
    /// assert_eq!(law.mean(), 0.005);
    /// assert!((law.scv() - 0.315).abs() < 0.001);
    /// assert!((law.cdf(0.020) - law.cdf(0.001) - 0.98).abs() < 1e-9);
    /// # Ok::<(), model::Error>(())
    /// ```
    pub fn from_interval(low: f64, mid: f64, high: f64, confidence: f64) -> Result<Self, Error> {
        positive("the low end of an interval", low)?;
        check("the middle of an interval", mid, low.next_up()..=f64::MAX, "above its low end")?;
        check("the high end of an interval", high, mid.next_up()..=f64::MAX, "above its middle")?;
        check("the confidence of an interval", confidence, 0.01..=0.999_999, "0.01 to 0.999999")?;
        // The mean is checked here, so that below there is no law only where there is no SCV.
        Gamma::new(mid, 1.0)?;
        let inside = |law: Gamma| law.cdf(high) - law.cdf(low);
        let keeps = |scv: f64| Gamma::new(mid, scv).is_ok_and(|law| inside(law) >= confidence);
        let scv = widest(keeps).ok_or(Error::Invalid {
            what: "the confidence of an interval",
            value: confidence,
            must: "less, for this interval is too narrow for an SCV of 0.000001: widen it",
        })?;
        Gamma::new(mid, scv)
    }
}

/// The largest SCV from 1e6 down that `keeps`, to rounding where the property changes once within a
/// step; `None` if none does.
fn widest(keeps: impl Fn(f64) -> bool) -> Option<f64> {
    let at = |step: u32| {
        let decades = f64::from(step) / f64::from(PER_DECADE);
        10f64.powf(f64::from(DECADES) / 2.0 - decades).clamp(1e-6, 1e6)
    };
    let step = (0..=PER_DECADE * DECADES).find(|&step| keeps(at(step)))?;
    let (mut wide, mut narrow) = (at(step.saturating_sub(1)), at(step));
    // A step is a seventh in the logarithm: 60 halvings leave nothing of it.
    for _ in 0..60 {
        let middle = (wide * narrow).sqrt();
        if keeps(middle) {
            narrow = middle;
        } else {
            wide = middle;
        }
    }
    Some(narrow)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use statrs::function::gamma::gamma_lr;

    use super::widest;
    use crate::distribution::{Gamma, ServiceTime, Shifted};
    use crate::gold::json as gold;

    fn inside(law: &impl ServiceTime, low: f64, high: f64) -> f64 {
        law.cdf(high) - law.cdf(low)
    }

    /// The peer's law by the condition that it solves: its quantiles agree, and it does not keep the interval.
    #[test]
    fn the_law_of_netflix_is_the_one_described() {
        let Some(file) = gold("netflix/gamma_interval.json") else { return };
        for row in file["rows"].as_array().unwrap() {
            let number = |key: &str| row["interval"][key].as_f64().unwrap();
            let (low, mid, high) = (number("low"), number("mid"), number("high"));
            let confidence = number("confidence");
            let (least, p) = (low / 2.0, (1.0 + confidence) / 2.0);
            let mean = mid - least;
            let scv = widest(|scv| {
                let at = |p: f64| gamma_lr(1.0 / scv, p / scv / mean);
                at(p) / at(1.0 - p) >= high / least
            });
            let scv = scv.unwrap();
            let law = Shifted::new(least, Gamma::new(mean, scv).unwrap()).unwrap();
            for (p, expected) in row["ppf"].as_object().unwrap() {
                let expected = expected.as_f64().unwrap();
                let found = law.quantile(p.parse().unwrap()).unwrap();
                assert!((found / expected - 1.0).abs() < 1e-9, "{p}: {found}, not {expected}");
            }
            assert!((law.mean() / row["mean"].as_f64().unwrap() - 1.0).abs() < 1e-12);
            let theirs = inside(&law, low, high);
            assert!((theirs - 0.832).abs() < 1e-3, "{theirs} of {confidence}");
            // Nearly that of the logarithms, which knows nothing of the middle.
            let shape = (high / least).ln() / (p / (1.0 - p)).ln();
            assert!((shape * scv - 1.0).abs() < 1e-4, "{shape} {scv}");
            let ours = Gamma::from_interval(low, mid, high, confidence).unwrap();
            assert!((inside(&ours, low, high) - confidence).abs() < 1e-12, "{ours:?}");
        }
    }

    #[test]
    fn of_several_laws_the_widest_is_taken() {
        // At a shape of 0.24, and again at 1.9, where it falls, and at 590.
        let law = Gamma::from_interval(0.001, 1.0, 1.01, 0.6).unwrap();
        assert!(law.scv() > 3.0, "{law:?}");
    }

    #[test]
    fn what_is_no_interval_is_refused() {
        let nan = f64::NAN;
        for (low, mid, high, confidence) in [
            (5.0, 5.0, 5.0, 0.9),
            (5.0, 5.0, 9.0, 0.9),
            (1.0, 5.0, 5.0, 0.9),
            (6.0, 5.0, 9.0, 0.9),
            (1.0, 5.0, 4.0, 0.9),
            (0.0, 5.0, 9.0, 0.9),
            (-1.0, 5.0, 9.0, 0.9),
            (1.0, 5.0, f64::INFINITY, 0.9),
            (1.0, 1e13, 1e14, 0.9),
            (nan, 5.0, 9.0, 0.9),
            (1.0, nan, 9.0, 0.9),
            (1.0, 5.0, nan, 0.9),
            (1.0, 5.0, 9.0, nan),
            (1.0, 5.0, 9.0, 0.0),
            (1.0, 5.0, 9.0, 1.0),
            // It would have an SCV of 1e-9.
            (0.9999, 1.0, 1.0001, 0.99),
        ] {
            let found = Gamma::from_interval(low, mid, high, confidence);
            assert!(found.is_err(), "{low} {mid} {high} {confidence}: {found:?}");
        }
        let error = Gamma::from_interval(0.9999, 1.0, 1.0001, 0.99).unwrap_err();
        assert!(error.to_string().contains("widen it"), "{error}");
    }

    proptest! {
        #[test]
        fn the_interval_is_kept(
            mid in 1e-6f64..1e6, below in 0.01f64..0.95, above in 1.05f64..50.0,
            confidence in 0.01f64..0.999,
        ) {
            let (low, high) = (mid * below, mid * above);
            let law = Gamma::from_interval(low, mid, high, confidence).unwrap();
            prop_assert_eq!(law.mean(), mid);
            prop_assert!((inside(&law, low, high) - confidence).abs() < 1e-9, "{law:?}");
            // A wider interval is that of a wider law, more confidence that of a narrower one.
            let wider = Gamma::from_interval(0.9 * low, mid, 1.1 * high, confidence).unwrap();
            prop_assert!(wider.scv() >= law.scv() * (1.0 - 1e-6), "{law:?} {wider:?}");
            let surer = Gamma::from_interval(low, mid, high, 0.9 * confidence + 0.1 * 0.9995).unwrap();
            prop_assert!(surer.scv() <= law.scv() * (1.0 + 1e-6), "{law:?} {surer:?}");
            // In another unit the same.
            let other = Gamma::from_interval(1e3 * low, 1e3 * mid, 1e3 * high, confidence).unwrap();
            prop_assert!((other.scv() / law.scv() - 1.0).abs() < 1e-6, "{law:?} {other:?}");
        }
    }
}
