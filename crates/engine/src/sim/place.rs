//! What is at the place of each node's origin.
//!
//! A fault puts an empty place or another origin where the right one was, as a file system that is not mounted does.

use std::collections::HashMap;

use super::check::Version;
use ground::origin::{OriginId, Place};

/// A version of a key in a wrong origin: its number and, unless it was deleted, its bytes.
pub(super) type WrongObject = (Version, Option<u64>);

/// The origin that holds the objects.
pub(super) fn right() -> OriginId {
    OriginId::new(1)
}

/// A node's side of the origin.
pub(super) struct OriginPlace {
    /// The faults under way, and whether they leave the place empty.
    pub wrong: Vec<(usize, bool)>,
    /// The origin that was made in an empty place during these faults.
    pub made: Option<OriginId>,
    /// What the node's devices remember.
    pub remembered: Option<OriginId>,
    /// What this life of the node goes by: what is remembered, or what the others said when it started.
    pub expected: Option<OriginId>,
    /// The origin that this life took.
    pub taken: Option<OriginId>,
    pub agreed: bool,
    pub disagreed: bool,
    /// Objects of the wrong origin.
    pub objects: HashMap<u32, WrongObject>,
}

impl OriginPlace {
    /// Of a node that runs when the simulation begins.
    pub fn new() -> OriginPlace {
        let right = Some(right());
        OriginPlace {
            wrong: Vec::new(),
            made: None,
            remembered: right,
            expected: right,
            taken: right,
            agreed: false,
            disagreed: false,
            objects: HashMap::new(),
        }
    }

    pub fn place(&self) -> Place {
        match (self.wrong.last(), self.made) {
            (None, _) => Place::Origin(right()),
            (Some((_, true)), None) => Place::Empty,
            (Some((_, true)), Some(made)) => Place::Origin(made),
            (Some((_, false)), _) => Place::Origin(OriginId::new(2)),
        }
    }

    /// Its devices were lost, and what they remembered with them.
    pub fn forget(&mut self) {
        self.remembered = None;
    }

    /// A fault begins.
    pub fn go_wrong(&mut self, fault: usize, empty: bool) {
        (self.made, self.objects) = (None, HashMap::new());
        self.wrong.push((fault, empty));
    }

    /// A fault ends.
    pub fn mend(&mut self, fault: usize) {
        self.wrong.retain(|(other, _)| *other != fault);
    }
}
