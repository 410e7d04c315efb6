"""Runs tests of versitygw's suite of integration tests (`versitygw test NAME`), which are not ours, against S3 fronts.

python3 s3_suite.py VERSITYGW S3_ADDRESS,HTTP_ADDRESS... < NAMES

Each front has its own buckets test-bucket-1, test-bucket-2 and so on, and runs one test at a time, in a process of its own. The
suite creates a bucket for each test and deletes it, which the fronts do not do: their buckets are their configuration's. So a
relay between suite and front answers CreateBucket and DeleteBucket of these names itself; all else passes as it came. What a
test leaves behind is deleted through the front's HTTP path, uploads in parts through S3's: HTTP may not write what is theirs. Prints the result of each test as JSON: null, or what it
said when it failed.
"""
import http.client, json, os, queue, re, socket, subprocess, sys, threading, time

import boto3

program, fronts = sys.argv[1], [one.split(",") for one in sys.argv[2:]]
OWN = re.compile(r"(PUT|DELETE) /test-bucket-\d+/?(\?x-id=\w+)? ")


def pump(source, target):
    try:
        while piece := source.recv(1 << 16):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def relay(client, front):
    """One request, and its reply: then the connection is closed."""
    with client, socket.create_connection(front) as server:
        head = b""
        while b"\r\n\r\n" not in head:
            piece = client.recv(1 << 16)
            if not piece:
                return
            head += piece
        head, _, body = head.partition(b"\r\n\r\n")
        if own := OWN.match(head.decode("latin1")):
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            left = int(length[1]) - len(body) if length else 0
            while left > 0 and (piece := client.recv(left)):
                left -= len(piece)
            status = b"200 OK" if own[1] == "PUT" else b"204 No Content"
            client.sendall(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        server.sendall(head + b"\r\nConnection: close\r\n\r\n" + body)
        up = threading.Thread(target=pump, args=(client, server), daemon=True)
        up.start()
        pump(server, client)


def listen(front):
    host, port = front.rsplit(":", 1)
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)

    def accept():
        while True:
            client, _ = listener.accept()
            threading.Thread(target=lambda: quietly(client), daemon=True).start()

    def quietly(client):
        try:
            relay(client, (host, int(port)))
        except OSError:
            pass

    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()[1]


def abort_uploads(s3):
    client = boto3.client("s3", endpoint_url=f"http://{s3}")
    for bucket in client.list_buckets()["Buckets"]:
        name = bucket["Name"]
        for page in client.get_paginator("list_multipart_uploads").paginate(Bucket=name):
            for upload in page.get("Uploads", []):
                client.abort_multipart_upload(Bucket=name, Key=upload["Key"], UploadId=upload["UploadId"])


def clear(s3, address):
    """Deletes all objects, and aborts all uploads in parts."""
    connection = http.client.HTTPConnection(address, timeout=30)

    def ask(method, path):
        connection.request(method, path)
        reply = connection.getresponse()
        return reply.status, reply.read()

    abort_uploads(s3)
    after = ""
    while True:
        status, body = ask("GET", "/objects?limit=1000&after=" + after)
        assert status == 200, body
        page = json.loads(body)
        for one in page["objects"]:
            ask("DELETE", "/objects/" + one["key"])
        if not page.get("next"):
            return
        after = page["next"]


names = queue.SimpleQueue()
for name in sys.stdin.read().split():
    names.put(name)
results = {}
environment = {name: value for name, value in os.environ.items() if name not in ("AWS_CA_BUNDLE", "AWS_SESSION_TOKEN")}


def work(s3, http_address):
    port = listen(s3)
    while True:
        try:
            name = names.get_nowait()
        except queue.Empty:
            return
        command = [program, "test", "--endpoint", f"http://127.0.0.1:{port}", name]
        try:
            start = time.monotonic()
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
        except subprocess.TimeoutExpired:
            results[name] = "no end within 60 s"
            clear(s3, http_address)
            continue
        if (took := time.monotonic() - start) > 5:
            print(f"{name} took {took:.0f} s", file=sys.stderr)
        # Uploads that were not completed stay when a test has passed too.
        clear(s3, http_address)
        out = re.sub(r"\x1b\[\d+m", "", done.stdout)
        # Some tests call themselves otherwise than their command.
        if done.returncode == 0 and re.search(r"(?m)^PASS ", out) and not re.search(r"(?m)^FAIL ", out):
            results[name] = None
            continue
        failed = re.search(r"(?ms)^FAIL (.*?)(?=^RUN|^PASS|\Z)", out)
        results[name] = (failed[1] if failed else out + done.stderr).strip()[:400]


threads = [threading.Thread(target=work, args=front) for front in fronts]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(results, indent=0, sort_keys=True))
