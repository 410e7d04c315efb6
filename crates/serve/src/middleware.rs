//! The proxy for memcached's protocol as a part of the process: its administrative paths, and what
//! is observed of it.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use engine::invariant::Invariants;
use engine::pool::{Counts, PoolStatus, ServerStatus, Status as Pools};
use engine::route::health::State;
use engine::status::{Connections, ProcessStatus, ProxyProcess};
use ground::window::{self, Nanos, QueueName, Sample, Window};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use proxy::{Address, Handover, Proxy};
use record::clock;

use configuration::Config;
use front::Front;
use front::health::{self, Fault, Part};
use front::http::{Service, admit, is_health};
use front::observe::Observed;
use front::quick::{Never, Quick};
use live::LiveModel;
use membership::Follower;
use wire::body::ReplyBody;
use wire::exposition::{Exposition, Kind};
use wire::inherited;
use wire::lane::ThreadRecorder;
use wire::problem::{Problem, json, only_get, typed};

/// A proxy, and the HTTP front for whoever watches it.
pub struct Middleware {
    front: Front,
    /// Replaced when other pools are read.
    proxy: RwLock<Arc<Proxy>>,
    /// What proxies before had recorded at their end.
    left: Mutex<(Vec<Window>, Vec<Sample>)>,
    windows: window::Settings,
    address: Address,
    /// What the proxies of a cluster share, if they do.
    follower: Option<Follower>,
}

impl Quick for Middleware {
    type Flight = Never<()>;

    fn ends(&self) -> bool {
        self.is_stopping()
    }
}

impl Middleware {
    /// Starts a proxy; its HTTP front is not running yet.
    pub fn start(
        config: &Config,
        settings: proxy::Settings,
        windows: window::Settings,
        live: &Arc<LiveModel>,
        follower: Option<Follower>,
        now: Nanos,
    ) -> anyhow::Result<Middleware> {
        let front = Front::new(config, QueueName::Gateway, windows, live, now);
        let handover = match &settings.listen {
            Address::Tcp(address) => Handover {
                listener: inherited::take(*address),
                connections: inherited::connections(*address),
                pass_on: inherited::keeps().then_some(inherited::pass_on),
            },
            Address::Unix(_) | Address::Name(_) => Handover::default(),
        };
        let windows = settings.pools.windows.clone();
        let proxy = Proxy::start(settings, handover, now)?;
        let address = proxy.address().clone();
        let (proxy, left) = (RwLock::new(Arc::new(proxy)), Mutex::default());
        Ok(Middleware { front, proxy, left, windows, address, follower })
    }

