//! An origin whose outages are logged: each once, with its reason and its end.
//!
//! Clients learn of a failure one by one, and those of S3 in words that do not name the store; its operator learns it here.
//! An outage begins with an operation that the origin does not carry out, and ends with the first one that was begun after the
//! last failure and that it does. While nobody asks for anything, [`Origin::check`] is asked every second.
//!
//! A store that takes no writes (full, read-only) is an outage of its own, which a write ends.

use std::future::Future;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ground::origin::OriginId;
use ground::outage::OutageLine;
use ground::window::{Nanos, SECOND};
use ground::{Etag, Key};
use origin::{
    Attributes, BoxFuture, Chunks, Condition, Entry, Error, Fence, IdentityRecord, KeyRange,
    Metadata, Origin, Sharing, Staged, StoredObject,
};
use tokio::runtime::Handle;
use tracing::{info, warn};

/// The time between two looks at an origin that failed.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long nothing must have failed before a look that succeeds ends an outage: a look asks for less than a read, and may succeed
/// where reads fail.
const CALM: Nanos = 3 * SECOND;
/// How much earlier than the timeout a dropped operation counts as one that took too long: its timer began before ours.
const DROP_MARGIN: Duration = Duration::from_millis(10);

/// Why an operation was not carried out, as far as outages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The whole origin fails.
    All,
    /// It takes no writes.
    Writes,
}

/// Which part of the origin an error shows to be out of service; `None` for what is a fault of the request, or of one object.
fn part_of(error: &Error) -> Option<Part> {
    match error {
        Error::Lost(_) | Error::TimedOut(_) | Error::Failed(_) | Error::Denied(_) => {
            Some(Part::All)
        }
        Error::Full(_) | Error::ReadOnly(_) => Some(Part::Writes),
        _ => None,
    }
}

/// Whether an error is the origin's own reply, so that the origin works.
fn is_reply(error: &Error) -> bool {
    matches!(error, Error::Condition(_)) || error.is_refusal()
}

#[derive(Default)]
struct Lines {
    all: OutageLine,
    writes: OutageLine,
    /// Whether the origin is looked at every second.
    is_watched: bool,
}

/// What the log has said.
struct OutageLog {
    start: Instant,
    lines: Mutex<Lines>,
    /// Whether an outage is under way, so that a success that ends none costs a load.
    is_out: AtomicBool,
}

impl OutageLog {
    fn new() -> OutageLog {
        let (lines, is_out) = (Mutex::default(), AtomicBool::new(false));
        OutageLog { start: Instant::now(), lines, is_out }
    }

    /// Nanoseconds since the start, from 1 on.
    fn now(&self) -> Nanos {
        Nanos::try_from(self.start.elapsed().as_nanos()).unwrap_or(Nanos::MAX).saturating_add(1)
    }

    /// Notes how an operation ended that was begun at `sent`. Returns whether somebody has to watch for the end of an outage.
    fn note(&self, sent: Nanos, is_write: bool, error: Option<&Error>) -> bool {
        let part = error.and_then(part_of);
        if part.is_none() && !self.is_out.load(Ordering::Relaxed) {
            return false;
        }
        let now = self.now();
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        match (part, error) {
            (Some(part), Some(error)) => {
                let line = if part == Part::All { &mut lines.all } else { &mut lines.writes };
                if let Some(start) = line.fail(now) {
                    warn!("{error}{start}");
                }
                self.is_out.store(true, Ordering::Relaxed);
                return part == Part::All && !std::mem::replace(&mut lines.is_watched, true);
            }
            (_, Some(error)) if !is_reply(error) => return false,
            _ => {}
        }
        if let Some(seconds) = lines.all.answer(sent, now) {
            info!("the origin answers again after {seconds:.1} s");
        }
        if is_write
            && error.is_none()
            && let Some(seconds) = lines.writes.answer(sent, now)
        {
            info!("the origin takes writes again after {seconds:.1} s");
        }
        self.is_out.store(lines.all.is_out() || lines.writes.is_out(), Ordering::Relaxed);
        false
    }

    /// Nobody looks.
    fn unwatch(&self) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).is_watched = false;
    }

    /// Whether a look is to be made again.
    fn goes_on(&self) -> bool {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.is_watched = lines.all.is_out();
        lines.is_watched
    }

    /// Whether nothing has failed for a while.
    fn is_calm(&self) -> bool {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        self.now().saturating_sub(lines.all.failed_at()) >= CALM
    }
}

