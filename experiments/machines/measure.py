"""Three machines as network namespaces, each with two nodes and a gateway; the list of members in a real etcd, the objects in versitygw.

python3 measure.py CONCERTINA VERSITYGW SCRATCH ROUNDS [PART,...]

CONCERTINA and VERSITYGW are the programs. Each round strikes one machine after the other: it is killed, stands still, is cut off, its sending
is lost while it receives, and it is cut off from one other machine alone (which etcd and the third reach); it is killed and started again with other clocks than
the others', stands still so and is cut off so, twice; then etcd is killed and started again, a node joins and is
drained. PARTs (faults, clocks, etcd, join) leave the others out. Clients write ascending numbers, each key by one client, and read; every read is held against what was acknowledged before
it began. Clients avoid the gateways of struck machines from 0.1 s on, as behind a balancer. Prints JSON.
"""
import bisect, glob, http.client, json, os, random, signal, socket, subprocess, sys, threading, time

program, store, scratch, rounds = *map(os.path.abspath, sys.argv[1:4]), int(sys.argv[4])
PARTS = sys.argv[5].split(",") if len(sys.argv) > 5 else ["faults", "clocks", "etcd", "join"]
# Seconds that a machine's clocks are ahead of the others': CLOCK_REALTIME, and CLOCK_MONOTONIC with CLOCK_BOOTTIME. S3 refuses
# signatures that are 15 minutes off.
SKEWS = [(600, 1_000_000), (-600, 47)]
random.seed(7)
PID, KEYS, WRITERS, READERS, LASTS_S, SETTLE_S, WITHIN_S = os.getpid(), 48, 6, 3, 3.0, 2.0, 8.0
NET = f"198.18.{PID % 250}"
TOKEN = f"experiment-{PID}"
STORE, KEYS_OF_STORE = f"{NET}.254:7075", {"AWS_ACCESS_KEY_ID": "experiment", "AWS_SECRET_ACCESS_KEY": "experiment-secret"}
os.makedirs(scratch, exist_ok=True)


def ip(*arguments, check=True):
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    assert done.returncode == 0 or not check, (arguments, done.stderr)
    return done.stdout


def name(machine):
    return f"concertina-lab-{PID}-{machine}"


def address(machine):
    return f"{NET}.{machine + 1}"


def lose(machine, to):
    """What a machine sends to an address is lost: it has a neighbour's address that nobody has."""
    ip("-n", name(machine), "neigh", "replace", to, "lladdr", "02:00:00:00:00:01", "nud", "permanent", "dev", "eth0")


