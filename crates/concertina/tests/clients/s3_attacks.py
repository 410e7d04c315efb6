"""Hostile clients of an S3 front: `s3_attacks.py HOST:PORT`, access keys as JSON in KEYS.

Requests are written byte by byte, with signatures of this file's own, so that each can be wrong in one way.
After every attack an honest request must be answered as before.
"""

import base64
import datetime
import hashlib
import hmac
import json
import os
import socket
import sys
import time
import urllib.parse
import zlib

HOST, PORT = sys.argv[1].rsplit(":", 1)
KEYS = json.loads(os.environ["KEYS"])
UNSIGNED = "UNSIGNED-PAYLOAD"


def key_of(secret, day, region="us-east-1", service="s3"):
    key = ("AWS4" + secret).encode()
    for part in [day, region, service, "aws4_request"]:
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


def quoted(text, safe=""):
    return urllib.parse.quote(text, safe=safe + "-_.~")


class Request:
    """A request that is right unless it is made wrong."""

    def __init__(self, method, path, who="admin", body=b"", skew=0, query=None, **headers):
        self.method, self.path, self.body = method, path, body
        self.id, self.secret = KEYS[who]
        self.when = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=skew)
        self.query = dict(query or {})
        self.payload = hashlib.sha256(body).hexdigest()
        self.headers = {"host": f"{HOST}:{PORT}"} | {name.replace("_", "-"): v for name, v in headers.items()}
        self.unsigned = {}
        self.length = True
        self.signature = None

    def canonical(self, names):
        query = "&".join(f"{quoted(n)}={quoted(v)}" for n, v in sorted(self.query.items()))
        lines = "".join(f"{name}:{self.headers[name].strip()}\n" for name in names)
        return "\n".join([self.method, quoted(self.path, "/"), query, lines, ";".join(names), self.payload])

    def sign(self, canonical):
        stamp, day = self.when.strftime("%Y%m%dT%H%M%SZ"), self.when.strftime("%Y%m%d")
        scope = f"{day}/us-east-1/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        self.signature = hmac.new(key_of(self.secret, day), text.encode(), hashlib.sha256).hexdigest()
        return scope, self.signature

    def signed(self):
        self.headers["x-amz-date"] = self.when.strftime("%Y%m%dT%H%M%SZ")
        self.headers["x-amz-content-sha256"] = self.payload
        names = sorted(self.headers)
        scope, signature = self.sign(self.canonical(names))
        self.unsigned["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self.id}/{scope}, SignedHeaders={';'.join(names)}, Signature={signature}"
        )
        return self

    def presigned(self, expires):
        day = self.when.strftime("%Y%m%d")
        names = sorted(self.headers)
        self.payload = UNSIGNED
        self.query |= {
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-Credential": f"{self.id}/{day}/us-east-1/s3/aws4_request",
            "X-Amz-Date": self.when.strftime("%Y%m%dT%H%M%SZ"),
            "X-Amz-Expires": str(expires),
            "X-Amz-SignedHeaders": ";".join(names),
        }
        self.query["X-Amz-Signature"] = self.sign(self.canonical(names))[1]
        return self

    def bytes(self):
        query = "&".join(f"{quoted(n)}={quoted(v)}" for n, v in self.query.items())
        target = quoted(self.path, "/") + (f"?{query}" if query else "")
        lines = [f"{self.method} {target} HTTP/1.1"]
        for name, value in (self.headers | self.unsigned).items():
            lines.append(f"{name}: {value}")
        if self.length and self.method in ("PUT", "POST"):
            lines.append(f"content-length: {len(self.body)}")
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + self.body


def talk(data, wait=5.0):
    """What comes until the server closes, or has sent one reply."""
    with socket.create_connection((HOST, int(PORT)), timeout=wait) as stream:
        reply = b""
        try:
            stream.sendall(data)
        except OSError:
            pass
        while True:
            try:
                piece = stream.recv(1 << 16)
            except OSError:
                break
            if not piece:
                break
            reply += piece
            head, found, body = reply.partition(b"\r\n\r\n")
            length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            if found and length and len(body) >= int(length[0].split(b":")[1]):
                break
        return reply