    fn proxy(&self) -> Arc<Proxy> {
        self.proxy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes other pools and the other settings of the proxy from a configuration. Requests under way end first; clients keep
    /// their connections.
    ///
    /// # Errors
    /// What the configuration names cannot be used: the pools that were are kept. Or a thread cannot be started, and nothing is
    /// served any more.
    pub fn reload(&self, config: &Config) -> anyhow::Result<()> {
        let settings = |config: &Config| config.proxy(self.windows.clone(), rand::random());
        let mut new = settings(config)?;
        new.connections_max = self.proxy().connections_max();
        let mut proxy = self.proxy.write().unwrap_or_else(PoisonError::into_inner);
        let before = proxy.clone();
        let next = before.replace(new, clock::now())?;
        let (windows, samples) = before.observe(clock::now(), true);
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.0.extend(windows);
        left.1.extend(samples);
        *proxy = Arc::new(next);
        Ok(())
    }

    /// Where clients that speak memcached's protocol connect.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Ends the proxy: requests in flight are answered first.
    pub fn end(&self) {
        self.proxy().stop();
    }

    fn metrics(&self) -> Response<ReplyBody> {
        let mut page = self.metrics.queues();
        self.live.add_metrics(&mut page);
        let status = self.proxy().status(clock::now());
        add_pools(&mut page, &status);
        add_servers(&mut page, &status);
        health::add_metrics(&mut page, &faults(&status));
        membership::add_metrics(&mut page, self.follower.as_ref().map(Follower::common));
        page.connections(self.proxy().connections(), self.proxy().connections_max());
        typed(StatusCode::OK, "text/plain; version=0.0.4", page.finish().into_bytes(), None)
    }

    fn status(&self) -> Response<ReplyBody> {
        let status = ProxyProcess {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            listen: self.address.to_string(),
            connections: Connections {
                connections: Some(self.proxy().connections()),
                connections_max: Some(self.proxy().connections_max()),
            },
            memcached: self.proxy().status(clock::now()),
            config: self.asked.clone(),
            configuration: self.follower.as_ref().map(|it| it.common().status()),
        };
        json(StatusCode::OK, &ProcessStatus::Proxy(Box::new(status)), None)
    }

    async fn route(&self, request: Request<Incoming>) -> Result<Response<ReplyBody>, Problem> {
        let path = request.uri().path();
        if is_health(path) {
            only_get(&request)?;
            return Ok(match path {
                "/readyz" => health::ready(self, &faults(&self.proxy().status(clock::now()))),
                _ => health::alive(),
            });
        }
        admit(self, request.uri(), request.headers())?;
        if live::http::is_what_if(request.method(), path) {
            return live::http::answer_what_if(&self.live, request).await;
        }
        if let Some(answer) = live::http::answer(&self.live, request.method(), request.uri()) {
            return answer;
        }
        if path == "/admin/cluster" {
            return membership::configure(self.follower.as_ref(), request).await;
        }
        only_get(&request)?;
        match path {
            "/metrics" => Ok(self.metrics()),
            "/admin/status" => Ok(self.status()),
            _ => Err(Problem::new(
                StatusCode::NOT_FOUND,
                "there is nothing here; this process is a proxy for memcached's protocol, with \
                 /healthz, /readyz, /metrics and /admin/status",
            )),
        }
    }
}

/// Servers that cannot be reached, or that are still to be emptied. A pool none of whose servers can be reached keeps the proxy from
/// serving.
fn faults(status: &Pools) -> Vec<Fault> {
    let mut faults = Vec::new();
    let degraded = |reason| Fault::degraded(Part::Server, reason);
    for pool in &status.pools {
        let servers = pool.servers.iter().filter_map(|&at| status.servers.get(at));
        let (mut down, mut of, mut is_reached) = (Vec::new(), 0, false);
        for server in servers {
            of += 1;
            // One that rests after several failures is used where there is no other.
            is_reached |= server.failure.is_none() || server.answers;
            if let Some(why) = &server.failure {
                let rests = if server.answers { ", and answers again but rests" } else { "" };
                down.push(format!("{}: {why}{rests}", server.name));
            } else if server.stale {
                faults
                    .push(degraded(format!("{} is to be emptied before it is read", server.name)));
            }
        }
        if down.is_empty() {
            continue;
        }
        let (count, name) = (down.len(), &pool.name);
        let reason =
            format!("{count} of {of} servers of the pool {name} fail ({})", down.join(", "));
        faults.push(Fault { part: Part::Server, reason, is_fatal: !is_reached });
    }
    faults
}

/// The end of a metric's name, its explanation, and its value.
type Metric<T, V> = (&'static str, &'static str, fn(&T) -> V);

fn add_pools(page: &mut Exposition, status: &Pools) {
    let counts: [Metric<Counts, u64>; 8] = [
        ("retries", "Attempts of reads after the first.", |c| c.attempts.retries),
        ("retries_left_out", "Retries that the budget did not allow.", |c| {
            c.attempts.retries_left_out
        }),
        ("hedges", "Second attempts beside a slow one.", |c| c.attempts.hedges),
        ("hedges_won", "Second attempts whose reply was used.", |c| c.attempts.hedges_won),
        ("hedges_left_out", "Hedges that the budget did not allow.", |c| {
            c.attempts.hedges_left_out
        }),
        ("copies", "Copies of requests sent to another pool.", |c| c.copies),
        ("copies_left_out", "Copies that were not sent.", |c| c.copies_left_out),
        ("warmed", "Values moved from a former pool.", |c| c.warmed),
    ];
    for (name, help, value) in counts {
        let name = format!("concertina_pool_{name}_total");
        page.family(&name, Kind::Counter, help);
        for pool in &status.pools {
            page.sample(&name, &[("pool", pool.name.as_str())], value(&pool.counts) as f64);
        }
    }
    let name = "concertina_pool_refusals_total";
    page.family(name, Kind::Counter, "Requests that were refused, by reason.");
    for pool in &status.pools {
        for (reason, count) in [
            ("busy", pool.counts.refused_busy),
            ("too_late", pool.counts.refused_too_late),
            ("failed", pool.counts.refused_failed),
            ("no_server", pool.counts.refused_no_server),
        ] {
            page.sample(name, &[("pool", pool.name.as_str()), ("reason", reason)], count as f64);
        }
    }
    let gauges: [Metric<PoolStatus, u32>; 2] = [
        ("in_service", "Requests in service.", |pool| pool.in_service),
        ("waiting", "Requests that wait for a worker.", |pool| pool.waiting),
    ];
    for (name, help, value) in gauges {
        let name = format!("concertina_pool_{name}");
        page.family(&name, Kind::Gauge, help);
        for pool in &status.pools {
            page.sample(&name, &[("pool", pool.name.as_str())], f64::from(value(pool)));
        }
    }
}

fn add_servers(page: &mut Exposition, status: &Pools) {
    let name = "concertina_pool_server_state";
    page.family(name, Kind::Gauge, "1 for the state that a server is in.");
    for server in &status.servers {
        for state in State::ALL {
            let labels = [("server", server.name.as_str()), ("state", state.as_str())];
            page.sample(name, &labels, f64::from(u8::from(server.state == state)));
        }
    }
    let gauges: [Metric<ServerStatus, f64>; 2] = [
        ("outstanding", "Requests of this proxy in progress at a server.", |server| {
            f64::from(server.outstanding)
        }),
        ("expected_response_seconds", "Expected response time of a request sent now.", |server| {
            server.expected_response_ms / 1e3
        }),
    ];
    for (name, help, value) in gauges {
        let name = format!("concertina_pool_server_{name}");
        page.family(&name, Kind::Gauge, help);
        for server in &status.servers {
            page.sample(&name, &[("server", server.name.as_str())], value(server));
        }
    }
    let name = "concertina_pool_server_flushes_total";
    page.family(name, Kind::Counter, "Times that a server was emptied.");
    for server in &status.servers {
        page.sample(name, &[("server", server.name.as_str())], server.flushes as f64);
    }
}

impl Deref for Middleware {
    type Target = Front;
    fn deref(&self) -> &Front {
        &self.front
    }
}

impl Service for Middleware {
    async fn answer(
        self: &Arc<Self>,
        _lane: &Arc<ThreadRecorder>,
        request: Request<Incoming>,
    ) -> Response<ReplyBody> {
        self.route(request).await.unwrap_or_else(Problem::response)
    }

    fn under_way(&self) -> usize {
        0
    }
}

impl Observed for Middleware {
    fn front(&self) -> &Front {
        &self.front
    }

    fn take(&self, now: Nanos, flush: bool) -> (Vec<Window>, Vec<Sample>) {
        let (mut windows, mut samples) =
            std::mem::take(&mut *self.left.lock().unwrap_or_else(PoisonError::into_inner));
        let (own_windows, own_samples) = self.proxy().observe(now, flush);
        windows.extend(own_windows);
        samples.extend(own_samples);
        (windows, samples)
    }

    fn windows(&self, _now: Nanos, _flush: bool) -> Vec<Window> {
        Vec::new()
    }

    fn invariants(&self) -> Invariants {
        self.proxy().invariants()
    }
}