def skewed(realtime, monotonic):
    """What starts a program with other clocks. Leases count CLOCK_MONOTONIC, which the program reads from the kernel: only a time
    namespace shifts it, and nothing changes its rate. libfaketime shifts CLOCK_REALTIME."""
    found = sorted(glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1"))
    assert found, "libfaketime is missing (Debian's faketime)"
    return ["env", f"LD_PRELOAD={found[0]}", f"FAKETIME={realtime:+d}", "FAKETIME_DONT_FAKE_MONOTONIC=1", "DONT_FAKE_MONOTONIC=1",
            "unshare", "--time", "--fork", "--kill-child", f"--monotonic={monotonic}", f"--boottime={monotonic}", "--"]


class Machines:
    """The namespaces, the processes in them, and etcd outside."""

    def __init__(self):
        self.running, self.etcd, self.store, self.skews = {}, None, None, {}
        bridge = f"ck{PID}"
        ip("link", "add", bridge, "type", "bridge")
        ip("address", "add", f"{NET}.254/24", "dev", bridge)
        ip("link", "set", bridge, "up")
        for machine in range(3):
            ip("netns", "add", name(machine))
            ip("link", "add", f"ck{PID}n{machine}", "type", "veth", "peer", "name", "eth0", "netns", name(machine))
            ip("link", "set", f"ck{PID}n{machine}", "master", bridge, "up")
            ip("-n", name(machine), "address", "add", f"{address(machine)}/24", "dev", "eth0")
            ip("-n", name(machine), "link", "set", "eth0", "up")
            ip("-n", name(machine), "link", "set", "lo", "up")
        self.start_etcd()
        self.start_store()
        for machine in range(3):
            self.start(machine)

    def start_etcd(self):
        own, peer = f"http://{NET}.254:2379", f"http://{NET}.254:2380"
        self.etcd = subprocess.Popen(
            ["etcd", "--name", "e", "--data-dir", f"{scratch}/etcd", "--log-level", "error",
             "--listen-client-urls", own, "--advertise-client-urls", own, "--listen-peer-urls", peer,
             "--initial-advertise-peer-urls", peer, "--initial-cluster", f"e={peer}"],
            stdout=subprocess.DEVNULL, stderr=open(f"{scratch}/etcd.log", "a"))
        until = time.monotonic() + 30
        while time.monotonic() < until:
            try:
                connection = http.client.HTTPConnection(f"{NET}.254", 2379, timeout=0.5)
                connection.request("POST", "/v3/kv/range", '{"key":"YQ=="}')
                if connection.getresponse().status == 200:
                    return
            except OSError:
                time.sleep(0.02)
        raise AssertionError("etcd does not answer")

    def start_store(self):
        os.makedirs(f"{scratch}/store/objects")
        access, secret = KEYS_OF_STORE.values()
        self.store = subprocess.Popen(
            [store, "--port", STORE, "--access", access, "--secret", secret, "--quiet", "--keep-alive", "posix", f"{scratch}/store"],
            stdout=subprocess.DEVNULL, stderr=open(f"{scratch}/store.log", "a"))
        until = time.monotonic() + 30
        while time.monotonic() < until:
            try:
                return socket.create_connection((f"{NET}.254", 7075), 0.5).close()
            except OSError:
                time.sleep(0.02)
        raise AssertionError("versitygw does not answer")

    def serve(self, machine, role, who, port):
        sets = [
            f"serve.role={role}", f"serve.token={TOKEN}", f"cluster.token={TOKEN}-between", "serve.threads=1", "cluster.replicas=3",
            "membership.kind=etcd", f'membership.endpoints=["http://{NET}.254:2379"]', 
            "origin.kind=s3", "origin.bucket=objects", f"origin.endpoint=http://{STORE}", "origin.allow_http=true",
            f"device.0.path={scratch}/device-{who}", "device.0.bytes=1GB", "gateway.deadline_s=6", "serve.drain_s=1",
        ]
        if role == "node":
            sets += [f"cluster.name={who}", f"membership.address={address(machine)}:{port}"]
        else:
            sets += [f"serve.listen={address(machine)}:{port}"]
        arguments = [part for one in sets for part in ("--set", one)]
        log = open(f"{scratch}/{who}.log", "a")
        clocks = skewed(*self.skews[machine]) if machine in self.skews else []
        self.running[who] = (machine, subprocess.Popen(
            ["ip", "netns", "exec", name(machine), *clocks, program, "serve", "--json", *arguments], stdout=log, stderr=log, env={**os.environ, **KEYS_OF_STORE}))

    def start(self, machine):
        for one in (0, 1):
            self.serve(machine, "node", f"n{machine}{one}", 7071 + one)
        self.serve(machine, "gateway", f"g{machine}", 7070)

    def on(self, machine):
        return [(who, process) for who, (at, process) in self.running.items() if at == machine]

    def signal(self, machine, which):
        for who, process in self.on(machine):
            # The program is a child where it has clocks of its own.
            with open(f"/proc/{process.pid}/task/{process.pid}/children") as children:
                for pid in [int(pid) for pid in children.read().split()] or [process.pid]:
                    os.kill(pid, which)
            if which == signal.SIGKILL:
                process.wait()
                del self.running[who]

    def strike(self, machine, fault):
        other = (machine + 1) % 3
        if fault == "killed":
            self.signal(machine, signal.SIGKILL)
        elif fault == "standing still":
            self.signal(machine, signal.SIGSTOP)
        elif fault == "cut off":
            ip("link", "set", f"ck{PID}n{machine}", "down")
        elif fault == "only receiving":
            for one in [f"{NET}.254", *(address(at) for at in range(3) if at != machine)]:
                lose(machine, one)
        elif fault == "cut off from one":
            lose(machine, address(other))
            lose(other, address(machine))
        elif fault == "restarted":
            self.signal(machine, signal.SIGKILL)
            self.start(machine)

    def heal(self, machine, fault):
        other = (machine + 1) % 3
        if fault == "killed":
            self.start(machine)
        elif fault == "standing still":
            self.signal(machine, signal.SIGCONT)
        elif fault == "cut off":
            ip("link", "set", f"ck{PID}n{machine}", "up")
        elif fault == "only receiving":
            for one in [f"{NET}.254", *(address(at) for at in range(3) if at != machine)]:
                ip("-n", name(machine), "neigh", "del", one, "dev", "eth0")
        elif fault == "cut off from one":
            ip("-n", name(machine), "neigh", "del", address(other), "dev", "eth0")
            ip("-n", name(other), "neigh", "del", address(machine), "dev", "eth0")

    def end(self):
        for _, process in self.running.values():
            process.kill()
            process.wait()
        for process in filter(None, [self.etcd, self.store]):
            process.kill()
            process.wait()
        for machine in range(3):
            ip("link", "delete", f"ck{PID}n{machine}", check=False)
            ip("netns", "delete", name(machine), check=False)
        ip("link", "delete", f"ck{PID}", check=False)


class History:
    def __init__(self):
        self.lock = threading.Lock()
        self.avoid = set()
        self.stop = False
        self.acked = [0] * KEYS       # the newest acknowledged number of each key
        self.sent = [0] * KEYS
        self.acks = [[] for _ in range(KEYS)]  # (began, ended)
        self.last = [None] * KEYS     # what became of each key's last write that was not acknowledged
        self.reads = self.writes = self.refused = 0
        self.failed, self.stale, self.slowest = [], [], 0.0


OPEN, OPEN_LOCK = [set(), set(), set()], threading.Lock()


def cut_off_clients(gateways):
    """Ends the clients' connections to gateways, as a balancer does that finds them gone."""
    with OPEN_LOCK:
        for gateway in gateways:
            for connection in OPEN[gateway]:
                try:
                    connection.sock.shutdown(socket.SHUT_RDWR)
                except (OSError, AttributeError):
                    pass


def ask(connections, gateway, method, path, body=None):
    """Status and body; None without a reply."""
    for again in (True, False):
        connection = connections.get(gateway)
        new = connection is None
        if new:
            connection = connections[gateway] = http.client.HTTPConnection(address(gateway), 7070, timeout=WITHIN_S)
            with OPEN_LOCK:
                OPEN[gateway].add(connection)
        try:
            connection.request(method, path, body, {"Authorization": f"Bearer {TOKEN}"})
            reply = connection.getresponse()
            return reply.status, reply.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            with OPEN_LOCK:
                OPEN[gateway].discard(connection)
            del connections[gateway]
            # A kept connection may have ended with its process before it was used.
            if new or method != "GET" or not again:
                return None


def pick(history):
    return random.choice([gateway for gateway in range(3) if gateway not in history.avoid])


def writer(history, number):
    connections, keys = {}, list(range(number, KEYS, WRITERS))
    while not history.stop:
        for key in keys:
            value = history.sent[key] = history.sent[key] + 1
            began = time.monotonic()
            gateway = pick(history)
            got = ask(connections, gateway, "PUT", f"/objects/key-{key}", str(value))
            ended = time.monotonic()
            with history.lock:
                if got and got[0] == 200:
                    history.acked[key] = value
                    history.acks[key].append((began, ended))
                    history.writes += 1
                else:
                    history.refused += 1
                    history.last[key] = f"key {key} through {gateway} at {began:.3f}, {ended - began:.3f} s: {got}"
        time.sleep(0.01)


def reader(history):
    connections = {}
    while not history.stop:
        key, gateway = random.randrange(KEYS), pick(history)
        least, began = history.acked[key], time.monotonic()
        got = ask(connections, gateway, "GET", f"/objects/key-{key}")
        ended = time.monotonic()
        judge(history, key, gateway, least, began, ended, got)
        time.sleep(0.004)


def judge(history, key, gateway, least, began, ended, got):
    with history.lock:
        history.reads += 1
        if got and got[0] == 200:
            history.slowest = max(history.slowest, ended - began)
            if not least <= int(got[1]) <= history.sent[key]:
                history.stale.append(f"key {key} through {gateway}: {got[1]} read, {least} acknowledged before")
        elif got and got[0] == 404 and least == 0:
            pass
        # Its gateway was struck while the read was under way.
        elif gateway not in history.avoid:
            history.failed.append(f"key {key} through {gateway} at {began:.3f}: {got}")


def resumed(history, since):
    """Seconds until each key was written by a request that began later; None while one was not."""
    slowest = 0.0
    with history.lock:
        for acks in history.acks:
            at = bisect.bisect_left(acks, (since, 0.0))
            if at == len(acks):
                return None
            slowest = max(slowest, acks[at][1] - since)
    return slowest


def wait_resumed(history, since, within=30):
    until = time.monotonic() + within
    while time.monotonic() < until:
        took = resumed(history, since)
        if took is not None:
            return took
        time.sleep(0.01)
    with history.lock:
        waiting = [last for acks, last in zip(history.acks, history.last) if not acks or acks[-1][0] < since]
    stuck.extend(waiting)
    print(f"not written within {within} s:", *waiting, sep="\n    ", file=sys.stderr, flush=True)
    return float(within)


def members(gateway=0):
    got = ask({}, gateway, "GET", "/admin/status")
    return json.loads(got[1]) if got and got[0] == 200 else {"members": [], "epoch": 0}


def wait_members(what, holds, within=30):
    until = time.monotonic() + within
    while not holds({one["name"]: one for one in members()["members"]}):
        assert time.monotonic() < until, f"waited {within} s for {what}: {members()}"
        time.sleep(0.05)


def all_live(names):
    return lambda there: all(one in there and there[one]["live"] for one in names)


def strike(machine, fault, what):
    """Strikes a machine, heals it, and waits until all is as before."""
    # Whoever cannot reach all nodes is no gateway to all keys.
    struck = {machine, (machine + 1) % 3} if fault == "cut off from one" else {machine}
    history.avoid = struck
    since = time.monotonic()
    machines.strike(machine, fault)
    time.sleep(0.1)
    cut_off_clients(struck)
    took = wait_resumed(history, since)
    time.sleep(max(0.0, LASTS_S - (time.monotonic() - since)))
    machines.heal(machine, fault)
    healed = time.monotonic()
    back = wait_resumed(history, healed)
    time.sleep(SETTLE_S)
    wait_members("all nodes after " + what, all_live(nodes))
    history.avoid = set()
    effects.append({"fault": what, "machine": machine, "writes_resumed_s": round(took, 3), "after_healing_s": round(back, 3)})
    print(effects[-1], file=sys.stderr, flush=True)
    wait_members("all nodes", all_live(nodes))


machines = Machines()
effects, stuck, history = [], [], History()
try:
    nodes = [f"n{machine}{one}" for machine in range(3) for one in (0, 1)]
    wait_members("six nodes", all_live(nodes))
    threads = [threading.Thread(target=writer, args=(history, number), daemon=True) for number in range(WRITERS)]
    threads += [threading.Thread(target=reader, args=(history,), daemon=True) for _ in range(READERS)]
    for thread in threads:
        thread.start()
    wait_resumed(history, time.monotonic())
    time.sleep(SETTLE_S)
    faults = ["killed", "standing still", "cut off", "only receiving", "cut off from one"]
    for number in range(rounds):
        for at, fault in enumerate(faults if "faults" in PARTS else []):
            strike((number + at) % 3, fault, f"machine {fault}")
        for at, skew in enumerate(SKEWS if "clocks" in PARTS else []):
            machine = (number + at) % 3
            machines.skews[machine] = skew
            strike(machine, "restarted", "machine restarted with skewed clocks")
            for fault in ("standing still", "cut off"):
                strike(machine, fault, f"machine with skewed clocks {fault}")
            del machines.skews[machine]
            strike(machine, "restarted", "machine restarted with right clocks")
        if "etcd" in PARTS:
            machines.etcd.kill()
            machines.etcd.wait()
            time.sleep(LASTS_S)
            reads = history.reads
            time.sleep(0.5)
            assert history.reads > reads, "no reads without etcd"
            machines.start_etcd()
            took = wait_resumed(history, time.monotonic())
            effects.append({"fault": "etcd killed, from its return on", "writes_resumed_s": round(took, 3)})
            print(effects[-1], file=sys.stderr, flush=True)
        if "join" in PARTS:
            time.sleep(SETTLE_S)
            since = time.monotonic()
            machines.serve(0, "node", "n02", 7073)
            wait_members("a seventh node", all_live(nodes + ["n02"]))
            effects.append({"fault": "a node joins", "writes_resumed_s": round(wait_resumed(history, time.monotonic()), 3)})
            time.sleep(SETTLE_S)
            got = ask({}, 1, "POST", "/admin/members/n02/drain")
            assert got and got[0] == 200, got
            effects.append({"fault": "a node is drained", "writes_resumed_s": round(wait_resumed(history, time.monotonic()), 3)})
            time.sleep(SETTLE_S)
            machines.running.pop("n02")[1].send_signal(signal.SIGTERM)
            wait_members("it to leave", lambda there: "n02" not in there)
    time.sleep(SETTLE_S)
    history.stop = True
    for thread in threads:
        thread.join(WITHIN_S + 2)
    # Every key once more, through each gateway.
    lost = []
    for key in range(KEYS):
        for gateway in range(3):
            got = ask({}, gateway, "GET", f"/objects/key-{key}")
            if not got or got[0] != 200 or int(got[1]) < history.acked[key]:
                lost.append(f"key {key} through {gateway}: {got}, {history.acked[key]} acknowledged")
    print(json.dumps({
        "effects": effects, "reads": history.reads, "writes": history.writes, "writes_refused": history.refused, "slowest_read_s": round(history.slowest, 3),
        "failed_reads": len(history.failed), "failed": history.failed[:20], "stale_reads": len(history.stale), "stale": history.stale[:20],
        "lost": lost, "stuck": stuck[:20], "epoch": members()["epoch"],
    }))
finally:
    machines.end()
