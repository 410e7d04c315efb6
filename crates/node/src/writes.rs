//! PUT and DELETE of an object. An upload is staged as it arrives, committed when the write has its
//! key's turn, and acknowledged when no node returns an older version.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::node::{Event, Reply, RequestId, Stages};
use futures_util::{FutureExt as _, future};
use ground::window::{Nanos, Outcome};
use ground::{Etag, Key};
use origin::{Attributes, Fence, Staged};
use record::clock;
use tokio::sync::oneshot;

use super::drive::{Answer, Drive, EngineAnswer};
use super::state::Node;
use device::object::Object;
use membership::Membership;
use store::{DeleteRequest, Error, PutRequest, WriteTerms};
use wire::body::{Upload, UploadedBytes};
use wire::condition::Verdict;
use wire::lane::RequestRecord;
use wire::pace::Pace;

/// Maximum number of writes under way, those included that continue after their client got a
/// timeout.
const WRITES_MAX: usize = 1024;
/// The reply to a write that must not be acknowledged.
const UNCERTAIN: &str = "this node lost its place in the cluster while it wrote: the write may or \
    may not have happened; read the object, and repeat the write if needed";

/// The reply to a write that a defect of this program ended.
const DEFECT: &str = "the write was ended by a defect of this program, which the log names: it may or may not have happened; \
    read the object, and repeat the write if needed";

impl Node {
    /// Writes an object.
    pub(super) async fn write(
        &self,
        put: PutRequest,
        record: &mut RequestRecord,
    ) -> Result<Etag, Error> {
        let PutRequest { key, attributes, body, sha256, terms } = put;
        let object_bytes_max = self.config.node.object_bytes_max.0;
        let pace = Pace::from_settings(&self.config.serve);
        let mut upload = Upload::new(body, pace, object_bytes_max, self.uploads.clone());
        if let Some(sha256) = sha256 {
            upload.expect(sha256);
        }
        let staged = tokio::select! {
            staged = stage(&self.drive, &key, attributes, &mut upload) => Some(staged),
            () = self.drive.handover.wait_until_begun() => None,
        };
        let Some(staged) = staged else {
            // It would be refused its turn. A gateway that still has the beginning sends it elsewhere.
            upload.discard().await;
            return Err(Error::misdirected());
        };
        let staged = match staged {
            Ok(staged) => staged,
            Err(error) => {
                if !matches!(error, origin::Error::Upload(_)) {
                    upload.discard().await;
                }
                return Err(error.into());
            }
        };
        let copy = upload.into_copy();
        record.size = staged.metadata().size;
        let work = Work::Put { staged, copy };
        let (result, stages) = self.in_turn(key, work, terms).await;
        record.stages = stages;
        let done = result?;
        record.outcome = Outcome::Origin;
        Ok(done.etag)
    }

    /// Removes an object.
    pub(super) async fn remove(
        &self,
        delete: DeleteRequest,
        record: &mut RequestRecord,
    ) -> Result<bool, Error> {
        let DeleteRequest { key, terms } = delete;
        let (result, stages) = self.in_turn(key, Work::Delete, terms).await;
        record.stages = stages;
        let there = result?.there;
        record.outcome = if there { Outcome::Origin } else { Outcome::Miss };
        Ok(there)
    }
}

/// Why a cache without an origin does not take an object: it has nowhere else to put it.
fn not_kept(fits: bool) -> Error {
    if fits {
        let what =
            "the memory for uploads is in use: try again later, or raise serve.uploads_bytes_max";
        Error::Busy(None, what.to_owned())
    } else {
        let what = "the object is too large for this cache: see node.object_bytes_max";
        Error::TooLarge(what.to_owned())
    }
}

/// Stages the upload at the origin. The timeout applies to the origin's acceptance of each piece,
/// not to the client's sending.
async fn stage(
    drive: &Drive,
    key: &Key,
    attributes: Attributes,
    upload: &mut Upload,
) -> Result<Box<dyn Staged>, origin::Error> {
    let given_at = upload.given_at();
    let timeout = drive.timeout();
    let mut staging = drive.origin().stage(key, attributes, upload);
    loop {
        match tokio::time::timeout(timeout, &mut staging).await {
            Ok(result) => return result,
            Err(_) => {
                let given = given_at.load(Ordering::Relaxed);
                if given > 0 && u128::from(clock::now() - given) >= timeout.as_nanos() {
                    let seconds = timeout.as_secs_f64();
                    let what = format!("an upload's bytes were not accepted within {seconds} s");
                    return Err(origin::Error::TimedOut(what));
                }
            }
        }
    }
}

