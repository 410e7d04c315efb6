"""Conformance of an S3 front with boto3, unchanged: `s3.py ENDPOINT`, keys in the environment.

Each check prints one line; the first that fails ends the program with a traceback.
"""

import base64
import datetime
import email.utils
import hashlib
import os
import sys
import time
import urllib.error
import urllib.request
import zlib

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.client import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

ENDPOINT = sys.argv[1]
BUCKET = "objects"
MIB = 1 << 20


def client(**more):
    options = {"s3": {"addressing_style": "path"}, "retries": {"max_attempts": 1}} | more
    return boto3.client(
        "s3", endpoint_url=ENDPOINT, region_name="eu-west-1", config=Config(**options)
    )


s3 = client()


def refused(code, call, **arguments):
    try:
        call(**arguments)
    except ClientError as error:
        found = error.response["Error"]["Code"]
        status = str(error.response["ResponseMetadata"]["HTTPStatusCode"])
        assert code in (found, status), f"{found} ({status}), not {code}: {error}"
        return error.response
    raise AssertionError(f"{call} {arguments} is not refused with {code}")


def read(key, **more):
    return s3.get_object(Bucket=BUCKET, Key=key, **more)["Body"].read()


def put_get_head():
    names = ["plain", "a b/ü+&=?#%25;:@,.txt", "deep/er/../..x/" + "n" * 200, "trailing/"]
    for name in names:
        # Some stores have the marker of a folder only without bytes.
        body = b"" if name.endswith("/") else name.encode() * 3
        put = s3.put_object(
            Bucket=BUCKET, Key=name, Body=body, ContentType="text/plain", CacheControl="max-age=5",
            ContentDisposition="inline", ContentLanguage="fr", ContentEncoding="gzip",
            Metadata={"colour": "red", "empty-not": "x y"},
        )
        assert '"' in put["ETag"] and len(put["ETag"].strip('"')) != 32, put["ETag"]
        for _ in range(3):
            got = s3.get_object(Bucket=BUCKET, Key=name)
            assert got["Body"].read() == body
        for found in (got, s3.head_object(Bucket=BUCKET, Key=name)):
            assert found["ETag"] == put["ETag"], (found["ETag"], put["ETag"])
            assert found["ContentLength"] == len(body)
            assert found["ContentType"] == "text/plain"
            assert found["CacheControl"] == "max-age=5", found
            assert found["ContentDisposition"] == "inline" and found["ContentLanguage"] == "fr"
            assert found["ContentEncoding"] == "gzip"
            assert found["Metadata"] == {"colour": "red", "empty-not": "x y"}, found["Metadata"]
    for kept, given in [("gzip", "gzip, aws-chunked"), ("deflate, gzip", "deflate, gzip")]:
        s3.put_object(Bucket=BUCKET, Key="encoded", Body=b"x", ContentEncoding=given)
        assert s3.head_object(Bucket=BUCKET, Key="encoded")["ContentEncoding"] == kept
    s3.put_object(Bucket=BUCKET, Key="empty", Body=b"")
    assert read("empty") == b""
    refused("NoSuchKey", s3.get_object, Bucket=BUCKET, Key="none")
    refused("404", s3.head_object, Bucket=BUCKET, Key="none")
    refused("NoSuchBucket", s3.get_object, Bucket="elsewhere", Key="none")
    got = s3.get_object(Bucket=BUCKET, Key="plain", ResponseContentType="x/y", ResponseCacheControl="no-cache")
    assert got["ContentType"] == "x/y" and got["CacheControl"] == "no-cache", got


def ranges():
    body = bytes(range(256)) * 1000
    s3.put_object(Bucket=BUCKET, Key="ranged", Body=body)
    for text, part in [
        ("bytes=0-0", body[:1]),
        ("bytes=100-199", body[100:200]),
        ("bytes=255990-", body[255990:]),
        ("bytes=-7", body[-7:]),
        ("bytes=255999-9999999", body[-1:]),
    ]:
        got = s3.get_object(Bucket=BUCKET, Key="ranged", Range=text)
        assert got["Body"].read() == part, text
        assert got["ResponseMetadata"]["HTTPStatusCode"] == 206
        assert got["ContentRange"].endswith("/256000"), got["ContentRange"]
    refused("InvalidRange", s3.get_object, Bucket=BUCKET, Key="ranged", Range="bytes=256000-")
    for text in ["bytes= -1", "bytes=5-4", "bytes=a", "lines=1-2", "bytes=0-0,2-2"]:
        got = s3.get_object(Bucket=BUCKET, Key="ranged", Range=text)
        assert got["ResponseMetadata"]["HTTPStatusCode"] == 200 and got["Body"].read() == body, text


