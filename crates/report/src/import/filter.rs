//! Which requests of a log are imported: a span of time, paths, statuses. What is left out is counted by the reason.

use ground::window::Nanos;

use super::error::Error;
use super::time;

/// Which requests are wanted; all by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Filter {
    /// Those that ended at or after this, nanoseconds since 1970.
    from: Option<Nanos>,
    /// Those that ended before this.
    to: Option<Nanos>,
    /// Those of one of these paths, where `*` stands for any text; all if empty.
    paths: Vec<String>,
    /// Those of one of these ranges of statuses; all if empty.
    statuses: Vec<(u16, u16)>,
}

/// Whether a request is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    Wanted,
    Earlier,
    Later,
    OtherPath,
    OtherStatus,
}

impl Filter {
    /// The filter of options as they were typed.
    ///
    /// # Errors
    /// The option that cannot be read, and how it is written.
    pub fn parse(
        from: Option<&str>,
        to: Option<&str>,
        paths: &[String],
        statuses: &[String],
    ) -> Result<Filter, Error> {
        let moment = |name: &str, text: Option<&str>| match text {
            None => Ok(None),
            Some(text) => match time::moment(text, None) {
                Some((reading, _)) => Ok(Some(reading.ns)),
                None => Err(Error::Option {
                    reason: format!(
                        "{name} {text} is not a time: write it like 2026-11-22T04:15:00Z, \
                         '22/Nov/2026:04:15:00 +0000' or 1795320900"
                    ),
                }),
            },
        };
        let (from, to) = (moment("--from", from)?, moment("--to", to)?);
        if from.zip(to).is_some_and(|(from, to)| from >= to) {
            return Err(Error::Option { reason: "--from must be before --to".to_owned() });
        }
        let statuses = statuses.iter().map(|text| range(text)).collect::<Result<_, _>>()?;
        Ok(Filter { from, to, paths: paths.to_vec(), statuses })
    }

    /// Whether it asks for statuses.
    pub fn has_statuses(&self) -> bool {
        !self.statuses.is_empty()
    }

    /// Whether it asks for paths.
    pub fn has_paths(&self) -> bool {
        !self.paths.is_empty()
    }

    /// Judges a request by its end, its status and its path.
    pub fn judge(&self, end: Nanos, status: Option<u16>, path: Option<&str>) -> Verdict {
        let in_range = |&(low, high): &(u16, u16)| {
            let status = status.unwrap_or(0);
            (low..=high).contains(&status)
        };
        if self.from.is_some_and(|from| end < from) {
            Verdict::Earlier
        } else if self.to.is_some_and(|to| end >= to) {
            Verdict::Later
        } else if !self.paths.is_empty()
            && !self.paths.iter().any(|pattern| matches(pattern, path.unwrap_or("")))
        {
            Verdict::OtherPath
        } else if !self.statuses.is_empty() && !self.statuses.iter().any(in_range) {
            Verdict::OtherStatus
        } else {
            Verdict::Wanted
        }
    }
}

/// `200`, `2xx`, `200-299`; 0 is no reply.
fn range(text: &str) -> Result<(u16, u16), Error> {
    let parse = |text: &str| text.trim().parse::<u16>().ok().filter(|status| *status < 1000);
    let found = match text.split_once('-') {
        Some((low, high)) => parse(low).zip(parse(high)),
        None if text.to_ascii_lowercase().ends_with("xx") => {
            let hundreds = text.get(..1).and_then(|digit| digit.parse::<u16>().ok());
            hundreds.filter(|_| text.len() == 3).map(|n| (n * 100, n * 100 + 99))
        }
        None => parse(text).map(|status| (status, status)),
    };
    found.filter(|(low, high)| low <= high).ok_or_else(|| Error::Option {
        reason: format!("--status {text} is not one: write it like 200, 2xx or 200-299"),
    })
}

/// Whether a text is as a pattern says, where `*` stands for any text. A pattern without it is the beginning of a path.
fn matches(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or("");
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut pieces = pieces.peekable();
    if pieces.peek().is_none() {
        return true;
    }
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return rest.ends_with(piece);
        }
        match rest.find(piece) {
            Some(at) => rest = rest.get(at + piece.len()..).unwrap_or(""),
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_judged() {
        let all = Filter::default();
        assert_eq!(all.judge(1, None, None), Verdict::Wanted);
        let paths = ["/api/*/items".to_owned(), "/static".to_owned()];
        let statuses = ["2xx".to_owned(), "404".to_owned(), "500-502".to_owned()];
        let filter = Filter::parse(Some("100"), Some("200"), &paths, &statuses).unwrap();
        let judge =
            |s: u64, status, path| filter.judge(s * 1_000_000_000, Some(status), Some(path));
        assert_eq!(judge(99, 200, "/static/a"), Verdict::Earlier);
        assert_eq!(judge(200, 200, "/static/a"), Verdict::Later);
        assert_eq!(judge(100, 200, "/static/a"), Verdict::Wanted);
        assert_eq!(judge(100, 404, "/api/7/items"), Verdict::Wanted);
        assert_eq!(judge(100, 501, "/api/7/item"), Verdict::OtherPath);
        assert_eq!(judge(100, 301, "/static"), Verdict::OtherStatus);
        for (pattern, text, expected) in [
            ("*", "", true),
            ("/a*b*c", "/abc", true),
            ("/a*b*c", "/axbyd", false),
            ("/a*", "/b", false),
            ("*.js", "/x.js", true),
            ("*.js", "/x.js?v", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
        for bad in ["abc", "2x", "9xxx", "300-200", "-1"] {
            assert!(Filter::parse(None, None, &[], &[bad.to_owned()]).is_err(), "{bad}");
        }
        assert!(Filter::parse(Some("yesterday"), None, &[], &[]).is_err());
        assert!(Filter::parse(Some("200"), Some("100"), &[], &[]).is_err());
    }
}
