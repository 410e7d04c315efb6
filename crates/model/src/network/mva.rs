//! Exact mean value analysis of closed networks whose stations never change their speed.
//!
//! Reiser and Lavenberg, "Mean-Value Analysis of Closed Multichain Queuing Networks", JACM 27
//! (1980): a customer that arrives at a station finds the mean number of the same network without
//! that customer. All terms are positive, so nothing cancels. Stations with changing speed need the
//! distribution of the number present, whose recursion is unstable; `convolution` solves them.

/// One class: throughput and numbers at the stations, in O(customers × stations). `each` is called
/// with the throughput of every population on the way. A demand of 0 is allowed.
pub(crate) fn single(
    demands: &[f64],
    think_s: f64,
    customers: u32,
    mut each: impl FnMut(f64),
) -> (f64, Vec<f64>) {
    let mut residence = vec![0.0; demands.len()];
    let mut throughput = 0.0;
    for n in 1..=customers {
        let total = think_s + step(demands, &mut residence, throughput);
        throughput = f64::from(n) / total;
        each(throughput);
    }
    residence.iter_mut().for_each(|r| *r *= throughput);
    (throughput, residence)
}

/// R ← D·(1 + X·R), and their sum, with four partial sums so that additions are independent.
#[inline]
fn step(demands: &[f64], residence: &mut [f64], throughput: f64) -> f64 {
    let mut sums = [0.0; 4];
    let mut r4 = residence.chunks_exact_mut(4);
    let mut d4 = demands.chunks_exact(4);
    for (r, d) in (&mut r4).zip(&mut d4) {
        for i in 0..4 {
            r[i] = d[i] + d[i] * throughput * r[i];
            sums[i] += r[i];
        }
    }
    for (r, d) in r4.into_remainder().iter_mut().zip(d4.remainder()) {
        *r = d + d * throughput * *r;
        sums[0] += *r;
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}

/// Steps that [`multi`] would take: populations × classes × stations.
pub(crate) fn work(customers: &[u32], stations: usize) -> f64 {
    let populations: f64 = customers.iter().map(|n| f64::from(*n) + 1.0).product();
    populations * (customers.len() * stations) as f64
}

/// Several classes: throughputs and numbers `[class][station]`. `demands[class][station]`. Every
/// population up to the full one is visited; memory for two slices of them is kept.
pub(crate) fn multi(
    demands: &[&[f64]],
    think_s: &[f64],
    customers: &[u32],
) -> (Vec<f64>, Vec<Vec<f64>>) {
    let classes = customers.len();
    let stations = demands.first().map_or(0, |d| d.len());
    let largest = (0..classes).max_by_key(|&c| customers[c]).unwrap_or(0);
    let rest: Vec<usize> = (0..classes).filter(|&c| c != largest).collect();
    let mut strides = vec![0; classes];
    let mut inner = 1;
    for &c in &rest {
        strides[c] = inner;
        inner *= customers[c] as usize + 1;
    }
    let mut before = vec![0.0; inner * stations];
    let mut now = vec![0.0; inner * stations];
    let mut throughput = vec![0.0; classes];
    let mut numbers = vec![vec![0.0; stations]; classes];
    let mut residence = vec![0.0; stations];
    let outer = customers.get(largest).map_or(0, |n| *n);
    for n in 0..=outer {
        let mut population = vec![0; classes];
        if classes > 0 {
            population[largest] = n;
        }
        for index in 0..inner {
            let (done, rest_of) = now.split_at_mut(index * stations);
            let here = &mut rest_of[..stations];
            here.fill(0.0);
            for c in 0..classes {
                if population[c] == 0 {
                    continue;
                }
                let met = match c == largest {
                    true => &before[index * stations..(index + 1) * stations],
                    false => {
                        let at = (index - strides[c]) * stations;
                        &done[at..at + stations]
                    }
                };
                let mut total = think_s[c];
                for k in 0..stations {
                    residence[k] = demands[c][k] * (1.0 + met[k]);
                    total += residence[k];
                }
                let x = f64::from(population[c]) / total;
                for k in 0..stations {
                    here[k] += x * residence[k];
                }
                if n == outer && index + 1 == inner {
                    throughput[c] = x;
                    numbers[c].iter_mut().zip(&residence).for_each(|(q, r)| *q = x * r);
                }
            }
            for &c in &rest {
                if population[c] < customers[c] {
                    population[c] += 1;
                    break;
                }
                population[c] = 0;
            }
        }
        std::mem::swap(&mut before, &mut now);
    }
    (throughput, numbers)
}
