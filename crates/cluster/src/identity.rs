//! Which origin this process serves: what its devices, etcd and the other members remember when it starts.
//!
//! [`ground::origin`] decides by it, and the origin asks. A process that remembers nothing asks the other members before it
//! takes an origin, so that a node whose disks were replaced does not make one beside theirs.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;
use ground::origin::{Creation, OriginId};
use http::{HeaderValue, Method};
use origin::marker::{Claim, FolderKind};
use origin::{IdentityRecord, Kind, Recording};
use tracing::{info, warn};

use super::about::{BYTES_MAX as ABOUT_BYTES_MAX, parse_report};
use super::error::Error;
use super::header::ask_headers;
use configuration::Config;
use membership::{Etcd, Members, Membership, Put, Unchanged};
use peer::{Limits, Outgoing, Pool, RequestHead};
use wire::headers;
use wire::tls::dialer;

/// How long another member may take to tell its origin.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long etcd may take to record the identity: nothing else waits for it meanwhile but the first request to the origin.
const RECORDING_MAX: Duration = Duration::from_secs(5);

/// The record of a process's origin, filled with what is remembered. `create` is the operator's order.
///
/// # Errors
///
/// If places remember different origins, a folder is not this node's, or etcd does not answer.
pub fn record(
    config: &Config,
    membership: Option<&Membership>,
    create: bool,
) -> Result<Arc<IdentityRecord>, Error> {
    let creation = match (create, config.is_node()) {
        (true, _) => Creation::Ordered,
        (false, true) => Creation::FirstStart,
        (false, false) => Creation::Never,
    };
    let record = Arc::new(IdentityRecord::new(creation));
    if config.origin.kind == Kind::None {
        return Ok(record);
    }
    let folders = folders_of(config);
    for folder in &folders {
        record.remember_folder(folder, config.cluster.name.as_deref())?;
    }
    if let Some(state) = &config.node.state_path {
        Claim::new(FolderKind::State, config.cluster.name.as_deref()).take(state)?;
        record.add_folder(state);
    }
    if config.is_in_etcd() {
        remember_etcd(config, &record, create)?;
    }
    if let Some(membership) = membership.filter(|_| record.is_empty()) {
        ask_members(config, membership, &record)?;
    }
    let remembers = config.is_in_etcd() || !folders.is_empty();
    if config.is_node() && !remembers {
        warn!(
            "no folder of this node remembers which origin it serves: a restart while the origin is not mounted would \
             begin a new one; set node.state_path"
        );
    }
    Ok(record)
}

/// The folders of a node that have a marker, if they were claimed before.
fn folders_of(config: &Config) -> Vec<PathBuf> {
    if !config.is_node() {
        return Vec::new();
    }
    let devices = config.devices.iter().flat_map(|group| group.folders());
    let folders = devices.filter(|path| !device::disk::is_raw(path));
    folders.chain(config.datasets.path.clone()).chain(config.node.state_path.clone()).collect()
}

/// The key of the identity in etcd.
fn key(prefix: &str) -> String {
    format!("{prefix}/origin")
}

/// Reads what etcd has recorded, and has the identity recorded there once it is known.
fn remember_etcd(config: &Config, record: &IdentityRecord, create: bool) -> Result<(), Error> {
    let of = config.membership.clone();
    let key = key(&of.prefix);
    let read = {
        let key = key.clone();
        with_etcd(of.clone(), move |mut etcd| async move { Ok(etcd.get(&key).await?) })
    };
    if let Some(pair) = read.map_err(|error| Error::Identity(error.into()))? {
        let text = String::from_utf8_lossy(&pair.value);
        let unusable = |source| Error::NotIdentity { key: key.clone(), source };
        let id = text.trim().parse::<OriginId>().map_err(unusable)?;
        record.remember(id, &format!("etcd ({key})"))?;
    }
    record.add_recorder(Box::new(move |id| {
        let key = key.clone();
        with_etcd(of.clone(), move |mut etcd| async move {
            let found = etcd.get(&key).await?;
            let value = id.to_string();
            if found.as_ref().is_some_and(|pair| pair.value == value.as_bytes()) {
                return Ok(Recording::Shared);
            }
            if found.is_some() && !create {
                return Ok(Recording::Another);
            }
            let revision = found.map_or(0, |pair| pair.revision);
            let put = Put::Value(&key, value.as_bytes(), None);
            let done = etcd.change(&[Unchanged { key: &key, revision }], &[put]).await?;
            // Another process was faster; with the same origin, if both found it.
            let now = if done { None } else { etcd.get(&key).await? };
            Ok(match now.is_none_or(|pair| pair.value == value.as_bytes()) {
                true => Recording::Shared,
                false => Recording::Another,
            })
        })
        .map_err(Into::into)
    }));
    Ok(())
}

