//! Listings in key order: merges two sorted lists of names, those of plain keys and those of
//! escaped keys.
//!
//! A store lists names in byte order, which within each kind is the order of the keys (`name`). A
//! page therefore costs a number of requests proportional to its length, wherever it begins. The
//! store's listing lacks our metadata, so an object of a page costs a HEAD unless it was listed
//! before (`described`). The name of an escaped key over 120 bytes holds only its first 120; all
//! keys that share them are read and sorted together.

use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::{StreamExt, TryStreamExt, stream};
use ground::Key;
use quick_xml::events::Event;
use serde::Deserialize;
use tracing::warn;

use super::attributes;
use super::described::ListingEntry;
use super::errors::{Access, Trouble};
use super::failure::{Failure, FailureKind};
use super::name::{self, ESCAPED, Named, form_of, key_of, shared_digits};
use super::store::{Head, Store};
use crate::error::Error;
use crate::listing::{Entry, KEY_BYTES_MAX, KeyRange, Listed, behind};

/// The most names in a page of the store's listing.
pub(super) const NAMES_MAX: usize = 1000;

/// The most pages without a name that may follow each other.
const PAGES_EMPTY_MAX: usize = 1000;
/// Entries that are asked for first where groups may swallow them.
const FEW: usize = 16;
/// The delimiter by which the store itself groups plain names: nearly all clients use this one, and
/// the names of escaped keys are a group of their own with it.
const SLASH: &str = "/";

/// The fields of a page that are used.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct ListBucketResult {
    contents: Vec<Contents>,
    common_prefixes: Vec<CommonPrefix>,
    next_continuation_token: Option<String>,
}

impl ListBucketResult {
    /// Whether another page follows.
    pub(super) fn has_next(&self) -> bool {
        self.next_continuation_token.as_deref().is_some_and(|token| !token.is_empty())
    }

    /// The names of its objects.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.contents.iter().map(|one| &*one.key)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Contents {
    key: String,
    #[serde(rename = "ETag")]
    etag: Option<String>,
    size: Option<u64>,
    last_modified: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CommonPrefix {
    prefix: String,
}

/// A name, or what a group of names begins with.
struct Name {
    text: String,
    what: What,
}

/// What a listing says of a key.
enum What {
    /// An object, and what the store says of it if that is enough to recognise it.
    Object(Option<ListingEntry>),
    Group,
}

impl From<Contents> for Name {
    fn from(of: Contents) -> Name {
        let Contents { key, etag, size, last_modified } = of;
        let seen = etag.zip(size).zip(last_modified);
        let seen =
            seen.map(|((etag, size), modified)| ListingEntry::new(&key, etag, size, &modified));
        Name { text: key, what: What::Object(seen) }
    }
}

impl From<CommonPrefix> for Name {
    fn from(of: CommonPrefix) -> Name {
        Name { text: of.prefix, what: What::Group }
    }
}

/// A key of a listing, or a group.
struct Candidate {
    key: Vec<u8>,
    what: What,
    /// How the name of the object is written.
    kind: Kind,
}

impl Candidate {
    /// A group; its objects may be of both kinds.
    fn group(key: &[u8]) -> Candidate {
        Candidate { key: key.to_vec(), what: What::Group, kind: Kind::Plain }
    }

    /// The position after it.
    fn end(&self) -> Vec<u8> {
        match self.what {
            What::Object(_) => self.key.clone(),
            What::Group => behind(&self.key),
        }
    }
}

/// How the names of keys are written.
#[derive(Clone, Copy)]
enum Kind {
    Plain,
    Escaped,
}

/// Where a page of the store's listing begins, and by what it is grouped.
#[derive(Clone, Default)]
pub(super) struct PageOf {
    after: Option<String>,
    token: Option<String>,
    delimiter: Option<&'static str>,
}

/// Iterates over the names of one kind, page by page.
struct Names<'a> {
    store: &'a Store,
    start: String,
    of: PageOf,
    limit: usize,
    page: std::vec::IntoIter<Name>,
    ended: bool,
    /// Pages without a name that followed each other.
    empty: usize,
    last: String,
}

