use crate::distribution::{Exponential, Lognormal};

use super::*;

/// Responses in a long run of a queue whose processors are shared, by a simulation that has nothing
/// in common with the one above: it starts empty, and every request lives in it.
fn long_run(m: u32, rate: f64, work: &mut dyn FnMut(&mut StdRng) -> f64, n: usize) -> Vec<f64> {
    let mut random = StdRng::seed_from_u64(11);
    let (mut now, mut due) = (0.0, exponential(&mut random) / rate);
    let (mut inside, mut out): (Vec<(f64, f64)>, Vec<f64>) = (Vec::new(), Vec::new());
    while out.len() < n {
        let speed = (f64::from(m) / inside.len().max(1) as f64).min(1.0);
        let least = inside.iter().map(|j| j.1).fold(f64::INFINITY, f64::min);
        let step = (least / speed).min(due - now);
        inside.iter_mut().for_each(|j| j.1 -= step * speed);
        now += step;
        if now >= due {
            inside.push((now, work(&mut random)));
            due = now + exponential(&mut random) / rate;
        }
        inside.retain(|(came, left)| {
            let over = *left <= 1e-12;
            if over {
                out.push(now - came);
            }
            !over
        });
    }
    out.split_off(n / 10)
}

fn law(of: &dyn ServiceTime) -> Empirical {
    Empirical::from_cdf(of.mean(), &[], |t| of.cdf(t)).unwrap()
}

/// M/M/1: the mean is b/(1 − ρ), the variance (2 + ρ)/(2 − ρ) times its square (E. Coffman,
/// R. Muntz, H. Trotter, "Waiting time distributions for processor-sharing systems", JACM 17, 1970).
#[test]
fn one_processor_with_exponential_work_has_the_known_moments() {
    let law = law(&Exponential::new(1.0).unwrap());
    let queue = SharedQueue::new(1, &law);
    for (rho, (exact, all)) in RHOS.iter().zip(&queue.loads[1..]).take(7) {
        let n = all.len() as f64;
        let mean = all.iter().sum::<f64>() / n;
        let variance = all.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / n;
        let known = 1.0 / (1.0 - rho);
        assert!((exact / known - 1.0).abs() < 1e-4, "{rho}: {exact}");
        let square = (2.0 + rho) / (2.0 - rho) * known * known;
        assert!((mean / known - 1.0).abs() < 0.02, "{rho}: {mean} {known}");
        assert!((variance / square - 1.0).abs() < 0.07, "{rho}: {variance} {square}");
    }
}

#[test]
fn responses_are_those_of_a_long_run() {
    let heavy = Lognormal::new(0.01, 2.0).unwrap();
    let of_heavy = law(&heavy);
    let exponential_law = law(&Exponential::new(0.01).unwrap());
    for (m, rho, law) in [(1u32, 0.8, &of_heavy), (2, 0.7, &exponential_law), (4, 0.85, &of_heavy)]
    {
        let mut work = |random: &mut StdRng| law.quantile(random.random::<f64>()).unwrap();
        let rate = rho * f64::from(m) / law.mean();
        let run = long_run(m, rate, &mut work, 200_000);
        let queue = SharedQueue::new(m, law);
        for t in [0.003, 0.01, 0.02, 0.05, 0.1] {
            let within = run.iter().filter(|x| **x <= t).count() as f64 / run.len() as f64;
            let found = queue.response_cdf(t, rho);
            let off = 100.0 * (found - within);
            println!("{m} at {rho}, {t} s: {found:.4}, {off:+.2} points");
            assert!(off.abs() < 1.0, "{m} {rho} {t}: {found} {within}");
        }
    }
}

/// Between the simulated loads, and past them, against a simulation at the load.
#[test]
fn any_load_is_as_if_simulated_there() {
    for (m, scv) in [(1, 2.0), (2, 0.4), (4, 2.0)] {
        let law = law(&Lognormal::new(0.01, scv).unwrap());
        let queue = SharedQueue::new(m, &law);
        let draw = Draw::new(&law);
        for rho in [0.1, 0.48, 0.73, 0.82, 0.9, 0.99] {
            let mut one = Follow::new(m, rho, &draw, law.mean());
            let mut random = StdRng::seed_from_u64(3);
            let works: Vec<f64> = (0..FOLLOWED).map(|i| draw.work(stratum(i), 0.5)).collect();
            let each = works.iter().enumerate().map(|(i, work)| one.respond(*work, i, &mut random));
            let all: Vec<f64> = each.collect();
            let mut before = 0.0;
            for t in [0.004, 0.012, 0.03, 0.08, 0.3] {
                let known = all.iter().filter(|x| **x <= t).count() as f64 / FOLLOWED as f64;
                let found = queue.response_cdf(t, rho);
                let off = 100.0 * (found - known);
                // Past the largest load that is simulated the law of T over its mean is that there.
                let most = if rho > 0.98 { 2.5 } else { 0.7 };
                assert!(off.abs() < most && found >= before, "{m} {scv} {rho} {t}: {off}");
                before = found;
            }
        }
        assert_eq!(queue.response_cdf(0.1, 1.0), 0.0);
        assert_eq!(queue.response_cdf(-1.0, 0.5) + queue.response_cdf(1.0, f64::NAN), 0.0);
    }
}
