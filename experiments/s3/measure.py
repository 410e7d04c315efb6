"""GET with signature version 4, from memory, through Concertina's S3 front and beside versitygw.

python3 measure.py CONCERTINA VERSITYGW REQUESTS_PER_SLICE BLOCKS

CONCERTINA is the program, server and load generator both; VERSITYGW the rival, on a folder in memory. Each server has
processor 0 (Concertina with one thread, versitygw with GOMAXPROCS=1), the client processor 1, with 8 connections in a closed loop. Slices are in
random order within blocks. Prints, for each size, medians over blocks of requests/s and of the server's processor time
for a request (all of its threads, /proc/PID/task/*/schedstat), and the median ratio within blocks with its 95 % bootstrap
interval. Kinds: `s3` is the front, `http` the plain path of the same process, `versitygw` the rival.
"""
import json, os, random, subprocess, sys, tempfile, time, urllib.request

program, rival, requests, blocks = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
random.seed(11)
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
os.makedirs(folder + "/versitygw/objects")
other = subprocess.Popen(
    ["taskset", "-c", "0", rival, "--port", "127.0.0.1:17071", "--access", KEY["AWS_ACCESS_KEY_ID"], "--secret", KEY["AWS_SECRET_ACCESS_KEY"], "--quiet", "posix", folder + "/versitygw"],
    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ | {"GOMAXPROCS": "1"},
)
time.sleep(1.5)
targets = {
    "s3": (own, f"s3://objects?endpoint=http://{told['s3']}"),
    "http": (own, f"http://{told['address']}"),
    "versitygw": (other, "s3://objects?endpoint=http://127.0.0.1:17071"),
}


def load(url, size, count, n, fill=False):
    out = tempfile.mkdtemp(dir=folder)
    command = ["taskset", "-c", "1", program, "load", url, "--json", "--size", str(size), "--count", str(count), "--keys", "uniform", "--key-format", f"{size}-{{i}}",
               "--clients", "8", "--threads", "1", "--requests", str(n), "--sample-one-in", "0", "--times", "0", "--out", out + "/run"]
    if fill:
        command += ["--fill", "--fill-clients", "4"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | KEY)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def cpu(pid):
    return sum(int(open(f"/proc/{pid}/task/{thread}/schedstat").read().split()[0]) for thread in os.listdir(f"/proc/{pid}/task"))


def slice_(kind, size, count, n):
    process, url = targets[kind]
    before, start = cpu(process.pid), time.monotonic()
    load(url, size, count, n)
    return n / (time.monotonic() - start), (cpu(process.pid) - before) / 1e3 / n


def median(values):
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def interval(values):
    draws = sorted(median(random.choices(values, k=len(values))) for _ in range(4000))
    return draws[100], draws[3899]


result = {}
for name, (size, count, share) in SIZES.items():
    n = max(100, int(requests * share))
    for kind in ("s3", "versitygw"):
        load(targets[kind][1], size, count, 2 * count, fill=True)
    rows = {kind: [] for kind in targets}
    for _ in range(blocks):
        order = list(targets)
        random.shuffle(order)
        for kind in order:
            rows[kind].append(slice_(kind, size, count, n))
    of = result[name] = {}
    for kind, found in rows.items():
        of[kind] = {"requests_per_s_of_slices": round(median([rate for rate, _ in found])), "cpu_us": round(median([us for _, us in found]), 2)}
    for kind in ("http", "versitygw"):
        ratios = [theirs[1] / ours[1] for theirs, ours in zip(rows[kind], rows["s3"])]
        low, high = interval(ratios)
        of[f"cpu_{kind}_over_s3"] = [round(x, 3) for x in (median(ratios), low, high)]
    print(name, json.dumps(of), flush=True)
own.terminate()
other.terminate()
subprocess.run(["rm", "-rf", folder])