impl Names<'_> {
    async fn next(&mut self) -> Result<Option<Name>, Error> {
        loop {
            if let Some(name) = self.page.next() {
                let text = &name.text;
                if *text <= self.last {
                    return Err(Error::Failed(format!(
                        "a listing at {}: the store does not list names in the order of their \
                         bytes ({text:?} after {:?}), so pages would miss some",
                        self.store.place, self.last
                    )));
                }
                self.last.clone_from(text);
                self.empty = 0;
                return Ok(Some(name));
            }
            if self.ended {
                return Ok(None);
            }
            self.empty += 1;
            if self.empty > PAGES_EMPTY_MAX {
                return Err(Error::Failed(format!(
                    "a listing at {}: {PAGES_EMPTY_MAX} pages without a name follow each other",
                    self.store.place
                )));
            }
            let page = self.store.page(&self.start, self.of.clone(), self.limit).await;
            let page = page.map_err(|trouble| trouble.error)?;
            // A token replaces the start position.
            self.of.token = page.next_continuation_token.filter(|token| !token.is_empty());
            self.of.after = None;
            self.ended = self.of.token.is_none();
            let mut names: Vec<Name> = page.contents.into_iter().map(Name::from).collect();
            if !page.common_prefixes.is_empty() {
                names.extend(page.common_prefixes.into_iter().map(Name::from));
                names.sort_by(|one, other| one.text.cmp(&other.text));
            }
            self.page = names.into_iter();
        }
    }
}

/// The keys of a listing, and how many of them are wanted.
struct Selection {
    range: KeyRange,
    limit: usize,
}

/// Returns the longest prefix of `bytes` that is valid as a text parameter of a listing.
fn text_of(bytes: &[u8]) -> &str {
    let chunk = bytes.utf8_chunks().next();
    let text = chunk.map_or("", |chunk| chunk.valid());
    // A key has at most 1024 bytes; `after` may be longer.
    let end = text.char_indices().find(|(at, c)| c.is_control() || *at > 900);
    end.map_or(text, |(at, _)| &text[..at])
}

/// Returns a position for the store's listing of names that are text, which is not after `bytes`.
fn position_of(bytes: &[u8]) -> String {
    let text = text_of(bytes);
    // Where a group ends, no text that begins with it follows.
    let is_end = bytes.len() > KEY_BYTES_MAX && bytes[text.len()..].iter().all(|byte| *byte == 255);
    if is_end { format!("{text}\u{10ffff}") } else { text.to_owned() }
}

impl Store {
    /// Returns the first entries in byte order. Skips objects that were removed meanwhile and fills
    /// the page with later ones, so that only the last page is shorter than `limit`.
    pub(super) async fn entries(
        &self,
        mut range: KeyRange,
        limit: usize,
    ) -> Result<Vec<Entry>, Error> {
        let mut entries = Vec::new();
        loop {
            let wanted = limit - entries.len();
            let selection = Selection { range: range.clone(), limit: wanted };
            let plain = self.plain(&selection).await?;
            let mut found = self.grouped(&selection, Kind::Escaped).await?;
            found.extend(plain);
            found.sort_by(|one, other| one.key.cmp(&other.key));
            // A group may be of both kinds, and of an object the escaped name is the one that is served (`naming`).
            found.dedup_by(|one, other| one.key == other.key);
            found.truncate(wanted);
            let last = found.len() < wanted;
            range.after = found.last().map(Candidate::end).or(range.after);
            let looks = stream::iter(found).map(|one| self.entry(one)).buffered(self.parallel);
            let found: Vec<Option<Entry>> = looks.try_collect().await?;
            entries.extend(found.into_iter().flatten());
            if last || entries.len() == limit {
                return Ok(entries);
            }
        }
    }