def status(request):
    reply = talk(request.bytes() if isinstance(request, Request) else request)
    for _, secret in KEYS.values():
        assert secret.encode() not in reply, reply
    line = reply.split(b"\r\n", 1)[0].split(b" ")
    return int(line[1]) if len(line) > 1 else None


def honest():
    assert status(Request("GET", "/objects/kept").signed()) == 200


def check(what, request, *expected):
    found = status(request)
    assert found in expected, f"{what}: {found}, not {expected}"
    honest()
    print(what, found, flush=True)


assert status(Request("PUT", "/objects/kept", body=b"kept").signed()) == 200
assert status(Request("PUT", "/photos/kept", body=b"photo").signed()) == 200
honest()

# Bad signatures.
check("no signature", Request("GET", "/objects/kept"), 403)
request = Request("GET", "/objects/kept").signed()
request.unsigned["authorization"] = request.unsigned["authorization"][:-4] + "0000"
check("another signature", request, 403)
request = Request("GET", "/objects/kept").signed()
request.path = "/objects/other"
check("another path than was signed", request, 403)
request = Request("GET", "/objects/kept", query={"versionId": "null"}).signed()
request.query["versionId"] = "x"
check("another query than was signed", request, 403)
request = Request("PUT", "/objects/kept", body=b"good").signed()
request.body = b"evil"
check("other bytes than were signed", request, 400, 403)
body = b"<Delete><Object><Key>kept</Key></Object></Delete>"
request = Request("POST", "/objects", query={"delete": ""}, body=body).signed()
request.body = body.replace(b"kept", b"kepT")
check("other XML than was signed", request, 400)
assert b"<Code>XAmzContentSHA256Mismatch</Code>" in talk(request.bytes())
request.body = body[:-1]
check("less XML than was signed", request, 400)
# Bodies that are sent on while they arrive, where a store is behind.
large = os.urandom(3 << 20)
check("a large body", Request("PUT", "/objects/large", body=large).signed(), 200)
request = Request("PUT", "/objects/large", body=large).signed()
request.body = large[:-1] + bytes([large[-1] ^ 1])
check("a large body whose last byte is another", request, 400)
assert b"<Code>XAmzContentSHA256Mismatch</Code>" in talk(request.bytes())
request.body = large[::-1]
check("another large body than was signed", request, 400)
data = Request("PUT", "/objects/large", body=large[::-1]).signed().bytes()
for end in [1 << 20, len(data) - 1]:
    with socket.create_connection((HOST, int(PORT)), timeout=5) as stream:
        stream.sendall(data[:end])
    honest()
assert talk(Request("GET", "/objects/large").signed().bytes()).endswith(b"\r\n\r\n" + large)
request = Request("GET", "/objects/kept")
request.secret = "x" * 20
check("another secret", request.signed(), 403)
request = Request("GET", "/objects/kept")
request.id = "nobody"
check("an id that there is not", request.signed(), 403)
for wrong in ["", "AWS4-HMAC-SHA256", "AWS4-HMAC-SHA256 Credential=", "Bearer x", "AWS a:b", "\xff" * 10, "AWS4-HMAC-SHA256 " + "," * 5000]:
    request = Request("GET", "/objects/kept")
    request.unsigned["authorization"] = wrong.encode("latin-1").decode("latin-1")
    data = request.bytes()
    found = status(data)
    assert found in (400, 403), (wrong[:40], found)
    honest()
request = Request("GET", "/objects/kept").signed()
data = request.bytes().replace(b"\r\nauthorization:", b"\r\nauthorization: AWS4-HMAC-SHA256 x\r\nauthorization:")
check("two signatures", data, 400, 403)
request = Request("GET", "/objects/kept?X-Amz-SignedHeaders=host").signed()
check("the old signature in a query", b"GET /objects/kept?AWSAccessKeyId=admin-key&Expires=99999999999&Signature=x HTTP/1.1\r\nhost: x\r\n\r\n", 403)