def conditions():
    etag = s3.put_object(Bucket=BUCKET, Key="if", Body=b"one")["ETag"]
    assert read("if", IfMatch=etag) == b"one"
    refused("PreconditionFailed", s3.get_object, Bucket=BUCKET, Key="if", IfMatch='"other"')
    refused("304", s3.get_object, Bucket=BUCKET, Key="if", IfNoneMatch=etag)
    refused("304", s3.head_object, Bucket=BUCKET, Key="if", IfNoneMatch=etag)
    when = s3.head_object(Bucket=BUCKET, Key="if")["LastModified"]
    refused("304", s3.get_object, Bucket=BUCKET, Key="if", IfModifiedSince=when)
    assert read("if", IfUnmodifiedSince=when) == b"one"
    put = s3.put_object
    refused("PreconditionFailed", put, Bucket=BUCKET, Key="if", Body=b"two", IfNoneMatch="*")
    refused("PreconditionFailed", put, Bucket=BUCKET, Key="if", Body=b"two", IfMatch='"x"')
    refused("NotImplemented", put, Bucket=BUCKET, Key="if", Body=b"two", IfNoneMatch=etag)
    refused("NotImplemented", put, Bucket=BUCKET, Key="if", Body=b"two", IfMatch=etag, IfNoneMatch="*")
    refused("NoSuchKey", put, Bucket=BUCKET, Key="if-none", Body=b"two", IfMatch=etag)
    put(Bucket=BUCKET, Key="if", Body=b"two", IfMatch=etag)
    assert read("if") == b"two"
    put(Bucket=BUCKET, Key="if-new", Body=b"three", IfNoneMatch="*")
    assert read("if-new") == b"three"


def crc_of(body, width, polynomial):
    """A reflected CRC of so many bytes, bit by bit."""
    ones = (1 << 8 * width) - 1
    crc = ones
    for byte in body:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (polynomial if crc & 1 else 0)
    return base64.b64encode((crc ^ ones).to_bytes(width, "big")).decode()


def checksums():
    body = b"sum" * 1000
    crc = base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()
    sha = base64.b64encode(hashlib.sha256(body).digest()).decode()
    put = s3.put_object(Bucket=BUCKET, Key="sum", Body=body, ChecksumSHA256=sha)
    assert put["ChecksumSHA256"] == sha
    # There alone etags have no quotes, as at AWS.
    told = s3.get_object_attributes(Bucket=BUCKET, Key="sum", ObjectAttributes=["ETag"])
    assert f'"{told["ETag"]}"' == put["ETag"], (told, put)
    got = s3.get_object(Bucket=BUCKET, Key="sum", ChecksumMode="ENABLED")
    assert got["ChecksumSHA256"] == sha and got["Body"].read() == body
    refused("BadDigest", s3.put_object, Bucket=BUCKET, Key="sum", Body=body + b"!", ChecksumSHA256=sha)
    refused("BadDigest", s3.put_object, Bucket=BUCKET, Key="sum", Body=body + b"!", ChecksumCRC32=crc)
    md5 = base64.b64encode(hashlib.md5(body).digest()).decode()
    s3.put_object(Bucket=BUCKET, Key="sum", Body=body, ContentMD5=md5)
    refused("BadDigest", s3.put_object, Bucket=BUCKET, Key="sum", Body=body + b"!", ContentMD5=md5)
    asked = ["ETag", "ObjectSize", "Checksum", "StorageClass", "ObjectParts"]
    s3.put_object(Bucket=BUCKET, Key="sum", Body=body, ChecksumSHA256=sha)
    told = s3.get_object_attributes(Bucket=BUCKET, Key="sum", ObjectAttributes=asked)
    assert told["ObjectSize"] == 3000 and told["StorageClass"] == "STANDARD", told
    assert told["Checksum"]["ChecksumSHA256"] == sha and told["ETag"].strip('"'), told
    refused("NoSuchKey", s3.get_object_attributes, Bucket=BUCKET, Key="no-sum", ObjectAttributes=asked)
    refused("InvalidArgument", s3.get_object_attributes, Bucket=BUCKET, Key="sum", ObjectAttributes=["Colour"])
    for algorithm in ["CRC32", "SHA1", "SHA256"]:
        put = s3.put_object(Bucket=BUCKET, Key="sum", Body=body, ChecksumAlgorithm=algorithm)
        assert put[f"Checksum{algorithm}"], put
        assert read("sum", ChecksumMode="ENABLED") == body
    for name, width, polynomial in [("CRC32C", 4, 0x82F63B78), ("CRC64NVME", 8, 0x9A6C9329AC4BC9B5)]:
        stated = {f"Checksum{name}": crc_of(body, width, polynomial)}
        put = s3.put_object(Bucket=BUCKET, Key="sum", Body=body, **stated)
        assert put[f"Checksum{name}"] == stated[f"Checksum{name}"], put
        told = s3.get_object_attributes(Bucket=BUCKET, Key="sum", ObjectAttributes=["Checksum"])
        assert told["Checksum"][f"Checksum{name}"] == stated[f"Checksum{name}"], told
        refused("BadDigest", s3.put_object, Bucket=BUCKET, Key="sum", Body=body + b"!", **stated)
    large = os.urandom(3 * MIB)
    s3.put_object(Bucket=BUCKET, Key="large", Body=large)
    assert read("large") == large
    sha = base64.b64encode(hashlib.sha256(large).digest()).decode()
    refused("BadDigest", s3.put_object, Bucket=BUCKET, Key="large", Body=large[:-1] + b"?", ChecksumSHA256=sha)
    assert read("large") == large