enum Work {
    Put { staged: Box<dyn Staged>, copy: Option<UploadedBytes> },
    Delete,
}

struct Done {
    /// The version that was written; empty after a removal.
    etag: Etag,
    /// Whether the object existed that was removed.
    there: bool,
}

/// What became of a write that had its turn.
enum WriteOutcome {
    /// Nothing was done, and what the tiers hold is as it was.
    Refused(Error),
    /// The origin was asked, with any result. The object is what it certainly holds now, if that is small enough to be kept.
    Ended { result: Result<Done, Error>, object: Option<Object> },
}

impl WriteOutcome {
    fn failed(error: impl Into<Error>) -> WriteOutcome {
        WriteOutcome::Ended { result: Err(error.into()), object: None }
    }
}

/// The turn of a write that ends, and what the origin then holds.
struct WriteTurn {
    request: RequestId,
    key: Key,
    object: Option<Object>,
}

/// Ends the turn of a write, and waits until no node returns an older version.
async fn end(
    drive: &Arc<Drive>,
    served: Nanos,
    turn: WriteTurn,
    result: Result<Done, Error>,
) -> Result<Done, Error> {
    let WriteTurn { request, key, object } = turn;
    let done = match drive.write_end(served, request, key, object) {
        EngineAnswer::Now(answer) => Some(answer),
        EngineAnswer::Later(done) => {
            let done = done.await.ok();
            if let Some(peers) = drive.peers() {
                peers.count_held_write(clock::now() - served);
            }
            done
        }
    };
    match done {
        Some(Answer::Done { certain: true }) => result,
        _ => result.and(Err(Error::Unavailable(UNCERTAIN.to_owned()))),
    }
}

type Written = (Result<Done, Error>, Option<Stages>);

/// A write on its way, which goes on after its client got a timeout.
struct Write {
    drive: Arc<Drive>,
    /// Whether members change, so that the right to write may be lost meanwhile.
    is_leased: bool,
    key: Key,
    work: Work,
    terms: WriteTerms,
}

impl Node {
    /// Performs a write when its turn has come. The turn is held until the write's outcome at the
    /// origin is certain, even after its client got a timeout: otherwise the write could land after the
    /// next one and undo it.
    async fn in_turn(&self, key: Key, work: Work, terms: WriteTerms) -> Written {
        let left = terms.deadline.map(|at| Duration::from_nanos(at.saturating_sub(clock::now())));
        if left.is_some_and(|left| left.is_zero()) {
            return (Err(Error::TooLate), None);
        }
        let timeout = left.map_or(self.drive.timeout(), |left| left.min(self.drive.timeout()));
        // Writes continue after their client got a timeout, and keep their bytes in memory until they
        // end.
        if self.writes.load(Ordering::Relaxed) >= WRITES_MAX {
            return (Err(Error::busy("writes")), None);
        }
        let writing = self.writing();
        let is_leased = self.membership().is_some_and(Membership::is_leased);
        let write = Write { drive: self.drive.clone(), is_leased, key, work, terms };
        let (send, receive) = oneshot::channel();
        tokio::spawn(async move {
            let _writing = writing;
            write.carry_out(send).await;
        });
        match tokio::time::timeout(timeout, receive).await {
            Ok(Ok(written)) => written,
            Ok(Err(_)) => (Err(Error::Stopping), None),
            Err(_) => {
                let seconds = timeout.as_secs_f64();
                let what = format!(
                    "the origin timed out: the write took over {seconds} s and may still happen"
                );
                (Err(Error::TimedOut(what)), None)
            }
        }
    }
}