# Headers that are not signed.
request = Request("PUT", "/objects/copied", body=b"").signed()
request.unsigned["x-amz-copy-source"] = "/photos/kept"
check("a copy that was not signed", request, 403)
request = Request("PUT", "/objects/copied").presigned(60)
request.unsigned["x-amz-copy-source"] = "/photos/kept"
check("a copy by a URL for a PUT", request, 403)
request = Request("GET", "/objects/kept")
request.headers.pop("host")
request.unsigned["host"] = "elsewhere"
check("a host that was not signed", request.signed(), 400, 403)

# Replay past expiry, and clocks.
check("a request of sixteen minutes ago", Request("GET", "/objects/kept", skew=-960).signed(), 403)
check("a request of sixteen minutes ahead", Request("GET", "/objects/kept", skew=960).signed(), 403)
check("a request of ten minutes ago", Request("GET", "/objects/kept", skew=-600).signed(), 200)
check("a URL in time", Request("GET", "/objects/kept", skew=-50).presigned(60), 200)
check("a URL past its time", Request("GET", "/objects/kept", skew=-70).presigned(60), 403)
check("a URL of tomorrow", Request("GET", "/objects/kept", skew=86400).presigned(60), 403)
check("a URL for too long", Request("GET", "/objects/kept").presigned(8 * 86400), 400, 403)
request = Request("GET", "/objects/kept", skew=-70).presigned(60)
request.query["X-Amz-Expires"] = "6000"
check("a URL whose time was lengthened", request, 403)
request = Request("GET", "/objects/kept").presigned(60)
request.method = "DELETE"
check("a URL for another method", request, 403)

# Scopes.
check("a reader reads", Request("GET", "/objects/kept", "reader").signed(), 200)
for method, path, query in [
    ("PUT", "/objects/kept", {}), ("DELETE", "/objects/kept", {}), ("POST", "/objects/kept", {"uploads": ""}),
    ("POST", "/objects", {"delete": ""}), ("GET", "/photos/kept", {}), ("GET", "/photos", {"list-type": "2"}),
    ("GET", "/objects", {"uploads": ""}), ("GET", "/objects", {"acl": ""}), ("DELETE", "/objects", {}),
]:
    check(f"a reader's {method} {path} {query}", Request(method, path, "reader", query=query).signed(), 403)
# Of operations that there are not, a reader learns no more than that it may not.
for method, path, query, headers in [
    ("POST", "/objects", {"metadataConfiguration": ""}, {}),
    ("POST", "/objects/kept", {"unknown": ""}, {}),
    ("PATCH", "/objects/kept", {}, {}),
    ("PUT", "/objects/kept", {}, {"content_type": "multipart/form-data; boundary=x"}),
    ("PATCH", "/photos/kept", {}, {}),
]:
    request = Request(method, path, "reader", query=query, **headers).signed()
    check(f"a reader's {method} {path} {query}", request, 403)
    if path.startswith("/objects"):
        request = Request(method, path, "admin", query=query, **headers).signed()
        check(f"an administrator's {method} {path} {query}", request, 501)
check("a writer writes", Request("PUT", "/photos/new", "writer", b"x").signed(), 200)
check("a writer elsewhere", Request("PUT", "/objects/new", "writer", b"x").signed(), 403)
check("a writer reads elsewhere", Request("GET", "/objects/kept", "writer").signed(), 403)
check("a copy from elsewhere", Request("PUT", "/photos/stolen", "writer", x_amz_copy_source="/objects/kept").signed(), 403)
check("a copy of one's own", Request("PUT", "/photos/copy", "writer", x_amz_copy_source="/photos/kept").signed(), 200)
for path in ["/photos/../kept", "/photos/./../kept", "/photos//../kept", "/photos/%2e%2e/kept"]:
    reply = talk(Request("GET", path, "writer").signed().bytes())
    assert b"200 OK" not in reply.split(b"\r\n")[0] and b"\r\nkept" not in reply, (path, reply)
    honest()
for path in ["/photos%2f..%2fobjects%2fkept", "/photos%00/kept", "/PHOTOS/kept", "/objects/../photos/kept"]:
    reply = talk(Request("GET", path, "reader").signed().bytes())
    assert b" 200 " not in reply.split(b"\r\n")[0], (path, reply)
    honest()