/// An origin, and the log of its outages.
#[derive(Clone)]
pub struct Monitor {
    origin: Arc<dyn Origin>,
    log: Arc<OutageLog>,
    /// How long callers wait for an operation.
    timeout: Duration,
}

/// An operation under way. Callers drop the future of one that takes too long ([`origin::within`]), and so it is its end
/// that says so.
struct Operation<'a> {
    monitor: &'a Monitor,
    sent: Nanos,
    is_write: bool,
    is_ended: bool,
}

impl Operation<'_> {
    fn end(&mut self, error: Option<&Error>) {
        self.is_ended = true;
        if self.monitor.log.note(self.sent, self.is_write, error) {
            self.monitor.watch();
        }
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        let monitor = self.monitor;
        // A client that leaves is as quick as it likes.
        let took = Duration::from_nanos(monitor.log.now().saturating_sub(self.sent));
        if !self.is_ended && took + DROP_MARGIN >= monitor.timeout {
            let seconds = monitor.timeout.as_secs_f64();
            self.end(Some(&Error::TimedOut(format!("no answer within {seconds} s"))));
        }
    }
}

/// Opens the configured origin, and logs its outages.
///
/// # Errors
///
/// As [`origin::open`].
pub fn open(
    settings: &origin::Settings,
    sharing: Sharing,
    record: Arc<IdentityRecord>,
) -> anyhow::Result<Arc<dyn Origin>> {
    let origin = origin::open(settings, sharing, record)?;
    // That of a cache has no outages.
    if !origin.is_durable() {
        return Ok(origin);
    }
    let timeout = Duration::from_secs_f64(settings.timeout_s);
    Ok(Arc::new(Monitor::new(origin, timeout)))
}

impl Monitor {
    /// Logs the outages of an origin. `timeout` is how long callers wait for an operation.
    pub fn new(origin: Arc<dyn Origin>, timeout: Duration) -> Monitor {
        Monitor { origin, log: Arc::new(OutageLog::new()), timeout }
    }

    /// Looks at the origin until its outage is over, if this is called where tasks run.
    fn watch(&self) {
        let Ok(runtime) = Handle::try_current() else { return self.log.unwatch() };
        // The process may end meanwhile.
        let (origin, log) = (Arc::downgrade(&self.origin), self.log.clone());
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                let Some(origin) = origin.upgrade().filter(|_| log.goes_on()) else { return };
                let sent = log.now();
                match origin.check().await {
                    Ok(()) if !log.is_calm() => {}
                    // A look fails as others do: it is not calm then.
                    result => {
                        let _ = log.note(sent, false, result.err().as_ref());
                    }
                }
            }
        });
    }

    async fn noted<T>(
        &self,
        is_write: bool,
        operation: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let sent = self.log.now();
        let mut under_way = Operation { monitor: self, sent, is_write, is_ended: false };
        let result = operation.await;
        under_way.end(result.as_ref().err());
        result
    }
}

/// A body whose failures are noted.
struct Body {
    chunks: Box<dyn Chunks>,
    monitor: Monitor,
}

impl Chunks for Body {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>> {
        let Body { chunks, monitor } = self;
        Box::pin(async move {
            let piece = chunks.next().await;
            if let Some(Err(error)) = &piece
                && monitor.log.note(monitor.log.now(), false, Some(error))
            {
                monitor.watch();
            }
            piece
        })
    }

    fn bytes_left(&self) -> Option<u64> {
        self.chunks.bytes_left()
    }

    fn sha256(&self) -> Option<[u8; 32]> {
        self.chunks.sha256()
    }
}

/// A write whose end is noted.
struct Write {
    staged: Box<dyn Staged>,
    monitor: Monitor,
}

impl Staged for Write {
    fn metadata(&self) -> &Metadata {
        self.staged.metadata()
    }

    fn fence(&mut self, fence: Fence) {
        self.staged.fence(fence);
    }

    fn commit(
        self: Box<Self>,
        condition: Option<Condition>,
    ) -> BoxFuture<'static, Result<(), Error>> {
        Box::pin(async move { self.monitor.noted(true, self.staged.commit(condition)).await })
    }
}