def listings():
    names = [f"list/{a}/{b}" for a in "abc" for b in range(3)] + ["list/top", "list/z ü"]
    for name in names:
        s3.put_object(Bucket=BUCKET, Key=name, Body=b"x")
    for version in ["list_objects", "list_objects_v2"]:
        for size in [1, 2, 5, 1000]:
            pages = s3.get_paginator(version).paginate(
                Bucket=BUCKET, Prefix="list/", PaginationConfig={"PageSize": size}
            )
            found = [one["Key"] for page in pages for one in page.get("Contents", [])]
            assert found == sorted(names, key=str.encode), (version, size, found)
            pages = s3.get_paginator(version).paginate(
                Bucket=BUCKET, Prefix="list/", Delimiter="/", PaginationConfig={"PageSize": size}
            )
            found, prefixes = [], []
            for page in pages:
                found += [one["Key"] for one in page.get("Contents", [])]
                prefixes += [one["Prefix"] for one in page.get("CommonPrefixes", [])]
            assert found == ["list/top", "list/z ü"], (version, size, found)
            assert prefixes == ["list/a/", "list/b/", "list/c/"], (version, size, prefixes)
    page = s3.list_objects_v2(Bucket=BUCKET, Prefix="list/", StartAfter="list/c/1", MaxKeys=2)
    assert [one["Key"] for one in page["Contents"]] == ["list/c/2", "list/top"], page
    assert page["IsTruncated"] and page["KeyCount"] == 2
    one = page["Contents"][0]
    assert one["Size"] == 1 and one["ETag"] == s3.head_object(Bucket=BUCKET, Key=one["Key"])["ETag"]
    assert s3.list_objects_v2(Bucket=BUCKET, Prefix="nothing/")["KeyCount"] == 0
    assert s3.list_objects_v2(Bucket=BUCKET, MaxKeys=0)["KeyCount"] == 0
    buckets = s3.list_buckets()["Buckets"]
    assert [b["Name"] for b in buckets] == [BUCKET, "photos"]
    now = datetime.datetime.now(datetime.timezone.utc)
    ages = [now - b["CreationDate"] for b in buckets]
    assert all(abs(age) < datetime.timedelta(days=1) for age in ages), buckets
    s3.head_bucket(Bucket=BUCKET)
    refused("404", s3.head_bucket, Bucket="elsewhere")
    assert "LocationConstraint" in s3.get_bucket_location(Bucket=BUCKET)
    s3.put_object(Bucket="photos", Key="one", Body=b"1")
    assert read("pictures/one") == b"1"
    assert [o["Key"] for o in s3.list_objects_v2(Bucket="photos")["Contents"]] == ["one"]


def deletes():
    for name in ["gone0", "gone/1", "gone/2"]:
        s3.put_object(Bucket=BUCKET, Key=name, Body=b"x")
    s3.delete_object(Bucket=BUCKET, Key="gone0")
    refused("NoSuchKey", s3.get_object, Bucket=BUCKET, Key="gone0")
    s3.delete_object(Bucket=BUCKET, Key="gone0")
    etag = s3.put_object(Bucket=BUCKET, Key="gone0", Body=b"y")["ETag"]
    refused("PreconditionFailed", s3.delete_object, Bucket=BUCKET, Key="gone0", IfMatch='"x"')
    assert read("gone0") == b"y"
    s3.delete_object(Bucket=BUCKET, Key="gone0", IfMatch=etag)
    refused("NoSuchKey", s3.get_object, Bucket=BUCKET, Key="gone0")
    names = ["gone/1", "gone/2", "gone/never"]
    done = s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": name} for name in names]})
    assert [one["Key"] for one in done["Deleted"]] == names and "Errors" not in done, done
    assert s3.list_objects_v2(Bucket=BUCKET, Prefix="gone")["KeyCount"] == 0


def deletes_on_size_and_time():
    delete = s3.delete_object
    s3.put_object(Bucket=BUCKET, Key="sized", Body=b"12345")
    head = s3.head_object(Bucket=BUCKET, Key="sized")
    of, past = {"Bucket": BUCKET, "Key": "sized"}, datetime.datetime(2015, 1, 1)
    refused("PreconditionFailed", delete, **of, IfMatchSize=4)
    refused("PreconditionFailed", delete, **of, IfMatchLastModifiedTime=past)
    refused("PreconditionFailed", delete, **of, IfMatchSize=5, IfMatch='"x"')
    several = lambda **terms: s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": "sized", **terms}]})
    for terms in [{"Size": 4}, {"LastModifiedTime": past}, {"Size": 5, "ETag": "x"}]:
        assert several(**terms)["Errors"][0]["Code"] == "PreconditionFailed", terms
    assert read("sized") == b"12345"
    delete(**of, IfMatchSize=5, IfMatchLastModifiedTime=head["LastModified"], IfMatch=head["ETag"])
    refused("NoSuchKey", s3.get_object, **of)
    # What is not there is as good as removed.
    delete(**of, IfMatchSize=4)
    modified = [s3.put_object(**of, Body=b"12345"), s3.head_object(**of)["LastModified"]][1]
    assert several(Size=5, LastModifiedTime=modified, VersionId="null")["Deleted"][0]["VersionId"] == "null"
    refused("NoSuchKey", s3.get_object, **of)


def versions():
    names = [f"of versions/{n}" for n in ["a", "b/1", "b/2", "c", "d ü"]]
    etags = {name: s3.put_object(Bucket=BUCKET, Key=name, Body=name.encode())["ETag"] for name in names}
    under = {"Bucket": BUCKET, "Prefix": "of versions/"}
    for size in [1, 2, 1000]:
        pages = list(s3.get_paginator("list_object_versions").paginate(**under, PaginationConfig={"PageSize": size}))
        found = [one for page in pages for one in page.get("Versions", [])]
        assert [one["Key"] for one in found] == names, (size, found)
        assert all(one["IsLatest"] and one["VersionId"] == "null" and one["ETag"] == etags[one["Key"]] for one in found)
        assert not any("DeleteMarkers" in page for page in pages)
        pages = list(s3.get_paginator("list_object_versions").paginate(**under, Delimiter="/", PaginationConfig={"PageSize": size}))
        assert [one["Prefix"] for page in pages for one in page.get("CommonPrefixes", [])] == ["of versions/b/"]
        assert len([one for page in pages for one in page.get("Versions", [])]) == 3
    refused("InvalidArgument", s3.list_object_versions, **under, VersionIdMarker="null")
    refused("NoSuchVersion", s3.list_object_versions, **under, KeyMarker=names[0], VersionIdMarker="x")
    # As tools empty a bucket.
    named = [{"Key": one["Key"], "VersionId": one["VersionId"]} for one in s3.list_object_versions(**under)["Versions"]]
    assert s3.get_object(Bucket=BUCKET, Key=names[0], VersionId="null")["Body"].read() == names[0].encode()
    assert "Errors" not in s3.delete_objects(Bucket=BUCKET, Delete={"Objects": named})
    assert "Versions" not in s3.list_object_versions(**under)


