"""Times a page of a listing at an S3 store alone, through Concertina before it, and through Concertina that remembers nothing
of what it listed. The first page, then three rounds; each line is one server and one kind of page, with the times of the rounds in ms.

    target/clients/s3/bin/python experiments/s3/listings.py target/release/concertina ~/go/bin/versitygw

Needs boto3 (`.ci/setup` installs it with the AWS CLI) and versitygw."""
import concurrent.futures, os, socket, subprocess, sys, tempfile, time

import boto3
from botocore.config import Config

CONCERTINA, VERSITYGW = (os.path.abspath(os.path.expanduser(path)) for path in sys.argv[1:3])
OBJECTS, IN_EACH_FOLDER = 3000, 3
PAGES = {"1,000 objects": {}, "1,000 folders": {"Delimiter": "/"}, "one folder": {"Prefix": "d0500/", "Delimiter": "/"}}


def free():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def client(port, secret):
    config = Config(s3={"addressing_style": "path"}, max_pool_connections=16, read_timeout=600)
    return boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", aws_access_key_id="id", aws_secret_access_key=secret,
                        region_name="us-east-1", config=config)


def wait(port, process):
    for _ in range(200):
        assert process.poll() is None, f"{process.args[0]} ended with {process.returncode}"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit(f"{process.args[0]} does not listen after 20 s")


with tempfile.TemporaryDirectory() as folder:
    running, secret = [], "s" * 20
    os.makedirs(f"{folder}/data/objects")
    os.makedirs(f"{folder}/iam")
    with open(os.open(f"{folder}/keys", os.O_CREAT | os.O_WRONLY, 0o600), "w") as keys:
        keys.write(f'[[key]]\nid = "id"\nsecret = "{secret}"\nscopes = ["*:admin"]\n')

    def start(port, *command):
        quiet = subprocess.DEVNULL
        running.append(subprocess.Popen(command, cwd=tempfile.mkdtemp(dir=folder), stdout=quiet, stderr=quiet))
        wait(port, running[-1])
        return client(port, secret)

    def front(store, *more):
        port = free()
        sets = ["serve.listen=127.0.0.1:0", f"s3.listen=127.0.0.1:{port}", f"s3.keys={folder}/keys", 's3.buckets=["objects"]',
                "origin.kind=s3", f"origin.endpoint=http://127.0.0.1:{store}", "origin.bucket=objects",
                "origin.allow_http=true", "origin.access_key_id=id", f"origin.secret_access_key={secret}",
                *more]
        return start(port, CONCERTINA, "serve", *[one for it in sets for one in ("--set", it)])

    try:
        port = free()
        servers = {"versitygw alone": start(port, VERSITYGW, "--port", f"127.0.0.1:{port}", "--access", "id", "--secret", secret,
                                            "--quiet", "--iam-dir", f"{folder}/iam", "posix", f"{folder}/data")}
        servers["concertina"] = front(port)
        servers["concertina that remembers nothing"] = front(port, "origin.listed_bytes_max=0B")
        put = lambda n: servers["concertina"].put_object(Bucket="objects", Key=f"d{n // IN_EACH_FOLDER:04d}/o{n}", Body=b"x" * 100)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(put, range(OBJECTS)))
        # Objects are remembered once they are a minute old.
        for number, (path, _, files) in enumerate(os.walk(f"{folder}/data/objects")):
            for file in files:
                age = time.time() - 10_000 - number
                os.utime(f"{path}/{file}", (age, age))
        times = {(server, page): [] for server in servers for page in PAGES}
        for _ in range(4):
            for page, asked in PAGES.items():
                for server, s3 in servers.items():
                    begin = time.perf_counter()
                    s3.list_objects_v2(Bucket="objects", **asked)
                    times[server, page].append((time.perf_counter() - begin) * 1e3)
        for (server, page), taken in times.items():
            first, *rest = (f"{ms:.1f}" for ms in taken)
            print(f"{page:14} {server:34} first {first:>7}, then {', '.join(rest)} ms")
    finally:
        for process in running:
            process.terminate()
            process.wait()
