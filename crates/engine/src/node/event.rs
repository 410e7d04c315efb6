//! A node's events (what its driver tells it) and actions (what it tells its driver to do).

use ground::window::Nanos;
use serde::{Deserialize, Serialize};

use super::extent::{Extent, Take};
use super::failure::Failure;
use super::reply::{Reply, Stages};
use crate::route::{NodeId, View};
use crate::tier::{Location, Restored};
use crate::{Payload, Size};
use ground::{Etag, Key};

/// Names a request; chosen by the driver, never used twice.
pub type RequestId = u64;

/// Names an operation that the node requested; chosen by the node, never used twice.
pub type JobId = u64;

/// Index of a device in the node's settings.
pub type DeviceId = usize;

/// The sender of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Asker {
    /// A client, perhaps through a gateway.
    Client {
        /// A node that failed to serve the gateway: this node skips it too.
        avoid: Option<NodeId>,
    },
    /// Another node that fills its tiers. It is answered from this node's tiers alone.
    Peer,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event<P> {
    /// A read of an object.
    Get {
        /// The request.
        request: RequestId,
        /// The key.
        key: Key,
        /// The sender.
        asker: Asker,
        /// When the reader stops waiting.
        deadline: Option<Nanos>,
        /// How the reader takes the object's bytes.
        #[serde(default)]
        take: Take,
    },
    /// A client's write or deletion, which waits for its turn in the key's order.
    WriteBegin {
        /// The request.
        request: RequestId,
        /// The key.
        key: Key,
        /// The epoch of the view by which a gateway chose this node; `None` where nobody gives the write
        /// up before its deadline. A write of an earlier epoch than that in which this node began to
        /// order the key is refused: its gateway may have given it up since.
        #[serde(default)]
        epoch: Option<u64>,
    },
    /// A write was given up before anything was done at the origin: its client left while it waited, or it was refused by what it is to
    /// replace. What the tiers hold is as it was.
    WriteGivenUp {
        /// The request.
        request: RequestId,
        /// The key.
        key: Key,
    },
    /// A write ended at the origin, with any result. From here
    /// on no read of this node returns the older version. [`Action::WriteDone`] says when this
    /// holds for every node, which is when the client may be answered.
    WriteEnd {
        /// The request.
        request: RequestId,
        /// The key.
        key: Key,
        /// The new object, if it certainly is in the origin and is small enough to be kept.
        payload: Option<P>,
    },
    /// A device's read ended. The time of this event is the completion, at which the next read of
    /// that device starts, however late the driver learnt of it.
    Read {
        /// The job of [`Action::Read`].
        job: JobId,
        /// The object, or why it could not be read or was not valid. Of an object that is read in
        /// pieces or in part, a form of it that readers can be given at once, which gets its bytes
        /// as they are read; but with the last piece of all its bytes, the object.
        result: Result<P, Unread>,
        /// Bytes that are still to be read, for which [`Action::Read`] follows.
        #[serde(default)]
        left: u64,
    },
    /// A device's write ended.
    Appended {
        /// The job of [`Action::Append`].
        job: JobId,
        /// Whether the record can be read now.
        written: bool,
        /// Whether the file system had no room for it, so that the device has to do with what it holds.
        #[serde(default)]
        full: bool,
    },
    /// The keys of a segment's records ([`Action::List`]); none if they could not be read.
    Listed {
        /// The device.
        device: DeviceId,
        /// The segment.
        segment: u64,
        /// The keys.
        keys: Vec<Key>,
    },
    /// A scrub found a record that is damaged: it is dropped, and fetched again.
    Damaged {
        /// The device.
        device: DeviceId,
        /// The record's place.
        location: Location,
        /// Its key.
        key: Key,
    },
    /// The origin answered [`Action::Fetch`].
    Fetched {
        /// The job.
        job: JobId,
        /// The answer.
        result: Fetched<P>,
    },
    /// The origin answered [`Action::Check`].
    Checked {
        /// The job.
        job: JobId,
        /// The answer.
        result: Checked,
    },
    /// A peer answered [`Action::Ask`], or failed to.
    Answered {
        /// The job.
        job: JobId,
        /// The answer.
        result: PeerReply<P>,
    },
    /// A peer asks for a lease on the keys of which this node is the primary. Answered by
    /// [`Action::Grant`] at once, or not at all.
    LeaseAsked {
        /// The peer.
        peer: NodeId,
        /// The epoch of the view that the peer had then; `None` if it does not say.
        epoch: Option<u64>,
    },
    /// A peer granted the lease that [`Action::AskLease`] asked for.
    LeaseGranted {
        /// The peer.
        peer: NodeId,
        /// When the lease was requested, on this node's clock: it counts from there.
        asked: Nanos,
        /// The duration.
        term: Nanos,
    },
    /// A key's primary reports that a write to the key ended. When this event has been handled, no
    /// read of this node returns the older version any more, and the driver confirms that to the
    /// primary.
    Invalidate {
        /// The key.
        key: Key,
    },
    /// A peer confirmed [`Action::Invalidate`], or failed to.
    Invalidated {
        /// The write.
        request: RequestId,
        /// The peer.
        peer: NodeId,
        /// Whether it confirmed.
        done: bool,
    },
    /// A key's primary offers an object on its second read: this node may copy it before it is
    /// needed.
    Offered {
        /// The key.
        key: Key,
    },
    /// A key's primary hands over and takes its lease back. When this event has been handled, this node
    /// serves no copy under that lease, and the driver confirms that to the primary.
    Return {
        /// The primary.
        peer: NodeId,
    },
    /// A peer confirmed [`Action::TakeBack`], or failed to.
    Returned {
        /// The peer.
        peer: NodeId,
        /// Whether it confirmed.
        done: bool,
    },
    /// This node is about to stop: it hands over to the next of its keys' nodes. [`Action::HandedOver`]
    /// says when it has. There is no way back.
    HandOver,
    /// A peer tells what it served of keys that this node orders ([`Action::TellReads`]).
    ReadsTold {
        /// The peer.
        peer: NodeId,
        /// The reads.
        told: ReadsTold,
    },
    /// The membership changed, or was confirmed.
    View(View),
    /// Drop every copy in memory and on devices.
    Clear,
    /// Time has passed. Sent at least every [`super::ClusterSettings::tick`].
    Tick,
    /// The operator, or the process by itself, changes the bound of a device's queue.
    Bound {
        /// The device.
        device: DeviceId,
        /// Maximum number of reads, those in service included.
        length_max: u32,
    },
    /// The memory tier gets other maximum bytes. What no longer fits is evicted, so a driver takes much in
    /// several events.
    MemoryMax {
        /// Maximum bytes, overhead included.
        bytes: u64,
    },
    /// The operator, or the process by itself, lets objects that have no copy on a hot device be copied there, or not. Pinned keys
    /// are copied in any case, and copies that are there stay while they are worth it.
    Copying(bool),
}