def lists_of_access():
    id = os.environ["AWS_ACCESS_KEY_ID"]
    of = {"Bucket": BUCKET, "Key": "plain"}
    for told in [s3.get_object_acl(**of), s3.get_bucket_acl(Bucket=BUCKET)]:
        [grant] = told["Grants"]
        assert told["Owner"]["ID"] == id and grant["Permission"] == "FULL_CONTROL", told
        assert grant["Grantee"]["ID"] == id and grant["Grantee"]["Type"] == "CanonicalUser", told
        policy = {"Owner": told["Owner"], "Grants": told["Grants"]}
        s3.put_object_acl(**of, AccessControlPolicy=policy)
        s3.put_bucket_acl(Bucket=BUCKET, AccessControlPolicy=policy)
        others = dict(policy, Grants=[{"Grantee": {"Type": "CanonicalUser", "ID": "other"}, "Permission": "READ"}])
        refused("NotImplemented", s3.put_object_acl, **of, AccessControlPolicy=others)
        refused("NotImplemented", s3.put_bucket_acl, Bucket=BUCKET, AccessControlPolicy=others)
    s3.put_object_acl(**of, ACL="private")
    s3.put_bucket_acl(Bucket=BUCKET, ACL="private")
    refused("NotImplemented", s3.put_object_acl, **of, ACL="public-read")
    refused("NotImplemented", s3.put_bucket_acl, Bucket=BUCKET, ACL="public-read")
    for grant in ["GrantRead", "GrantReadACP", "GrantWriteACP", "GrantFullControl"]:
        refused("NotImplemented", s3.put_object, **of, Body=b"", **{grant: f"id={id}"})
        refused("NotImplemented", s3.put_object_acl, **of, **{grant: f"id={id}"})
    for call, more in [(s3.get_object_acl, {}), (s3.put_object_acl, {"ACL": "private"})]:
        refused("NoSuchKey", call, Bucket=BUCKET, Key="none", **more)
        refused("NoSuchVersion", call, **of, VersionId="abc", **more)
        refused("NoSuchBucket", call, Bucket="elsewhere", Key="none", **more)


def what_buckets_do_not_have():
    for name, code in [
        ("cors", "NoSuchCORSConfiguration"),
        ("encryption", "ServerSideEncryptionConfigurationNotFoundError"),
        ("lifecycle_configuration", "NoSuchLifecycleConfiguration"),
        ("policy", "NoSuchBucketPolicy"),
        ("replication", "ReplicationConfigurationNotFoundError"),
        ("tagging", "NoSuchTagSet"),
        ("website", "NoSuchWebsiteConfiguration"),
    ]:
        refused(code, getattr(s3, f"get_bucket_{name}"), Bucket=BUCKET)
        refused("NoSuchBucket", getattr(s3, f"get_bucket_{name}"), Bucket="elsewhere")
    refused("ObjectLockConfigurationNotFoundError", s3.get_object_lock_configuration, Bucket=BUCKET)
    refused("NoSuchPublicAccessBlockConfiguration", s3.get_public_access_block, Bucket=BUCKET)
    assert "LoggingEnabled" not in s3.get_bucket_logging(Bucket=BUCKET)
    assert "QueueConfigurations" not in s3.get_bucket_notification_configuration(Bucket=BUCKET)
    tags = {"TagSet": [{"Key": "a", "Value": "b"}]}
    refused("NotImplemented", s3.put_bucket_tagging, Bucket=BUCKET, Tagging=tags)
    refused("NotImplemented", s3.put_bucket_policy, Bucket=BUCKET, Policy="{}")


