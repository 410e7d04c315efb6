//! The commands, and what they do to the items of a server.

use crate::reply::Expect;
use crate::request::Request;

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

impl Request<'_> {
    /// What this request does to items.
    ///
    /// Of the meta commands: `mg` is a read unless one of its flags may change the item (`E`, `N`,
    /// `R`, `T`); `ms` a write if its mode is `S` (or none is given) and it compares nothing (`C`,
    /// `I`); `md` a write without `C`, `I` and `x`; `ma` an update.
    pub fn kind(&self) -> Kind {
        match self.verb {
            Verb::Get | Verb::Gets | Verb::MetaDebug => Kind::Read,
            Verb::MetaGet if self.has_any_flag(b"ENRT") => Kind::Update,
            Verb::MetaGet => Kind::Read,
            Verb::Set | Verb::Delete | Verb::Touch | Verb::FlushAll => Kind::Write,
            Verb::MetaSet if self.has_any_flag(b"CI") || !self.is_mode_set() => Kind::Update,
            Verb::MetaSet => Kind::Write,
            Verb::MetaDelete if self.has_any_flag(b"CIx") => Kind::Update,
            Verb::MetaDelete => Kind::Write,
            Verb::Add | Verb::Replace | Verb::Append | Verb::Prepend | Verb::Cas => Kind::Update,
            Verb::Incr | Verb::Decr | Verb::Gat | Verb::Gats | Verb::MetaArithmetic => Kind::Update,
            Verb::Version | Verb::Verbosity | Verb::Stats | Verb::Quit | Verb::MetaNoop => {
                Kind::Local
            }
        }
    }

    /// Whether the reply to a read has what one server alone can say of an item: its compare-and-swap number (`gets`, `mg` with
    /// `c`), or when it was read there (`mg` with `h` or `l`, `me`).
    pub fn asks_one_server(&self) -> bool {
        match self.verb {
            Verb::Gets | Verb::Gats | Verb::MetaDebug => true,
            Verb::MetaGet => self.has_any_flag(b"chl"),
            _ => false,
        }
    }

    /// Whether `ms` stores unconditionally: mode `S`, or none.
    fn is_mode_set(&self) -> bool {
        self.flags().all(|flag| flag.first() != Some(&b'M') || flag == b"MS")
    }

    /// How a server's reply to this request ends. (To `quit` there is none.)
    pub fn expect(&self) -> Expect {
        match self.verb {
            Verb::Get | Verb::Gets | Verb::Gat | Verb::Gats => Expect::Values,
            Verb::Stats => Expect::Lines,
            Verb::MetaGet | Verb::MetaDebug => Expect::Meta { get: true },
            Verb::MetaSet | Verb::MetaDelete | Verb::MetaArithmetic | Verb::MetaNoop => {
                Expect::Meta { get: false }
            }
            _ => Expect::Line,
        }
    }
}
