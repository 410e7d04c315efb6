//! Asks the parts of a dataset: [`engine::question`] decides which parts are queried when, and when the answer is whole; [`ask_parts`] carries
//! that out and merges what the parts answer.

use std::collections::HashMap;
use std::future::pending;
use std::pin::Pin;
use std::time::Duration;

use dataset::part::Run;
use engine::question::{Action, Event, Failed, Kind, PartAnswer, Question, Settings};
use futures_util::StreamExt as _;
use futures_util::future::{AbortHandle, abortable};
use futures_util::stream::FuturesUnordered;
use ground::window::Nanos;
use record::clock;

use super::ask::{Answer, Ask, PAGE_BYTES_MAX, Page};

/// Sends queries to parts.
pub trait AskParts: Sync {
    /// Why a part did not answer.
    type Error: Send;
    /// Why an error was given, as far as decisions need it.
    fn why(&self, error: &Self::Error) -> Failed;
    /// The error of a query whose deadline passed before a part answered.
    fn too_late(&self, part: Option<&str>) -> Self::Error;
    /// Sends a query to one part and returns its answer.
    fn ask(
        &self,
        part: &str,
        ask: &Ask,
    ) -> impl Future<Output = Result<Answer, Self::Error>> + Send;
}

/// A question as a query asks it. With `partial`, a page lists the parts that did not answer in
/// `missing` instead of failing.
pub fn question(ask: &Ask, partial: bool, deadline: Nanos) -> Question {
    let kind = match ask {
        Ask::Records { wanted, .. } => Kind::Page { limit: wanted.limit, partial },
        _ => Kind::All,
    };
    let settings = Settings { page_bytes_max: PAGE_BYTES_MAX, ..Settings::default() };
    Question::new(kind, settings, deadline)
}

/// The answer of a part; `None` if it is not wanted any more.
type Asking<'a, E> = Pin<Box<dyn Future<Output = (usize, Option<Result<Answer, E>>)> + Send + 'a>>;

/// The parts that are being asked. A wake costs a look at the part that woke: of thousands of parts that are asked at once, looking at
/// all of them each time would take a serving thread seconds.
struct UnderWay<'a, E> {
    asked: FuturesUnordered<Asking<'a, E>>,
    handles: HashMap<usize, AbortHandle>,
}

impl<'a, E: Send> UnderWay<'a, E> {
    fn new() -> UnderWay<'a, E> {
        UnderWay { asked: FuturesUnordered::new(), handles: HashMap::new() }
    }

    fn ask(&mut self, part: usize, answer: impl Future<Output = Result<Answer, E>> + Send + 'a) {
        let (answer, handle) = abortable(answer);
        self.asked.push(Box::pin(async move { (part, answer.await.ok()) }));
        self.handles.insert(part, handle);
    }

    /// Asks a part no longer.
    fn drop(&mut self, part: usize) {
        if let Some(handle) = self.handles.remove(&part) {
            handle.abort();
        }
    }

    /// Waits for the next answer.
    async fn next(&mut self) -> (usize, Result<Answer, E>) {
        loop {
            match self.asked.next().await {
                Some((part, Some(answer))) => {
                    self.handles.remove(&part);
                    return (part, answer);
                }
                Some((_, None)) => {}
                None => pending().await,
            }
        }
    }
}

/// Asks parts of one view as `question` decides, and merges their answers. `None` if the question is to be
/// asked of a newer view.
///
/// # Errors
///
/// The error of the part that decided that the question fails.
pub async fn ask_parts<P: AskParts>(
    parts: &P,
    names: &[String],
    ask: &Ask,
    question: &mut Question,
) -> Result<Option<Answer>, P::Error> {
    let mut answers: Vec<Option<Answer>> = names.iter().map(|_| None).collect();
    let mut errors: Vec<Option<P::Error>> = names.iter().map(|_| None).collect();
    let mut under_way = UnderWay::new();
    let mut actions = Vec::new();
    question.handle(clock::now(), Event::View { parts: names.len() }, &mut actions);
    loop {
        for action in std::mem::take(&mut actions) {
            match action {
                Action::Ask { part } => {
                    if let Some(name) = names.get(part) {
                        under_way.ask(part, parts.ask(name, ask));
                    }
                }
                Action::Drop { part } => under_way.drop(part),
                Action::Refresh | Action::NoView => return Ok(None),
                Action::Done { parts: used, missing, more } => {
                    answers.truncate(used);
                    let missing = missing.iter().filter_map(|part| names.get(*part).cloned());
                    let answers = answers.into_iter().flatten();
                    let missing: Vec<String> = missing.collect();
                    let is_whole = used == names.len() && missing.is_empty();
                    let answers: Vec<Answer> = answers.collect();
                    let unknown = if is_whole { unknown_in_all(&answers) } else { Vec::new() };
                    let mut whole = merge(ask, answers.into_iter(), missing, more);
                    if let Answer::Page(Page { unknown_attributes, .. })
                    | Answer::Count { unknown_attributes, .. } = &mut whole
                    {
                        *unknown_attributes = unknown;
                    }
                    return Ok(Some(whole));
                }
                Action::Fail { part } => {
                    let error = errors.get_mut(part).and_then(Option::take);
                    let name = names.get(part).map(String::as_str);
                    return Err(error.unwrap_or_else(|| parts.too_late(name)));
                }
                Action::TooLate { part } => {
                    let name = part.and_then(|part| names.get(part)).map(String::as_str);
                    return Err(parts.too_late(name));
                }
            }
        }
        let left = question.next_wake().map(|at| at.saturating_sub(clock::now()));
        let left = Duration::from_nanos(left.unwrap_or(Nanos::MAX).min(NEVER));
        let event = match tokio::time::timeout(left, under_way.next()).await {
            Err(_) => Event::Tick,
            Ok((part, Ok(answer))) => {
                let seen = part_answer(&answer);
                if let Some(place) = answers.get_mut(part) {
                    *place = Some(answer);
                }
                Event::Answered { part, answer: seen }
            }
            Ok((part, Err(error))) => {
                let why = parts.why(&error);
                if let Some(place) = errors.get_mut(part) {
                    *place = Some(error);
                }
                Event::Failed { part, why }
            }
        };
        question.handle(clock::now(), event, &mut actions);
    }
}

