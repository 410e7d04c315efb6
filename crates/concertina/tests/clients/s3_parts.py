"""Parts and checksums of uploads in parts with boto3, unchanged: `s3_parts.py ENDPOINT`, keys in the environment.

Each check prints one line; the first that fails ends the program with a traceback.
"""

import base64
import hashlib
import os
import sys
import zlib

import boto3
from botocore.client import Config
from botocore.exceptions import ClientError

ENDPOINT = sys.argv[1]
BUCKET = "objects"
MIB = 1 << 20
# Three parts of 5 MiB of one letter each, and their checksums, which are those of Ceph's suite (`test_multipart_use_cksum_helper_…`); then that of the
# whole.
PARTS = [letter * (5 * MIB) for letter in (b"A", b"B", b"C")]
SUMS = {
    ("CRC32", "FULL_OBJECT"): ["JRTCyQ==", "QoZTGg==", "YAgjqw==", "WgDhBQ=="],
    ("CRC32C", "FULL_OBJECT"): ["MDaLrw==", "TH4EZg==", "Z7mBIQ==", "xU+Krw=="],
    ("CRC64NVME", "FULL_OBJECT"): ["L/E4WYn8v98=", "xW1l19VobYM=", "cK5MnNaWrW4=", "i+6LR0y3eFo="],
    ("SHA1", "COMPOSITE"): ["iIaTCGbm+vdVjNqIMF2S0T7ibMk=", "LS/TJ32bAVKEwRu+sE3X7awh/lk=", "6DDwovUaHwrKNXDMzOGbuvj9kxI=", "sizjvY4eud3MrcHdZM3cQ/ol39o=-3"],
    ("SHA256", "COMPOSITE"): [
        "275VF5loJr1YYawit0XSHREhkFXYkkPKGuoK0x9VKxI=",
        "mrHwOfjTL5Zwfj74F05HOQGLdUb7E5szdCbxgUSq6NM=",
        "Vw7oB/nKQ5xWb3hNgbyfkvDiivl+U+/Dft48nfJfDow=",
        "uWBwpe1dxI4Vw8Gf0X9ynOdw/SS6VBzfWm9giiv1sf4=-3",
    ],
}


def client(**more):
    options = {"s3": {"addressing_style": "path"}, "retries": {"max_attempts": 1}} | more
    return boto3.client("s3", endpoint_url=ENDPOINT, region_name="eu-west-1", config=Config(**options))


s3 = client()
# Without the checksums that boto3 adds by itself.
bare = client(request_checksum_calculation="when_required", response_checksum_validation="when_required")


def refused(code, call, **arguments):
    try:
        call(**arguments)
    except ClientError as error:
        found = error.response["Error"]["Code"]
        status = str(error.response["ResponseMetadata"]["HTTPStatusCode"])
        assert code in (found, status), f"{found} ({status}), not {code}: {error}"
        return error.response
    raise AssertionError(f"{call} {arguments} is not refused with {code}")


def begin(key, **more):
    upload = {"Bucket": BUCKET, "Key": key}
    return upload | {"UploadId": s3.create_multipart_upload(**upload, **more)["UploadId"]}


def crc(body):
    return base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()


def composite(bodies):
    sums = b"".join(zlib.crc32(body).to_bytes(4, "big") for body in bodies)
    return f"{crc(sums)}-{len(bodies)}"


def parts_of(key, **more):
    wanted = ["ETag", "Checksum", "ObjectParts", "ObjectSize"]
    return s3.get_object_attributes(Bucket=BUCKET, Key=key, ObjectAttributes=wanted, **more)