def copies():
    s3.put_object(Bucket=BUCKET, Key="from ü", Body=b"copied", ContentType="a/b", Metadata={"m": "1"})
    source = {"Bucket": BUCKET, "Key": "from ü"}
    result = s3.copy_object(Bucket=BUCKET, Key="to", CopySource=source)
    head = s3.head_object(Bucket=BUCKET, Key="to")
    assert head["ETag"] == result["CopyObjectResult"]["ETag"]
    assert head["ContentType"] == "a/b" and head["Metadata"] == {"m": "1"}, head
    assert read("to") == b"copied"
    s3.copy_object(
        Bucket=BUCKET, Key="to", CopySource={"Bucket": BUCKET, "Key": "to"}, Metadata={"n": "2"},
        MetadataDirective="REPLACE", ContentType="c/d",
    )
    head = s3.head_object(Bucket=BUCKET, Key="to")
    assert head["Metadata"] == {"n": "2"} and head["ContentType"] == "c/d", head
    refused("InvalidRequest", s3.copy_object, Bucket=BUCKET, Key="to", CopySource={"Bucket": BUCKET, "Key": "to"})
    refused("NoSuchKey", s3.copy_object, Bucket=BUCKET, Key="to", CopySource={"Bucket": BUCKET, "Key": "no"})
    refused("PreconditionFailed", s3.copy_object, Bucket=BUCKET, Key="to", CopySource=source, CopySourceIfMatch='"x"')
    etag = s3.head_object(Bucket=BUCKET, Key="from ü")["ETag"]
    s3.copy_object(Bucket=BUCKET, Key="to", CopySource=source, CopySourceIfMatch=etag)
    # What a copy writes over has conditions, too; and a copy of a whole object has no range.
    with_header = lambda name, value: lambda request, **_: request.headers.add_header(name, value)
    for name, value, code in [("if-none-match", "*", "412"), ("if-match", '"x"', "412"), ("x-amz-copy-source-range", "bytes=0-1", None)]:
        hook = with_header(name, value)
        s3.meta.events.register("before-sign.s3.CopyObject", hook)
        copy = dict(Bucket=BUCKET, Key="to", CopySource=source)
        refused(code, s3.copy_object, **copy) if code else s3.copy_object(**copy)
        s3.meta.events.unregister("before-sign.s3.CopyObject", hook)
    assert read("to") == b"copied"


def multipart():
    parts = [os.urandom(5 * MIB), os.urandom(5 * MIB + 17), b"end"]
    begun = s3.create_multipart_upload(Bucket=BUCKET, Key="many", ContentType="x/y", Metadata={"p": "q"})
    upload = {"Bucket": BUCKET, "Key": "many", "UploadId": begun["UploadId"]}
    done = []
    for number in [2, 1, 3]:
        put = s3.upload_part(**upload, PartNumber=number, Body=parts[number - 1])
        done.append({"PartNumber": number, "ETag": put["ETag"]})
    done.sort(key=lambda part: part["PartNumber"])
    listed = s3.list_parts(**upload, MaxParts=2)
    assert [(one["PartNumber"], one["Size"]) for one in listed["Parts"]] == [(1, 5 * MIB), (2, 5 * MIB + 17)]
    assert listed["IsTruncated"] and listed["NextPartNumberMarker"] == 2
    listed = s3.list_parts(**upload, PartNumberMarker=2)
    assert [one["PartNumber"] for one in listed["Parts"]] == [3] and not listed["IsTruncated"]
    uploads = s3.list_multipart_uploads(Bucket=BUCKET)["Uploads"]
    assert [(one["Key"], one["UploadId"]) for one in uploads] == [("many", begun["UploadId"])]
    refused("NoSuchKey", s3.get_object, Bucket=BUCKET, Key="many")
    complete = s3.complete_multipart_upload
    refused("InvalidPartOrder", complete, **upload, MultipartUpload={"Parts": [done[1], done[0]]})
    wrong = [dict(done[0], ETag='"x"'), done[1]]
    refused("InvalidPart", complete, **upload, MultipartUpload={"Parts": wrong})
    # Nothing is there that could be replaced, which S3 tells by another error than a failed condition.
    refused("NoSuchKey", complete, **upload, MultipartUpload={"Parts": done}, IfMatch='"x"')
    refused("NoSuchKey", complete, **upload, MultipartUpload={"Parts": done}, IfMatch="*")
    refused("EntityTooSmall", complete, **upload, MultipartUpload={"Parts": small(upload, parts)})
    result = complete(**upload, MultipartUpload={"Parts": done})
    body = b"".join(parts)
    head = s3.head_object(Bucket=BUCKET, Key="many")
    assert head["ETag"] == result["ETag"] and head["ContentLength"] == len(body)
    # As if the first reply had been lost.
    again = complete(**upload, MultipartUpload={"Parts": done})
    assert again["ETag"] == result["ETag"] and again["Location"] == result["Location"], again
    refused("NoSuchUpload", complete, **upload, MultipartUpload={"Parts": done[:2]})
    refused("NoSuchUpload", complete, **dict(upload, Key="large"), MultipartUpload={"Parts": done})
    assert set(head["Metadata"]) == {"p"}, head
    assert head["ContentType"] == "x/y" and head["Metadata"] == {"p": "q"}, head
    assert read("many") == body
    assert read("many", Range=f"bytes={5 * MIB - 3}-{5 * MIB + 2}") == body[5 * MIB - 3 : 5 * MIB + 3]
    refused("NoSuchUpload", s3.upload_part, **upload, PartNumber=1, Body=b"x")
    begun = s3.create_multipart_upload(Bucket=BUCKET, Key="copied")
    upload = {"Bucket": BUCKET, "Key": "copied", "UploadId": begun["UploadId"]}
    source = {"Bucket": BUCKET, "Key": "many"}
    part = s3.upload_part_copy(**upload, PartNumber=1, CopySource=source, CopySourceRange=f"bytes=0-{5 * MIB - 1}")
    etag = part["CopyPartResult"]["ETag"]
    complete(**upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]})
    assert read("copied") == parts[0]
    s3.put_object(Bucket=BUCKET, Key="copied", Body=b"anew")
    refused("NoSuchUpload", complete, **upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]})
    # The longest key, three times as long where it is escaped.
    key = "/".join(["ü" * 100] * 5)
    begun = s3.create_multipart_upload(Bucket=BUCKET, Key=key)
    upload = {"Bucket": BUCKET, "Key": key, "UploadId": begun["UploadId"]}
    etag = s3.upload_part(**upload, PartNumber=1, Body=b"long")["ETag"]
    assert [one["Key"] for one in s3.list_multipart_uploads(Bucket=BUCKET)["Uploads"]] == [key]
    complete(**upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]})
    assert read(key) == b"long"
    s3.delete_object(Bucket=BUCKET, Key=key)
    begun = s3.create_multipart_upload(Bucket=BUCKET, Key="aborted")
    # Uploads under way are kept among the objects, and shown by no delimiter.
    for delimiter in ["/", "s", "3"]:
        page = s3.list_objects_v2(Bucket=BUCKET, Prefix="!", Delimiter=delimiter)
        assert page["KeyCount"] == 0, page
    s3.put_object(Bucket=BUCKET, Key="!sea", Body=b"x")
    page = s3.list_objects_v2(Bucket=BUCKET, Prefix="!", Delimiter="s")
    assert [one["Prefix"] for one in page["CommonPrefixes"]] == ["!s"], page
    s3.delete_object(Bucket=BUCKET, Key="!sea")
    upload = {"Bucket": BUCKET, "Key": "aborted", "UploadId": begun["UploadId"]}
    s3.upload_part(**upload, PartNumber=1, Body=b"x")
    s3.abort_multipart_upload(**upload)
    refused("NoSuchUpload", s3.abort_multipart_upload, **upload)
    refused("NoSuchKey", s3.get_object, Bucket=BUCKET, Key="aborted")
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=BUCKET)
    refused("AccessDenied", s3.get_object, Bucket=BUCKET, Key="!s3/begun/x")
    keys = [one["Key"] for one in s3.list_objects_v2(Bucket=BUCKET)["Contents"]]
    assert not any(key.startswith("!s3/") for key in keys), keys