/// Runs calls of etcd on a thread of their own: the caller may be a thread of a runtime, which must not block in another.
fn with_etcd<T, F>(
    of: configuration::Membership,
    call: impl FnOnce(Etcd) -> F + Send + 'static,
) -> Result<T, Error>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Error>>,
{
    let work = move || -> Result<T, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(Error::Thread)?;
        let etcd = Etcd::new(&of, Duration::from_secs_f64(of.valid_s.max(0.2)))?;
        let timed = async { tokio::time::timeout(RECORDING_MAX, call(etcd)).await };
        runtime.block_on(timed).map_err(|_| Error::NoAnswer)?
    };
    std::thread::spawn(work).join().map_err(|_| Error::Ended("etcd"))?
}

/// Asks the other members which origin they serve.
fn ask_members(
    config: &Config,
    membership: &Membership,
    record: &IdentityRecord,
) -> Result<(), Error> {
    let known = membership.members();
    let told = origins_of_members(config, &known, membership.me())?;
    let Some((first, id)) = told.first() else { return Ok(()) };
    if let Some((other, another)) = told.iter().find(|(_, another)| another != id) {
        // Which of them is right is not for a newcomer to say, and a wrong one must not keep it from starting.
        let why =
            format!("the member {first} serves the origin {id}, and {other} serves {another}");
        warn!("{why}");
        record.doubt(why);
        return Ok(());
    }
    info!("the member {first} serves the origin {id}");
    Ok(record.remember(*id, &format!("the member {first}"))?)
}

fn origins_of_members(
    config: &Config,
    known: &Members,
    me: Option<usize>,
) -> Result<Vec<(String, OriginId)>, Error> {
    let head = RequestHead { common: ask_headers(known, config)?, ..RequestHead::default() };
    let dialer = dialer(config)?;
    let limits = Limits { connect: PATIENCE, ..Limits::default() };
    let others = (0..known.addresses.len()).filter(|&node| Some(node) != me && known.live[node]);
    let pools: Vec<(String, Pool)> = others
        .map(|node| {
            let pool = Pool::encrypted(known.addresses[node], &head, limits, dialer.clone());
            (known.ring.name(node).to_owned(), pool)
        })
        .collect();
    let ask = async |pool: &Pool| {
        let reply = pool.send(&Method::GET, "/cluster/about", &[], Outgoing::Empty).await.ok()?;
        let status = reply.status;
        let body = reply.body.gather(ABOUT_BYTES_MAX).await.ok()?;
        parse_report(status, &body).ok()?.origin
    };
    let work = || -> Result<Vec<Option<(String, OriginId)>>, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(Error::Thread)?;
        Ok(runtime.block_on(join_all(pools.iter().map(async |(name, pool)| {
            let told = tokio::time::timeout(PATIENCE, ask(pool)).await.ok().flatten()?;
            Some((name.clone(), told))
        }))))
    };
    // On a thread of its own, as the caller may be in a runtime.
    let told = std::thread::scope(|scope| {
        scope.spawn(work).join().map_err(|_| Error::Ended("the members"))?
    })?;
    Ok(told.into_iter().flatten().collect())
}

/// The header line by which a process tells others its origin, once it knows it.
pub fn header_line(record: &IdentityRecord) -> Arc<OnceLock<Vec<u8>>> {
    let line: Arc<OnceLock<Vec<u8>>> = Arc::default();
    let late = line.clone();
    record.add_recorder(Box::new(move |id| {
        let _ = late.set(format!("{}: {id}\r\n", headers::ORIGIN_ID).into_bytes());
        Ok(Recording::Own)
    }));
    line
}

/// The identity in a header of another process's request or reply; `None` if it tells none.
pub fn id_in(headers: &http::HeaderMap) -> Option<OriginId> {
    let value: &HeaderValue = headers.get(&headers::ORIGIN_ID)?;
    value.to_str().ok()?.parse().ok()
}