def is_in_parts(key, bodies, member=None, sums=(), kind=None):
    """That reads by number give the parts, and the attributes name them."""
    etag, first = s3.head_object(Bucket=BUCKET, Key=key)["ETag"], 0
    total = sum(map(len, bodies))
    for at, body in enumerate(bodies):
        for call in [s3.head_object, s3.get_object]:
            got = call(Bucket=BUCKET, Key=key, PartNumber=at + 1, ChecksumMode="ENABLED")
            assert got["PartsCount"] == len(bodies) and got["ETag"] == etag, got
            assert got["ContentLength"] == len(body), got
            if body:
                assert got["ResponseMetadata"]["HTTPStatusCode"] == 206, got
                assert got["ContentRange"] == f"bytes {first}-{first + len(body) - 1}/{total}", got
            if sums:
                assert got[member] == sums[at] and got["ChecksumType"] == kind, got
        assert got["Body"].read() == body
        first += len(body)
    for number in [len(bodies) + 1, 10_000]:
        refused("InvalidPartNumber", s3.get_object, Bucket=BUCKET, Key=key, PartNumber=number)
        refused("416", s3.head_object, Bucket=BUCKET, Key=key, PartNumber=number)
    told = parts_of(key)
    listed = told["ObjectParts"]
    assert listed["TotalPartsCount"] == len(bodies) and not listed["IsTruncated"], listed
    assert [(one["PartNumber"], one["Size"]) for one in listed["Parts"]] == [(at + 1, len(body)) for at, body in enumerate(bodies)]
    if sums:
        assert [one[member] for one in listed["Parts"]] == list(sums), listed
    page = parts_of(key, MaxParts=1, PartNumberMarker=len(bodies) - 1)["ObjectParts"]
    assert [one["PartNumber"] for one in page["Parts"]] == [len(bodies)] and not page["IsTruncated"], page
    if len(bodies) > 1:
        page = parts_of(key, MaxParts=1)["ObjectParts"]
        assert page["IsTruncated"] and page["NextPartNumberMarker"] == 1 and page["MaxParts"] == 1, page
    return told


def all_algorithms():
    for (algorithm, kind), sums in SUMS.items():
        member, key = f"Checksum{algorithm}", f"in-parts-{algorithm}"
        # Named as in XML; FULL_OBJECT is not what AWS takes for CRC32 by itself.
        upload = begin(key, ChecksumAlgorithm=algorithm, ChecksumType=kind)
        shown = s3.list_multipart_uploads(Bucket=BUCKET, Prefix=key)["Uploads"][0]
        assert (shown["ChecksumAlgorithm"], shown["ChecksumType"]) == (algorithm, kind), shown
        done = []
        for at, body in enumerate(PARTS):
            # In a header, so that it is known before the bytes.
            put = bare.upload_part(**upload, PartNumber=at + 1, Body=body, **{member: sums[at]})
            assert put[member] == sums[at], put
            done.append({"PartNumber": at + 1, "ETag": put["ETag"], member: put[member]})
        listed = s3.list_parts(**upload)
        assert (listed["ChecksumAlgorithm"], listed["ChecksumType"]) == (algorithm, kind), listed
        assert [one[member] for one in listed["Parts"]] == sums[:3], listed
        complete = s3.complete_multipart_upload
        named = {"MultipartUpload": {"Parts": done}}
        wrong = {"MultipartUpload": {"Parts": [dict(done[0], **{member: sums[1]}), *done[1:]]}}
        refused("InvalidPart", complete, **upload, **wrong)
        other = "FULL_OBJECT" if kind == "COMPOSITE" else "COMPOSITE"
        refused("InvalidRequest", complete, **upload, **named, ChecksumType=other)
        bad = sums[0] + "-3" if kind == "COMPOSITE" else sums[0]
        refused("BadDigest", complete, **upload, **named, **{member: bad})
        malformed = {"MultipartUpload": {"Parts": [dict(done[0], **{member: "!"}), *done[1:]]}}
        refused("InvalidArgument", complete, **upload, **malformed)
        refused("NoSuchKey", s3.get_object, Bucket=BUCKET, Key=key, PartNumber=1)
        result = complete(**upload, **named, **{member: sums[3]})
        assert (result[member], result["ChecksumType"]) == (sums[3], kind), result
        assert complete(**upload, **named)[member] == sums[3]
        head = s3.head_object(Bucket=BUCKET, Key=key, ChecksumMode="ENABLED")
        assert (head[member], head["ChecksumType"]) == (sums[3], kind), head
        assert member not in s3.head_object(Bucket=BUCKET, Key=key)
        got = s3.get_object(Bucket=BUCKET, Key=key, ChecksumMode="ENABLED")
        assert got[member] == sums[3] and got["Body"].read() == b"".join(PARTS)
        told = is_in_parts(key, PARTS, member, sums[:3], kind)
        assert told["Checksum"] == {member: sums[3], "ChecksumType": kind}, told
        s3.delete_object(Bucket=BUCKET, Key=key)


