//! A node's plain reads: objects in memory.

use std::io::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use http::header::HeaderMap;
use model::window::{Operation, Outcome};
use record::clock;

use super::head::Line;
use super::{Begun, Content, Facts, Never, Passed, Quick, Record, add_date};
use crate::Shared;
use crate::cluster::{self, Sender};
use crate::headers;
use crate::http::authorize;
use crate::lane::Lane;
use crate::limits::Limits;

impl Quick for Shared {
    type Flight = Never;

    fn ends(&self) -> bool {
        self.is_stopping()
    }

    fn approve(&self, given: &HeaderMap) -> Option<Facts> {
        authorize(self, given).ok()?;
        let sender = cluster::sender(self, given).ok()?;
        cluster::deadline(given, 0).ok()?;
        let usual = given.contains_key(&headers::FILL) || given.contains_key("concertina-stages");
        (!usual).then_some(Facts { internal: sender != Sender::Client })
    }

    fn limits(&self) -> Option<&Limits> {
        self.limits.get()
    }

    fn begin(
        self: &Arc<Self>,
        lane: &Arc<Lane>,
        line: &Line<'_>,
        facts: Facts,
        head: &mut Vec<u8>,
    ) -> Begun<Never> {
        let received = clock::now();
        let Some(hit) = self.drive.hit(received, line.key) else { return Begun::Usual };
        let object = hit.payload;
        head.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        head.extend_from_slice(object.head());
        if facts.internal {
            // Writing to a vector does not fail.
            let _ = write!(head, "{}: {}\r\n", headers::NODE_LENGTH, hit.length);
            if hit.warm != 0 {
                let _ = write!(head, "{}: {}\r\n", headers::WARM, hit.warm);
            }
        }
        add_date(received, head);
        head.extend_from_slice(b"\r\n");
        let body = if line.is_head { Bytes::new() } else { object.body().clone() };
        let passed = Passed {
            operation: if line.is_head { Operation::Head } else { Operation::Get },
            outcome: Outcome::Memory,
            hash: lane.hash_of(line.key),
            received,
            size: object.metadata().size,
            bytes: body.len() as u64,
        };
        Begun::Reply(Content::Bytes(body), Record::Passed(passed))
    }
}