    async fn entry(
        &self,
        Candidate { key, what, kind }: Candidate,
    ) -> Result<Option<Entry>, Error> {
        let What::Object(seen) = what else { return Ok(Some(Entry::Group(key))) };
        let object =
            |key, metadata| Ok(Some(Entry::Object(Listed { key: Key::from(key), metadata })));
        if let Some(metadata) = seen.as_ref().and_then(|seen| self.described.get(seen)) {
            return object(key, metadata);
        }
        let plain = name::plain(&key, &self.prefix).filter(|_| matches!(kind, Kind::Plain));
        let name = plain.map_or_else(|| name::escaped(&key, &self.prefix).name, |plain| plain.name);
        let head = match (self.head(&name).await, &seen) {
            // It costs itself, and not the page.
            (Err(Error::Damaged(what)), Some(seen)) => {
                warn!("{what}; it is listed as the store lists it");
                return object(key, attributes::from_store(&seen.stored()));
            }
            (head, _) => head?,
        };
        let Some(Head { stored, metadata }) = head else { return Ok(None) };
        if let Some(seen) = seen {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            self.described.set(&seen, &stored, &metadata, now.as_secs());
        }
        object(key, metadata)
    }

    /// Names that begin with `start`, by pages of at most `limit`.
    fn names(&self, start: String, mut of: PageOf, limit: usize) -> Names<'_> {
        // A start position before the first name is useless, and some stores reject it.
        of.after = of.after.filter(|after| *after > start);
        let limit = limit.clamp(1, NAMES_MAX);
        let page = Vec::new().into_iter();
        Names { store: self, start, of, limit, page, ended: false, empty: 0, last: String::new() }
    }

    /// The first plain keys and groups of them.
    async fn plain(&self, selection: &Selection) -> Result<Vec<Candidate>, Error> {
        let range = &selection.range;
        if range.delimiter != SLASH.as_bytes() {
            return self.grouped(selection, Kind::Plain).await;
        }
        // The store need not agree on whether a group is listed that begins before the position.
        let inside = range.after.as_deref().filter(|after| after.starts_with(&range.prefix));
        let Some(group) = inside.and_then(|after| range.group_of(after)) else {
            return self.plain_keys(selection, Some(SLASH)).await;
        };
        let (group, end) = (group.to_vec(), behind(group));
        let mut keys = Vec::new();
        if inside.is_some_and(|after| *after < *end) {
            let rest = KeyRange::new(&group).after(range.after.clone());
            let first = self.plain_keys(&Selection { range: rest, limit: 1 }, None).await?;
            if !first.is_empty() {
                keys.push(Candidate::group(&group));
            }
        }
        let limit = selection.limit - keys.len();
        if limit > 0 {
            let range = range.clone().after(Some(end));
            keys.extend(self.plain_keys(&Selection { range, limit }, Some(SLASH)).await?);
        }
        Ok(keys)
    }

    /// The first plain keys, grouped by the store if there is a delimiter.
    async fn plain_keys(
        &self,
        selection: &Selection,
        delimiter: Option<&'static str>,
    ) -> Result<Vec<Candidate>, Error> {
        let Selection { range, limit } = selection;
        let start = format!("{}{}", self.prefix, text_of(&range.prefix));
        let escaped = format!("{}{ESCAPED}", self.prefix);
        let after = range.after.as_deref().map(|it| format!("{}{}", self.prefix, position_of(it)));
        let mut names = self.names(start.clone(), PageOf { after, delimiter, token: None }, *limit);
        let (mut keys, mut skipped) = (Vec::new(), false);
        while keys.len() < *limit {
            let Some(Name { text, what }) = names.next().await? else { break };
            if text.starts_with(&escaped) {
                if matches!(what, What::Object(_)) {
                    if std::mem::replace(&mut skipped, true) {
                        return Err(Error::Failed(format!(
                            "a listing at {}: the store lists {text:?}, which is not after the \
                             start-after that was asked for",
                            self.place
                        )));
                    }
                    // Skip all escaped names: `~` is greater than any digit.
                    let after = Some(format!("{escaped}~"));
                    let of = PageOf { after, delimiter, token: None };
                    names = self.names(start.clone(), of, *limit);
                }
                continue;
            }
            match what {
                What::Object(_) => match key_of(&text, &self.prefix) {
                    Some(Named::Plain { key, form }) if range.holds(&key) => {
                        match self.takes(form).await? {
                            true => keys.push(Candidate { key, what, kind: Kind::Plain }),
                            false => self.tell_passed_over(&text),
                        }
                    }
                    // The marker of the folder that is the prefix has the empty key, which no object has.
                    None if text != self.prefix => self.tell_passed_over(&text),
                    _ => {}
                },
                What::Group => {
                    let key = text.strip_prefix(&self.prefix).unwrap_or_default();
                    let is_later =
                        range.after.as_deref().is_none_or(|after| *after < *behind(key.as_bytes()));
                    // Other tools' names may be of no key.
                    let form = form_of(&format!("{key}x"));
                    let form = form.filter(|_| key.as_bytes().starts_with(&range.prefix));
                    if is_later
                        && let Some(form) = form
                        && self.takes(form).await?
                    {
                        keys.push(Candidate::group(key.as_bytes()));
                    }
                }
            }
        }
        Ok(keys)
    }

    /// Says once that the bucket has objects that are not served.
    fn tell_passed_over(&self, name: &str) {
        if !self.passed_over.swap(true, Ordering::Relaxed) {
            warn!(
                "{}: the object {name:?} of another tool is not served, nor others whose names cannot be those of keys here: they are in no \
                 listing (docs/s3.md, \"Objects that are not served\")",
                self.place
            );
        }
    }

    async fn keys(&self, selection: &Selection, kind: Kind) -> Result<Vec<Candidate>, Error> {
        match kind {
            Kind::Plain => self.plain_keys(selection, None).await,
            Kind::Escaped => self.escaped_keys(selection).await,
        }
    }

    /// The first keys and groups of one kind, from listings without groups: what is left of a group
    /// is skipped.
    async fn grouped(&self, selection: &Selection, kind: Kind) -> Result<Vec<Candidate>, Error> {
        if selection.range.delimiter.is_empty() {
            return self.keys(selection, kind).await;
        }
        let mut range = selection.range.clone();
        let (mut found, mut few) = (Vec::<Candidate>::new(), FEW);
        while found.len() < selection.limit {
            let limit = few.min(selection.limit - found.len());
            let keys = self.keys(&Selection { range: range.clone(), limit }, kind).await?;
            let last = keys.len() < limit;
            few = few.saturating_mul(2);
            for one in keys {
                if !range.holds(&one.key) {
                    continue;
                }
                let one = match range.group_of(&one.key) {
                    Some(group) => {
                        few = FEW;
                        Candidate::group(group)
                    }
                    None => one,
                };
                range.after = Some(one.end());
                found.push(one);
            }
            if last {
                break;
            }
        }
        Ok(found)
    }

    async fn escaped_keys(&self, selection: &Selection) -> Result<Vec<Candidate>, Error> {
        let Selection { range, limit } = selection;
        let begin = |bytes: &[u8]| format!("{}{ESCAPED}{}", self.prefix, shared_digits(bytes));
        let after = range.after.as_deref().map(begin);
        let of = PageOf { after, ..PageOf::default() };
        let mut names = self.names(begin(&range.prefix), of, *limit);
        let mut keys = Vec::new();
        let mut group = Group::default();
        while let Some(Name { text, what }) = names.next().await? {
            let named = key_of(&text, &self.prefix);
            let same = matches!(&named, Some(Named::Cut(start)) if *start == group.start);
            if !same {
                keys.append(&mut group.finish(self, selection).await?);
                if keys.len() >= *limit {
                    return Ok(keys);
                }
            }
            match named {
                Some(Named::Escaped(key)) if range.holds(&key) => {
                    keys.push(Candidate { key, what, kind: Kind::Escaped });
                }
                Some(Named::Cut(start)) => {
                    group.start = start;
                    group.names.push(text);
                    if group.names.len() == NAMES_MAX {
                        group.look(self, selection).await?;
                    }
                }
                _ => {}
            }
        }
        keys.append(&mut group.finish(self, selection).await?);
        Ok(keys)
    }
}