impl Write {
    /// Waits for the turn, writes, and tells who waits for it.
    async fn carry_out(self, mut send: oneshot::Sender<Written>) {
        let (drive, key) = (self.drive.clone(), self.key.clone());
        let request = drive.request();
        let received = clock::now();
        let answer = match drive.write_begin(received, request, key.clone(), self.terms.epoch) {
            EngineAnswer::Now(answer) => Some(answer),
            EngineAnswer::Later(turn) => tokio::select! {
                answer = turn => answer.ok(),
                () = send.closed() => None,
            },
        };
        let written: Written = match answer {
            Some(Answer::Reply(Reply::Busy { queue }, stages)) => {
                (Err(Error::busy(&queue)), Some(stages))
            }
            Some(Answer::Reply(Reply::NotPrimary, stages)) => {
                (Err(Error::misdirected()), Some(stages))
            }
            Some(Answer::Turn) if !send.is_closed() => {
                let started = clock::now();
                // A defect below must not keep the turn, for which every later write of the key would wait until a restart.
                let performed = AssertUnwindSafe(self.perform(request)).catch_unwind().await;
                let performed = performed.unwrap_or_else(|_| {
                    WriteOutcome::failed(Error::Unavailable(DEFECT.to_owned()))
                });
                let served = clock::now();
                let result = match performed {
                    WriteOutcome::Refused(error) => {
                        drive.tell(served, Event::WriteGivenUp { request, key });
                        Err(error)
                    }
                    WriteOutcome::Ended { result, object } => {
                        end(&drive, served, WriteTurn { request, key, object }, result).await
                    }
                };
                let stages =
                    Stages { received, queued: received, started, served, ..Stages::default() };
                (result, Some(stages))
            }
            // The client left while the write waited for its turn.
            _ => {
                drive.tell(clock::now(), Event::WriteGivenUp { request, key });
                (Err(Error::Stopping), None)
            }
        };
        let _ = send.send(written);
    }

    /// Performs the write itself; the caller holds the key's turn.
    async fn perform(self, request: RequestId) -> WriteOutcome {
        let Write { drive, is_leased, key, work, terms } = self;
        let fence: Fence = {
            let (drive, key) = (drive.clone(), key.clone());
            Arc::new(move || drive.may_write(request, &key))
        };
        if terms.conditions.bind_writes() {
            match drive.head(&key).await {
                Ok(object) => {
                    if terms.conditions.judge(object.as_ref(), false) != Verdict::Proceed {
                        let error = Error::PreconditionFailed(None);
                        // What the tiers hold may be older than what was just seen in the origin, and is looked up there again. Without
                        // an origin the tiers' is the object: to drop it would be to remove it.
                        let is_durable = drive.is_durable();
                        return if is_durable {
                            WriteOutcome::failed(error)
                        } else {
                            WriteOutcome::Refused(error)
                        };
                    }
                }
                Err(error) => return WriteOutcome::Refused(error.into()),
            }
        }
        let removed = |there: Result<bool, origin::Error>| match there {
            Ok(there) => WriteOutcome::Ended {
                result: Ok(Done { etag: Etag::from(""), there }),
                object: None,
            },
            Err(error) => WriteOutcome::failed(error),
        };
        match work {
            Work::Delete if !drive.is_durable() => {
                removed(drive.head(&key).await.map(|object| object.is_some()))
            }
            Work::Delete if is_leased => removed(drive.origin().delete_fenced(&key, fence).await),
            Work::Delete => removed(drive.origin().delete(&key).await),
            Work::Put { mut staged, copy } => {
                // A static member's place is its own for good.
                if is_leased {
                    staged.fence(fence);
                }
                let metadata = staged.metadata().clone();
                let etag = metadata.etag.clone();
                let kept = copy.is_some() && metadata.size <= drive.object_bytes_max();
                if !kept && !drive.is_durable() {
                    return WriteOutcome::Refused(not_kept(
                        metadata.size <= drive.object_bytes_max(),
                    ));
                }
                let whole = copy.filter(|copy| copy.length() == metadata.size);
                // The copy for memory is made while the origin works, not between its reply and the client's. Until then the
                // share of uploads' memory stays taken.
                let gather = |copy: UploadedBytes| {
                    let (pieces, share) = copy.into_pieces();
                    (Object::gathered(&metadata, &pieces), share)
                };
                let object = async { whole.map(gather) };
                match future::join(staged.commit(None), object).await {
                    (Ok(()), object) => WriteOutcome::Ended {
                        result: Ok(Done { etag, there: true }),
                        object: object.map(|(object, _)| object),
                    },
                    (Err(error), _) => WriteOutcome::failed(error),
                }
            }
        }
    }
}
