//! Tests of a node as its driver sees it: events in, actions out.

mod handover;
mod hit;
mod hot;
mod hot_keys;

use super::*;
use ground::Key;
