//! Listings in the order of keys: two sorted lists of names, of plain keys and of the others, merged.
//!
//! A store lists names in the order of their bytes, and within each kind that is the order of the keys
//! (`name`); so a page costs about the requests of its own length, wherever it begins. The store's listing
//! does not have our metadata: each object of a page costs a HEAD. Keys of more than 120 bytes that
//! are not plain have only those in their names; all that share them are looked at together.

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

/// Names of a page of the store.
const PAGE_NAMES: usize = 1000;

/// What we read of a page.
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

/// Names of one kind, page after page.
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
                         bytes ({:?} after {:?}), so that pages would miss some",
                        self.store.place, name, self.last
                    )));
                }
                self.last.clone_from(&name);
                return Ok(Some(name));
            }
            if self.ended {
                return Ok(None);
            }
            // Once a token is there, it says where to go on.
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

/// The keys that are asked for.
struct Asked<'a> {
    prefix: &'a [u8],
    after: Option<&'a [u8]>,
    limit: usize,
}

impl Asked<'_> {
    fn fits(&self, key: &[u8]) -> bool {
        key.starts_with(self.prefix) && self.after.is_none_or(|after| key > after)
    }
}

/// The longest start of these bytes that the store can be asked about as text.
fn text_of(bytes: &[u8]) -> &str {
    let chunk = bytes.utf8_chunks().next();
    let text = chunk.map_or("", |chunk| chunk.valid());
    // A key has at most 1024 bytes; `after` may be longer.
    let end = text.char_indices().find(|(at, c)| c.is_control() || *at > 900);
    end.map_or(text, |(at, _)| &text[..at])
}

impl Store {
    /// The first objects in the order of their keys. What vanished is passed over, and the page filled
    /// with what follows: a page that is not full is the last.
    pub(super) async fn list(
        &self,
        prefix: &[u8],
        mut after: Option<Vec<u8>>,
        limit: usize,
    ) -> Result<Vec<Listed>, Error> {
        let mut listed = Vec::new();
        loop {
            let wanted = limit - listed.len();
            let asked = Asked { prefix, after: after.as_deref(), limit: wanted };
            let mut keys = self.plain_keys(&asked).await?;
            keys.extend(self.escaped_keys(&asked).await?);
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
        // A place before the first name is no help to the store, and some take it amiss.
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

    async fn plain_keys(&self, asked: &Asked<'_>) -> Result<Vec<Vec<u8>>, Error> {
        let begin = |bytes: &[u8]| format!("{}{}", self.prefix, text_of(bytes));
        let start = begin(asked.prefix);
        let escaped = format!("{}{ESCAPED}", self.prefix);
        let mut names = self.names(start.clone(), asked.after.map(begin), asked.limit);
        let mut keys = Vec::new();
        while keys.len() < asked.limit {
            let Some(name) = names.next().await? else { break };
            if name.starts_with(&escaped) {
                // Behind the last of the others: `~` is greater than any digit.
                names = self.names(start.clone(), Some(format!("{escaped}~")), asked.limit);
                continue;
            }
            if let Some(Named::Whole(key)) = key_of(&name, &self.prefix)
                && asked.fits(&key)
            {
                keys.push(key);
            }
        }
        Ok(keys)
    }

    async fn escaped_keys(&self, asked: &Asked<'_>) -> Result<Vec<Vec<u8>>, Error> {
        let begin = |bytes: &[u8]| format!("{}{ESCAPED}{}", self.prefix, shared_digits(bytes));
        let mut names = self.names(begin(asked.prefix), asked.after.map(begin), asked.limit);
        let mut keys = Vec::new();
        let mut group = Group::default();
        while let Some(name) = names.next().await? {
            let named = key_of(&name, &self.prefix);
            let same = matches!(&named, Some(Named::Cut(start)) if *start == group.start);
            if !same {
                keys.append(&mut group.finish(self, asked).await?);
                if keys.len() >= asked.limit {
                    return Ok(keys);
                }
            }
            match named {
                Some(Named::Whole(key)) if asked.fits(&key) => keys.push(key),
                Some(Named::Cut(start)) => {
                    group.start = start;
                    group.names.push(name);
                    if group.names.len() == PAGE_NAMES {
                        group.look(self, asked).await?;
                    }
                }
                _ => {}
            }
        }
        keys.append(&mut group.finish(self, asked).await?);
        Ok(keys)
    }
}

/// Keys that begin with the same bytes, of which the names have no more: their order is known when all
/// were looked at.
#[derive(Default)]
struct Group {
    start: Vec<u8>,
    names: Vec<String>,
    keys: Vec<Vec<u8>>,
}

impl Group {
    /// Looks at the names that wait, and keeps the smallest keys.
    async fn look(&mut self, store: &Store, asked: &Asked<'_>) -> Result<(), Error> {
        let key_of = async |name: String| -> Result<Option<Vec<u8>>, Error> {
            let Ok(path) = Path::parse(&name) else { return Ok(None) };
            let head = store.head(&path).await?;
            let key = head.and_then(|head| attributes::key_of(&head.attributes));
            Ok(key.filter(|key| name_of(key, &store.prefix).0 == name && asked.fits(key)))
        };
        let names = std::mem::take(&mut self.names);
        let looks = stream::iter(names).map(key_of).buffered(store.parallel);
        let found: Vec<Option<Vec<u8>>> = looks.try_collect().await?;
        self.keys.extend(found.into_iter().flatten());
        self.keys.sort();
        self.keys.truncate(asked.limit);
        Ok(())
    }

    async fn finish(&mut self, store: &Store, asked: &Asked<'_>) -> Result<Vec<Vec<u8>>, Error> {
        self.look(store, asked).await?;
        self.start.clear();
        Ok(std::mem::take(&mut self.keys))
    }
}

impl Store {
    /// One page of names that begin with `start`.
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
            let page = page.ok_or_else(|| odd("it sent no page".into()))?;
            quick_xml::de::from_reader(&page[..])
                .map_err(|error| odd(format!("what it sent is no listing: {error}").into()))
        };
        page.await.map_err(|error| self.trouble(&error, "a listing", Access::Read))
    }
}

fn odd(source: Box<dyn std::error::Error + Send + Sync>) -> object_store::Error {
    object_store::Error::Generic { store: "S3", source }
}