/// What a node served lately of keys that another one orders, so that this one knows how hot they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadsTold {
    /// Bytes that a hot node has for copies; 0 of any other node.
    pub bytes_max: u64,
    /// Hashes of keys ([`ground::window::key_hash`]), each with its reads since the last time; at most
    /// [`super::TOLD_MAX`] of them.
    pub reads: Vec<(u64, u32)>,
}

/// A peer's reply to [`Action::Ask`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PeerReply<P> {
    /// The object.
    Found {
        /// The object.
        payload: P,
        /// Time since it was last compared with the origin.
        age: Nanos,
    },
    /// The peer does not hold it, or may not serve it now.
    NotHere,
    /// The peer did not answer.
    Failed(Failure),
}

/// The origin's reply to a fetch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Fetched<P> {
    /// The object.
    Found(P),
    /// The object is larger than a node keeps: it is streamed past the node.
    TooLarge,
    /// It does not exist.
    NotFound,
    /// The origin failed or took too long.
    Unavailable(Failure),
}

/// Why a read of a device gave no object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unread {
    /// The record is whole and belongs to another key, with which this one shares the bits that the
    /// index has of it.
    OtherKey,
    /// The record's segment was dropped before the read began. The device has not failed.
    Gone,
    /// It could not be read, or is not valid.
    Failed(Failure),
}

/// The origin's reply to the question which version is current.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Checked {
    /// This one.
    Version(Etag),
    /// The key does not exist.
    Missing,
    /// The origin failed or took too long.
    Unavailable(Failure),
}