for source in ["/photos/../objects/kept", "photos/../../objects/kept", "/photos%2f..%2fobjects/kept", "/objects%2fkept", "objects/kept?versionId=null"]:
    reply = talk(Request("PUT", "/photos/stolen", "writer", x_amz_copy_source=source).signed().bytes())
    assert b" 200 " not in reply.split(b"\r\n")[0], (source, reply)
    honest()
check("nothing was stolen", Request("GET", "/photos/stolen", "writer").signed(), 404)
for name in [b"../objects/kept", b"/objects/kept", b"../kept", b"!s3/begun/x"]:
    body = b"<Delete><Object><Key>" + name + b"</Key></Object></Delete>"
    digest = base64.b64encode(hashlib.md5(body).digest()).decode()
    request = Request("POST", "/photos", "writer", query={"delete": ""}, body=body, content_md5=digest)
    status(request.signed())
    honest()
# An upload of one bucket has no parts and no end in another.
reply = talk(Request("POST", "/objects/upload", query={"uploads": ""}).signed().bytes())
upload = reply.split(b"<UploadId>")[1].split(b"<")[0].decode()
check("a part of another's upload", Request("PUT", "/photos/upload", "writer", b"x", query={"partNumber": "1", "uploadId": upload}).signed(), 403, 404)
done = b"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>x</ETag></Part></CompleteMultipartUpload>"
check("the end of another's upload", Request("POST", "/photos/upload", "writer", done, query={"uploadId": upload}).signed(), 400, 403, 404)
check("another's upload given up", Request("DELETE", "/photos/upload", "writer", query={"uploadId": upload}).signed(), 403, 404)
for query, expected in [({"max-parts": "-1"}, 400), ({"part-number-marker": "-1"}, 400), ({"max-parts": "0"}, 200)]:
    check(f"parts with {query}", Request("GET", "/objects/upload", query=query | {"uploadId": upload}).signed(), expected)
check("one's own given up", Request("DELETE", "/objects/upload", query={"uploadId": upload}).signed(), 204)
for name in ["response-content-type", "response-content-disposition", "response-cache-control"]:
    reply = talk(Request("GET", "/objects/kept", query={name: "a\r\nset-cookie: b"}).signed().bytes())
    assert b"\nset-cookie" not in reply.lower(), reply
    honest()
check("parts of uploads", Request("GET", "/objects/!s3/begun/x").signed(), 403)

# Traversal: keys are names, not paths.
for path in ["/objects/../../../../etc/passwd", "/objects/..%2f..%2fetc/passwd", "/../etc/passwd", "/objects/\x00/../x"]:
    reply = talk(Request("GET", path).signed().bytes())
    assert b"root:" not in reply and b" 200 " not in reply.split(b"\r\n")[0], (path, reply)
    honest()
assert status(Request("PUT", "/objects/../../escaped", body=b"x").signed()) in (200, 400, 403)
honest()

# Smuggling: one request must not be two.
inner = Request("DELETE", "/objects/kept").signed().bytes()
outer = Request("PUT", "/objects/outer", body=b"x").signed()
outer.length = False
head = outer.bytes()[: -len(outer.body) - 2]
for what, lines, body in [
    ("both lengths", b"content-length: 1\r\ntransfer-encoding: chunked\r\n", b"0\r\n\r\n"),
    ("both lengths, the other way", b"transfer-encoding: chunked\r\ncontent-length: 5\r\n", b"0\r\n\r\n"),
    ("two lengths", b"content-length: 1\r\ncontent-length: 200\r\n", b"x"),
    ("a list of lengths", b"content-length: 1, 200\r\n", b"x"),
    ("a signed length", b"content-length: +1\r\n", b"x"),
    ("a length with a space in its name", b"content-length : 1\r\n", b"x"),
    ("an odd encoding", b"transfer-encoding: xchunked\r\n", b"1\r\nx\r\n0\r\n\r\n"),
    ("a folded line", b"content-length:\r\n 1\r\n", b"x"),
    ("an odd chunk", b"transfer-encoding: chunked\r\n", b"0x1\r\nx\r\n0\r\n\r\n"),
]:
    reply = talk(head + lines + b"\r\n" + body, wait=2.0)
    assert b" 200 " not in reply.split(b"\r\n")[0] or what == "an odd chunk", (what, reply)
    assert reply.count(b"HTTP/1.1 ") <= 1, (what, reply)
    honest()

