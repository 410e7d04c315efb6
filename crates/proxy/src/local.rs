//! Requests that the proxy answers itself.

use ground::window::Operation;
use memcached::Verb;

use crate::shared::{Shared, VERSION};

/// What a request is recorded as.
pub(crate) fn recorded(verb: Verb, several: bool) -> Operation {
    match verb {
        Verb::Get | Verb::Gets | Verb::Gat | Verb::Gats if several => Operation::MultiGet,
        Verb::Get | Verb::Gets | Verb::Gat | Verb::Gats | Verb::MetaGet => Operation::Get,
        Verb::Delete | Verb::MetaDelete => Operation::Delete,
        Verb::MetaDebug => Operation::Head,
        _ => Operation::Put,
    }
}

/// Appends the reply to `version`, `verbosity`, `mn` or `stats`.
pub(crate) fn reply(shared: &Shared, request: &memcached::Request<'_>, out: &mut Vec<u8>) {
    match request.verb {
        Verb::Version => {
            out.extend_from_slice(format!("VERSION {VERSION}\r\n").as_bytes());
        }
        Verb::MetaNoop => out.extend_from_slice(b"MN\r\n"),
        Verb::Stats => match request.first_argument() {
            b"" => shared.put_stats(out),
            b"settings" => shared.put_settings(out),
            b"reset" => {
                shared.reset_stats();
                out.extend_from_slice(b"RESET\r\n");
            }
            // The items are the servers'.
            b"items" | b"slabs" | b"sizes" | b"conns" | b"cachedump" => {
                out.extend_from_slice(b"END\r\n");
            }
            _ => out.extend_from_slice(b"ERROR\r\n"),
        },
        _ => out.extend_from_slice(b"OK\r\n"),
    }
}