def small(upload, parts):
    """A list of parts of which one that is not the last is too small."""
    put = s3.upload_part(**upload, PartNumber=4, Body=b"four")
    third = s3.upload_part(**upload, PartNumber=3, Body=parts[2])
    return [{"PartNumber": 3, "ETag": third["ETag"]}, {"PartNumber": 4, "ETag": put["ETag"]}]


def tags_of(key):
    return {tag["Key"]: tag["Value"] for tag in s3.get_object_tagging(Bucket=BUCKET, Key=key)["TagSet"]}


def as_set(pairs):
    return {"TagSet": [{"Key": key, "Value": value} for key, value in pairs.items()]}


def tags():
    body = os.urandom(9 * MIB)
    s3.put_object(Bucket=BUCKET, Key="tagged", Body=body, Metadata={"m": "1"}, ContentType="a/b", CacheControl="no-store")
    first = s3.head_object(Bucket=BUCKET, Key="tagged")
    assert "TagCount" not in first and tags_of("tagged") == {}
    pairs = {"team": "one", "a b+c=d": " x/y:z@. ", "größe": "", "日": "本"}
    s3.put_object_tagging(Bucket=BUCKET, Key="tagged", Tagging=as_set(pairs))
    assert tags_of("tagged") == pairs, tags_of("tagged")
    got = s3.get_object(Bucket=BUCKET, Key="tagged")
    head = s3.head_object(Bucket=BUCKET, Key="tagged")
    assert got["Body"].read() == body and got["TagCount"] == 4
    assert head["ResponseMetadata"]["HTTPHeaders"]["x-amz-tagging-count"] == "4"
    for found in (got, head):
        assert found["Metadata"] == {"m": "1"} and found["ContentType"] == "a/b" and found["CacheControl"] == "no-store"
        assert found["ETag"] != first["ETag"]
    s3.put_object_tagging(Bucket=BUCKET, Key="tagged", Tagging=as_set(pairs))
    assert s3.head_object(Bucket=BUCKET, Key="tagged")["ETag"] == head["ETag"]
    for set_, code in [
        ([{"Key": "a", "Value": "b"}] * 2, "InvalidTag"),
        ([{"Key": "a" * 129, "Value": "b"}], "InvalidTag"),
        ([{"Key": "a", "Value": "b" * 257}], "InvalidTag"),
        ([{"Key": "a", "Value": "b?"}], "InvalidTag"),
        ([{"Key": f"a{n}", "Value": "b"} for n in range(11)], "BadRequest"),
    ]:
        refused(code, s3.put_object_tagging, Bucket=BUCKET, Key="tagged", Tagging={"TagSet": set_})
    md5 = base64.b64encode(hashlib.md5(b"other").digest()).decode()
    refused("BadDigest", s3.put_object_tagging, Bucket=BUCKET, Key="tagged", Tagging=as_set({"b": "c"}), ContentMD5=md5)
    assert tags_of("tagged") == pairs
    source = {"Bucket": BUCKET, "Key": "tagged"}
    s3.copy_object(Bucket=BUCKET, Key="to", CopySource=source, Metadata={}, MetadataDirective="REPLACE", Tagging="not=taken")
    assert tags_of("to") == pairs
    s3.copy_object(Bucket=BUCKET, Key="to", CopySource=source, Tagging="other=1", TaggingDirective="REPLACE")
    assert tags_of("to") == {"other": "1"} and s3.head_object(Bucket=BUCKET, Key="to")["Metadata"] == {"m": "1"}
    s3.delete_object_tagging(Bucket=BUCKET, Key="tagged")
    assert tags_of("tagged") == {} and "TagCount" not in s3.get_object(Bucket=BUCKET, Key="tagged")
    s3.put_object(Bucket=BUCKET, Key="tagged", Body=b"", Tagging="a=b&c")
    assert tags_of("tagged") == {"a": "b", "c": ""}
    s3.put_object(Bucket=BUCKET, Key="tagged", Body=b"")
    assert tags_of("tagged") == {}
    refused("InvalidArgument", s3.put_object, Bucket=BUCKET, Key="tagged", Body=b"", Tagging="a=b&a=c")
    begun = s3.create_multipart_upload(Bucket=BUCKET, Key="tagged", Tagging="in=parts")
    upload = {"Bucket": BUCKET, "Key": "tagged", "UploadId": begun["UploadId"]}
    etag = s3.upload_part(**upload, PartNumber=1, Body=b"part")["ETag"]
    s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]})
    assert tags_of("tagged") == {"in": "parts"}
    for call in [s3.get_object_tagging, s3.delete_object_tagging]:
        refused("NoSuchKey", call, Bucket=BUCKET, Key="untagged")
        refused("NoSuchVersion", call, Bucket=BUCKET, Key="tagged", VersionId="abc")
    refused("NoSuchKey", s3.put_object_tagging, Bucket=BUCKET, Key="untagged", Tagging=as_set({"b": "c"}))


