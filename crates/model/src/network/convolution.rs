//! Exact solution of closed networks of one class with stations of any speeds, by a convolution
//! that never cancels, and never overflows or underflows unnoticed.
//!
//! Buzen (CACM 16, 1973): each station has weights f(n) = Dⁿ / (α(1)·…·α(n)), the normalising
//! constant G(N) is their convolution, and the throughput is G(N−1)/G(N). All terms are positive,
//! so the relative error stays near N × 1e-16. Recursions on the probability of an empty station
//! (load-dependent MVA) subtract, and lose all digits in large networks. The remaining problem is
//! range: G exceeds that of f64. Every weight is therefore tilted to f(n)·zⁿ with z near the
//! throughput. G(N) is then the probability that independent numbers in open stations sum to N, at
//! its most likely value; z cancels from every result. The loss by cut-off is bounded: weights
//! below `keep` of a station's largest are dropped, and the bound is compared with G(N).
//!
//! Stations of constant speed from some number L on have geometric weights from there: their
//! convolution costs N·L, that of others up to N². Weights too small to matter are dropped, so
//! stations far from the bottleneck cost little.

use super::station::Law;

/// A station: demand in seconds at α = 1, and its α.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server<'a> {
    pub(crate) demand: f64,
    pub(crate) law: &'a Law,
}

impl Server<'_> {
    fn ratio(&self, z: f64, n: usize) -> f64 {
        z * self.demand / self.law.alpha(n)
    }
}

/// The solution of a network.
#[derive(Clone, Debug)]
pub(crate) struct Solved {
    pub(crate) throughput: f64,
    /// Mean number at each station.
    pub(crate) numbers: Vec<f64>,
    /// Probability that each is empty.
    pub(crate) idle: Vec<f64>,
}

/// The reason why a network was not solved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Failure {
    /// The number of multiplications is too large.
    Work(f64),
    /// Two states are so far apart in probability that f64 cannot represent both.
    Range,
}

/// Largest number of multiplications of one solution: some 20 s.
pub(crate) const WORK_MAX: f64 = 4e10;

/// Largest number of weights held for all stations together: some 500 MB.
const VALUES_MAX: usize = 20_000_000;

/// Weights smaller than this share of a station's largest are dropped from means …
const KEEP: f64 = 1e-40;
/// … and of probabilities that may be small themselves.
const KEEP_ALL: f64 = 1e-305;

/// 2^128 and 2^256.
const HALF_STEP: f64 = (1u128 << 127) as f64 * 2.0;
const STEP: f64 = HALF_STEP * HALF_STEP;

/// The law of a number of at most `customers` at one station, not normalised: weights from `start`
/// on.
#[derive(Clone, Debug, PartialEq)]
struct Span {
    start: usize,
    values: Vec<f64>,
    /// True values are these times 2^scale.
    scale: i64,
}

impl Span {
    fn unit() -> Span {
        Span { start: 0, values: vec![1.0], scale: 0 }
    }

    fn value(&self, n: usize) -> f64 {
        n.checked_sub(self.start).and_then(|i| self.values.get(i)).copied().unwrap_or(0.0)
    }

    fn end(&self) -> usize {
        self.start + self.values.len()
    }

    /// Scales the largest value to near 1 (by a power of two: exact) and drops ends below `keep` of
    /// it.
    fn normalise(&mut self, keep: f64) {
        let max = self.values.iter().copied().fold(0.0, f64::max);
        if max <= 0.0 {
            *self = Span { start: self.start, values: Vec::new(), scale: 0 };
            return;
        }
        let exponent = max.log2().floor().clamp(-1000.0, 1000.0) as i32;
        let factor = 2f64.powi(-exponent);
        self.values.iter_mut().for_each(|v| *v *= factor);
        self.scale += i64::from(exponent);
        let first = self.values.iter().position(|v| *v >= keep).unwrap_or(0);
        let last = self.values.iter().rposition(|v| *v >= keep).unwrap_or(0);
        self.values.truncate(last + 1);
        self.values.drain(..first);
        self.start += first;
    }
}

/// A station's tilted weights.
struct Weights {
    span: Span,
    /// From this number on, each weight is its predecessor times this ratio.
    tail: Option<(usize, f64)>,
    sum: f64,
}

