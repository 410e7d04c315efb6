//! Which name the object of a key has in this store: its plain one, if the store can have that and version 1.0.0, which escaped
//! all keys but paths, has not left an object under the escaped one.
//!
//! Keys that are paths, which nearly all are, cost nothing. What others need is learnt when the first of them is met.

use ::http::StatusCode;

use super::errors::Access;
use super::failure::Failure;
use super::list::{NAMES_MAX, PageOf};
use super::name::{self, ESCAPED, Form, Named, Naming, ObjectName};
use super::store::Store;
use crate::error::Error;

impl Store {
    /// The name of a key's object, if it does not depend on what the store can have and has.
    pub(super) fn fixed_name(&self, key: &[u8]) -> Option<ObjectName> {
        match name::plain(key, &self.prefix) {
            None => Some(name::escaped(key, &self.prefix).into()),
            Some(plain) => (plain.form == Form::Path).then(|| plain.into()),
        }
    }

    /// The name of a key's object.
    pub(super) async fn object_name(&self, key: &[u8]) -> Result<ObjectName, Error> {
        if let Some(name) = self.fixed_name(key) {
            return Ok(name);
        }
        let naming = self.naming().await?;
        let escaped = name::escaped(key, &self.prefix);
        let plain = name::plain(key, &self.prefix);
        let plain = plain.filter(|plain| plain.form != Form::Text || naming.takes_text);
        let Some(plain) = plain else { return Ok(escaped.into()) };
        if naming.has_escaped && self.stored(&escaped.name).await?.is_some() {
            return Ok(ObjectName { shadowed: Some(plain.name), ..escaped.into() });
        }
        Ok(plain.into())
    }

    /// Whether plain names of this form are those of keys.
    pub(super) async fn takes(&self, form: Form) -> Result<bool, Error> {
        Ok(form != Form::Text || self.naming().await?.takes_text)
    }

    async fn naming(&self) -> Result<Naming, Error> {
        self.naming.get_or_try_init(|| self.learn_naming()).await.copied()
    }

    async fn learn_naming(&self) -> Result<Naming, Error> {
        // Makes the marker, where there is none yet.
        self.look_lately().await?;
        Ok(Naming { takes_text: self.takes_text().await?, has_escaped: self.has_escaped().await? })
    }

    /// Asks for the bucket's marker by names that differ from its own by an empty part and by a part `.`: a store that finds it
    /// drops such parts, and one that refuses the request does not take them. Without a marker, which only a bucket lacks that
    /// is not written to from here, this would tell nothing.
    async fn takes_text(&self) -> Result<bool, Error> {
        for (between, expected) in [("", true), ("/", false), ("./", false)] {
            let name = self.marker_below(between);
            let found = match self.client.head(&name).await {
                Ok(_) => true,
                Err(Failure::Status { status: StatusCode::NOT_FOUND, .. }) => false,
                Err(failure) => {
                    let what = format!("a look at {name}");
                    let trouble = self.trouble(&failure, &what, Access::Read);
                    match trouble.status {
                        Some(400..=499) => return Ok(false),
                        _ => return Err(trouble.error),
                    }
                }
            };
            if found != expected {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the first page of escaped names has one of a key that can have a plain name, or is not the only page.
    async fn has_escaped(&self) -> Result<bool, Error> {
        let start = format!("{}{ESCAPED}", self.prefix);
        let page = self.page(&start, PageOf::default(), NAMES_MAX).await;
        let page = page.map_err(|trouble| trouble.error)?;
        let is_of_text = |name: &str| match name::key_of(name, &self.prefix) {
            Some(Named::Escaped(key)) => name::plain(&key, &self.prefix).is_some(),
            // Its start is not all of the key.
            Some(Named::Cut(_)) => true,
            _ => false,
        };
        Ok(page.has_next() || page.names().any(is_of_text))
    }
}
