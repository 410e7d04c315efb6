//! What is sent of a request, and how its reply is compared.

use ground::window::Operation;

use super::body::Body;

/// The comparison of a received body with the expected one.
pub(super) struct Check {
    body: Body,
    seen: u64,
    wrong: bool,
}

impl Check {
    /// Compares the next bytes.
    pub fn add(&mut self, piece: &[u8]) {
        self.wrong |= !self.body.matches(self.seen, piece);
        self.seen += piece.len() as u64;
    }

    /// Whether any byte differed.
    pub fn is_wrong(&self) -> bool {
        self.wrong
    }
}

/// What is sent: the operation on a key, or a listed request for it.
#[derive(Clone, Copy)]
pub struct RequestParts<'a> {
    pub operation: Operation,
    pub key: &'a [u8],
    /// The generated object of the key.
    pub body: Body,
    /// The number of the listed request, if the load has some.
    pub form: Option<u32>,
    /// Whether the body of a get's reply is compared with `body`, except for its length, which the
    /// caller checks.
    pub verify: bool,
}

impl RequestParts<'_> {
    /// The generated body that follows the head, if any.
    pub(super) fn upload(&self) -> Option<Body> {
        (self.form.is_none() && self.operation == Operation::Put).then_some(self.body)
    }

    /// How the body of the reply is compared, if it is.
    pub(super) fn check(&self) -> Option<Check> {
        let get = self.verify && self.form.is_none() && self.operation == Operation::Get;
        get.then_some(Check { body: self.body, seen: 0, wrong: false })
    }
}