# A parameter that the operation of a method would pass by: the object itself would be removed, replaced or shown.
for name in ["acl", "retention", "legal-hold", "torrent", "attributes", "restore", "policy"]:
    check(f"DELETE ?{name}", Request("DELETE", "/objects/kept", query={name: ""}).signed(), 405)
for name in ["torrent", "attributes", "restore", "select", "policy"]:
    check(f"PUT ?{name}", Request("PUT", "/objects/kept", body=b"<x/>", query={name: ""}).signed(), 405)
check("GET ?policy", Request("GET", "/objects/kept", query={"policy": ""}).signed(), 405)
for query in [{"partNumber": "1"}, {"uploadId": "x"}, {"versionId": "x"}, {"versionId": "null"}]:
    check(f"PUT ?{query}", Request("PUT", "/objects/kept", body=b"<x/>", query=query).signed(), 400)
check("PUT of a bucket's uploads", Request("PUT", "/objects", query={"uploads": ""}).signed(), 405)
assert talk(Request("GET", "/objects/kept").signed().bytes()).endswith(b"\r\n\r\nkept")

# XML that names another object to one who reads it otherwise, or none.
for name in ["na", "nab"]:
    assert status(Request("PUT", f"/objects/{name}", body=b"x").signed()) == 200
for key in [b"na<![CDATA[b]]>", b"<![CDATA[na]]>", b""]:
    body = b"<Delete><Object><Key>" + key + b"</Key></Object></Delete>"
    request = Request("POST", "/objects", query={"delete": ""}, body=body).signed()
    check(f"the key {key}", request, 400)
    assert b"<Code>MalformedXML</Code>" in talk(request.bytes())
    for name in ["na", "nab"]:
        assert status(Request("GET", f"/objects/{name}").signed()) == 200, (key, name)
body = b"<Delete><Object><Key>na<!-- c -->&#98;</Key></Object></Delete>"
check("a comment and a reference", Request("POST", "/objects", query={"delete": ""}, body=body).signed(), 200)
check("the key before the comment", Request("GET", "/objects/na").signed(), 200)
check("the whole key", Request("GET", "/objects/nab").signed(), 404)
# XML in chunks, where the looks at XML would not see it, and names with a prefix, whose elements nobody may pass by.
def in_chunks(query, body, signed):
    request = Request("POST" if "tagging" not in query else "PUT", "/objects" if "delete" in query else "/objects/kept", query=query)
    request.payload = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" if signed else "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
    request.headers["x-amz-decoded-content-length"] = str(len(body))
    request.headers["content-encoding"] = "aws-chunked"
    if not signed:
        request.headers["x-amz-trailer"] = "x-amz-checksum-crc32"
    request.signed()
    chunk = b";chunk-signature=" + b"0" * 64 if signed else b""
    checksum = base64.b64encode(zlib.crc32(body).to_bytes(4, "big"))
    end = b"" if signed else b"x-amz-checksum-crc32:" + checksum + b"\r\n"
    request.body = b"%x%s\r\n%s\r\n0%s\r\n%s\r\n" % (len(body), chunk, body, chunk, end)
    return request


assert status(Request("PUT", "/objects/na", body=b"x").signed()) == 200
assert status(Request("PUT", "/objects/kept", query={"tagging": ""}, body=b"<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>").signed()) == 200
for key in [b"na", b"na<![CDATA[b]]>"]:
    for signed in [False, True]:
        body = b"<Delete><Object><Key>" + key + b"</Key></Object></Delete>"
        check(f"{key} in chunks", in_chunks({"delete": ""}, body, signed), 501)
check("tags in chunks", in_chunks({"tagging": ""}, b"<Tagging><TagSet/></Tagging>", False), 501)
named = b' xmlns:s="http://s3.amazonaws.com/doc/2006-03-01/"'
for body in [
    b"<s:Delete%s><s:Object><s:Key>na</s:Key></s:Object></s:Delete>",
    b"<Delete%s><s:Object><Key>na</Key></s:Object></Delete>",
    b"<Delete%s><Object><Key>na</Key><s:ETag>other</s:ETag></Object></Delete>",
    b"<Delete%s><Object><Key>na</Key></Object><s:Quiet>true</s:Quiet></Delete>",
]:
    request = Request("POST", "/objects", query={"delete": ""}, body=body % named).signed()
    check("names with a prefix", request, 400)
    assert b"<Code>MalformedXML</Code>" in talk(request.bytes()), body
