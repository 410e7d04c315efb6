//! Which origin a process takes: judged at its start, when an origin comes back, and between members.
//!
//! A file that is missing means "no such object" only in the origin that holds the objects. A folder that is not mounted, an
//! emptied bucket, or another origin at the same place would answer every key with "no such object", and would take
//! writes that are gone when the right one returns. So an origin has an identity, a process remembers it with what it keeps
//! itself (devices, a state folder, etcd), and members tell each other theirs.
//!
//! The decisions are pure, so that the simulator makes the ones that serve. The driver (`origin`) finds what is there.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Identity of an origin: drawn when the origin was made, or derived from what its operator states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct OriginId(u128);

impl OriginId {
    /// The identity with this number.
    pub fn new(number: u128) -> OriginId {
        OriginId(number)
    }
}

impl fmt::Display for OriginId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl From<OriginId> for String {
    fn from(id: OriginId) -> String {
        id.to_string()
    }
}

/// The text is not an identity: 32 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid identity of an origin: expected 32 hexadecimal digits")]
pub struct InvalidId;

impl FromStr for OriginId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<OriginId, InvalidId> {
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = digits.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        number.map(OriginId).ok_or(InvalidId)
    }
}

impl TryFrom<String> for OriginId {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<OriginId, InvalidId> {
        text.parse()
    }
}

/// What is at the place of the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nothing, or an empty folder or bucket, such as the place of a file system that is not mounted.
    Empty,
    /// A folder without an identity whose content this project did not make.
    Foreign,
    /// An origin.
    Origin(OriginId),
}

/// Whether a process may make an origin where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Creation {
    /// Never: a gateway holds nothing that would show that an origin existed before.
    Never,
    /// If this process remembers none: its first start.
    #[default]
    FirstStart,
    /// An operator ordered it (`--create-origin`): make one where there is none, and take another one than the one that is
    /// remembered.
    Ordered,
}

/// What a process does about the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Use it, and remember its identity.
    Take(OriginId),
    /// Make an origin, and remember its identity.
    Create,
    /// Serve nothing from it and write nothing to it. Judge again later: it may come back.
    Refuse(Refusal),
}

/// Why an origin is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is missing or empty; the identity that is remembered, if any.
    Missing(Option<OriginId>),
    /// What is there is not an origin.
    Foreign,
    /// It is another one.
    Another {
        /// The one that is there.
        found: OriginId,
        /// The one that is remembered.
        remembered: OriginId,
    },
}

/// Decides whether a process takes what is at the place of its origin.
///
/// ```
/// use ground::origin::{Creation, OriginId, Place, Refusal, Verdict, judge};
///
/// let (ours, other) = (OriginId::new(1), OriginId::new(2));
/// assert_eq!(judge(None, Place::Empty, Creation::FirstStart), Verdict::Create);
/// assert_eq!(judge(Some(ours), Place::Origin(ours), Creation::FirstStart), Verdict::Take(ours));
/// let missing = Verdict::Refuse(Refusal::Missing(Some(ours)));
/// assert_eq!(judge(Some(ours), Place::Empty, Creation::FirstStart), missing);
/// assert_eq!(judge(Some(ours), Place::Origin(other), Creation::Ordered), Verdict::Take(other));
/// ```
pub fn judge(remembered: Option<OriginId>, place: Place, creation: Creation) -> Verdict {
    match (place, remembered) {
        (Place::Foreign, _) => Verdict::Refuse(Refusal::Foreign),
        (Place::Empty, _) if creation == Creation::Ordered => Verdict::Create,
        (Place::Empty, None) if creation == Creation::FirstStart => Verdict::Create,
        (Place::Empty, remembered) => Verdict::Refuse(Refusal::Missing(remembered)),
        (Place::Origin(found), Some(remembered))
            if found != remembered && creation != Creation::Ordered =>
        {
            Verdict::Refuse(Refusal::Another { found, remembered })
        }
        (Place::Origin(found), _) => Verdict::Take(found),
    }
}

/// Whether two processes may rely on each other: unless both know their origins, and these differ. A process that does not
/// know its origin yet serves nothing from it, so that it does no harm.
pub fn agree(ours: Option<OriginId>, theirs: Option<OriginId>) -> bool {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) => ours == theirs,
        _ => true,
    }
}

/// Whether a process ceases to serve its origin because of what other members said of theirs: one disagrees, none agrees, and
/// nothing but what this process found says that its own is the right one. One that `remembers` its origin does not
/// yield: a newcomer with a wrong origin must not stop those that serve.
pub fn yields(remembers: bool, agreed: bool, disagreed: bool) -> bool {
    disagreed && !agreed && !remembers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_that_is_remembered_is_never_replaced_without_an_order() {
        let (ours, other) = (OriginId::new(7), OriginId::new(8));
        let refuse = Verdict::Refuse;
        let another = refuse(Refusal::Another { found: other, remembered: ours });
        for (remembered, place, creation, expected) in [
            (None, Place::Empty, Creation::FirstStart, Verdict::Create),
            (None, Place::Empty, Creation::Ordered, Verdict::Create),
            (None, Place::Empty, Creation::Never, refuse(Refusal::Missing(None))),
            (Some(ours), Place::Empty, Creation::FirstStart, refuse(Refusal::Missing(Some(ours)))),
            (Some(ours), Place::Empty, Creation::Never, refuse(Refusal::Missing(Some(ours)))),
            (Some(ours), Place::Empty, Creation::Ordered, Verdict::Create),
            (None, Place::Origin(ours), Creation::Never, Verdict::Take(ours)),
            (None, Place::Origin(ours), Creation::FirstStart, Verdict::Take(ours)),
            (Some(ours), Place::Origin(ours), Creation::FirstStart, Verdict::Take(ours)),
            (Some(ours), Place::Origin(other), Creation::FirstStart, another),
            (Some(ours), Place::Origin(other), Creation::Never, another),
            (Some(ours), Place::Origin(other), Creation::Ordered, Verdict::Take(other)),
            (None, Place::Foreign, Creation::FirstStart, refuse(Refusal::Foreign)),
            (Some(ours), Place::Foreign, Creation::FirstStart, refuse(Refusal::Foreign)),
            // What strangers own is not overwritten even on an order.
            (Some(ours), Place::Foreign, Creation::Ordered, refuse(Refusal::Foreign)),
        ] {
            let verdict = judge(remembered, place, creation);
            assert_eq!(verdict, expected, "{remembered:?} {place:?} {creation:?}");
        }
    }

    #[test]
    fn processes_disagree_only_if_both_know() {
        let (one, two) = (Some(OriginId::new(1)), Some(OriginId::new(2)));
        assert!(agree(one, one) && agree(None, one) && agree(one, None) && agree(None, None));
        assert!(!agree(one, two));
    }

    #[test]
    fn an_identity_is_read_as_it_is_written() {
        let id = OriginId::new(u128::MAX - 3);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(OriginId::new(1).to_string().len(), 32);
        for wrong in ["", "1", "+0000000000000000000000000000001", &"g".repeat(32), &"0".repeat(33)]
        {
            assert_eq!(wrong.parse::<OriginId>(), Err(InvalidId), "{wrong:?}");
        }
    }
}
