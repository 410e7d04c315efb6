//! Lines of the log that repeat, counted: a fault that every request or connection meets is a few lines, not thousands.
//!
//! It sits in front of the writer of the log, so that it holds for every place that warns, those of libraries
//! included. Places are told apart by where they are in the source and not by their text, which names another key or
//! address each time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, warn};
use tracing_subscriber::layer::{Context, Filter};

/// Lines of one place in one span of time; further ones are counted.
const LINES_MAX: u32 = 5;
/// That span of time.
const SPAN: Duration = Duration::from_secs(10);
/// The lines that tell of others. They are counted already.
const TARGET: &str = "concertina::repeats";

/// What one place has logged.
struct Place {
    began: Instant,
    lines: u32,
    left_out: u32,
    /// The first line that was left out.
    text: String,
}

/// Counts the warnings and errors of each place, and lets the first few pass.
#[derive(Clone, Default)]
pub struct Repeats(Arc<Mutex<HashMap<Identifier, Place>>>);

/// The message of an event.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl Repeats {
    /// Whether a place may log a line now; `text` is called for the first that it may not.
    fn passes(&self, place: Identifier, now: Instant, text: impl FnOnce() -> String) -> bool {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Place { began: now, lines: 0, left_out: 0, text: String::new() };
        let place = places.entry(place).or_insert_with(new);
        // A span that ended with lines left out goes on until `ended` has told of them.
        if now.saturating_duration_since(place.began) >= SPAN && place.left_out == 0 {
            *place = new();
        }
        if place.lines < LINES_MAX {
            place.lines += 1;
            return true;
        }
        if place.left_out == 0 {
            place.text = text();
        }
        place.left_out = place.left_out.saturating_add(1);
        false
    }

    /// What was left out in the spans that have ended.
    fn ended(&self, now: Instant) -> Vec<String> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let over = places.values_mut().filter(|place| {
            place.left_out > 0 && now.saturating_duration_since(place.began) >= SPAN
        });
        over.map(|place| {
            let seconds = now.saturating_duration_since(place.began).as_secs();
            let line =
                format!("{} ({} more times in the last {seconds} s)", place.text, place.left_out);
            // What goes on is one line for each span, and not the first few again.
            *place = Place { began: now, lines: LINES_MAX, left_out: 0, text: String::new() };
            line
        })
        .collect()
    }

    /// Logs what was left out in the spans that have ended.
    pub fn tell(&self) {
        self.log(Instant::now());
    }

    /// Logs all that was left out, before the process ends.
    pub fn tell_all(&self) {
        self.log(Instant::now() + SPAN);
    }

    fn log(&self, now: Instant) {
        for line in self.ended(now) {
            warn!(target: TARGET, "{line}");
        }
    }
}

impl<S> Filter<S> for Repeats {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::WARN || metadata.target() == TARGET {
            return true;
        }
        self.passes(metadata.callsite(), Instant::now(), || {
            let mut message = Message::default();
            event.record(&mut message);
            message.0
        })
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::Layer as _;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    /// A writer that keeps what is written.
    #[derive(Clone, Default)]
    struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for SharedBuffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_fault_that_every_connection_meets_is_a_few_lines_and_a_count() {
        let (repeats, buffer) = (Repeats::default(), SharedBuffer::default());
        let writer = buffer.clone();
        let lines = tracing_subscriber::fmt::layer().with_writer(move || writer.clone());
        let log = tracing_subscriber::registry().with(lines.with_filter(repeats.clone()));
        tracing::subscriber::with_default(log, || {
            for number in 0..1000 {
                warn!("no connection {number}");
            }
            warn!("something else");
            tracing::info!("the usual");
            // The first line was logged before now.
            let end = Instant::now() + SPAN;
            repeats.log(end);
            // What repeats on is counted from the first line on.
            assert!(repeats.ended(end + 3 * SPAN).is_empty());
        });
        let text = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 8, "{text}");
        assert!(lines[4].ends_with("no connection 4"));
        assert!(lines[7].contains("no connection 5 (995 more times in the last 10 s)"), "{text}");
    }

    #[test]
    fn what_went_on_is_one_line_a_span_and_what_has_ended_begins_anew() {
        let repeats = Repeats::default();
        let place = tracing::callsite::Callsite::metadata(&CALLSITE).callsite();
        let start = Instant::now();
        let at = |s: u64| start + Duration::from_secs(s);
        let passes = |s: u64| repeats.passes(place.clone(), at(s), String::new);
        assert_eq!((0..9).filter(|_| passes(0)).count(), 5);
        assert!(repeats.ended(at(9)).is_empty());
        assert_eq!(repeats.ended(at(11)), [" (4 more times in the last 11 s)"]);
        assert!(!passes(12));
        assert_eq!(repeats.ended(at(21)), [" (1 more times in the last 10 s)"]);
        assert!(passes(40), "a fault that is new again");
    }

    struct TestCallsite;
    static CALLSITE: TestCallsite = TestCallsite;
    static METADATA: Metadata<'static> = tracing::metadata! {
        name: "here", target: "tests", level: Level::WARN,
        fields: &["message"], callsite: &CALLSITE, kind: tracing::metadata::Kind::EVENT,
    };
    impl tracing::callsite::Callsite for TestCallsite {
        fn set_interest(&self, _: tracing::subscriber::Interest) {}
        fn metadata(&self) -> &Metadata<'_> {
            &METADATA
        }
    }
}
