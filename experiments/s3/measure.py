"""GET with signature version 4, from memory, and PUT, through Concertina's S3 front and beside versitygw.

python3 measure.py CONCERTINA VERSITYGW REQUESTS_PER_SLICE BLOCKS [NGINX [TAG]]

CONCERTINA is the program; VERSITYGW the rival, on a folder in memory; TAG the Tigris Acceleration Gateway, with its cache in memory and
that versitygw as its store; NGINX is nginx, as a bare relay of PUTs. What is not named (or is "-") is left out. Each server has processor 0 (Concertina with one thread,
versitygw and TAG with GOMAXPROCS=1), the client processor 1, with 8 connections in a closed loop. The client is this script: it sends
requests that were signed before, in their headers as S3's clients sign (a signature is good for 15 minutes), one for each key.
Slices are in random order within blocks. Prints, for each size and kind, the server's processor time for a request in each block,
in microseconds (all of its threads, /proc/PID/task/*/schedstat, over the requests alone), as JSON. Kinds: `s3` is the front, `presigned` the front with signatures in the URL, `http` the plain path of the same process, `versitygw` and `tag` the
rivals, `nginx` a static server of versitygw's files (sendfile, one process, no signature).

Then PUT: the client has one connection in a closed loop, to versitygw (`store`), or to a second front (`front`) whose origin is a
bucket of that versitygw, or to TAG (`tag`) or nginx (`nginx`, which passes bytes on and checks nothing) before the same versitygw. What stands
before the store shares the client's processor, since of these two only one works at a time (TAG has it for the PUTs only). All kinds take short
slices in turn. For each size (`put-4k` and so on) the median time of a request in each block is printed, in microseconds, and under `put-cpu-4k` and so on the
front's processor time for one.
"""
import atexit, datetime, hashlib, hmac, json, os, random, selectors, socket, subprocess, sys, tempfile, time

program, rival, requests, blocks = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
static = None
nginx, tag = ([None if one == "-" else one for one in sys.argv[5:7]] + [None, None])[:2]
random.seed(11)


def free():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{one.getsockname()[1]}"


STORE = free()
KEY = {"AWS_ACCESS_KEY_ID": "measured", "AWS_SECRET_ACCESS_KEY": "measured-secret-of-the-experiment"}
SIZES = {"4k": (4096, 500, 1), "100k": (102400, 500, 0.5), "8M": (8 << 20, 8, 0.01)}
folder = tempfile.mkdtemp(dir="/dev/shm")
os.mkdir(folder + "/origin")
with open(folder + "/keys", "w") as file:
    file.write(f'[[key]]\nid = "measured"\nsecret = "{KEY["AWS_SECRET_ACCESS_KEY"]}"\nscopes = ["*:admin"]\n')
os.chmod(folder + "/keys", 0o600)
sets = [
    "serve.listen=127.0.0.1:0", "serve.threads=1", "node.revalidate_s=100000", "node.memory_bytes=512MiB", "node.object_bytes_max=16MiB",
    f"origin.path={folder}/origin", f"device.0.path={folder}/device", "s3.listen=127.0.0.1:0", f"s3.keys={folder}/keys",
]
own = subprocess.Popen(
    ["taskset", "-c", "0", program, "serve", "--json"] + [part for one in sets for part in ("--set", one)],
    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
)
told = json.loads(own.stdout.readline())
os.sched_setaffinity(0, {1})
os.makedirs(folder + "/versitygw/objects")
os.makedirs(folder + "/versitygw/behind")
other = subprocess.Popen(
    ["taskset", "-c", "0", rival, "--port", STORE, "--access", KEY["AWS_ACCESS_KEY_ID"], "--secret", KEY["AWS_SECRET_ACCESS_KEY"], "--quiet", "--keep-alive", "posix", folder + "/versitygw"],
    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ | {"GOMAXPROCS": "1"},
)
time.sleep(1.5)
sets = [
    "serve.listen=127.0.0.1:0", "serve.threads=1", "node.memory_bytes=512MiB", "node.object_bytes_max=16MiB", "origin.kind=s3", "origin.bucket=behind",
    f"origin.endpoint=http://{STORE}", "origin.allow_http=true", f"device.0.path={folder}/device2", "s3.listen=127.0.0.1:0", f"s3.keys={folder}/keys",
]
middle = subprocess.Popen(
    ["taskset", "-c", "1", program, "serve", "--json"] + [part for one in sets for part in ("--set", one)],
    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=os.environ | KEY,
)
processes = [own, other, middle]
atexit.register(lambda: ([one.kill() for one in processes], subprocess.run(["rm", "-rf", folder])))
before_store = json.loads(middle.stdout.readline())["s3"]
targets = {
    "s3": (own, f"s3://objects?endpoint=http://{told['s3']}"),
    "presigned": (own, None),
    "http": (own, f"http://{told['address']}"),
    "versitygw": (other, "s3://objects?endpoint=http://" + STORE),
}
# Where PUTs go, and the bucket.
puts = {"store": (STORE, "objects"), "front": (before_store, "behind")}


