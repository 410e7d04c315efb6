//! Listings in key order: merges two sorted lists of names, those of plain keys and those of
//! escaped keys.
//!
//! A store lists names in byte order, which within each kind is the order of the keys (`name`). A
//! page therefore costs a number of requests proportional to its length, wherever it begins. The
//! store's listing lacks our metadata, so each object of a page costs a HEAD. The name of an
//! escaped key over 120 bytes holds only its first 120; all keys that share them are read and
//! sorted together.

use engine::Key;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use serde::Deserialize;

use super::super::{Error, Listed};
use super::errors::{Access, Trouble};
use super::http::Page;
use super::name::{ESCAPED, Named, key_of, name_of, shared_digits};
use super::{Store, attributes};

/// The most names in a page of the store's listing.
const PAGE_NAMES: usize = 1000;

/// The fields of a page that are used.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct ListBucketResult {
    contents: Vec<Contents>,
    next_continuation_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Contents {
    key: String,
}

/// Iterates over the names of one kind, page by page.
struct Names<'a> {
    store: &'a Store,
    start: String,
    after: Option<String>,
    limit: usize,
    page: std::vec::IntoIter<String>,
    token: Option<String>,
    ended: bool,
    last: String,
}

impl Names<'_> {
    async fn next(&mut self) -> Result<Option<String>, Error> {
        loop {
            if let Some(name) = self.page.next() {
                if name <= self.last {
                    return Err(Error::Failed(format!(
                        "a listing at {}: the store does not list names in the order of their \
                         bytes ({:?} after {:?}), so pages would miss some",
                        self.store.place, name, self.last
                    )));
                }
                self.last.clone_from(&name);
                return Ok(Some(name));
            }
            if self.ended {
                return Ok(None);
            }
            // A token replaces the start position.
            let after = if self.token.is_some() { None } else { self.after.clone() };
            let page = self.store.page(&self.start, after, self.token.take(), self.limit).await;
            let page = page.map_err(|trouble| trouble.error)?;
            self.token = page.next_continuation_token.filter(|token| !token.is_empty());
            self.ended = self.token.is_none();
            let names: Vec<String> = page.contents.into_iter().map(|one| one.key).collect();
            self.page = names.into_iter();
        }
    }
}

/// The selection of keys of a listing.
struct Selection<'a> {
    prefix: &'a [u8],
    after: Option<&'a [u8]>,
    limit: usize,
}

impl Selection<'_> {
    fn fits(&self, key: &[u8]) -> bool {
        key.starts_with(self.prefix) && self.after.is_none_or(|after| key > after)
    }
}

/// Returns the longest prefix of `bytes` that is valid as a text parameter of a listing.
fn text_of(bytes: &[u8]) -> &str {
    let chunk = bytes.utf8_chunks().next();
    let text = chunk.map_or("", |chunk| chunk.valid());
    // A key has at most 1024 bytes; `after` may be longer.
    let end = text.char_indices().find(|(at, c)| c.is_control() || *at > 900);
    end.map_or(text, |(at, _)| &text[..at])
}

impl Store {
    /// Returns the first objects in key order. Skips objects that were removed meanwhile and fills
    /// the page with later ones, so that only the last page is shorter than `limit`.
    pub(super) async fn list(
        &self,
        prefix: &[u8],
        mut after: Option<Vec<u8>>,
        limit: usize,
    ) -> Result<Vec<Listed>, Error> {
        let mut listed = Vec::new();
        loop {
            let wanted = limit - listed.len();
            let selection = Selection { prefix, after: after.as_deref(), limit: wanted };
            let mut keys = self.plain_keys(&selection).await?;
            keys.extend(self.escaped_keys(&selection).await?);
            keys.sort();
            keys.truncate(wanted);
            let last = keys.len() < wanted;
            after = keys.last().cloned().or(after);
            let looks = stream::iter(keys).map(|key| self.listed(key)).buffered(self.parallel);
            let found: Vec<Option<Listed>> = looks.try_collect().await?;
            listed.extend(found.into_iter().flatten());
            if last || listed.len() == limit {
                return Ok(listed);
            }
        }
    }

    async fn listed(&self, key: Vec<u8>) -> Result<Option<Listed>, Error> {
        let (path, _) = self.path(&key)?;
        let head = self.head(&path).await?;
        Ok(head.map(|head| Listed { key: Key::from(key), metadata: head.metadata }))
    }