def what_aws_refuses_is_refused():
    create = {"Bucket": BUCKET, "Key": "refused"}
    for algorithm, kind in [("SHA1", "FULL_OBJECT"), ("SHA256", "FULL_OBJECT"), ("CRC64NVME", "COMPOSITE"), (None, "COMPOSITE"), ("CRC32", "x"), ("x", None)]:
        more = {name: value for name, value in [("ChecksumAlgorithm", algorithm), ("ChecksumType", kind)] if value}
        refused("InvalidRequest", s3.create_multipart_upload, **create, **more)
    upload = begin("refused", ChecksumAlgorithm="SHA1")
    # Parts without a checksum, and with another.
    refused("InvalidRequest", bare.upload_part, **upload, PartNumber=1, Body=b"x")
    refused("InvalidRequest", s3.upload_part, **upload, PartNumber=1, Body=b"x", ChecksumCRC32=crc(b"x"))
    sha1 = base64.b64encode(hashlib.sha1(b"x").digest()).decode()
    refused("BadDigest", s3.upload_part, **upload, PartNumber=1, Body=b"y", ChecksumSHA1=sha1)
    put = s3.upload_part(**upload, PartNumber=1, Body=b"x", ChecksumSHA1=sha1)
    part = {"PartNumber": 1, "ETag": put["ETag"]}
    complete = s3.complete_multipart_upload
    said = refused("InvalidRequest", complete, **upload, MultipartUpload={"Parts": [part]})
    assert "missing for part 1" in said["Error"]["Message"], said
    refused("BadDigest", complete, **upload, MultipartUpload={"Parts": [part | {"ChecksumCRC32": crc(b"x")}]})
    several = part | {"ChecksumSHA1": sha1, "ChecksumCRC32": crc(b"x")}
    refused("InvalidArgument", complete, **upload, MultipartUpload={"Parts": [several]})
    s3.abort_multipart_upload(**upload)


def sizes():
    """Every count of parts from one on, and last parts of all sizes; without a checksum, with one of the whole, and with composite ones."""
    bodies = {
        "one": [b"x"], "empty": [b""], "last-empty": [b"a" * 5 * MIB, b""],
        "last-1": [os.urandom(5 * MIB), b"y"], "uneven": [os.urandom(5 * MIB + at) for at in (0, 1, 7)] + [b"end"],
    }
    for name, parts in bodies.items():
        for algorithm, kind in [(None, None), ("CRC32", "COMPOSITE"), ("CRC32", "FULL_OBJECT")]:
            key = f"sizes/{name}/{kind}"
            more = {"ChecksumAlgorithm": algorithm, "ChecksumType": kind} if algorithm else {}
            upload, done = begin(key, **more), []
            # Numbers with gaps: parts are counted from 1 on once they are an object.
            for at, body in enumerate(parts):
                put = s3.upload_part(**upload, PartNumber=3 * at + 2, Body=body)
                done.append({"PartNumber": 3 * at + 2, "ETag": put["ETag"]} | ({"ChecksumCRC32": crc(body)} if algorithm else {}))
            result = s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": done})
            expected = {None: None, "COMPOSITE": composite(parts), "FULL_OBJECT": crc(b"".join(parts))}[kind]
            assert result.get("ChecksumCRC32") == expected and result.get("ChecksumType") == kind, result
            sums = [crc(body) for body in parts] if algorithm else ()
            is_in_parts(key, parts, "ChecksumCRC32", sums, kind)
            assert s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == b"".join(parts)


def checksums_that_follow():
    """Checksums that are known only behind the bytes: computed for the upload, in a trailer (TLS), or of a copied part."""
    bodies = [os.urandom(5 * MIB), os.urandom(100)]
    upload = begin("follow", ChecksumAlgorithm="CRC32", ChecksumType="FULL_OBJECT")
    first = bare.upload_part(**upload, PartNumber=1, Body=bodies[0])
    assert first["ChecksumCRC32"] == crc(bodies[0]), first
    # The part is sent anew: the checksum is that of the last.
    s3.put_object(Bucket=BUCKET, Key="source", Body=b"ab" + bodies[1] + b"c")
    bare.upload_part(**upload, PartNumber=2, Body=b"before")
    copied = s3.upload_part_copy(**upload, PartNumber=2, CopySource={"Bucket": BUCKET, "Key": "source"}, CopySourceRange="bytes=2-101")
    assert copied["CopyPartResult"]["ChecksumCRC32"] == crc(bodies[1]), copied
    listed = s3.list_parts(**upload)["Parts"]
    assert [one.get("ChecksumCRC32") for one in listed] == [crc(body) for body in bodies], listed
    pages = [s3.list_parts(**upload, MaxParts=1, PartNumberMarker=after) for after in (0, 1)]
    assert [page["Parts"][0]["ChecksumCRC32"] for page in pages] == [crc(body) for body in bodies], pages
    assert [page["IsTruncated"] for page in pages] == [True, False], pages
    named = [{"PartNumber": at + 1, "ETag": part["ETag"]} for at, part in enumerate(listed)]
    refused("BadDigest", s3.complete_multipart_upload, **upload, MultipartUpload={"Parts": named}, ChecksumCRC32=crc(b"x"))
    result = s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": named})
    assert (result["ChecksumCRC32"], result["ChecksumType"]) == (crc(b"".join(bodies)), "FULL_OBJECT"), result
    is_in_parts("follow", bodies, "ChecksumCRC32", [crc(body) for body in bodies], "FULL_OBJECT")