/// An operation for the driver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Action<P> {
    /// Reply to an [`Event::Get`], or refuse an [`Event::WriteBegin`].
    Reply {
        /// The request.
        request: RequestId,
        /// The reply.
        reply: Reply<P>,
        /// The request's times.
        stages: Stages,
    },
    /// The turn of a write has come: write to the origin, then tell [`Event::WriteEnd`].
    WriteTurn {
        /// The request.
        request: RequestId,
    },
    /// No node returns a version older than this write's any more: its client may get the result.
    WriteDone {
        /// The request.
        request: RequestId,
        /// Whether the write may be acknowledged. If not, this node lost its place in the
        /// membership meanwhile, and another primary's write may replace this one.
        certain: bool,
    },
    /// Read a record, then tell [`Event::Read`].
    Read {
        /// The device.
        device: DeviceId,
        /// The record's place; its length is rounded up.
        location: Location,
        /// The key that the record must have; with any other it is [`Unread::OtherKey`].
        key: Key,
        /// The name of this operation.
        job: JobId,
        /// When its service began.
        start: Nanos,
        /// How much of it to read.
        #[serde(default)]
        extent: Extent,
    },
    /// The rest of a record that was read in pieces is not needed.
    CloseRead {
        /// The device.
        device: DeviceId,
        /// The job of [`Action::Read`].
        job: JobId,
    },
    /// Write a record, then tell [`Event::Appended`]. Records of a segment are written at ascending
    /// offsets.
    Append {
        /// The device.
        device: DeviceId,
        /// The record's place.
        location: Location,
        /// Its key.
        key: Key,
        /// The object.
        payload: P,
        /// The name of this operation.
        job: JobId,
    },
    /// No record will be added to this segment: write its index.
    SealSegment {
        /// The device.
        device: DeviceId,
        /// The segment.
        segment: u64,
    },
    /// Remove a segment. Reads of it that began may still end.
    DropSegment {
        /// The device.
        device: DeviceId,
        /// The segment.
        segment: u64,
    },
    /// List the keys of a sealed segment's records, then tell [`Event::Listed`].
    List {
        /// The device.
        device: DeviceId,
        /// The segment.
        segment: u64,
    },
    /// Get an object from the origin, then tell [`Event::Fetched`].
    Fetch {
        /// The key.
        key: Key,
        /// The name of this operation.
        job: JobId,
    },
    /// Ask the origin which version is current, then tell [`Event::Checked`].
    Check {
        /// The key.
        key: Key,
        /// The name of this operation.
        job: JobId,
    },
    /// Get an object from a peer's tiers ([`Asker::Peer`] there), then tell [`Event::Answered`].
    Ask {
        /// The peer.
        peer: NodeId,
        /// The key.
        key: Key,
        /// The name of this operation.
        job: JobId,
    },
    /// Ask a peer for a lease ([`Event::LeaseAsked`] there); if it grants one, tell
    /// [`Event::LeaseGranted`].
    AskLease {
        /// The peer.
        peer: NodeId,
        /// The time now, to be returned with the grant.
        asked: Nanos,
        /// The epoch of the present view, for the peer.
        epoch: u64,
    },
    /// The answer to [`Event::LeaseAsked`].
    Grant {
        /// The peer.
        peer: NodeId,
        /// The duration.
        term: Nanos,
    },
    /// Tell a peer [`Event::Invalidate`], then [`Event::Invalidated`] here.
    Invalidate {
        /// The peer.
        peer: NodeId,
        /// The key.
        key: Key,
        /// The write.
        request: RequestId,
    },
    /// Tell a peer [`Event::Return`], then [`Event::Returned`] here.
    TakeBack {
        /// The peer.
        peer: NodeId,
    },
    /// This node orders no keys any more, no write is under way, and nobody holds its leases: the membership
    /// may list it as not live and [`View::handed_over`].
    HandedOver,
    /// Send a peer [`Event::Offered`]; it may be lost.
    Offer {
        /// The peer.
        peer: NodeId,
        /// The key.
        key: Key,
    },
    /// Send a peer [`Event::ReadsTold`]; it may be lost.
    TellReads {
        /// The peer.
        peer: NodeId,
        /// The reads.
        told: ReadsTold,
    },
}

/// A segment that the disk code found on a device at start.
#[derive(Clone, Copy, Debug)]
pub struct RestoredSegment<'a> {
    /// The device.
    pub device: DeviceId,
    /// The segment.
    pub segment: u64,
    /// Its records in ascending order of their offsets.
    pub records: &'a [Restored],
}

impl<P: Payload> Event<P> {
    /// The event with sizes in place of bytes, for a log.
    pub fn sizes(&self) -> Event<Size> {
        self.map(Size::from_payload)
    }

