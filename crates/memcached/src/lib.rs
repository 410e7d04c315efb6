//! memcached's text and meta protocol as a codec without I/O.
//!
//! Bytes in, requests and replies out: this crate has no runtime, no clock and no socket, and
//! depends on no other member of the workspace.
//!
//! - [`parse`] reads a client's requests, for a server or a proxy.
//! - [`Scanner`] finds the end of a server's reply, and what the reply says, as bytes arrive; [`fits`] compares it with its
//!   request.
//! - [`put_get`], [`put_read_back`], [`put_copy`], [`put_delete`] and [`Request::put_answered`]
//!   write requests for servers; [`values`] reads the values of a whole reply to a get.
//!
//! The protocol is that of memcached 1.6: `doc/protocol.txt` of its sources, and where that is
//! silent, `proto_text.c` and `proto_parser.c` of 1.6.45 (the texts of errors are theirs). The binary
//! protocol, UDP, authentication and commands that administer a server (`slabs`, `lru`, `watch`,
//! `shutdown` and others) are not supported.
//!
//! # Stricter than memcached
//!
//! A proxy sends requests of several clients over one connection to a server, and knows a reply
//! only by its place. A request that a server reads as two, or does not answer, would give clients
//! each other's replies. [`parse`] therefore accepts only what every 1.6 release reads in the same
//! way, and refuses, with the text that memcached has for such mistakes:
//!
//! - lines with a zero byte (to memcached it ended a line until 1.6.22; other control characters are in keys what other bytes
//!   are, though `doc/protocol.txt` forbids them),
//! - numbers that are anything but decimal digits, with a minus sign where one has a meaning,
//! - arguments that a command does not have,
//! - flags of meta commands that are not letters, that occur twice, or that are too many,
//! - keys said to be base64 that are not, or not in the canonical encoding.
//!
//! # Costs
//!
//! [`parse`] looks for the end of the line with `memchr`, passes over the line once more, and
//! allocates and copies nothing. While a line is incomplete each call looks at it from its
//! beginning, so the work on a line that arrives in single bytes is quadratic, bounded by
//! [`Limits::line_bytes_max`]: the system calls that bring the bytes cost more. [`Scanner`]
//! remembers how far it has looked: linear in the reply's lines, and it never looks at the bytes of
//! values.
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

mod binary;
mod fit;
mod limits;
mod reply;
mod request;
mod token;
mod verb;
mod write;

pub use binary::{BINARY_CLIENT, refuse_binary};
pub use fit::fits;
pub use limits::Limits;
pub use reply::{Answer, Expect, Reply, Scanned, Scanner, Value, is_suppressed, is_won, values};
pub use request::{Drops, Parsed, Request, parse};
pub use token::decode_base64;
pub use verb::{Kind, Verb};
pub use write::{put_copy, put_delete, put_get, put_invalidate, put_read_back};