def wait_for(address):
    host, port = address.rsplit(":", 1)
    for _ in range(100):
        try:
            return socket.create_connection((host, int(port))).close()
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"{address} does not listen")


if nginx:
    relay = free()
    with open(folder + "/nginx.conf", "w") as file:
        file.write(f"""daemon off; worker_processes 1; error_log /dev/null; pid {folder}/nginx.pid;
events {{}}
http {{
  access_log off; client_max_body_size 0; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/1; uwsgi_temp_path {folder}/2; scgi_temp_path {folder}/3;
  upstream store {{ server {STORE}; keepalive 8; }}
  server {{
    listen {relay};
    location / {{ proxy_pass http://store; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host {STORE}; proxy_request_buffering off; }}
  }}
}}
""")
    processes.append(subprocess.Popen(["taskset", "-c", "1", nginx, "-c", folder + "/nginx.conf"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    wait_for(relay)
    puts["nginx"] = (relay, "objects")
    static = free()
    # One process, whose threads are all that works; versitygw's buckets are folders. keepalive_requests: as many as a slice has.
    with open(folder + "/static.conf", "w") as file:
        file.write(f"""daemon off; master_process off; user root; error_log /dev/null; pid {folder}/static.pid;
events {{}}
http {{
  access_log off; sendfile on; tcp_nopush on; tcp_nodelay on; keepalive_requests 10000000; open_file_cache max=2000 inactive=1h; open_file_cache_valid 1h;
  client_body_temp_path {folder}/3; proxy_temp_path {folder}/4; fastcgi_temp_path {folder}/5; uwsgi_temp_path {folder}/6; scgi_temp_path {folder}/7;
  server {{ listen {static}; root {folder}/versitygw; }}
}}
""")
    files = subprocess.Popen(["taskset", "-c", "0", nginx, "-c", folder + "/static.conf"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    processes.append(files)
    wait_for(static)
    targets["nginx"] = (files, None)
if tag:
    http, *ports = free(), free(), free()
    with open(folder + "/tag.yaml", "w") as file:
        file.write(f"""server: {{http_port: {http.rsplit(":", 1)[1]}, bind_ip: "127.0.0.1"}}
upstream: {{endpoint: "http://{STORE}", region: "us-east-1", transparent_proxy: false}}
cache: {{enabled: true, disk_path: "{folder}/tag", cluster_addr: "{ports[0]}", grpc_addr: "{ports[1]}", node_id: "one"}}
log: {{level: "error"}}
""")
    gateway = subprocess.Popen(["taskset", "-c", "0", tag, "--config", folder + "/tag.yaml"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ | KEY | {"GOMAXPROCS": "1"})
    processes.append(gateway)
    wait_for(http)
    targets["tag"] = (gateway, None)
    puts["tag"] = (http, "objects")


def load(url, size, count, n, fill=False):
    out = tempfile.mkdtemp(dir=folder)
    command = ["taskset", "-c", "1", program, "load", url, "--json", "--size", str(size), "--warmup", "0s", "--count", str(count), "--keys", "uniform", "--key-format", f"{size}-{{i}}",
               "--clients", "8", "--threads", "1", "--requests", str(n), "--sample-one-in", "0", "--times", "0", "--out", out + "/run"]
    if fill:
        command += ["--fill", "--fill-clients", "4"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | KEY)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def cpu(pid):
    return sum(int(open(f"/proc/{pid}/task/{thread}/schedstat").read().split()[0]) for thread in os.listdir(f"/proc/{pid}/task"))


def signed(kind, address, name, body=None, bucket="objects"):
    """A request for a key, with its signature; with a body, a PUT."""
    # Both are reached by the same address: the plain path, and the file of a bucket.
    if kind in ("http", "nginx"):
        return f"GET /objects/{name} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode()
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    scope, path = f"{now[:8]}/us-east-1/s3/aws4_request", f"/{bucket}/{name}"
    key = ("AWS4" + KEY["AWS_SECRET_ACCESS_KEY"]).encode()
    for part in (now[:8], "us-east-1", "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), "sha256").digest()
    who, method = f"{KEY['AWS_ACCESS_KEY_ID']}/{scope}", "GET" if body is None else "PUT"
    bytes_, body = body, "UNSIGNED-PAYLOAD" if body is None else hashlib.sha256(body).hexdigest()
    if kind == "presigned":
        query = f"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={who.replace('/', '%2F')}&X-Amz-Date={now}&X-Amz-Expires=900&X-Amz-SignedHeaders=host"
        canonical = f"GET\n{path}\n{query}\nhost:{address}\n\nhost\n{body}"
    else:
        names = "host;x-amz-content-sha256;x-amz-date"
        canonical = f"{method}\n{path}\n\nhost:{address}\nx-amz-content-sha256:{body}\nx-amz-date:{now}\n\n{names}\n{body}"
    text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    signature = hmac.new(key, text.encode(), "sha256").hexdigest()
    if kind == "presigned":
        return f"GET {path}?{query}&X-Amz-Signature={signature} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode()
    shown = f"AWS4-HMAC-SHA256 Credential={who}, SignedHeaders={names}, Signature={signature}"
    length = "" if bytes_ is None else f"Content-Length: {len(bytes_)}\r\n"
    return (f"{method} {path} HTTP/1.1\r\nHost: {address}\r\nx-amz-content-sha256: {body}\r\nx-amz-date: {now}\r\n"
            f"{length}Authorization: {shown}\r\n\r\n").encode() + (bytes_ or b"")


def put_slice(kind, size, n):
    """The times of n PUTs one after another, and the front's processor time for one, in microseconds."""
    address, bucket = puts[kind]
    before = cpu(middle.pid)
    # nginx passes the name of the store on, which is what is signed.
    host_signed = STORE if kind == "nginx" else address
    body = random.randbytes(size)
    all_ = [signed("s3", host_signed, f"put-{size}-{at % 50}", body, bucket) for at in range(n + 1)]
    host, port = address.rsplit(":", 1)
    times = []
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at, request in enumerate(all_):
            start = time.perf_counter()
            connection.sendall(request)
            head = b""
            while b"\r\n\r\n" not in head:
                got = connection.recv(1 << 16)
                assert got, f"{address} closed a connection: {head}"
                head += got
            head, _, rest = head.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head + rest
            lengths = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")]
            left = (lengths or [0])[0] - len(rest)
            while left > 0:
                left -= len(connection.recv(left))
            # The first request of a connection opens it.
            if at > 0:
                times.append((time.perf_counter() - start) * 1e6)
    return times, (cpu(middle.pid) - before) / 1e3 / len(all_)


def ask_all(address, requests_, n, size):
    """Sends n requests over 8 connections, each as soon as the reply before it is complete."""
    host, port = address.rsplit(":", 1)
    chosen, buffer = selectors.DefaultSelector(), bytearray(1 << 20)
    sent = done = 0
    for _ in range(8):
        connection = socket.create_connection((host, int(port)))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        chosen.register(connection, selectors.EVENT_READ, [0, b""])
        connection.sendall(random.choice(requests_))
        sent += 1
    while done < n:
        for ready, _ in chosen.select():
            connection, state = ready.fileobj, ready.data
            got = connection.recv_into(buffer)
            assert got, f"{address} closed a connection: {state[1]}"
            if not state[0]:
                state[1] += bytes(buffer[:got])
                head, end, rest = state[1].partition(b"\r\n\r\n")
                if not end:
                    continue
                assert head.startswith(b"HTTP/1.1 200") and f"content-length: {size}\r".encode() in head.lower() + b"\r", head
                state[0], state[1], got = size, b"", len(rest)
            state[0] -= got
            if state[0] == 0:
                done += 1
                if sent < n:
                    connection.sendall(random.choice(requests_))
                    sent += 1
    for one in list(chosen.get_map().values()):
        one.fileobj.close()


def slice_(kind, size, count, n):
    process, _ = targets[kind]
    address = {"http": told["address"], "versitygw": STORE, "tag": puts.get("tag", ("",))[0], "nginx": static}.get(kind, told["s3"])
    requests_ = [signed(kind, address, f"{size}-{key}") for key in range(count)]
    before, start = cpu(process.pid), time.monotonic()
    ask_all(address, requests_, n, size)
    return n / (time.monotonic() - start), (cpu(process.pid) - before) / 1e3 / n


result = {}
for name, (size, count, share) in SIZES.items():
    n = max(100, int(requests * share))
    for kind in ("s3", "versitygw"):
        load(targets[kind][1], size, count, 2 * count, fill=True)
    if tag:
        # Into its cache, which is written after the reply.
        slice_("tag", size, count, 8 * count)
        time.sleep(1)
    rows = {kind: [] for kind in targets}
    for _ in range(blocks):
        order = list(targets)
        random.shuffle(order)
        for kind in order:
            rows[kind].append(slice_(kind, size, count, n))
    result[name] = {kind: [us for _, us in found] for kind, found in rows.items()}
    print(name, {kind: round(sorted(found)[len(found) // 2], 1) for kind, found in result[name].items()}, file=sys.stderr, flush=True)
if tag:
    subprocess.run(["taskset", "-a", "-c", "-p", "1", str(gateway.pid)], stdout=subprocess.DEVNULL, check=True)
for name, (size, slices, n) in {"4k": (4096, 4, 40), "100k": (102400, 4, 40), "8M": (8 << 20, 2, 5)}.items():
    rows, own_cpu = {kind: [] for kind in puts}, []
    for kind in rows:
        put_slice(kind, size, n)
    for _ in range(blocks):
        times, took = {kind: [] for kind in rows}, []
        for _ in range(slices):
            order = list(rows)
            random.shuffle(order)
            for kind in order:
                found, us = put_slice(kind, size, n)
                times[kind] += found
                if kind == "front":
                    took.append(us)
        for kind in rows:
            rows[kind].append(sorted(times[kind])[len(times[kind]) // 2])
        own_cpu.append(sum(took) / len(took))
    result["put-" + name] = rows
    result["put-cpu-" + name] = {"front": own_cpu}
    print("put", name, {kind: round(sorted(found)[len(found) // 2]) for kind, found in rows.items()}, file=sys.stderr, flush=True)
print(json.dumps(result))