    /// The event with another payload.
    pub fn map<Q>(&self, mut to: impl FnMut(&P) -> Q) -> Event<Q> {
        match self.clone() {
            Event::Get { request, key, asker, deadline, take } => {
                Event::Get { request, key, asker, deadline, take }
            }
            Event::WriteBegin { request, key, epoch } => Event::WriteBegin { request, key, epoch },
            Event::WriteGivenUp { request, key } => Event::WriteGivenUp { request, key },
            Event::WriteEnd { request, key, payload } => {
                Event::WriteEnd { request, key, payload: payload.as_ref().map(to) }
            }
            Event::Read { job, result, left } => {
                Event::Read { job, result: result.map(|payload| to(&payload)), left }
            }
            Event::Appended { job, written, full } => Event::Appended { job, written, full },
            Event::Listed { device, segment, keys } => Event::Listed { device, segment, keys },
            Event::Damaged { device, location, key } => Event::Damaged { device, location, key },
            Event::Fetched { job, result } => {
                let result = match result {
                    Fetched::Found(payload) => Fetched::Found(to(&payload)),
                    Fetched::TooLarge => Fetched::TooLarge,
                    Fetched::NotFound => Fetched::NotFound,
                    Fetched::Unavailable(failure) => Fetched::Unavailable(failure),
                };
                Event::Fetched { job, result }
            }
            Event::Checked { job, result } => Event::Checked { job, result },
            Event::Answered { job, result } => {
                let result = match result {
                    PeerReply::Found { payload, age } => {
                        PeerReply::Found { payload: to(&payload), age }
                    }
                    PeerReply::NotHere => PeerReply::NotHere,
                    PeerReply::Failed(failure) => PeerReply::Failed(failure),
                };
                Event::Answered { job, result }
            }
            Event::LeaseAsked { peer, epoch } => Event::LeaseAsked { peer, epoch },
            Event::LeaseGranted { peer, asked, term } => Event::LeaseGranted { peer, asked, term },
            Event::Invalidate { key } => Event::Invalidate { key },
            Event::Invalidated { request, peer, done } => {
                Event::Invalidated { request, peer, done }
            }
            Event::Offered { key } => Event::Offered { key },
            Event::Return { peer } => Event::Return { peer },
            Event::Returned { peer, done } => Event::Returned { peer, done },
            Event::HandOver => Event::HandOver,
            Event::ReadsTold { peer, told } => Event::ReadsTold { peer, told },
            Event::View(view) => Event::View(view),
            Event::Clear => Event::Clear,
            Event::Tick => Event::Tick,
            Event::Bound { device, length_max } => Event::Bound { device, length_max },
            Event::MemoryMax { bytes } => Event::MemoryMax { bytes },
            Event::Copying(on) => Event::Copying(on),
        }
    }
}

impl<P: Payload> Action<P> {
    /// The action with sizes in place of bytes, for a log.
    pub fn sizes(&self) -> Action<Size> {
        match self.clone() {
            Action::Reply { request, reply, stages } => {
                Action::Reply { request, reply: reply.sizes(), stages }
            }
            Action::Append { device, location, key, payload, job } => {
                let payload = Size::from_payload(&payload);
                Action::Append { device, location, key, payload, job }
            }
            Action::WriteTurn { request } => Action::WriteTurn { request },
            Action::WriteDone { request, certain } => Action::WriteDone { request, certain },
            Action::Read { device, location, key, job, start, extent } => {
                Action::Read { device, location, key, job, start, extent }
            }
            Action::CloseRead { device, job } => Action::CloseRead { device, job },
            Action::SealSegment { device, segment } => Action::SealSegment { device, segment },
            Action::DropSegment { device, segment } => Action::DropSegment { device, segment },
            Action::Fetch { key, job } => Action::Fetch { key, job },
            Action::List { device, segment } => Action::List { device, segment },
            Action::Check { key, job } => Action::Check { key, job },
            Action::Ask { peer, key, job } => Action::Ask { peer, key, job },
            Action::AskLease { peer, asked, epoch } => Action::AskLease { peer, asked, epoch },
            Action::Grant { peer, term } => Action::Grant { peer, term },
            Action::Invalidate { peer, key, request } => Action::Invalidate { peer, key, request },
            Action::TakeBack { peer } => Action::TakeBack { peer },
            Action::HandedOver => Action::HandedOver,
            Action::Offer { peer, key } => Action::Offer { peer, key },
            Action::TellReads { peer, told } => Action::TellReads { peer, told },
        }
    }
}
