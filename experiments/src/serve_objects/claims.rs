//! The claims of objects from memory.

use super::names::{
    CEILING, GATEWAY, HAPROXY, HYPER, NGINX, NODE, PROXY_CACHE, RELAY, URING, VARNISH,
};
use super::peers::Slice;
use crate::claims::{Claim, Goal};
use crate::marks::Mark;
use crate::slices::{Blocks, Interval};

/// The goals for a size of objects, as ratios; NaN where there is none.
struct Goals {
    /// Requests/s of the node over nginx's, at least.
    over_nginx: f64,
    /// Processor time of the node over the ceiling's, at most.
    node_cpu: f64,
    /// Processor time of the gateway alone over the raw relay's alone, at most.
    gateway_cpu: f64,
}

/// Objects of up to 16 KiB cost what their request costs; larger ones what their bytes cost.
fn goals(object_bytes: u64) -> Goals {
    match object_bytes {
        0..=16_384 => Goals { over_nginx: 1.5, node_cpu: 1.3, gateway_cpu: 1.3 },
        _ => Goals { over_nginx: 1.0, node_cpu: f64::NAN, gateway_cpu: 1.1 },
    }
}

/// The figures of objects of some size.
struct Figures<'a> {
    object_bytes: u64,
    /// Where the slices of a system are, if it ran.
    column: &'a dyn Fn(usize) -> Option<usize>,
    blocks: &'a Blocks<Slice>,
    marks: &'a [Mark],
}

impl Figures<'_> {
    fn claim(&self, name: &str, found: Interval, unit: &str) -> Claim {
        Claim {
            low: found.low,
            high: found.high,
            marks: self.marks.to_vec(),
            ..Claim::new(
                format!("{} KiB, {name}", self.object_bytes / 1024),
                found.value,
                0.0,
                unit,
                self.blocks.len() as u64,
            )
        }
    }

    /// The place of a system that ran.
    fn place(&self, system: usize) -> usize {
        (self.column)(system).unwrap_or(usize::MAX)
    }

    fn cpu(&self, system: usize) -> Interval {
        self.blocks.figure(self.place(system), Slice::cpu_us_sum)
    }

    /// Without the processes behind the system.
    fn own_cpu(&self, system: usize) -> Interval {
        self.blocks.figure(self.place(system), own_cpu_us)
    }

    fn cpus(&self, over: usize, under: usize) -> Interval {
        self.blocks.ratio(self.place(over), self.place(under), Slice::cpu_us_sum)
    }

    fn own_cpus(&self, over: usize, under: usize) -> Interval {
        self.blocks.ratio(self.place(over), self.place(under), own_cpu_us)
    }

    fn rates(&self, over: usize, under: usize) -> Interval {
        self.blocks.ratio(self.place(over), self.place(under), |m| m.rate)
    }

    /// Of the caches that are not installed everywhere.
    fn other_caches(&self) -> Vec<Claim> {
        let mut all = Vec::new();
        if (self.column)(VARNISH).is_some() {
            let over = "node: requests in a CPU second over Varnish's";
            let over = self.claim(over, self.cpus(VARNISH, NODE), "×");
            all.push(over.with_goal(Goal::AtLeast(2.5)));
            all.push(self.claim("Varnish: CPU of a request", self.cpu(VARNISH), "µs"));
        }
        if (self.column)(HAPROXY).is_some() {
            let over = "node: requests in a CPU second over HAProxy's cache";
            all.push(self.claim(over, self.cpus(HAPROXY, NODE), "×"));
            all.push(self.claim("HAProxy's cache: CPU of a request", self.cpu(HAPROXY), "µs"));
        }
        all
    }
}

fn own_cpu_us(slice: &Slice) -> f64 {
    slice.cpu_us.first().copied().unwrap_or(f64::NAN)
}

