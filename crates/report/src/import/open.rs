//! Recognises the format of a source, with what carried its lines ([`Envelope`]) or without.

use super::entry::Line;
use super::envelope::Envelope;
use super::error::Error;
use super::filter::Filter;
use super::known::{self, Described};
use super::layout::Layout;
use super::source::Source;

/// Envelopes within each other: a pod's name before a time before syslog.
const DEEPEST: usize = 3;
/// Lines that are tried with a layout.
const TRIED: usize = 100;

/// The layout of a source; takes off the envelopes of its lines.
///
/// # Errors
/// Those of [`known::recognise`].
pub(super) fn recognise(source: &mut Source, described: Described<'_>) -> Result<Layout, Error> {
    let mut best = known::recognise(&source.path, &source.head, described);
    if known::is_summary(&source.head) {
        return best;
    }
    let (mut head, mut envelopes) = (source.head.clone(), Vec::new());
    while let Some(envelope) = Envelope::find(&head).filter(|_| envelopes.len() < DEEPEST) {
        head = envelope.unwrapped(&head);
        let is_sure = envelope.is_sure();
        envelopes.push(envelope);
        let within = known::recognise(&source.path, &head, described);
        let is_better = match (&best, &within) {
            (Err(_), Err(_)) => is_sure,
            (Ok(_), Err(_)) => false,
            (Err(_), Ok(_)) => true,
            (Ok(outer), Ok(inner)) => {
                let (outer, inner) = (requests(outer, &source.head), requests(inner, &head));
                inner > outer || is_sure && inner >= outer
            }
        };
        if is_better {
            best = within;
            source.wrap(&envelopes, &head);
        }
    }
    let mut layout = best?;
    let names: Vec<String> = source.envelopes().iter().map(Envelope::name).collect();
    if !names.is_empty() {
        layout.remarks.push(format!("Its lines were taken out of {}.", names.join(", ")));
    }
    layout.remarks.extend(source.envelopes().iter().filter_map(Envelope::remark));
    Ok(layout)
}

/// Which share of the first lines are requests by a layout. Lines that an envelope leaves out are none of them.
fn requests(layout: &Layout, head: &[u8]) -> f64 {
    let (mut layout, filter) = (layout.clone(), Filter::default());
    let text = String::from_utf8_lossy(head);
    let lines = text.lines().filter(|line| !line.is_empty()).take(TRIED);
    let (mut all, mut requests) = (0u32, 0u32);
    for line in lines {
        all += 1;
        requests += u32::from(matches!(layout.line(line, &filter), Ok(Line::Request(_))));
    }
    f64::from(requests) / f64::from(all.max(1))
}