/// A timer that does not matter, nanoseconds: a year.
const NEVER: Nanos = 365 * 86_400 * 1_000_000_000;

/// What decisions need of an answer.
fn part_answer(answer: &Answer) -> PartAnswer {
    match answer {
        Answer::Page(page) => PartAnswer {
            records: page.records.len(),
            bytes: page.bytes(),
            broke_off: page.broke_off,
        },
        _ => PartAnswer::default(),
    }
}

/// The attributes that every part reports as unknown. One that a single part has exists.
fn unknown_in_all(answers: &[Answer]) -> Vec<String> {
    let unknown = |answer: &Answer| match answer {
        Answer::Page(Page { unknown_attributes, .. })
        | Answer::Count { unknown_attributes, .. } => unknown_attributes.clone(),
        _ => Vec::new(),
    };
    let Some((first, others)) = answers.split_first() else { return Vec::new() };
    let mut all = unknown(first);
    for other in others {
        let other = unknown(other);
        all.retain(|name| other.contains(name));
    }
    all
}

/// Merges the answers of parts, in their order. `more`: parts were left out that may have matches.
fn merge(
    ask: &Ask,
    answers: impl Iterator<Item = Answer>,
    missing: Vec<String>,
    more: bool,
) -> Answer {
    match ask {
        Ask::Records { wanted, warnings, .. } => {
            let mut whole = Page { missing, warnings: warnings.clone(), ..Page::default() };
            for answer in answers {
                if let Answer::Page(page) = answer {
                    whole.append(page, wanted.limit);
                }
            }
            whole.has_more |= more;
            whole.broke_off = false;
            let last = whole.next.or(whole.records.last().map(|record| record.id));
            whole.next = last.filter(|_| whole.has_more && wanted.sorted);
            Answer::Page(whole)
        }
        Ask::Count { .. } | Ask::Occurrences { .. } => {
            let count = |answer| match answer {
                Answer::Count { count, .. } => count,
                _ => 0,
            };
            let warnings = match ask {
                Ask::Count { warnings, .. } => warnings.clone(),
                _ => Vec::new(),
            };
            let count = answers.map(count).sum();
            Answer::Count { count, unknown_attributes: Vec::new(), warnings }
        }
        Ask::Record { .. } | Ask::Extract { .. } => {
            let mut all = None;
            for answer in answers {
                if let Answer::Bytes(Some(bytes)) = answer {
                    all.get_or_insert_with(Vec::new).extend(bytes);
                }
            }
            if matches!(ask, Ask::Extract { range } if range.is_empty()) {
                all = Some(Vec::new());
            }
            Answer::Bytes(all)
        }
        Ask::Export { ids } => {
            let mut whole = Run { next: ids.start, ..Run::default() };
            for answer in answers {
                if let Answer::Run(run) = answer {
                    whole.append(run);
                }
            }
            Answer::Run(whole)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Poll;

    use tokio::sync::Semaphore;

    use super::*;

    /// A part that answers once it is let, and counts how often it is looked at.
    async fn answer(looks: Arc<AtomicUsize>, let_go: Arc<Semaphore>) -> Result<Answer, ()> {
        let mut permit = std::pin::pin!(let_go.acquire());
        std::future::poll_fn(|context| {
            looks.fetch_add(1, Ordering::Relaxed);
            permit.as_mut().poll(context).map(drop)
        })
        .await;
        Err(())
    }

    #[tokio::test]
    async fn an_answer_costs_a_look_at_its_part_and_not_at_all() {
        const PARTS: usize = 1_000;
        let looks = Arc::new(AtomicUsize::new(0));
        let gates: Vec<_> = (0..PARTS).map(|_| Arc::new(Semaphore::new(0))).collect();
        let mut under_way = UnderWay::new();
        for (part, gate) in gates.iter().enumerate() {
            under_way.ask(part, answer(looks.clone(), gate.clone()));
        }
        for (part, gate) in gates.iter().enumerate().skip(1) {
            assert!(matches!(futures_util::poll!(std::pin::pin!(under_way.next())), Poll::Pending));
            gate.add_permits(1);
            assert_eq!(under_way.next().await.0, part);
        }
        assert!(looks.load(Ordering::Relaxed) < 4 * PARTS, "{looks:?}");
        under_way.drop(0);
        gates[0].add_permits(1);
        assert!(matches!(futures_util::poll!(std::pin::pin!(under_way.next())), Poll::Pending));
    }
}