for body in [b"<s:Tagging%s><s:TagSet/></s:Tagging>", b"<Tagging%s><s:TagSet/></Tagging>", b"<Tagging%s><TagSet><s:Tag/></TagSet></Tagging>"]:
    check("tags with a prefix", Request("PUT", "/objects/kept", query={"tagging": ""}, body=body % named).signed(), 400)
assert status(Request("GET", "/objects/na").signed()) == 200
assert b"<Key>a</Key>" in talk(Request("GET", "/objects/kept", query={"tagging": ""}).signed().bytes())
assert status(Request("DELETE", "/objects/kept", query={"tagging": ""}).signed()) == 204
body = b"<Delete%s><Object><Key>na</Key></Object></Delete>" % named
check("a prefix that is not used", Request("POST", "/objects", query={"delete": ""}, body=body).signed(), 200)

for source in ["objects/", "/objects/"]:
    check("a copy of nothing", Request("PUT", "/objects/copied", x_amz_copy_source=source).signed(), 400)

# A client that ends its side after a request, and waits for the reply.
def ended(request):
    with socket.create_connection((HOST, int(PORT)), timeout=20) as stream:
        stream.sendall(request.bytes())
        stream.shutdown(socket.SHUT_WR)
        reply = b""
        while piece := stream.recv(1 << 16):
            reply += piece
        return reply


for size in [4, 3 << 20]:
    data = os.urandom(size)
    reply = ended(Request("PUT", "/objects/ended", body=data).signed())
    assert reply.startswith(b"HTTP/1.1 200 "), (size, reply)
    assert ended(Request("GET", "/objects/ended").signed()).endswith(b"\r\n\r\n" + data), size
    assert ended(Request("GET", "/objects", query={"list-type": "2"}).signed()).startswith(b"HTTP/1.1 200 ")
reply = ended(Request("DELETE", "/objects/ended").signed())
assert reply.startswith(b"HTTP/1.1 204 "), reply
honest()

# Too much of everything.
check("a long head", Request("GET", "/objects/kept", x_amz_meta_a="x" * 100_000).signed(), 431)
check("many headers", b"GET /objects/kept HTTP/1.1\r\nhost: x\r\n" + b"".join(b"a%d: b\r\n" % n for n in range(2000)) + b"\r\n", 400, 403, 431)
check("a long key", Request("GET", "/objects/" + "k" * 1025).signed(), 400)
check("much metadata", Request("PUT", "/objects/meta", body=b"x", x_amz_meta_a="x" * 3000).signed(), 400)
check("a long token", Request("GET", "/objects", query={"list-type": "2", "continuation-token": "0" * 9000}).signed(), 400)
check("a token that is none", Request("GET", "/objects", query={"list-type": "2", "continuation-token": "zz"}).signed(), 400)
check("a negative page", Request("GET", "/objects", query={"list-type": "2", "max-keys": "-1"}).signed(), 400)
many = b"<Delete>" + b"".join(b"<Object><Key>k%d</Key></Object>" % n for n in range(1001)) + b"</Delete>"
check("a multi-delete of too many", Request("POST", "/objects", query={"delete": ""}, body=many).signed(), 400)
huge = b"<Delete>" + b" " * (5 << 20) + b"</Delete>"
found = status(Request("POST", "/objects", query={"delete": ""}, body=huge).signed())
assert found in (400, 413), found
bomb = b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">' + b"".join(b'<!ENTITY a%d "%s">' % (n, b"&a;" * 10) for n in range(9)) + b"]><Delete><Object><Key>&a8;</Key></Object></Delete>"
check("entities in XML", Request("POST", "/objects", query={"delete": ""}, body=bomb).signed(), 400)
check("XML that ends early", Request("POST", "/objects", query={"delete": ""}, body=b"<Delete><Obj").signed(), 400)
deep = b"<Delete>" + b"<Object>" * 20_000
check("deep XML", Request("POST", "/objects", query={"delete": ""}, body=deep).signed(), 400)
request = Request("PUT", "/objects/huge").signed()
request.unsigned["content-length"] = str(1 << 62)
request.length = False
found = status(request)
assert found in (400, 411, 413, 507, 503, None), found
honest()
check("a form", Request("POST", "/objects", body=b"--x--", content_type="multipart/form-data; boundary=x").signed(), 501)

