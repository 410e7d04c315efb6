//! `stats`.

use std::fmt::Write as _;

use memcached::{Request, Verb};
use record::clock;

use super::counts::{Count, counts_of};
use super::notes::unix_s;
use super::{END, Session, VERSION};

impl Session {
    pub(super) fn note(&self, count: Count, more: u64) {
        self.shared.stats.add(self.thread, count, more);
    }

    /// Counts a request by its reply. (Keys of `get`, `gat` and their kin are counted one by one, as they are read.)
    pub(super) fn note_reply(&self, request: &Request<'_>, reply: &[u8]) {
        if matches!(
            request.verb,
            Verb::MetaGet
                | Verb::MetaSet
                | Verb::MetaDelete
                | Verb::MetaArithmetic
                | Verb::MetaDebug
                | Verb::MetaNoop
        ) {
            self.note(Count::Meta, 1);
        }
        for count in counts_of(request, reply) {
            self.note(count, 1);
        }
    }

    /// `stats [KIND]`.
    pub(super) fn stats(&mut self, request: &Request<'_>) {
        match request.first_argument() {
            b"" => self.put_stats(),
            b"settings" => self.put_settings(),
            b"reset" => {
                self.shared.stats.reset();
                self.out.extend_from_slice(b"RESET\r\n");
            }
            // There are no slabs; tools that ask go on after the `END`.
            b"items" | b"slabs" | b"sizes" | b"conns" | b"cachedump" => {
                self.out.extend_from_slice(END)
            }
            _ => self.out.extend_from_slice(b"ERROR\r\n"),
        }
    }

    fn put_stats(&mut self) {
        let (store, shared) = (self.store.clone(), self.shared.clone());
        let totals = shared.stats.totals();
        let sum = |one, other| (totals.get(one) + totals.get(other)).to_string();
        let mut text = String::new();
        let mut put = |name: &str, value: String| {
            let _ = write!(text, "STAT {name} {value}\r\n");
        };
        put("pid", std::process::id().to_string());
        put("uptime", ((clock::now() - shared.stats.start) / 1_000_000_000).to_string());
        put("time", unix_s().to_string());
        put("version", VERSION.to_owned());
        put("pointer_size", usize::BITS.to_string());
        put("max_connections", store.front().connections.max().to_string());
        put("curr_connections", store.front().connections.count().to_string());
        put("cmd_get", sum(Count::GetHit, Count::GetMiss));
        put("cmd_touch", sum(Count::TouchHit, Count::TouchMiss));
        for (name, count) in [
            ("total_connections", Count::Connection),
            ("cmd_set", Count::Set),
            ("cmd_flush", Count::Flush),
            ("cmd_meta", Count::Meta),
            ("get_hits", Count::GetHit),
            ("get_misses", Count::GetMiss),
            ("delete_misses", Count::DeleteMiss),
            ("delete_hits", Count::DeleteHit),
            ("incr_misses", Count::IncrMiss),
            ("incr_hits", Count::IncrHit),
            ("decr_misses", Count::DecrMiss),
            ("decr_hits", Count::DecrHit),
            ("cas_misses", Count::CasMiss),
            ("cas_hits", Count::CasHit),
            ("cas_badval", Count::CasBad),
            ("touch_hits", Count::TouchHit),
            ("touch_misses", Count::TouchMiss),
            ("failed_requests", Count::Error),
            ("bytes_read", Count::BytesRead),
            ("bytes_written", Count::BytesWritten),
        ] {
            put(name, totals.get(count).to_string());
        }
        put("threads", store.front().lanes.len().to_string());
        if let Some(memory) = store.memory() {
            put("limit_maxbytes", memory.bytes_max.to_string());
            put("bytes", memory.bytes.to_string());
            put("curr_items", memory.objects.to_string());
        }
        self.out.extend_from_slice(text.as_bytes());
        self.out.extend_from_slice(END);
    }

    fn put_settings(&mut self) {
        let front = self.store.front();
        let memcached = &front.config.memcached;
        let text = format!(
            "STAT maxconns {}\r\nSTAT item_size_max {}\r\nSTAT num_threads {}\r\nSTAT cas_enabled yes\r\n\
             STAT flush_enabled {}\r\nSTAT client_flags_size 4\r\nSTAT binding_protocol ascii\r\n",
            front.connections.max(),
            memcached.value_bytes_max.0,
            front.lanes.len(),
            if self.store.has_memory() { "yes" } else { "no" },
        );
        self.out.extend_from_slice(text.as_bytes());
        self.out.extend_from_slice(END);
    }
}
