//! Access control lists, as far as they say what is so: each bucket and each object is its owner's alone, and the owner is the
//! access key that asks. Scopes ([`keys`](super::keys)) say who else may do what.
//!
//! Clients read lists beside what they came for (`s3cmd info`, browsers of buckets) or set `private` on what they have written: both are
//! answered. Whatever would let somebody else in is refused.

use s3s::auth::Credentials;
use s3s::dto::{
    AccessControlPolicy, GetBucketAclInput, GetBucketAclOutput, GetObjectAclInput,
    GetObjectAclOutput, Grant, Grantee, Owner, Permission, PutBucketAclInput, PutBucketAclOutput,
    PutObjectAclInput, PutObjectAclOutput, Type,
};
use s3s::{S3Request, S3Response, S3Result};

use super::asked::{NOT_PRIVATE, has_grants};
use super::errors::unsupported;
use super::inner::Inner;
use super::listing::owner_of;
use super::objects::{lane_of, only_version};

/// The canned list that there is.
const PRIVATE: &str = "private";

/// The grants of what is private.
fn grants_of(owner: Option<&Owner>) -> Vec<Grant> {
    let grant = |owner: &Owner| Grant {
        grantee: Some(Grantee {
            display_name: owner.display_name.clone(),
            email_address: None,
            id: owner.id.clone(),
            type_: Type::from_static(Type::CANONICAL_USER),
            uri: None,
        }),
        permission: Some(Permission::from_static(Permission::FULL_CONTROL)),
    };
    owner.map(grant).into_iter().collect()
}

/// Whether a list has the owner's grant and no other.
fn is_private(policy: &AccessControlPolicy, shown: Option<&Credentials>) -> bool {
    let id = shown.map(|shown| shown.access_key.as_str());
    let full = |grant: &Grant| {
        let permission = grant.permission.as_ref().map(Permission::as_str);
        permission == Some(Permission::FULL_CONTROL)
            && grant.grantee.as_ref().is_some_and(|grantee| grantee.id.as_deref() == id)
    };
    let owner = policy.owner.as_ref().and_then(|owner| owner.id.as_deref());
    let grants = policy.grants.as_deref().unwrap_or_default();
    (owner.is_none() || owner == id) && matches!(grants, [one] if full(one))
}

/// Refuses every list but the one that there is.
fn check<T>(
    request: &S3Request<T>,
    canned: Option<&str>,
    policy: Option<&AccessControlPolicy>,
) -> S3Result<()> {
    let shown = request.credentials.as_ref();
    let others = canned.is_some_and(|canned| canned != PRIVATE)
        || has_grants(&request.headers)
        || policy.is_some_and(|policy| !is_private(policy, shown));
    unsupported(others, NOT_PRIVATE)
}

impl Inner {
    pub(super) fn bucket_acl(
        &self,
        request: &S3Request<GetBucketAclInput>,
    ) -> S3Result<S3Response<GetBucketAclOutput>> {
        self.bucket(&request.input.bucket)?;
        let owner = owner_of(request.credentials.as_ref());
        let grants = Some(grants_of(owner.as_ref()));
        Ok(S3Response::new(GetBucketAclOutput { grants, owner }))
    }

    pub(super) fn keep_bucket_acl(
        &self,
        request: &S3Request<PutBucketAclInput>,
    ) -> S3Result<S3Response<PutBucketAclOutput>> {
        let input = &request.input;
        self.bucket(&input.bucket)?;
        let canned = input.acl.as_ref().map(|acl| acl.as_str());
        check(request, canned, input.access_control_policy.as_ref())?;
        Ok(S3Response::new(PutBucketAclOutput::default()))
    }

    pub(super) async fn object_acl(
        &self,
        request: S3Request<GetObjectAclInput>,
    ) -> S3Result<S3Response<GetObjectAclOutput>> {
        let input = &request.input;
        only_version(input.version_id.as_deref())?;
        let key = self.key(&input.bucket, &input.key)?;
        self.look(&lane_of(&request.extensions)?, &key).await?;
        let owner = owner_of(request.credentials.as_ref());
        let grants = Some(grants_of(owner.as_ref()));
        Ok(S3Response::new(GetObjectAclOutput { grants, owner, request_charged: None }))
    }

    pub(super) async fn keep_object_acl(
        &self,
        request: S3Request<PutObjectAclInput>,
    ) -> S3Result<S3Response<PutObjectAclOutput>> {
        let input = &request.input;
        only_version(input.version_id.as_deref())?;
        let canned = input.acl.as_ref().map(|acl| acl.as_str());
        check(&request, canned, input.access_control_policy.as_ref())?;
        let key = self.key(&input.bucket, &input.key)?;
        self.look(&lane_of(&request.extensions)?, &key).await?;
        Ok(S3Response::new(PutObjectAclOutput::default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owners_grant_is_private() {
        let shown = Credentials { access_key: "me".to_owned(), secret_key: "x".into() };
        let owner = owner_of(Some(&shown));
        let mine = grants_of(owner.as_ref());
        let other = Owner { display_name: None, id: Some("you".to_owned()) };
        let reads = Grant {
            permission: Some(Permission::from_static(Permission::READ)),
            ..mine[0].clone()
        };
        let anybody = Grant {
            grantee: Some(Grantee {
                display_name: None,
                email_address: None,
                id: None,
                type_: Type::from_static(Type::GROUP),
                uri: Some("http://acs.amazonaws.com/groups/global/AllUsers".to_owned()),
            }),
            ..mine[0].clone()
        };
        for (owner, grants, expected) in [
            (owner.clone(), mine.clone(), true),
            (None, mine.clone(), true),
            (Some(other.clone()), mine.clone(), false),
            (owner.clone(), grants_of(Some(&other)), false),
            (owner.clone(), vec![reads], false),
            (owner.clone(), vec![anybody.clone()], false),
            (owner.clone(), vec![mine[0].clone(), anybody], false),
            (owner.clone(), Vec::new(), false),
        ] {
            let policy = AccessControlPolicy { grants: Some(grants), owner };
            assert_eq!(is_private(&policy, Some(&shown)), expected, "{policy:?}");
        }
    }
}
