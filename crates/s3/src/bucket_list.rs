//! Pages of the list of buckets.

use std::time::{Duration, SystemTime};

use s3s::dto::{Bucket, ListBucketsInput, ListBucketsOutput, Timestamp};
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};

use super::inner::Inner;
use super::keys::Level;
use super::listing::owner_of;
use super::messages::error;

/// The most buckets of a page, as at AWS.
const BUCKETS_MAX: i32 = 10_000;

/// What a request wants of the list.
struct BucketQuery<'a> {
    prefix: &'a str,
    /// The name after which the page begins: the token of the page before.
    after: Option<&'a str>,
    max: Option<usize>,
}

/// The names on a page, in order, and whether more follow.
fn page_of<'a>(
    names: impl Iterator<Item = &'a str>,
    wanted: &BucketQuery<'_>,
) -> (Vec<&'a str>, bool) {
    let is_wanted = |name: &&str| {
        name.starts_with(wanted.prefix) && wanted.after.is_none_or(|after| *name > after)
    };
    let mut names: Vec<&str> = names.filter(is_wanted).collect();
    names.sort_unstable();
    let more = wanted.max.is_some_and(|max| names.len() > max);
    names.truncate(wanted.max.unwrap_or(names.len()));
    (names, more)
}

impl Inner {
    /// The buckets that a key may read. Without parameters it is the whole list, as at AWS.
    pub(super) async fn bucket_list(
        &self,
        request: S3Request<ListBucketsInput>,
    ) -> S3Result<S3Response<ListBucketsOutput>> {
        let input = &request.input;
        if input.max_buckets.is_some_and(|max| !(1..=BUCKETS_MAX).contains(&max)) {
            let what =
                format!("Argument max-buckets must be an integer between 1 and {BUCKETS_MAX}.");
            return Err(error(S3ErrorCode::InvalidArgument, what));
        }
        let shown = request.credentials.as_ref().and_then(|shown| self.keys.get(&shown.access_key));
        let may = |name: &str| shown.as_ref().is_some_and(|key| key.allows(name, Level::Read));
        let is_here = input.bucket_region.as_ref().is_none_or(|region| *region == self.region);
        let names = self.buckets.iter().map(|bucket| bucket.name.as_str());
        let wanted = BucketQuery {
            prefix: input.prefix.as_deref().unwrap_or(""),
            after: input.continuation_token.as_deref(),
            max: input.max_buckets.and_then(|max| usize::try_from(max).ok()),
        };
        let (names, more) = page_of(names.filter(|name| is_here && may(name)), &wanted);
        // The buckets are prefixes of one origin, and as old as that. Clients need a date even where nobody knows.
        let created = self.store.origin().created_unix_us().await.unwrap_or(0);
        let created = SystemTime::UNIX_EPOCH + Duration::from_micros(created);
        let bucket = |name: &&str| Bucket {
            name: Some((*name).to_owned()),
            creation_date: Some(Timestamp::from(created)),
            bucket_region: Some(self.region.clone()),
        };
        Ok(S3Response::new(ListBucketsOutput {
            buckets: Some(names.iter().map(bucket).collect()),
            continuation_token: names.last().filter(|_| more).map(|name| (*name).to_owned()),
            owner: owner_of(request.credentials.as_ref()),
            prefix: input.prefix.clone(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pages_join_to_the_sorted_list(
            names in prop::collection::btree_set("[ab]{1,4}", 0..12),
            prefix in "[ab]{0,2}",
            max in 1_usize..5,
        ) {
            let (mut all, mut after) = (Vec::new(), None);
            loop {
                let wanted = BucketQuery { prefix: &prefix, after: after.as_deref(), max: Some(max) };
                // In any order, as in the configuration.
                let (page, more) = page_of(names.iter().rev().map(String::as_str), &wanted);
                prop_assert!(page.len() <= max && (!more || page.len() == max));
                all.extend(page.iter().map(|name| (*name).to_owned()));
                if !more {
                    break;
                }
                after = all.last().cloned();
            }
            let expected: Vec<_> = names.iter().filter(|name| name.starts_with(&prefix)).cloned().collect();
            prop_assert_eq!(&all, &expected);
            let whole = BucketQuery { prefix: &prefix, after: None, max: None };
            let (page, more) = page_of(names.iter().map(String::as_str), &whole);
            prop_assert_eq!((page, more), (expected.iter().map(String::as_str).collect(), false));
        }
    }
}
