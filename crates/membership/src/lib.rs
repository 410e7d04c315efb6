//! Which processes belong to the cluster: the configuration's members, or those that etcd lists.
//!
//! The list ([`roster`]) is one value in etcd, changed by compare-and-set, and so there is one sequence of
//! views. A node renews a lease on a key of its own; when the key is gone, or others suspect the node, any
//! member marks it as lost. No node acts on its place for longer than `membership.valid_s` after it asked
//! etcd for the list and found it as it was: what the engine's views demand ([`engine::route::View`]), whatever
//! etcd's leases do. The simulator drives the same views (`engine::sim`). [`agent`] does all this.

mod agent;
mod common;
mod contact;
mod error;
mod etcd;
mod follower;
mod members;
mod membership;
mod orders;
mod probes;
mod roster;
mod snapshot;

pub use common::{Common, Document, NotWritten, add_metrics};
pub use error::Error;
pub use etcd::{Etcd, EtcdError, Put, Unchanged, pairs as etcd_pairs, parse_change_reply};
pub use follower::Follower;
pub use members::{Members, MembersView};
pub use membership::Membership;
pub use orders::{answer, configure};
pub use roster::{MEMBERS_MAX, Roster, State};
