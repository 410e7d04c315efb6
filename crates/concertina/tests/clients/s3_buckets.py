"""A relay that makes the buckets of a front seem to come and go, for suites of tests that create a bucket for each test.

python3 s3_buckets.py FRONT_ADDRESS [PORT]

The buckets of a front are its configuration's. A suite gets the relay's address (printed first; a free port unless one is given) and names its
buckets as the configuration has them. Each request goes to the front first, which checks its signature, and each reply comes back as it is, but for three:
CreateBucket of a bucket that is served (`BucketAlreadyOwnedByYou`) becomes a success, DeleteBucket (`NotImplemented`) is answered as S3 would, by what
the bucket holds, and ListBuckets shows those that were created. The keys of an administrator are in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
"""
import re, socket, sys, threading

import boto3
from botocore.config import Config

host, port = sys.argv[1].rsplit(":", 1)
front = (host, int(port))
s3 = boto3.client(
    "s3", endpoint_url=f"http://{sys.argv[1]}", region_name="us-east-1",
    config=Config(s3={"addressing_style": "path"}, signature_version="s3v4", retries={"max_attempts": 1}),
)
OF_BUCKET = re.compile(r"(PUT|DELETE) /([^/?]+)/?(\?x-id=\w+)? ")
OF_ALL = re.compile(r"GET /(\?x-id=\w+)? ")
created = set()


def pump(source, target):
    try:
        while piece := source.recv(1 << 16):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def is_empty(bucket):
    return not s3.list_objects_v2(Bucket=bucket, MaxKeys=1).get("Contents")


def abort_uploads(bucket):
    for page in s3.get_paginator("list_multipart_uploads").paginate(Bucket=bucket):
        for upload in page.get("Uploads", []):
            s3.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])


def reply(status, code=None):
    body = f"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code></Error>".encode() if code else b""
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nContent-Type: application/xml\r\nConnection: close\r\n\r\n".encode() + body


def of_bucket(method, bucket, answer):
    """What the client gets for an answer of the front about a bucket."""
    if method == "PUT" and b"<Code>BucketAlreadyOwnedByYou</Code>" in answer:
        created.add(bucket)
        return reply("200 OK")
    if method == "DELETE" and b"<Code>NotImplemented</Code>" in answer:
        if bucket not in created:
            return reply("404 Not Found", "NoSuchBucket")
        if not is_empty(bucket):
            return reply("409 Conflict", "BucketNotEmpty")
        abort_uploads(bucket)
        created.discard(bucket)
        return reply("204 No Content")
    return answer


def of_all(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    name = lambda bucket: re.search(rb"<Name>(.*?)</Name>", bucket)[1].decode()
    body = re.sub(rb"<Bucket>.*?</Bucket>", lambda one: one[0] if name(one[0]) in created else b"", body, flags=re.S)
    head = re.sub(rb"(?i)\r\ncontent-length: *\d+", b"", head)
    return head + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def relay(client):
    """One request, and its reply: then the connection is closed."""
    with client, socket.create_connection(front) as server:
        head = b""
        while b"\r\n\r\n" not in head:
            piece = client.recv(1 << 16)
            if not piece:
                return
            head += piece
        head, _, body = head.partition(b"\r\n\r\n")
        text = head.decode("latin1")
        server.sendall(head + b"\r\nConnection: close\r\n\r\n" + body)
        threading.Thread(target=pump, args=(client, server), daemon=True).start()
        named = OF_BUCKET.match(text)
        if not named and not OF_ALL.match(text):
            return pump(server, client)
        answer = b""
        while piece := server.recv(1 << 16):
            answer += piece
        client.sendall(of_bucket(named[1], named[2], answer) if named else of_all(answer))


def quietly(client):
    try:
        relay(client)
    except OSError:
        pass


listener = socket.create_server(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 0), backlog=256)
print(f"127.0.0.1:{listener.getsockname()[1]}", flush=True)
while True:
    client, _ = listener.accept()
    threading.Thread(target=quietly, args=(client,), daemon=True).start()
