//! A node's reads: the engine is asked, and what it answers becomes a result of the [`Store`](store::Store)'s.

use std::time::Duration;

use bytes::Bytes;
use engine::node::{Asker, Part, Reply, Take};
use ground::window::{Nanos, Outcome};
use record::clock;

use super::drive::{Answer, EngineAnswer, Get};
use super::state::Node;
use device::object::Object;
use store::origin_reads::{self, not_found, select};
use store::{self, Body, Error, FoundObject, Freshness, ReadRequest, Recorded, Version};
use wire::lane::RequestRecord;

/// A read that the engine was asked for.
pub struct PendingRead {
    /// The record of the request.
    pub record: RequestRecord,
    /// When nobody waits for it any more.
    pub deadline: Option<Nanos>,
    /// The engine's answer; `None` if there will be none because the process stops.
    pub answer: Option<EngineAnswer>,
}

impl PendingRead {
    /// Waits for the engine's answer.
    pub async fn finish(self, node: &Node, read: &ReadRequest) -> Recorded {
        let PendingRead { mut record, deadline, answer } = self;
        let read = ReadRequest { deadline, ..read.clone() };
        let found = node.finish_read(answer, &read, &mut record).await;
        (found, record)
    }
}

/// How a reader takes an object that memory does not have.
fn take_of(read: &ReadRequest, asker: Asker) -> Take {
    if asker == Asker::Peer {
        return Take::Whole;
    }
    if read.is_head {
        return Take::Part(Part::Metadata);
    }
    // Whether `If-Range` holds shows with the metadata.
    let range = read.range.filter(|_| !read.conditions.has_if_range());
    range.map_or(Take::Pieces, |range| Take::Part(range.part()))
}

/// What comes before the deadline; `None` if it does not.
async fn until<T>(deadline: Option<Nanos>, future: impl Future<Output = T>) -> Option<T> {
    let Some(deadline) = deadline else { return Some(future.await) };
    let left = Duration::from_nanos(deadline.saturating_sub(clock::now()));
    tokio::time::timeout(left, future).await.ok()
}

impl Node {
    /// Reads an object, or its metadata alone.
    pub(super) async fn read(
        &self,
        read: &ReadRequest,
        record: &mut RequestRecord,
    ) -> Result<FoundObject, Error> {
        let asker = read.asker.unwrap_or(Asker::Client { avoid: None });
        if read.freshness == Freshness::Origin {
            if read.is_head && self.drive.is_durable() {
                let (origin, timeout) = (self.drive.origin(), self.drive.timeout());
                record.outcome = Outcome::Origin;
                let found = origin_reads::read(origin, timeout, read, None).await;
                return store::noted(found, read, record);
            }
            store::Store::revalidate(self, &read.key);
        }
        let take = take_of(read, asker);
        // The time that the engine is told is that at which the request had come: nothing is awaited
        // between, so a lease that holds then makes what it answers the newest that the client may expect.
        let key = read.key.clone();
        let (deadline, trace) = (read.deadline, record.passed_on());
        let answer = self.drive.get(record.received, Get { key, asker, deadline, take, trace });
        self.finish_read(Some(answer), read, record).await
    }

    async fn finish_read(
        &self,
        answer: Option<EngineAnswer>,
        read: &ReadRequest,
        record: &mut RequestRecord,
    ) -> Result<FoundObject, Error> {
        let answer = match answer.ok_or(Error::Stopping)? {
            EngineAnswer::Now(answer) => answer,
            EngineAnswer::Later(receive) => match until(read.deadline, receive).await {
                Some(answer) => answer.map_err(|_| Error::Stopping)?,
                None => return Err(Error::TooLate),
            },
        };
        let Answer::Reply(reply, stages) = answer else { return Err(Error::Stopping) };
        record.stages = Some(stages);
        let found = match reply {
            Reply::Found { payload, outcome, age, .. } if read.asker == Some(Asker::Peer) => {
                record.outcome = outcome;
                Ok(copy_of(payload, age))
            }
            Reply::Found { payload, outcome, warm, .. } => {
                (record.outcome, record.warm) = (outcome, warm);
                part_of(payload, read)
            }
            Reply::Opened { payload, outcome } => {
                record.outcome = outcome;
                part_of(payload, read)
            }
            Reply::Stream => {
                record.outcome = Outcome::Origin;
                let (origin, timeout) = (self.drive.origin(), self.drive.timeout());
                let known = self.drive.large.get(&read.key);
                let found = origin_reads::read(origin, timeout, read, known).await;
                if matches!(found, Err(Error::NotFound | Error::PreconditionFailed(None))) {
                    record.outcome = Outcome::Miss;
                }
                found
            }
            Reply::NotHere => {
                record.outcome = Outcome::Miss;
                Err(Error::NotHere)
            }
            Reply::NotFound => {
                record.outcome = Outcome::Miss;
                Err(not_found(read))
            }
            Reply::Busy { queue } => Err(Error::busy(&queue)),
            Reply::Unavailable(failure) => Err(failure.into()),
            Reply::TooLate => Err(Error::TooLate),
            Reply::NotMine | Reply::NotPrimary => Err(Error::misdirected()),
        };
        store::noted(found, read, record)
    }
}

/// The whole of an object, for another node that keeps a copy.
fn copy_of(object: Object, age: Nanos) -> FoundObject {
    let body = Body::Bytes(object.body());
    FoundObject { version: Version::from(object), range: None, body, age: Some(age) }
}

fn part_of(object: Object, read: &ReadRequest) -> Result<FoundObject, Error> {
    let version = Version::from(object.clone());
    let range = select(read, &version)?;
    let body = match (object.assembly(), &range) {
        _ if read.is_head => Body::Bytes(Bytes::new()),
        (Some(assembly), range) => {
            Body::Pieces(assembly.reader(range.as_ref().unwrap_or(&(0..version.size))))
        }
        (None, Some(range)) => {
            Body::Bytes(object.body().slice(range.start as usize..range.end as usize))
        }
        (None, None) => Body::Bytes(object.body()),
    };
    Ok(FoundObject { version, range, body, age: None })
}