/// Tilted weights f(n)·zⁿ, n ≤ `customers`, the largest near 1, by products starting from f(0) = 1.
/// Powers of 2^256 are counted separately, so no product overflows before the largest is known.
fn weights(server: Server<'_>, z: f64, customers: usize, keep: f64) -> Weights {
    let constant = server.law.constant_from();
    let mut values = vec![1.0f64];
    let mut runs: Vec<(usize, i64)> = vec![(0, 0)];
    let (mut term, mut power) = (1.0f64, 0i64);
    let mut highest = (power, term);
    for n in 1..=customers {
        let ratio = server.ratio(z, n);
        term *= ratio;
        if !(1.0 / HALF_STEP..=HALF_STEP).contains(&term) {
            let up = term > 1.0;
            term *= if up { 1.0 / STEP } else { STEP };
            power += if up { 1 } else { -1 };
            runs.push((n, power));
        }
        values.push(term);
        if (power, term) > highest {
            highest = (power, term);
        }
        if ratio < 1.0 && falls_for_good(server.law, n) && power < highest.0 - 6 {
            break;
        }
    }
    for (i, &(from, power)) in runs.iter().enumerate() {
        let to = runs.get(i + 1).map_or(values.len(), |next| next.0);
        let below = (highest.0 - power).min(6);
        for value in &mut values[from..to] {
            *value = (0..below).fold(*value / highest.1, |v, _| v / STEP);
        }
    }
    let mut span = Span { start: 0, values, scale: 0 };
    span.normalise(keep);
    let sum = span.values.iter().sum();
    // Geometric: f(n) = r·f(n−1) for n ≥ L, so from L − 1 on; and nothing below the cut.
    let tail = (constant <= customers)
        .then(|| ((constant - 1).max(span.start), server.ratio(z, constant)))
        .filter(|(from, _)| *from < span.end());
    Weights { span, tail, sum }
}

/// Whether α(n), α(n + 1), … never decreases, so that decreasing weights go on decreasing.
fn falls_for_good(law: &Law, n: usize) -> bool {
    matches!(law, Law::Delay) || n >= law.constant_from()
}

/// Mean and variance of the number whose law the tilted weights are.
fn moments(server: Server<'_>, z: f64, customers: usize) -> (f64, f64) {
    let (mut term, mut s0, mut s1, mut s2) = (1.0f64, 1.0f64, 0.0f64, 0.0f64);
    for n in 1..=customers {
        let ratio = server.ratio(z, n);
        term *= ratio;
        if term > STEP {
            [&mut term, &mut s0, &mut s1, &mut s2].into_iter().for_each(|v| *v /= STEP);
        }
        let x = n as f64;
        s0 += term;
        s1 += term * x;
        s2 += term * x * x;
        if falls_for_good(server.law, n)
            && ratio < 1.0
            && term * x * x < 1e-9 * (1.0 - ratio) * s2.max(s0 * 1e-6)
        {
            break;
        }
    }
    let mean = s1 / s0;
    (mean, (s2 / s0 - mean * mean).max(0.0))
}

/// The z at which open stations together hold `customers` on average, to a third of a standard
/// deviation, which is accurate enough. Newton's method on ln z (the derivative of the mean is the
/// variance), kept within bounds.
fn tilt(servers: &[Server<'_>], customers: usize) -> f64 {
    let demand: f64 = servers.iter().map(|s| s.demand / s.law.alpha(customers)).sum();
    let mut y = (customers as f64 / demand).ln();
    let slowest = servers.iter().map(|s| s.demand / s.law.alpha(customers)).fold(0.0, f64::max);
    y = y.min(-slowest.ln());
    let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
    for _ in 0..200 {
        let z = y.exp();
        let (mut mean, mut variance) = (0.0, 0.0);
        for &server in servers {
            let (m, v) = moments(server, z, customers);
            mean += m;
            variance += v;
        }
        let missing = customers as f64 - mean;
        if missing.abs() <= 0.3 * variance.sqrt() {
            break;
        }
        if missing > 0.0 {
            low = y;
        } else {
            high = y;
        }
        let newton = y + (missing / variance.max(1e-9)).clamp(-3.0, 3.0);
        y = if newton > low && newton < high { newton } else { 0.5 * (low + high) };
        if !y.is_finite() || high - low < 1e-13 {
            y = if low.is_finite() { low } else { high };
            break;
        }
    }
    y.exp()
}

/// Σ f(i)·g(i + j) for j = 0..4: four at once, so that each loaded value is used four times, and
/// with separate partial sums, so that additions are independent. `g` is three longer than `f`.
#[inline]
fn dots(f: &[f64], g: &[f64]) -> [f64; 4] {
    let mut sums = [[0.0; 4]; 4];
    let whole = f.len() / 4 * 4;
    for (f, g) in f.chunks_exact(4).zip(g.windows(7).step_by(4)) {
        for (j, sum) in sums.iter_mut().enumerate() {
            for i in 0..4 {
                sum[i] += f[i] * g[i + j];
            }
        }
    }
    let mut out = sums.map(|s| (s[0] + s[2]) + (s[1] + s[3]));
    for (i, f) in f.iter().enumerate().skip(whole) {
        out.iter_mut().enumerate().for_each(|(j, out)| *out += f * g[i + j]);
    }
    out
}

/// The parts of weights that matter: runs of values of at least `least`, including gaps shorter
/// than 64.
fn parts(values: &[f64], least: f64) -> Vec<(usize, &[f64])> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for i in (0..values.len()).filter(|&i| values[i] >= least) {
        match runs.last_mut() {
            Some((_, end)) if i < *end + 64 => *end = i + 1,
            _ => runs.push((i, i + 1)),
        }
    }
    runs.into_iter().map(|(from, to)| (from, &values[from..to])).collect()
}