def copies_and_tags():
    """Tags leave the parts as they are; a copy is one part, whose checksum is that of all bytes."""
    bodies = [os.urandom(5 * MIB), b"end"]
    for name, metadata in [("short", {}), ("apart", {"long": "x" * 1000})]:
        key = f"tagged-{name}"
        upload, done = begin(key, ChecksumAlgorithm="CRC32", Metadata=metadata), []
        for at, body in enumerate(bodies):
            put = s3.upload_part(**upload, PartNumber=at + 1, Body=body)
            done.append({"PartNumber": at + 1, "ETag": put["ETag"], "ChecksumCRC32": put["ChecksumCRC32"]})
        result = s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": done})
        assert (result["ChecksumCRC32"], result["ChecksumType"]) == (composite(bodies), "COMPOSITE"), result
        sums = [crc(body) for body in bodies]
        is_in_parts(key, bodies, "ChecksumCRC32", sums, "COMPOSITE")
        s3.put_object_tagging(Bucket=BUCKET, Key=key, Tagging={"TagSet": [{"Key": "a", "Value": "b"}]})
        is_in_parts(key, bodies, "ChecksumCRC32", sums, "COMPOSITE")
        for more in [{}, {"MetadataDirective": "REPLACE"}]:
            copied = s3.copy_object(Bucket=BUCKET, Key="one-part", CopySource={"Bucket": BUCKET, "Key": key}, **more)["CopyObjectResult"]
            assert (copied["ChecksumCRC32"], copied["ChecksumType"]) == (crc(b"".join(bodies)), "FULL_OBJECT"), copied
            head = s3.head_object(Bucket=BUCKET, Key="one-part", ChecksumMode="ENABLED", PartNumber=1)
            assert head["ChecksumCRC32"] == crc(b"".join(bodies)) and "PartsCount" not in head, head
            assert "ObjectParts" not in parts_of("one-part")
            refused("InvalidPartNumber", s3.get_object, Bucket=BUCKET, Key="one-part", PartNumber=2)
        # Written anew, it is one part.
        s3.put_object(Bucket=BUCKET, Key=key, Body=b"anew")
        assert "ObjectParts" not in parts_of(key)
        assert s3.get_object(Bucket=BUCKET, Key=key, PartNumber=1)["Body"].read() == b"anew"


def conditions():
    bodies = [os.urandom(5 * MIB), b"end"]
    upload, done = begin("conditions"), []
    for at, body in enumerate(bodies):
        done.append({"PartNumber": at + 1, "ETag": s3.upload_part(**upload, PartNumber=at + 1, Body=body)["ETag"]})
    etag = s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": done})["ETag"]
    part = {"Bucket": BUCKET, "Key": "conditions", "PartNumber": 2}
    assert s3.get_object(**part, IfMatch=etag)["Body"].read() == b"end"
    refused("PreconditionFailed", s3.get_object, **part, IfMatch='"x"')
    refused("304", s3.get_object, **part, IfNoneMatch=etag)
    refused("InvalidRequest", s3.get_object, **part, Range="bytes=0-1")
    for number in [0, -1, 10_001]:
        refused("InvalidArgument", s3.get_object, **dict(part, PartNumber=number))


for check in [all_algorithms, what_aws_refuses_is_refused, sizes, checksums_that_follow, copies_and_tags, conditions]:
    check()
    print(check.__name__, flush=True)
