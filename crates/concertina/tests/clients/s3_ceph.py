"""A plug-in for pytest that runs Ceph's suite of tests (github.com/ceph/s3-tests), which is not ours and of which nothing is
here, against an S3 front: `pytest -p s3_ceph`.

It leaves out what the front does not claim to do, with a reason for each test, and empties a bucket by what is in it: the
suite does so by its versions, which not every store lists.
"""
import re

# What a test needs that is not run, as marks of the suite and as parts of names.
MARKS = {
    "access for others (policies)": "bucket_policy object_ownership",
    "encryption on request": "encryption sse_s3 bucket_encryption",
    "logs of buckets": "bucket_logging",
    "rules that remove or move objects": "lifecycle lifecycle_expiration lifecycle_transition cloud_transition cloud_restore",
    "signatures of version 2": "auth_aws2",
    "versions of objects": "delete_marker",
}
NAMES = {
    "versions of objects": r"version|_current_|acl_mtime",
    "locks": r"object_lock",
    "uploads by forms": r"post_object",
    "access for others (ACLs, policies, anonymous clients, several owners)": r"acl(?!_default|_canned_private_to_private|_create_contentlength)"
    r"|anon|access_bucket_|public_block|block_public|policy|object_raw_get|object_raw_authenticated|raw_response_headers"
    r"|object_delete_key_bucket_gone|expected_bucket_owner|not_owned|nonowner|multipart_upload_owner|test_100_continue$",
    "rules for scripts in browsers (CORS)": r"cors",
    "torrents": r"torrent",
    "Ceph's own extensions": r"usage|unordered|head_extended",
    "buckets that come and go": r"bucket_create_naming|buckets_create|list_long_name|bucket_create_exists|bucket_recreate"
    r"|bucket(v2)?_(head_|delete_)?notexist|bucket_gone|get_location|list_ctime|buckets_paginated|bucket_create_delete"
    r"|delete_nonempty|set_bucket_tagging",
}


def left_out(name, marks):
    """Why a test is not run; None if it is."""
    for reason, words in MARKS.items():
        if marks & set(words.split()):
            return reason
    return next((reason for reason, part in NAMES.items() if re.search(part, name)), None)


def pytest_collection_modifyitems(config, items):
    reasons = {item: left_out(item.originalname, {mark.name for mark in item.iter_markers()}) for item in items}
    config.hook.pytest_deselected(items=[item for item in items if reasons[item]])
    items[:] = [item for item in items if not reasons[item]]


def pytest_configure(config):
    import s3tests.functional

    s3tests.functional.nuke_bucket = empty_and_delete


def empty_and_delete(client, bucket):
    for page in client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket):
        for upload in page.get("Uploads", []):
            client.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
    while found := client.list_objects_v2(Bucket=bucket).get("Contents"):
        keys = [{"Key": one["Key"]} for one in found]
        client.delete_objects(Bucket=bucket, Delete={"Objects": keys, "Quiet": True})
    client.delete_bucket(Bucket=bucket)