/// out(n) += Σ f(i)·g(n − i), where `out`, `f` and `g` begin at `first`, `start` and `g.start`;
/// values below `keep` are skipped.
fn add_products(out: &mut [f64], first: usize, f: &[f64], start: usize, g: &Span, keep: f64) {
    for (f_at, f) in parts(f, keep) {
        let reversed: Vec<f64> = f.iter().rev().copied().collect();
        for (g_at, g_part) in parts(&g.values, keep) {
            let from = start + f_at + g.start + g_at - first;
            if from < out.len() {
                add_part(&mut out[from..], &reversed, g_part);
            }
        }
    }
}

/// out(n) += Σ f(i)·g(n − i), all beginning at 0; `reversed` is f reversed.
fn add_part(out: &mut [f64], reversed: &[f64], g: &[f64]) {
    let count = reversed.len();
    let mut padded = vec![0.0; g.len() + 6];
    padded[3..3 + g.len()].copy_from_slice(g);
    let end = out.len().min(count + g.len() - 1);
    // Of the four sums from n on: reversed[r] meets g(n + j + r − (count − 1)), padded by 3 on both
    // sides.
    for (block, out) in out[..end].chunks_mut(4).enumerate() {
        let n = 4 * block;
        let low = (count - 1).saturating_sub(n + 3);
        let high = count.min((g.len() + count - 1).saturating_sub(n));
        let at = n + low + 3 - (count - 1);
        let sums = dots(&reversed[low..high], &padded[at..at + high - low + 3]);
        out.iter_mut().zip(sums).for_each(|(out, sum)| *out += sum);
    }
}

/// The convolution of weights with a span up to `last`; if `derived`, of n·f(n).
fn convolve(f: &Weights, derived: bool, g: &Span, last: usize, keep: f64) -> Span {
    let first = f.span.start + g.start;
    if first > last || g.values.is_empty() || f.span.values.is_empty() {
        return Span { start: first.min(last), values: Vec::new(), scale: 0 };
    }
    let tail = f.tail.filter(|(from, _)| f.span.end() - from > 16 && g.values.len() > 16);
    let head_end = tail.map_or(f.span.end(), |(from, _)| from);
    let end = match tail {
        Some(_) => last,
        None => (f.span.end() + g.end() - 2).min(last),
    };
    let mut out = vec![0.0; end - first + 1];
    let head = &f.span.values[..head_end - f.span.start];
    if derived {
        let by_number = |(i, v): (usize, &f64)| (f.span.start + i) as f64 * v;
        let head: Vec<f64> = head.iter().enumerate().map(by_number).collect();
        add_products(&mut out, first, &head, f.span.start, g, keep);
    } else {
        add_products(&mut out, first, head, f.span.start, g, keep);
    }
    if let Some((from, ratio)) = tail {
        // t(n) = Σ_{i ≥ from} f(i)·g(n−i) and t1(n) = Σ i·f(i)·g(n−i), each computed from its
        // predecessor.
        let weight = f.span.value(from);
        let (mut t, mut t1) = (0.0, 0.0);
        for n in from + g.start..=end {
            let enters = weight * g.value(n - from);
            t1 = ratio * (t1 + t) + from as f64 * enters;
            t = ratio * t + enters;
            out[n - first] += if derived { t1 } else { t };
        }
    }
    let mut out = Span { start: first, values: out, scale: f.span.scale + g.scale };
    out.normalise(keep);
    out
}

/// Σ a(i)·b(n − i), times 2^-(the common scale).
fn meet(a: &Span, b: &Span, n: usize) -> f64 {
    let low = a.start.max((n + 1).saturating_sub(b.end()));
    let high = (a.end()).min((n + 1).saturating_sub(b.start));
    (low..high).map(|i| a.value(i) * b.value(n - i)).sum()
}