# Chunks whose signatures are wrong.
def chunked(first, second, wrong):
    request = Request("PUT", "/objects/chunked")
    request.payload = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
    request.headers["x-amz-decoded-content-length"] = str(len(first) + len(second))
    request.headers["content-encoding"] = "aws-chunked"
    request.signed()
    stamp, day = request.when.strftime("%Y%m%dT%H%M%SZ"), request.when.strftime("%Y%m%d")
    scope, before, body = f"{day}/us-east-1/s3/aws4_request", request.signature, b""
    for chunk in [first, second, b""]:
        text = "\n".join(["AWS4-HMAC-SHA256-PAYLOAD", stamp, scope, before, hashlib.sha256(b"").hexdigest(), hashlib.sha256(chunk).hexdigest()])
        before = hmac.new(key_of(request.secret, day), text.encode(), hashlib.sha256).hexdigest()
        sent = chunk if chunk != wrong else chunk[::-1]
        body += b"%x;chunk-signature=%s\r\n%s\r\n" % (len(chunk), before.encode(), sent)
    request.body = body
    return request


check("signed chunks", chunked(b"ab" * 5000, b"cd", None), 200)
check("a chunk that was changed", chunked(b"ab" * 5000, b"cd", b"cd"), 400, 403)
request = chunked(b"ab" * 5000, b"cd", None)
request.body = request.body[:-90]
request.unsigned["connection"] = "close"
found = status(request)
assert found in (400, 403, None), found
honest()
assert talk(Request("GET", "/objects/chunked").signed().bytes()).endswith(b"cd")

check("a signed chunk that would take much memory", chunked(b"x" * (17 << 20), b"cd", None), 400)
assert b"sign chunks of at most" in talk(chunked(b"x" * (17 << 20), b"cd", None).bytes())
assert talk(Request("GET", "/objects/chunked").signed().bytes()).endswith(b"cd")

# A whole object as one chunk, which takes longer than a stalled client may: it is no such client.
whole = bytes(range(256)) * 12000
request = Request("PUT", "/objects/whole")
request.payload = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
request.headers["x-amz-decoded-content-length"] = str(len(whole))
request.headers["content-encoding"] = "aws-chunked"
request.headers["x-amz-trailer"] = "x-amz-checksum-crc32"
request.signed()
checksum = base64.b64encode(zlib.crc32(whole).to_bytes(4, "big"))
request.body = b"%x\r\n%s\r\n0\r\nx-amz-checksum-crc32:%s\r\n\r\n" % (len(whole), whole, checksum)
data = request.bytes()
# Heads of which a part is a size of 4 GiB.
for head in [b"ffffffff0", b"ffffffffx", b"ffffffff;chunk-signature=" + b"0" * 64]:
    request.body = head + b"\r\n" + b"x" * (1 << 20)
    check(f"a chunk of {head[:10]}", request, 400)
with socket.create_connection((HOST, int(PORT)), timeout=10) as stream:
    step = len(data) // 8 + 1
    for at in range(0, len(data), step):
        stream.sendall(data[at : at + step])
        time.sleep(0.5)
    reply = stream.recv(1 << 16)
    assert reply.startswith(b"HTTP/1.1 200 "), reply
assert talk(Request("GET", "/objects/whole").signed().bytes()).endswith(whole)

# Slow clients: a connection that says nothing more, beside honest ones.
idle = []
for data in [b"GET /objects/kept HTTP/1.1\r\n", Request("PUT", "/objects/slow", body=b"x" * 1000).signed().bytes()[:-500]]:
    stream = socket.create_connection((HOST, int(PORT)), timeout=10)
    stream.sendall(data)
    idle.append(stream)
honest()
for stream in idle:
    while stream.recv(4096):
        pass
    stream.close()
honest()