    fn names(&self, start: String, after: Option<String>, limit: usize) -> Names<'_> {
        // A start position before the first name is useless, and some stores reject it.
        let after = after.filter(|after| *after > start);
        let limit = limit.clamp(1, PAGE_NAMES);
        Names {
            store: self,
            start,
            after,
            limit,
            page: Vec::new().into_iter(),
            token: None,
            ended: false,
            last: String::new(),
        }
    }

    async fn plain_keys(&self, selection: &Selection<'_>) -> Result<Vec<Vec<u8>>, Error> {
        let begin = |bytes: &[u8]| format!("{}{}", self.prefix, text_of(bytes));
        let start = begin(selection.prefix);
        let escaped = format!("{}{ESCAPED}", self.prefix);
        let mut names = self.names(start.clone(), selection.after.map(begin), selection.limit);
        let mut keys = Vec::new();
        while keys.len() < selection.limit {
            let Some(name) = names.next().await? else { break };
            if name.starts_with(&escaped) {
                // Skip all escaped names: `~` is greater than any digit.
                names = self.names(start.clone(), Some(format!("{escaped}~")), selection.limit);
                continue;
            }
            if let Some(Named::Whole(key)) = key_of(&name, &self.prefix)
                && selection.fits(&key)
            {
                keys.push(key);
            }
        }
        Ok(keys)
    }

    async fn escaped_keys(&self, selection: &Selection<'_>) -> Result<Vec<Vec<u8>>, Error> {
        let begin = |bytes: &[u8]| format!("{}{ESCAPED}{}", self.prefix, shared_digits(bytes));
        let mut names =
            self.names(begin(selection.prefix), selection.after.map(begin), selection.limit);
        let mut keys = Vec::new();
        let mut group = Group::default();
        while let Some(name) = names.next().await? {
            let named = key_of(&name, &self.prefix);
            let same = matches!(&named, Some(Named::Cut(start)) if *start == group.start);
            if !same {
                keys.append(&mut group.finish(self, selection).await?);
                if keys.len() >= selection.limit {
                    return Ok(keys);
                }
            }
            match named {
                Some(Named::Whole(key)) if selection.fits(&key) => keys.push(key),
                Some(Named::Cut(start)) => {
                    group.start = start;
                    group.names.push(name);
                    if group.names.len() == PAGE_NAMES {
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
/// keys have been read. Holds at most [`PAGE_NAMES`] names and `limit` keys.
#[derive(Default)]
struct Group {
    start: Vec<u8>,
    names: Vec<String>,
    keys: Vec<Vec<u8>>,
}

impl Group {
    /// Reads the whole keys of the collected names and keeps the smallest `limit`.
    async fn look(&mut self, store: &Store, selection: &Selection<'_>) -> Result<(), Error> {
        let key_of = async |name: String| -> Result<Option<Vec<u8>>, Error> {
            let Ok(path) = Path::parse(&name) else { return Ok(None) };
            let head = store.head(&path).await?;
            let key = head.and_then(|head| attributes::key_of(&head.attributes));
            Ok(key.filter(|key| name_of(key, &store.prefix).0 == name && selection.fits(key)))
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
        selection: &Selection<'_>,
    ) -> Result<Vec<Vec<u8>>, Error> {
        self.look(store, selection).await?;
        self.start.clear();
        Ok(std::mem::take(&mut self.keys))
    }
}

impl Store {
    /// Requests one page of names that begin with `start`.
    pub(super) async fn page(
        &self,
        start: &str,
        after: Option<String>,
        token: Option<String>,
        limit: usize,
    ) -> Result<ListBucketResult, Trouble> {
        let options = PaginatedListOptions {
            offset: after,
            max_keys: Some(limit),
            page_token: token,
            ..PaginatedListOptions::default()
        };
        let start = Some(start).filter(|start| !start.is_empty());
        let page = async {
            let listed = self.client.list_paginated(start, options).await?;
            let page = listed.result.extensions.get::<Page>().map(|page| page.0.clone());
            let page = page.ok_or_else(|| odd("the reply has no page".into()))?;
            quick_xml::de::from_reader(&page[..])
                .map_err(|error| odd(format!("invalid listing: {error}").into()))
        };
        page.await.map_err(|error| self.trouble(&error, "a listing", Access::Read))
    }
}

fn odd(source: Box<dyn std::error::Error + Send + Sync>) -> object_store::Error {
    object_store::Error::Generic { store: "S3", source }
}