def transfers():
    body = os.urandom(18 * MIB + 5)
    path = os.path.join(os.environ["FOLDER"], "file")
    with open(path, "wb") as file:
        file.write(body)
    config = TransferConfig(multipart_threshold=6 * MIB, multipart_chunksize=6 * MIB)
    s3.upload_file(path, BUCKET, "transferred", Config=config)
    s3.download_file(BUCKET, "transferred", path + "2", Config=config)
    with open(path + "2", "rb") as file:
        assert file.read() == body


def signatures():
    for payload in [True, False]:
        one = client(signature_version="s3v4", s3={"addressing_style": "path", "payload_signing_enabled": payload})
        one.put_object(Bucket=BUCKET, Key="signed", Body=b"signed")
        assert one.get_object(Bucket=BUCKET, Key="signed")["Body"].read() == b"signed"
    one = client(signature_version="s3v4")
    url = one.generate_presigned_url("get_object", {"Bucket": BUCKET, "Key": "signed"}, ExpiresIn=60)
    with urllib.request.urlopen(url) as reply:
        assert reply.read() == b"signed"
    url = one.generate_presigned_url("put_object", {"Bucket": BUCKET, "Key": "by url"}, ExpiresIn=60)
    urllib.request.urlopen(urllib.request.Request(url, data=b"by url", method="PUT")).close()
    assert read("by url") == b"by url"
    try:
        urllib.request.urlopen(url.replace("by%20url", "another"))
        raise AssertionError("a URL for another key is taken")
    except urllib.error.HTTPError as error:
        assert error.code == 403, error