impl Origin for Monitor {
    fn head(&self, key: &Key) -> BoxFuture<'_, Result<Option<Metadata>, Error>> {
        let head = self.origin.head(key);
        Box::pin(self.noted(false, head))
    }

    fn get(
        &self,
        key: &Key,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<StoredObject>, Error>> {
        let get = self.origin.get(key, range);
        Box::pin(async move {
            let found = self.noted(false, get).await?;
            Ok(found.map(|StoredObject { metadata, body }| StoredObject {
                metadata,
                body: Box::new(Body { chunks: body, monitor: self.clone() }),
            }))
        })
    }

    fn stage<'a>(
        &'a self,
        key: &Key,
        attributes: Attributes,
        body: &'a mut dyn Chunks,
    ) -> BoxFuture<'a, Result<Box<dyn Staged>, Error>> {
        let stage = self.origin.stage(key, attributes, body);
        Box::pin(async move {
            // As long as the client takes: without the limit of time, and a success says nothing of the origin.
            let staged = stage.await.inspect_err(|error| {
                if self.log.note(self.log.now(), false, Some(error)) {
                    self.watch();
                }
            })?;
            let staged: Box<dyn Staged> = Box::new(Write { staged, monitor: self.clone() });
            Ok(staged)
        })
    }

    fn delete(&self, key: &Key) -> BoxFuture<'_, Result<bool, Error>> {
        let delete = self.origin.delete(key);
        Box::pin(self.noted(true, delete))
    }

    fn delete_fenced(&self, key: &Key, fence: Fence) -> BoxFuture<'_, Result<bool, Error>> {
        let delete = self.origin.delete_fenced(key, fence);
        Box::pin(self.noted(true, delete))
    }

    fn delete_version(&self, key: &Key, etag: &Etag) -> BoxFuture<'_, Result<bool, Error>> {
        let delete = self.origin.delete_version(key, etag);
        Box::pin(self.noted(true, delete))
    }

    fn entries(&self, range: &KeyRange, limit: usize) -> BoxFuture<'_, Result<Vec<Entry>, Error>> {
        let entries = self.origin.entries(range, limit);
        Box::pin(self.noted(false, entries))
    }

    fn is_durable(&self) -> bool {
        self.origin.is_durable()
    }

    fn id(&self) -> Option<OriginId> {
        self.origin.id()
    }

    fn read_only(&self) -> Option<String> {
        self.origin.read_only()
    }

    fn created_unix_us(&self) -> BoxFuture<'_, Option<u64>> {
        self.origin.created_unix_us()
    }

    fn check(&self) -> BoxFuture<'_, Result<(), Error>> {
        let log = &self.log;
        let check = self.origin.check();
        Box::pin(async move {
            let sent = log.now();
            let result = check.await;
            let counts = result.is_err() || log.is_calm();
            if counts && log.note(sent, false, result.as_ref().err()) {
                self.watch();
            }
            result
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed() -> Error {
        Error::Failed("no connection".to_owned())
    }

    #[test]
    fn a_request_that_is_wrong_is_no_outage() {
        let log = OutageLog::new();
        for error in [
            Error::Refused(String::new()),
            Error::Condition(String::new()),
            Error::Upload(String::new()),
            Error::Damaged(String::new()),
            Error::Fenced(String::new()),
        ] {
            assert!(!log.note(log.now(), true, Some(&error)), "{error}");
        }
        assert!(!log.is_out.load(Ordering::Relaxed));
    }

    #[test]
    fn what_was_begun_after_the_last_failure_ends_an_outage() {
        let log = OutageLog::new();
        let before = log.now();
        assert!(log.note(log.now(), false, Some(&failed())), "somebody has to watch");
        assert!(!log.note(log.now(), false, Some(&failed())), "once");
        assert!(!log.note(before, false, None));
        assert!(log.goes_on() && log.is_out.load(Ordering::Relaxed));
        // A full store answers reads, and writes end its outage alone.
        log.note(log.now(), true, Some(&Error::Full("disk".to_owned())));
        log.note(log.now(), false, None);
        assert!(!log.goes_on() && log.is_out.load(Ordering::Relaxed));
        log.note(log.now(), true, None);
        assert!(!log.is_out.load(Ordering::Relaxed));
    }
}