/// The claims of objects of some size; `column` says where the slices of a system are, if it ran.
pub(super) fn claims(
    object_bytes: u64,
    column: &dyn Fn(usize) -> Option<usize>,
    blocks: &Blocks<Slice>,
    marks: &[Mark],
) -> Vec<Claim> {
    let figures = Figures { object_bytes, column, blocks, marks };
    let goals = goals(object_bytes);
    let claim = |name: &str, found: Interval, unit: &str| figures.claim(name, found, unit);
    let cpu = |system| figures.cpu(system);
    let own_cpu = |system| figures.own_cpu(system);
    let cpus = |over, under| figures.cpus(over, under);
    let rates = |over, under| figures.rates(over, under);
    let node = claim("node: CPU over the ceiling's", cpus(NODE, CEILING), "×");
    let mut all = vec![
        claim("node: requests/s over nginx static's", rates(NODE, NGINX), "×")
            .with_goal(Goal::AtLeast(goals.over_nginx)),
        if goals.node_cpu.is_nan() { node } else { node.with_goal(Goal::AtMost(goals.node_cpu)) },
        claim(
            "gateway: CPU over the raw relay's, without what is behind",
            figures.own_cpus(GATEWAY, RELAY),
            "×",
        )
        .with_goal(Goal::AtMost(goals.gateway_cpu)),
        claim("bare hyper: CPU over the ceiling's", cpus(HYPER, CEILING), "×"),
        claim("raw io_uring: CPU over the ceiling's", cpus(URING, CEILING), "×"),
        claim("raw io_uring: requests/s over the ceiling's", rates(URING, CEILING), "×"),
        claim("nginx static: CPU over the ceiling's", cpus(NGINX, CEILING), "×"),
        claim("ceiling: CPU of a request", cpu(CEILING), "µs"),
        claim("node: CPU of a request", cpu(NODE), "µs"),
        claim("nginx static: CPU of a request", cpu(NGINX), "µs"),
        claim("bare hyper: CPU of a request", cpu(HYPER), "µs"),
        claim("gateway: CPU of a request, without the node's", own_cpu(GATEWAY), "µs"),
        claim("raw relay: CPU of a request, without the ceiling's", own_cpu(RELAY), "µs"),
        claim(
            "gateway + node: requests/s over nginx proxy_cache's",
            rates(GATEWAY, PROXY_CACHE),
            "×",
        ),
        claim("nginx proxy_cache: CPU of a request", cpu(PROXY_CACHE), "µs"),
        claim("node: share of the ceiling", rates(NODE, CEILING), "×"),
        claim(
            "node: requests in a CPU second over nginx proxy_cache's",
            cpus(PROXY_CACHE, NODE),
            "×",
        )
        .with_goal(Goal::AtLeast(1.6)),
    ];
    all.extend(figures.other_caches());
    all
}

#[cfg(test)]
mod tests {
    use super::super::marks;
    use super::*;
    use crate::claims::Verdict;
    use crate::marks::Complaint;
    use crate::serve_objects::names::NAMES;
    use crate::slices;

    fn slice(rate: f64, cpu_us: &[f64]) -> Slice {
        Slice { rate, cpu_us: cpu_us.to_vec(), client_cpu: 0.5, p99_us: 1.0 }
    }

    #[test]
    fn claims_are_of_ratios_within_blocks() {
        let sizes = [4096, 81_920];
        // HAProxy is not installed.
        let running: Vec<usize> =
            (0..2 * NAMES.len()).filter(|system| system % NAMES.len() != HAPROXY).collect();
        let blocks = slices::run(running.len(), 40, 1, |block, system| {
            let system = running[system];
            let machine = 1.0 + block as f64;
            let each = [
                (4.0, 10.0),
                (2.0, 20.0),
                (3.2, 12.0),
                (1.0, 25.0),
                (0.5, 20.0),
                (0.6, 18.0),
                (3.9, 11.0),
                (4.1, 9.0),
                (0.4, 36.0),
            ];
            let (rate, cpu_us) = each[system % NAMES.len()];
            let behind = matches!(system % NAMES.len(), GATEWAY | RELAY);
            Ok(slice(machine * rate, &[machine * cpu_us, 15.0][..1 + usize::from(behind)]))
        });
        let blocks = blocks.unwrap();
        let marks = marks(&sizes, &running, &blocks, 0.06);
        assert!(marks.len() == 1 && marks[0].complaint == Complaint::Stolen, "{marks:?}");
        for (size, bytes) in sizes.into_iter().enumerate() {
            let column = |system: usize| {
                running.iter().position(|&number| number == size * NAMES.len() + system)
            };
            let claims = claims(bytes, &column, &blocks, &marks);
            let claims: Vec<Claim> = claims.into_iter().map(Claim::judged).collect();
            assert!((claims[0].value - 1.6).abs() < 1e-9 && claims[0].high < 1.6 + 1e-9);
            assert_eq!(claims[0].verdict, Some(Verdict::Holds));
            assert!((claims[1].value - 1.2).abs() < 1e-9);
            assert_eq!(claims[1].verdict, (bytes == 4096).then_some(Verdict::Holds));
            assert!((claims[2].value - 20.0 / 18.0).abs() < 1e-9, "the gateway alone");
            let expected = if bytes == 4096 { Verdict::Holds } else { Verdict::Fails };
            assert_eq!(claims[2].verdict, Some(expected));
            assert!(claims.iter().all(|claim| claim.marks == marks));
            let over = |of: &str| {
                let name =
                    format!("{} KiB, node: requests in a CPU second over {of}", bytes / 1024);
                claims.iter().find(|claim| claim.name == name)
            };
            let proxy_cache = over("nginx proxy_cache's").unwrap();
            assert!((proxy_cache.value - 25.0 / 12.0).abs() < 1e-9, "{proxy_cache:?}");
            assert_eq!(over("Varnish's").unwrap().verdict, Some(Verdict::Holds));
            assert_eq!(over("HAProxy's cache"), None);
        }
    }
}
