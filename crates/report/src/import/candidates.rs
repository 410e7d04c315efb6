//! Which of a log's values are used, of those whose names say what they may be: by what they are in the first lines.

use std::cmp::Reverse;

use super::durations::{Durations, longest};
use super::entry;
use super::layout::{Column, Layout, Role, Side, Values};
use super::time::{self, Unit};

/// Roles of moments.
const STAMPS: [Role; 3] = [Role::Stamp, Role::Start, Role::End];

/// A value whose name says what it may be.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub column: Column,
    /// Of a stamp whose name says it.
    pub side: Option<Side>,
    /// Parts of its dotted name that say nothing of it.
    pub depth: usize,
}

/// The candidates of a log, and what they are in its first lines.
pub(super) struct Candidates {
    all: Vec<Candidate>,
    /// Of each line the values, in the order of the candidates.
    rows: Vec<Values>,
}

impl Candidates {
    pub fn new(base: &Layout, all: Vec<Candidate>, lines: &[String]) -> Candidates {
        let columns = all.iter().map(|one| one.column.clone()).collect();
        let mut layout = base.clone().with_columns(columns);
        let mut rows: Vec<Values> =
            lines.iter().filter_map(|line| layout.values(line).ok().flatten()).collect();
        for value in rows.iter_mut().flatten().flatten() {
            *value = layout.pointed(value).into_owned();
        }
        let mut candidates = Candidates { all, rows };
        candidates.keep_requests();
        candidates
    }

    /// Leaves out lines of other events, which have values of the same names: those without a status, if the lines with a duration have
    /// one, else those without a duration.
    fn keep_requests(&mut self) {
        let has = |row: &Values, roles: &[Role]| {
            let mut both = self.all.iter().zip(row);
            both.any(|(one, value)| value.is_some() && roles.contains(&one.column.role))
        };
        let is_timed = |row: &Values| has(row, &[Role::Response, Role::End]);
        let is_request = |row: &Values| is_timed(row) && has(row, &[Role::Status]);
        let rows = &self.rows;
        let kept: Vec<Values> = if rows.iter().any(is_request) {
            rows.iter().filter(|row| is_request(row)).cloned().collect()
        } else {
            rows.iter().filter(|row| is_timed(row)).cloned().collect()
        };
        if !kept.is_empty() {
            self.rows = kept;
        }
    }

    /// The values of a candidate.
    fn values(&self, at: usize) -> impl Iterator<Item = &str> {
        self.rows.iter().filter_map(move |row| row.get(at)?.as_deref())
    }

    /// The texts of a candidate's values, one for each line.
    fn texts(&self, at: usize) -> Vec<Option<&str>> {
        self.rows.iter().map(|row| row.get(at)?.as_deref()).collect()
    }

    /// Whether nine in ten of a candidate's values are so.
    fn mostly(&self, at: usize, is_so: impl Fn(&str) -> bool) -> bool {
        let (all, so) = (self.values(at).count(), self.values(at).filter(|v| is_so(v)).count());
        all > 0 && so * 10 >= all * 9
    }

    /// The candidate of a role that is used: one whose values are of it, in most of the requests, with the plainest name.
    pub fn first(&self, role: Role) -> Option<&Candidate> {
        self.ranked(role).first().and_then(|at| self.all.get(*at))
    }

    /// The duration of a request, of several values that may be it: the one that is the longest on nearly all lines.
    ///
    /// # Errors
    /// The names of these values, if none is, or if they cannot be compared because the unit of some is not known.
    pub fn response(&self) -> Result<Option<&Candidate>, String> {
        let depth = self.first(Role::Response).map(|one| one.depth);
        let of =
            self.ranked(Role::Response).into_iter().filter_map(|at| Some((at, self.all.get(at)?)));
        let near: Vec<(usize, &Candidate)> =
            of.filter(|(_, one)| Some(one.depth) == depth).collect();
        let durations =
            near.iter().map(|(at, one)| Durations::new(self.texts(*at), one.column.unit));
        let durations: Vec<Durations> = durations.collect();
        if near.len() < 2 || self.rows.is_empty() {
            return Ok(near.first().map(|(_, one)| *one));
        }
        match longest(&durations).and_then(|at| near.get(at)) {
            Some((_, one)) => Ok(Some(one)),
            None => {
                let names: Vec<String> = near.iter().map(|(_, one)| one.column.label()).collect();
                Err(names.join(" and "))
            }
        }
    }

    /// The candidates of other roles than times that are used.
    pub fn others(&self) -> impl Iterator<Item = &Candidate> {
        use Role::{Bytes, Key, Method, Path, Request, Server, Status};
        [Status, Method, Request, Path, Key, Server, Bytes]
            .into_iter()
            .filter_map(|role| self.first(role))
    }

    /// The candidates of a role whose values are of it, those with the plainest names first.
    fn ranked(&self, role: Role) -> Vec<usize> {
        let of_role = |at: &usize| self.all.get(*at).is_some_and(|one| one.column.role == role);
        let named: Vec<usize> = (0..self.all.len()).filter(of_role).collect();
        let mut of: Vec<usize> = named.iter().copied().filter(|at| self.is_valid(*at)).collect();
        // What is wrong with times is said of each line, and a path may be a name.
        let is_needed = STAMPS.contains(&role) || matches!(role, Role::Response | Role::Path);
        if of.is_empty() && (is_needed || self.rows.is_empty()) {
            of = named;
        }
        let count = |at: usize| self.values(at).count();
        let most = of.iter().map(|at| count(*at)).max().unwrap_or(0);
        of.retain(|at| 2 * count(*at) >= most);
        of.sort_by_key(|at| {
            let Some(one) = self.all.get(*at) else { return (0, Reverse(0)) };
            // Of two stamps the finer one.
            let decimals = if STAMPS.contains(&role) { self.decimals(*at) } else { 0 };
            (one.depth, Reverse(decimals))
        });
        of
    }

    /// The decimals of a second that a stamp is written with.
    fn decimals(&self, at: usize) -> u32 {
        let unit = self.all.get(at).and_then(|one| one.column.unit);
        let moments = self.values(at).filter_map(|text| time::moment(text, unit));
        moments.map(|(reading, _)| reading.decimals).max().unwrap_or(0)
    }

    /// Whether the values of a candidate are what its name says.
    fn is_valid(&self, at: usize) -> bool {
        let Some(Candidate { column, .. }) = self.all.get(at) else { return false };
        let is_word = |text: &str| {
            !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphabetic() || b"-_".contains(&b))
        };
        match column.role {
            Role::Response => {
                let unit = column.unit.unwrap_or(Unit::Nanos);
                self.mostly(at, |text| text == "-1" || time::durations(text, unit).is_ok())
            }
            Role::Stamp | Role::Start | Role::End => {
                let is_moment = |text: &str| {
                    time::moment(text, column.unit)
                        .is_some_and(|(reading, _)| reading.is_of_century())
                };
                self.mostly(at, is_moment)
            }
            Role::Status => self.mostly(at, |text| entry::status(text).is_some()),
            Role::Method => self.mostly(at, is_word),
            Role::Request => self
                .mostly(at, |text| text.split_once(' ').is_some_and(|(first, _)| is_word(first))),
            // `-1` of those that are not known may be most.
            Role::Bytes => self.values(at).any(|text| entry::bytes(text).is_some()),
            // The module of a program is called a target, too.
            Role::Path => self.mostly(at, |text| text.starts_with('/') || text.contains("://")),
            _ => true,
        }
    }
}
