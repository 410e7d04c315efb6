//! Exports all records of a dataset from a server, unchanged.
//!
//! A server sends one piece at a time, and the next is requested once the previous is written, so
//! neither side buffers more. Records appended after the first piece was sent are not exported. A
//! failed piece is requested again for up to [`PATIENCE`]. An incomplete export is an error.

use std::io::Write;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use indicatif::ProgressBar;

use super::served::{Run, Served};

/// How long a piece is requested again, after the first piece arrived.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// The pause between attempts.
const PAUSE: Duration = Duration::from_millis(200);

/// The progress of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Exported {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

/// An export in progress.
pub(crate) struct Export<'a> {
    pub(crate) out: &'a mut dyn Write,
    pub(crate) bar: &'a ProgressBar,
    pub(crate) done: Exported,
}

impl Export<'_> {
    /// Writes some records; the next one has the id `next`.
    pub(crate) fn take(&mut self, bytes: &[u8], records: u64, next: u64) -> anyhow::Result<()> {
        self.out.write_all(bytes)?;
        self.done.records += records;
        self.done.bytes += bytes.len() as u64;
        self.bar.set_position(next);
        Ok(())
    }
}

/// Exports from a server.
pub(crate) fn of_server(
    served: &Served<'_>,
    patience: Duration,
    export: &mut Export<'_>,
) -> anyhow::Result<()> {
    let first = served.run(0, None)?;
    let (end, dataset) = (first.end, first.dataset.clone());
    let mut next = first.next;
    export.bar.set_length(end);
    export.take(&first.bytes, first.records, next)?;
    while next < end {
        let run = patiently(served, next..end, patience);
        let run = run.with_context(|| format!("the export failed before record {next}"))?;
        ensure!(
            run.dataset == dataset,
            "the dataset was replaced before record {next} was exported; export it again"
        );
        next = run.next;
        export.take(&run.bytes, run.records, next)?;
    }
    Ok(())
}

/// Requests the next of these records, with retries if the server is busy or briefly unreachable.
fn patiently(served: &Served<'_>, ids: Range<u64>, patience: Duration) -> anyhow::Result<Run> {
    let begun = Instant::now();
    loop {
        let why = match served.run(ids.start, Some(ids.end)) {
            Ok(run) if ids.start < run.next && run.next <= ids.end => return Ok(run),
            // The server may not have seen records that others appended a moment ago.
            Ok(_) => anyhow::anyhow!("{} does not send it", served.url()),
            Err(refused) if refused.may_pass() => refused.into(),
            Err(refused) => return Err(refused.into()),
        };
        if begun.elapsed() >= patience {
            return Err(why);
        }
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;
    use std::thread::JoinHandle;

    use super::*;
    use crate::remote::server::Server;

    /// A piece of the dataset `id`, which has four records.
    fn piece(next: u64, id: &str, body: &str) -> String {
        format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconcertina-next: {next}\r\n\
             concertina-records: 1\r\nconcertina-end: 4\r\nconcertina-dataset: {id}\r\n\r\n{body}",
            body.len()
        )
    }

    const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nbusy";

    /// A server that sends these replies, each to its own connection, and then returns the
    /// requests.
    fn scripted(replies: Vec<String>) -> (Server, JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answer = move |reply: String| {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(&stream).lines().map(Result::unwrap);
            let asked = lines.next().unwrap();
            while !lines.next().unwrap().is_empty() {}
            (&stream).write_all(reply.as_bytes()).unwrap();
            asked
        };
        let asked = std::thread::spawn(move || replies.into_iter().map(answer).collect());
        (Server::new(&url, None).unwrap(), asked)
    }

    /// Runs an export; returns the written bytes, the result and the requests.
    fn exported(
        replies: Vec<String>,
        patience: Duration,
    ) -> (String, anyhow::Result<Exported>, Vec<String>) {
        let (server, asked) = scripted(replies);
        let (mut out, bar) = (Vec::new(), ProgressBar::hidden());
        let mut export = Export { out: &mut out, bar: &bar, done: Exported::default() };
        let result = of_server(&Served::new(&server, "d"), patience, &mut export);
        let result = result.map(|()| export.done);
        (String::from_utf8(out).unwrap(), result, asked.join().unwrap())
    }

    #[test]
    fn pieces_are_put_together_up_to_the_first_ones_end() {
        let replies = vec![piece(1, "a", "one\n"), BUSY.to_owned(), piece(4, "a", "two\n")];
        let (out, result, asked) = exported(replies, Duration::from_secs(20));
        assert_eq!(out, "one\ntwo\n");
        assert_eq!(result.unwrap(), Exported { records: 2, bytes: 8 });
        let get = |query: &str| format!("GET /datasets/d/export?{query} HTTP/1.1");
        assert_eq!(asked, [get("from=0"), get("from=1&to=4"), get("from=1&to=4")]);
    }

    #[test]
    fn what_breaks_off_is_an_error_that_says_where() {
        let first = || piece(1, "a", "one\n");
        let long = piece(4, "a", "two\n").replace("length: 4", "length: 9");
        for (second, says) in [
            (BUSY.to_owned(), "503 Service Unavailable: busy"),
            (long, "broke"),
            (piece(1, "a", ""), "does not send it"),
            (piece(5, "a", "more\n"), "does not send it"),
            (piece(4, "b", "two\n"), "was replaced"),
            (BUSY.replace("503 Service Unavailable", "404 Not Found"), "404 Not Found"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned(), "same version"),
        ] {
            let (out, result, _) = exported(vec![first(), second], Duration::ZERO);
            let error = format!("{:#}", result.unwrap_err());
            assert_eq!(out, "one\n", "{error}");
            assert!(error.contains("before record 1") && error.contains(says), "{error}");
        }
    }
}