/// Escaped keys whose names are cut to the same bytes: their order is known only when the whole
/// keys have been read. Holds at most [`NAMES_MAX`] names and `limit` keys.
#[derive(Default)]
struct Group {
    start: Vec<u8>,
    names: Vec<String>,
    keys: Vec<Vec<u8>>,
}

impl Group {
    /// Reads the whole keys of the collected names and keeps the smallest `limit`.
    async fn look(&mut self, store: &Store, selection: &Selection) -> Result<(), Error> {
        let key_of = async |name: String| -> Result<Option<Vec<u8>>, Error> {
            let head = store.head(&name).await?;
            let key = head.and_then(|head| attributes::key_of(&head.stored));
            let is_wanted = |key: &Vec<u8>| {
                name::is_escaped_as(key, &name, &store.prefix) && selection.range.holds(key)
            };
            Ok(key.filter(is_wanted))
        };
        let names = std::mem::take(&mut self.names);
        let looks = stream::iter(names).map(key_of).buffered(store.parallel);
        let found: Vec<Option<Vec<u8>>> = looks.try_collect().await?;
        self.keys.extend(found.into_iter().flatten());
        self.keys.sort();
        self.keys.truncate(selection.limit);
        Ok(())
    }

    async fn finish(
        &mut self,
        store: &Store,
        selection: &Selection,
    ) -> Result<Vec<Candidate>, Error> {
        self.look(store, selection).await?;
        self.start.clear();
        let keys = std::mem::take(&mut self.keys);
        let candidate = |key| Candidate { key, what: What::Object(None), kind: Kind::Escaped };
        Ok(keys.into_iter().map(candidate).collect())
    }
}

