//! The `Date` header, written once a second for each thread.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use ground::window::{Nanos, SECOND};

struct Written {
    text: String,
    until: Nanos,
}

thread_local! {
    static WRITTEN: RefCell<Written> = const { RefCell::new(Written { text: String::new(), until: 0 }) };
}

/// Adds the header line for the present time, which is `now` on the monotonic clock.
pub fn add_date(now: Nanos, to: &mut Vec<u8>) {
    WRITTEN.with_borrow_mut(|written| {
        if now >= written.until {
            let time = SystemTime::now();
            let into = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
            written.text = format!("date: {}\r\n", httpdate::fmt_http_date(time));
            written.until = now + SECOND - Nanos::from(into);
        }
        to.extend_from_slice(written.text.as_bytes());
    });
}
