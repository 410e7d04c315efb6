"""Keys that are no paths of files, with boto3, unchanged: `s3_names.py ENDPOINT KIND`, keys in the environment.

KIND is `texts` for an origin that has any text as a key with any bytes, and `files` for a store that has markers of folders only
without bytes. The bucket must be empty.
"""

import sys

import boto3
from botocore.client import Config
from botocore.exceptions import ClientError

ENDPOINT, KIND = sys.argv[1:]
BUCKET = "objects"
KEYS = ["photos/", "photos/1.jpg", "a//b", "a/b", "/a", "//", "./x", "x", "d/./e", "f//", "l" * 300, "up/../x"]

s3 = boto3.client(
    "s3", endpoint_url=ENDPOINT, region_name="eu-west-1",
    config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
)


def body_of(key):
    return b"" if key == "photos/" else key.encode()


def listed(**more):
    page = s3.list_objects_v2(Bucket=BUCKET, **more)
    keys = [one["Key"] for one in page.get("Contents", [])]
    return keys, [one["Prefix"] for one in page.get("CommonPrefixes", [])]


for key in KEYS:
    put = s3.put_object(Bucket=BUCKET, Key=key, Body=body_of(key), Metadata={"of": "me"})
    for _ in range(2):
        got = s3.get_object(Bucket=BUCKET, Key=key)
        assert got["Body"].read() == body_of(key) and got["ETag"] == put["ETag"], key
    head = s3.head_object(Bucket=BUCKET, Key=key)
    assert head["ContentLength"] == len(body_of(key)) and head["Metadata"] == {"of": "me"}, key
assert listed() == (sorted(KEYS), []), listed()
keys, prefixes = listed(Delimiter="/")
assert prefixes == ["./", "/", "a/", "d/", "f/", "photos/", "up/"] and keys == ["l" * 300, "x"], (keys, prefixes)
assert listed(Delimiter="/", Prefix="photos/") == (["photos/", "photos/1.jpg"], [])
assert listed(Delimiter="/", Prefix="a/") == (["a/b"], ["a//"])
assert listed(Delimiter="/", Prefix="/") == (["/a"], ["//"])
assert listed(StartAfter="photos/", Prefix="photos/") == (["photos/1.jpg"], [])
pages = boto3.client(
    "s3", endpoint_url=ENDPOINT, config=Config(s3={"addressing_style": "path"})
).get_paginator("list_objects_v2").paginate(Bucket=BUCKET, PaginationConfig={"PageSize": 2})
assert [one["Key"] for page in pages for one in page["Contents"]] == sorted(KEYS)

s3.copy_object(Bucket=BUCKET, Key="copy//of", CopySource={"Bucket": BUCKET, "Key": "a//b"})
assert s3.get_object(Bucket=BUCKET, Key="copy//of")["Body"].read() == b"a//b"
s3.put_object_tagging(Bucket=BUCKET, Key="photos/", Tagging={"TagSet": [{"Key": "k", "Value": "v"}]})
assert s3.get_object(Bucket=BUCKET, Key="photos/")["TagCount"] == 1
upload = s3.create_multipart_upload(Bucket=BUCKET, Key="in//parts")["UploadId"]
part = s3.upload_part(Bucket=BUCKET, Key="in//parts", UploadId=upload, PartNumber=1, Body=b"part")
s3.complete_multipart_upload(
    Bucket=BUCKET, Key="in//parts", UploadId=upload,
    MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]},
)
assert s3.get_object(Bucket=BUCKET, Key="in//parts")["Body"].read() == b"part"

try:
    s3.put_object(Bucket=BUCKET, Key="full/", Body=b"bytes")
    assert KIND == "texts"
    assert s3.get_object(Bucket=BUCKET, Key="full/")["Body"].read() == b"bytes"
except ClientError as error:
    assert KIND == "files", error
    assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 400, error.response

every = [{"Key": key} for key in listed()[0]]
deleted = s3.delete_objects(Bucket=BUCKET, Delete={"Objects": every})
assert len(deleted["Deleted"]) == len(every) and "Errors" not in deleted, deleted
assert listed() == ([], []), listed()

# The marker of the folder that is the bucket `photos` here has no key there.
s3.put_object(Bucket=BUCKET, Key="pictures/", Body=b"")
s3.put_object(Bucket=BUCKET, Key="pictures/sub/", Body=b"")
assert listed()[0] == ["pictures/", "pictures/sub/"]
page = s3.list_objects_v2(Bucket="photos")
assert [one["Key"] for one in page["Contents"]] == ["sub/"] and page["KeyCount"] == 1, page
page = s3.list_object_versions(Bucket="photos", MaxKeys=1)
assert [one["Key"] for one in page["Versions"]] == ["sub/"] and not page["IsTruncated"], page
s3.delete_object(Bucket=BUCKET, Key="pictures/sub/")
assert "Contents" not in s3.list_objects_v2(Bucket="photos", MaxKeys=1)
s3.delete_object(Bucket=BUCKET, Key="pictures/")
print("ok")