def signed_url(method, key, host=None, path=None, **parameters):
    """A URL with S3's headers in its query, as presigners of JavaScript and Go write them."""
    place = f"{BUCKET}/{key}" if path is None else path
    request = AWSRequest(method, f"{ENDPOINT}/{place}", params=parameters)
    if host:
        request.headers["Host"] = host
    shown = Credentials(os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
    S3SigV4QueryAuth(shown, "s3", "eu-west-1", expires=60).add_auth(request)
    return request.prepare().url


def raw(method, url, body=None, headers=()):
    """Status, headers and body of a reply."""
    request = urllib.request.Request(url, data=body, method=method, headers=dict(headers))
    try:
        reply = urllib.request.urlopen(request)
    except urllib.error.HTTPError as error:
        reply = error
    with reply:
        return reply.status, reply.headers, reply.read()


def buckets_in_pages():
    names = lambda **wanted: [one["Name"] for one in s3.list_buckets(**wanted)["Buckets"]]
    all_names = names()
    assert BUCKET in all_names and all_names == sorted(all_names)
    found, more = [], {}
    while True:
        page = s3.list_buckets(MaxBuckets=1, **more)
        found += [one["Name"] for one in page["Buckets"]]
        if "ContinuationToken" not in page:
            break
        more = {"ContinuationToken": page["ContinuationToken"]}
    assert found == all_names
    assert BUCKET in names(Prefix="obj") and names(Prefix="none") == []
    region = s3.list_buckets()["Buckets"][0]["BucketRegion"]
    assert names(BucketRegion=region) == all_names and names(BucketRegion="elsewhere-1") == []
    # botocore refuses numbers out of range itself.
    for wrong in [0, -3, 10_001]:
        status, _, body = raw("GET", signed_url("GET", "", path="", **{"max-buckets": str(wrong)}))
        assert status == 400 and b"<Code>InvalidArgument</Code>" in body, (wrong, status, body)


def dates():
    """Requests that are signed with the header `Date` alone, as botocore does where there is one."""
    shown = Credentials(os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
    for method, body in [("PUT", b"dated"), ("GET", None), ("HEAD", None), ("DELETE", None)]:
        request = AWSRequest(method, f"{ENDPOINT}/{BUCKET}/dated", data=body, headers={"Date": "now"})
        S3SigV4Auth(shown, "s3", "eu-west-1").add_auth(request)
        headers = {name: value for name, value in request.headers.items()}
        assert "date" in headers["Authorization"] and "X-Amz-Date" not in headers, headers
        status, _, got = raw(method, request.url, body, headers)
        assert status in (200, 204) and (method != "GET" or got == b"dated"), (status, got)
        # Another time than the one that was signed, one long ago, and none.
        for date in ["Thu, 01 Jan 2026 00:00:00 GMT", email.utils.formatdate(time.time() - 30, usegmt=True), "x"]:
            status, _, got = raw(method, request.url, body, headers | {"Date": date})
            assert status in (400, 403), (status, got)


def headers_in_urls():
    put = lambda **parameters: raw("PUT", signed_url("PUT", "in-url", **parameters), b"abc")
    sha256 = base64.b64encode(hashlib.sha256(b"abc").digest()).decode()
    named = {"x-amz-meta-a": "v w", "x-amz-checksum-sha256": sha256, "x-amz-tagging": "k=1"}
    status, _, body = put(**named)
    assert status == 200, body
    head = s3.head_object(Bucket=BUCKET, Key="in-url", ChecksumMode="ENABLED")
    assert head["Metadata"] == {"a": "v w"} and head["ChecksumSHA256"] == sha256, head
    for wrong, code in [
        ({"x-amz-checksum-sha256": "A" * 43 + "="}, "BadDigest"),
        ({"x-amz-acl": "public-read"}, "NotImplemented"),
        ({"x-amz-server-side-encryption": "AES256"}, "NotImplemented"),
        ({"x-amz-object-lock-mode": "GOVERNANCE"}, "NotImplemented"),
        ({"x-amz-expected-bucket-owner": "somebody"}, "AccessDenied"),
    ]:
        status, _, body = put(**wrong)
        assert status >= 400 and f"<Code>{code}</Code>".encode() in body, (wrong, status, body)
    assert s3.head_object(Bucket=BUCKET, Key="in-url")["Metadata"] == {"a": "v w"}


def keys_with_controls():
    """A page that is not encoded shows a carriage return as a reference: parsers turn the character itself into a line feed."""
    s3.put_object(Bucket=BUCKET, Key="controls/a\rb", Body=b"")
    url = signed_url("GET", "", **{"list-type": "2", "prefix": "controls/"})
    status, _, body = raw("GET", url)
    assert status == 200 and b"<Key>controls/a&#xD;b</Key>" in body, body
    keys = [one["Key"] for one in s3.list_objects_v2(Bucket=BUCKET, Prefix="controls/")["Contents"]]
    assert keys == ["controls/a\rb"], keys


def small_differences():
    refused("NoSuchKey", s3.get_object, Bucket=BUCKET, Key="none", IfMatch='"a"')
    refused("404", s3.head_object, Bucket=BUCKET, Key="none", IfMatch='"a"')
    refused("400", s3.head_object, Bucket=BUCKET, Key="plain", PartNumber=1, Range="bytes=0-0")
    id = os.environ["AWS_ACCESS_KEY_ID"]
    assert s3.list_objects(Bucket=BUCKET)["Contents"][0]["Owner"]["ID"] == id
    assert "Owner" not in s3.list_objects_v2(Bucket=BUCKET)["Contents"][0]
    assert s3.list_objects_v2(Bucket=BUCKET, FetchOwner=True)["Contents"][0]["Owner"]["ID"] == id
    assert "Delimiter" not in s3.list_objects_v2(Bucket=BUCKET, Delimiter="")
    # Each request has an id, in the reply and in an error's words; each error has words.
    first, second = (s3.head_object(Bucket=BUCKET, Key="plain")["ResponseMetadata"] for _ in range(2))
    ids = {one["HTTPHeaders"]["x-amz-request-id"] for one in (first, second)}
    assert len(ids) == 2, ids
    for method, key, body in [("GET", "none", None), ("PUT", "k" * 1025, b""), ("GET", "%ff", None)]:
        status, headers, body = raw(method, signed_url(method, key), body)
        found = body.decode()
        assert status >= 400 and f"<RequestId>{headers['x-amz-request-id']}</RequestId>" in found, found
        assert "<Message>" in found and "<Message></Message>" not in found, found
        assert headers["content-type"] == "application/xml", headers
    # A host that seems to name a bucket: the first folder of the path is not taken for another.
    host = f"{BUCKET}.cache.example"
    status, _, body = raw("PUT", signed_url("PUT", "x", host=host), b"x", {"Host": host})
    assert status == 400 and b"s3.domain" in body, body
    # More than any object can have is refused by its head.
    status, _, body = raw("PUT", signed_url("PUT", "huge"), b"", {"Content-Length": "99999999999999"})
    assert status == 413, body


def unsupported():
    refused("NotImplemented", s3.put_object, Bucket=BUCKET, Key="x", Body=b"", ServerSideEncryption="AES256")
    refused("NotImplemented", s3.put_object, Bucket=BUCKET, Key="x", Body=b"", ACL="public-read")
    refused("NotImplemented", s3.put_object, Bucket=BUCKET, Key="x", Body=b"", StorageClass="GLACIER")
    refused("NotImplemented", s3.get_object_retention, Bucket=BUCKET, Key="x")
    refused("NotImplemented", s3.create_bucket, Bucket="another", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    # Clients make their bucket before they write, and take this for success.
    refused("BucketAlreadyOwnedByYou", s3.create_bucket, Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    refused("NotImplemented", s3.delete_bucket, Bucket=BUCKET)
    refused("NoSuchVersion", s3.get_object, Bucket=BUCKET, Key="plain", VersionId="abc")
    assert "Status" not in s3.get_bucket_versioning(Bucket=BUCKET)


for check in [put_get_head, ranges, conditions, checksums, listings, deletes, deletes_on_size_and_time, versions, lists_of_access, what_buckets_do_not_have, copies, multipart, tags, transfers, signatures, buckets_in_pages, dates, headers_in_urls, keys_with_controls, small_differences, unsupported]:
    check()
    print(check.__name__, flush=True)