/// Mean number in `a` if `a` and `b` together hold `customers`.
fn share_of(a: &Span, b: &Span, customers: usize) -> f64 {
    let low = a.start.max((customers + 1).saturating_sub(b.end()));
    let high = a.end().min((customers + 1).saturating_sub(b.start));
    let (mut sum, mut first) = (0.0, 0.0);
    for n in low..high {
        let p = a.value(n) * b.value(customers - n);
        sum += p;
        first += p * n as f64;
    }
    first / sum
}

/// A network's weights and their products from the left and from the right.
struct Products {
    z: f64,
    customers: usize,
    keep: f64,
    weights: Vec<Weights>,
    /// `left[k]` is the product of the stations before k, `right[k]` of those from k on.
    left: Vec<Span>,
    right: Vec<Span>,
    /// G(N) and G(N − 1), times 2^-scale.
    constant: f64,
    constant_before: f64,
    scale: i64,
}

impl Products {
    fn new(
        servers: &[Server<'_>],
        customers: usize,
        z: f64,
        keep: f64,
    ) -> Result<Products, Failure> {
        let make = |s: &Server<'_>| weights(*s, z, customers, keep);
        let weights: Vec<Weights> = servers.iter().map(make).collect();
        let work = work(&weights, customers);
        if work > WORK_MAX {
            return Err(Failure::Work(work));
        }
        let count = weights.len();
        let mut left = vec![Span::unit()];
        for f in &weights[..count - 1] {
            let next = convolve(f, false, &left[left.len() - 1], customers, keep);
            left.push(next);
        }
        let mut right = vec![Span::unit()];
        for f in weights[1..].iter().rev() {
            let next = convolve(f, false, &right[right.len() - 1], customers, keep);
            right.push(next);
        }
        right.push(Span::unit()); // of all stations: not needed
        right.reverse();
        let last = &weights[count - 1].span;
        let constant = meet(last, &left[count - 1], customers);
        let constant_before = meet(last, &left[count - 1], customers - 1);
        let scale = last.scale + left[count - 1].scale;
        Ok(Products { z, customers, keep, weights, left, right, constant, constant_before, scale })
    }

    /// Upper bound of `keep`, as a logarithm: the dropped part is at most `keep` × the product of
    /// all sums × their number, and must not exceed 1e-16 of G(N).
    fn keep_needed(&self) -> f64 {
        let ln2 = 2f64.ln();
        let sums: f64 = self.weights.iter().map(|f| f.sum.ln() + f.span.scale as f64 * ln2).sum();
        let constant = self.constant.min(self.constant_before).ln() + self.scale as f64 * ln2;
        let needed =
            constant - sums - (self.customers as f64 * self.weights.len() as f64).ln() - 37.0;
        if needed.is_nan() { f64::NEG_INFINITY } else { needed }
    }

    /// value·2^scale / G(N).
    fn over_constant(&self, value: f64, scale: i64) -> f64 {
        let power = (scale - self.scale).clamp(-2000, 2000) as i32;
        value / self.constant * 2f64.powi(power)
    }

    /// Mean numbers at the stations.
    ///
    /// The stations before k together hold Σ n·left(n)·right(N − n) / G(N). The difference of two
    /// such sums is a mean number at no cost, and accurate unless it is small beside them. Small
    /// ones are summed directly, Σ n·f(n)·(all others)(N − n) / G(N), which is cheap because they
    /// are small.
    fn numbers(&self) -> Vec<f64> {
        let count = self.weights.len();
        let mut before = vec![0.0];
        before.extend((1..count).map(|k| share_of(&self.left[k], &self.right[k], self.customers)));
        before.push(self.customers as f64);
        let number = |k: usize| {
            let difference = before[k + 1] - before[k];
            match self.weights[k].tail {
                None if difference > 1e-3 * before[k + 1] => difference,
                _ => self.number(k),
            }
        };
        (0..count).map(number).collect()
    }

    fn number(&self, k: usize) -> f64 {
        let (left, right) = (&self.left[k], &self.right[k + 1]);
        let (narrow, wide) =
            if left.values.len() < right.values.len() { (left, right) } else { (right, left) };
        let part = convolve(&self.weights[k], true, narrow, self.customers, self.keep);
        self.over_constant(meet(&part, wide, self.customers), part.scale + wide.scale)
    }

    /// Probability that station k is empty.
    fn idle(&self, k: usize) -> f64 {
        let empty = self.weights[k].span.value(0);
        let others = meet(&self.left[k], &self.right[k + 1], self.customers);
        let scale = self.weights[k].span.scale + self.left[k].scale + self.right[k + 1].scale;
        self.over_constant(empty * others, scale).min(1.0)
    }
}

/// Number of multiplications of [`Products::new`] and of the means.
fn work(weights: &[Weights], customers: usize) -> f64 {
    let mut width = 1.0;
    let mut total = 0.0;
    for f in weights {
        let head = f.tail.map_or(f.span.end(), |(from, _)| from + 1) - f.span.start;
        total += 2.0 * head as f64 * width + 10.0 * customers as f64;
        width = (width + f.span.values.len() as f64).min(customers as f64 + 1.0);
    }
    total
}

/// Rejects a problem that would not fit in memory, with a lower bound of its steps.
fn check_size(stations: usize, customers: usize) -> Result<(), Failure> {
    match customers.saturating_mul(stations) {
        values if values <= VALUES_MAX => Ok(()),
        values => Err(Failure::Work(values as f64 * 1e4)),
    }
}

/// Solves a closed network. Stations without demand are empty; at least one station must have a
/// demand. Relative error: about `customers` × 1e-16.
pub(crate) fn solve(servers: &[Server<'_>], customers: usize) -> Result<Solved, Failure> {
    let used: Vec<usize> = (0..servers.len()).filter(|&k| servers[k].demand > 0.0).collect();
    let mut solved = Solved {
        throughput: 0.0,
        numbers: vec![0.0; servers.len()],
        idle: vec![1.0; servers.len()],
    };
    if customers == 0 || used.is_empty() {
        return Ok(solved);
    }
    if let [only] = used[..] {
        solved.throughput = servers[only].law.alpha(customers) / servers[only].demand;
        solved.numbers[only] = customers as f64;
        solved.idle[only] = 0.0;
        return Ok(solved);
    }
    let active: Vec<Server<'_>> = used.iter().map(|&k| servers[k]).collect();
    check_size(active.len(), customers)?;
    let z = tilt(&active, customers);
    let mut products = Products::new(&active, customers, z, KEEP)?;
    let needed = products.keep_needed();
    if KEEP.ln() > needed {
        // Two ways to distribute the customers, neither likely at this z.
        let keep = if needed.is_finite() { (needed - 3.0).exp() } else { 0.0 };
        products = Products::new(&active, customers, z, keep.max(KEEP_ALL))?;
        if products.keep.ln() > products.keep_needed() {
            return Err(Failure::Range);
        }
    }
    solved.throughput = products.z * (products.constant_before / products.constant);
    for ((i, &k), number) in used.iter().enumerate().zip(products.numbers()) {
        solved.numbers[k] = match servers[k].law {
            Law::Delay => solved.throughput * servers[k].demand,
            Law::Rates(_) => number,
        };
        solved.idle[k] = products.idle(i);
    }
    Ok(solved)
}

/// P(n at station k), n = 0 ..= customers: f(n)·(all others)(N − n) for each n, normalised. Values
/// below some 1e-290 are 0.
pub(crate) fn distribution(
    servers: &[Server<'_>],
    customers: usize,
    k: usize,
) -> Result<Vec<f64>, Failure> {
    check_size(servers.len(), customers)?;
    let mut found = vec![0.0; customers + 1];
    let others = servers.iter().enumerate().any(|(i, s)| i != k && s.demand > 0.0);
    if customers == 0 || servers[k].demand == 0.0 || !others {
        let at = if servers[k].demand > 0.0 { customers } else { 0 };
        found[at] = 1.0;
        return Ok(found);
    }
    let mut active: Vec<Server<'_>> = vec![servers[k]];
    active.extend(
        servers.iter().enumerate().filter(|(i, s)| *i != k && s.demand > 0.0).map(|s| *s.1),
    );
    let z = tilt(&active, customers);
    let all: Vec<Weights> = active.iter().map(|s| weights(*s, z, customers, KEEP_ALL)).collect();
    let work = work(&all, customers);
    if work > WORK_MAX {
        return Err(Failure::Work(work));
    }
    let mut rest = Span::unit();
    for f in &all[1..] {
        rest = convolve(f, false, &rest, customers, KEEP_ALL);
    }
    let own = &all[0].span;
    for (n, p) in found.iter_mut().enumerate() {
        *p = own.value(n) * rest.value(customers - n);
    }
    let total: f64 = found.iter().sum();
    if total.is_nan() || total <= 1e-200 {
        return Err(Failure::Range);
    }
    found.iter_mut().for_each(|p| *p /= total);
    Ok(found)
}