impl Store {
    /// Requests one page of names that begin with `start`.
    pub(super) async fn page(
        &self,
        start: &str,
        of: PageOf,
        limit: usize,
    ) -> Result<ListBucketResult, Trouble> {
        let limit = limit.to_string();
        // In the order of their names, as they are signed.
        let parameters = [
            ("continuation-token", of.token.as_deref()),
            ("delimiter", of.delimiter),
            ("list-type", Some("2")),
            ("max-keys", Some(&*limit)),
            ("prefix", Some(start).filter(|start| !start.is_empty())),
            ("start-after", of.after.as_deref()),
        ];
        let parameters: Vec<(&str, &str)> =
            parameters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        let page = self.client.page(&parameters).await.and_then(|page| parse_page(&page));
        page.map_err(|failure| self.trouble(&failure, "a listing", Access::Read))
    }
}

fn parse_page(page: &[u8]) -> Result<ListBucketResult, Failure> {
    let odd = |what: String| Failure::new(FailureKind::Malformed, what);
    if !is_listing(page) {
        let what = "the reply is XML, but not a listing: something else answers at its address";
        return Err(odd(what.to_owned()));
    }
    quick_xml::de::from_reader(page).map_err(|error| odd(format!("invalid listing: {error}")))
}

/// Whether XML is a listing's. Its fields may all be missing, so that any other document would pass for an empty one.
fn is_listing(page: &[u8]) -> bool {
    let mut reader = quick_xml::Reader::from_reader(page);
    loop {
        match reader.read_event() {
            Ok(Event::Start(root) | Event::Empty(root)) => {
                return root.local_name().as_ref() == b"ListBucketResult";
            }
            Ok(Event::Eof) | Err(_) => return false,
            Ok(_) => {}
        }
    }
}
