"""Uses a memcached server, or a proxy, as applications do: pymemcache, then pylibmc.

usage: clients.py PORT            ends with status 0 if all was as expected
       clients.py PORT cluster    the same before a cluster, which is not emptied by flush_all
       clients.py PORT kept       writes and reads for some seconds, in which a node of the cluster is killed:
                                  no value may be lost or old, and writes have to go on
"""

import sys
import time

import pylibmc
from pymemcache.client.base import Client, PooledClient
from pymemcache.exceptions import MemcacheClientError, MemcacheError, MemcacheIllegalInputError

PORT = int(sys.argv[1])
MODE = sys.argv[2] if len(sys.argv) > 2 else "server"
BINARY = bytes(range(256)) * 20 + b"\r\nEND\r\n"


def expect(found, expected):
    if found != expected:
        raise SystemExit(f"expected {expected!r}, found {found!r}")


def fails(kind, call):
    try:
        found = call()
    except kind:
        return
    raise SystemExit(f"no {kind.__name__}, but {found!r}")


def empty(client):
    if MODE == "server":
        client.flush_all(noreply=False)
    else:
        fails(MemcacheClientError, lambda: client.flush_all(noreply=False))
        client.delete("k", noreply=False)


def pymemcache(client):
    empty(client)
    expect(client.get("k"), None)
    expect(client.set("k", BINARY, noreply=False), True)
    expect(client.get("k"), BINARY)
    expect(client.add("k", b"other", noreply=False), False)
    expect(client.replace("none", b"x", noreply=False), False)
    expect(client.replace("k", b"mid", noreply=False), True)
    expect(client.append("k", b"end", noreply=False), True)
    expect(client.prepend("k", b"begin", noreply=False), True)
    expect(client.get("k"), b"beginmidend")
    value, token = client.gets("k")
    expect(value, b"beginmidend")
    expect(client.cas("k", b"new", token, noreply=False), True)
    expect(client.cas("k", b"newer", token, noreply=False), False)
    expect(client.cas("none", b"x", token, noreply=False), None)
    expect(client.gets_many(["k", "none"])["k"][0], b"new")
    expect(client.set("n", b"10", expire=100, noreply=False), True)
    expect(client.incr("n", 5), 15)
    expect(client.decr("n", 100), 0)
    expect(client.incr("none", 1), None)
    fails(MemcacheClientError, lambda: client.incr("k", 1))
    expect(client.touch("n", 200, noreply=False), True)
    many = {f"key:{i}": str(i).encode() * i for i in range(100)}
    expect(client.set_many(many, noreply=False), [])
    expect(client.get_many(many), many)
    expect(client.get_many(["key:1", "absent", "key:2"]), {"key:1": b"1", "key:2": b"22"})
    expect(client.delete("key:1", noreply=False), True)
    expect(client.delete("key:1", noreply=False), False)
    for i in range(50):
        client.set(f"quiet:{i}", str(i).encode())
    expect(client.get("quiet:49"), b"49")
    client.delete_many(list(many))
    expect(client.get_many(many), {})
    fails(MemcacheIllegalInputError, lambda: client.get("k" * 251))
    expect(client.version().startswith(b"1.6."), True)
    expect(b"cmd_get" in client.stats() or MODE != "server", True)
    empty(client)
    expect(client.get("k"), None)
    client.quit()


def libmemcached():
    client = pylibmc.Client([f"127.0.0.1:{PORT}"], binary=False, behaviors={"cas": True})
    if MODE == "server":
        client.flush_all()
    expect(client.set("k", "text"), True)
    expect(client.get("k"), "text")
    expect(client.set("o", {"a": [1, 2, 3]}), True)
    expect(client.get("o"), {"a": [1, 2, 3]})
    expect(client.set("b", BINARY, min_compress_len=1), True)
    expect(client.get("b"), BINARY)
    expect(client.add("k", "x"), False)
    expect(client.append("k", "end"), True)
    expect(client.get("k"), "textend")
    expect(client.set("n", 7), True)
    expect(client.incr("n", 3), 10)
    expect(client.decr("n"), 9)
    value, token = client.gets("k")
    expect(client.cas("k", "new", token), True)
    expect(client.cas("k", "newer", token), False)
    expect(client.set_multi({f"m{i}": i for i in range(200)}), [])
    expect(client.get_multi([f"m{i}" for i in range(201)]), {f"m{i}": i for i in range(200)})
    expect(client.delete_multi([f"m{i}" for i in range(200)]), True)
    expect(client.touch("k", 100), True)
    expect(client.delete("k"), True)
    expect(client.delete("k"), False)
    client.disconnect_all()


def kept(name, client, errors):
    """Writes ascending numbers to some keys and reads them."""
    keys = [f"{name}:{i}" for i in range(20)]
    acknowledged = {key: 0 for key in keys}
    tried = dict(acknowledged)

    def write(key):
        tried[key] += 1
        try:
            if client.set(key, str(tried[key])):
                acknowledged[key] = tried[key]
        except errors:
            pass

    for key in keys:
        while acknowledged[key] == 0:
            write(key)
    yield
    until = time.monotonic() + 8
    while time.monotonic() < until:
        for key in keys:
            write(key)
            try:
                read = client.get_many([key]) if hasattr(client, "get_many") else client.get_multi([key])
            except errors:
                continue
            # pylibmc and pymemcache take some errors of a server for a miss.
            if key in read and not acknowledged[key] <= int(read[key]) <= tried[key]:
                raise SystemExit(f"{key}: read {read[key]}, {acknowledged[key]} of {tried[key]} acknowledged")
        yield
    before = dict(acknowledged)
    for key in keys:
        while acknowledged[key] == before[key]:
            write(key)
    for key in keys:
        expect(int(client.get(key)), acknowledged[key])
    print(name, "acknowledged", sum(acknowledged.values()), "of", sum(tried.values()))


if MODE == "kept":
    pairs = [
        kept("pymemcache", Client(("127.0.0.1", PORT), default_noreply=False), MemcacheError),
        kept("pylibmc", pylibmc.Client([f"127.0.0.1:{PORT}"], binary=False), pylibmc.Error),
    ]
    for pair in pairs:
        next(pair)
    print("written", flush=True)
    while pairs:
        pairs = [pair for pair in pairs if next(pair, "ended") != "ended"]
else:
    pymemcache(Client(("127.0.0.1", PORT), default_noreply=True))
    pymemcache(PooledClient(("127.0.0.1", PORT), default_noreply=True))
    libmemcached()
print("ok")
