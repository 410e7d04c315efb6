//! The kinds of requests in the grid of `experiments/proxy`.

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Get,
    Set,
    /// Sets and gets.
    Mix,
    MultiGet,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Get, Kind::Set, Kind::Mix, Kind::MultiGet];

    /// The load client's name of it.
    pub fn mode(self) -> &'static str {
        match self {
            Kind::Get => "get",
            Kind::Set => "set",
            Kind::Mix => "mix",
            Kind::MultiGet => "mget",
        }
    }

    /// As claims and tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Get => "get",
            Kind::Set => "set",
            Kind::Mix => "1:9",
            Kind::MultiGet => "multi-get",
        }
    }
}
