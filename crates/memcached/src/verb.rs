//! The commands, and what a request can do to the items of a server.

/// A command of the text or the meta protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// `get KEY*`: values.
    Get,
    /// `gets KEY*`: values with their compare-and-swap numbers.
    Gets,
    /// `gat EXPTIME KEY*`: values, whose expiry is changed.
    Gat,
    /// `gats EXPTIME KEY*`: as `gat`, with compare-and-swap numbers.
    Gats,
    /// `set KEY FLAGS EXPTIME BYTES`: stores a value.
    Set,
    /// `add`: stores a value if there is none.
    Add,
    /// `replace`: stores a value if there is one.
    Replace,
    /// `append`: adds bytes behind a value.
    Append,
    /// `prepend`: adds bytes before a value.
    Prepend,
    /// `cas KEY FLAGS EXPTIME BYTES CAS`: stores a value if nobody has since `gets`.
    Cas,
    /// `incr KEY DELTA`: adds to a decimal number.
    Incr,
    /// `decr KEY DELTA`: subtracts from a decimal number.
    Decr,
    /// `delete KEY`.
    Delete,
    /// `touch KEY EXPTIME`: changes the expiry.
    Touch,
    /// `flush_all [DELAY]`: invalidates every item.
    FlushAll,
    /// `version`.
    Version,
    /// `verbosity LEVEL`: how much the server logs.
    Verbosity,
    /// `stats [ARGUMENT]*`.
    Stats,
    /// `quit`: closes the connection, without a reply.
    Quit,
    /// `mg KEY FLAG*`.
    MetaGet,
    /// `ms KEY BYTES FLAG*`.
    MetaSet,
    /// `md KEY FLAG*`.
    MetaDelete,
    /// `ma KEY FLAG*`.
    MetaArithmetic,
    /// `mn`: a reply that marks the end of others.
    MetaNoop,
    /// `me KEY FLAG*`: what a server knows of an item.
    MetaDebug,
}

impl Verb {
    /// The command with this name, as the first word of a line. Names are case-sensitive.
    pub fn from_name(name: &[u8]) -> Option<Verb> {
        Some(match name {
            b"get" => Verb::Get,
            b"set" => Verb::Set,
            b"mg" => Verb::MetaGet,
            b"ms" => Verb::MetaSet,
            b"delete" => Verb::Delete,
            b"md" => Verb::MetaDelete,
            b"gets" => Verb::Gets,
            b"gat" => Verb::Gat,
            b"gats" => Verb::Gats,
            b"add" => Verb::Add,
            b"replace" => Verb::Replace,
            b"append" => Verb::Append,
            b"prepend" => Verb::Prepend,
            b"cas" => Verb::Cas,
            b"incr" => Verb::Incr,
            b"decr" => Verb::Decr,
            b"touch" => Verb::Touch,
            b"flush_all" => Verb::FlushAll,
            b"version" => Verb::Version,
            b"verbosity" => Verb::Verbosity,
            b"stats" => Verb::Stats,
            b"quit" => Verb::Quit,
            b"ma" => Verb::MetaArithmetic,
            b"mn" => Verb::MetaNoop,
            b"me" => Verb::MetaDebug,
            _ => return None,
        })
    }

    /// The name of the command, as the first word of a line.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::Gets => "gets",
            Verb::Gat => "gat",
            Verb::Gats => "gats",
            Verb::Set => "set",
            Verb::Add => "add",
            Verb::Replace => "replace",
            Verb::Append => "append",
            Verb::Prepend => "prepend",
            Verb::Cas => "cas",
            Verb::Incr => "incr",
            Verb::Decr => "decr",
            Verb::Delete => "delete",
            Verb::Touch => "touch",
            Verb::FlushAll => "flush_all",
            Verb::Version => "version",
            Verb::Verbosity => "verbosity",
            Verb::Stats => "stats",
            Verb::Quit => "quit",
            Verb::MetaGet => "mg",
            Verb::MetaSet => "ms",
            Verb::MetaDelete => "md",
            Verb::MetaArithmetic => "ma",
            Verb::MetaNoop => "mn",
            Verb::MetaDebug => "me",
        }
    }

    /// Whether a value follows the line.
    pub fn has_value(self) -> bool {
        matches!(
            self,
            Verb::Set
                | Verb::Add
                | Verb::Replace
                | Verb::Append
                | Verb::Prepend
                | Verb::Cas
                | Verb::MetaSet
        )
    }
}

/// What a request does to the items of a server, and so to which servers a proxy sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Changes no item: any server with a copy can answer. `me` too, whose reply is about the
    /// server's own copy.
    Read,
    /// Leaves the same item wherever it is carried out: each server with a copy can do it by itself.
    Write,
    /// What it leaves depends on the item that was there, or on who came first: one server decides,
    /// and others copy the outcome.
    Update,
    /// About the connection or the server, not about items.
    Local,
}
