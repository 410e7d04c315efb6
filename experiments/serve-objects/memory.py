"""Memory that a small object takes in a node and in memcached, beside its key and its value.

python3 memory.py CONCERTINA [OBJECTS]

Sets OBJECTS (a million) of 203 bytes with keys of 20, one after another over one connection by memcached's protocol, in memcached and in a node without
devices and without an origin, and prints the growth of resident memory (VmRSS) for one, less key and value. Needs memcached.
"""
import os, socket, subprocess, sys, tempfile, time

program, objects = os.path.abspath(sys.argv[1]), int((sys.argv[2:] or [1_000_000])[0])
KEY_BYTES, VALUE_BYTES = 20, 203


def free():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def connect(port):
    for _ in range(100):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"nothing listens on {port}")


def resident_bytes(process):
    with open(f"/proc/{process.pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) * 1024


def fill(connection):
    value, lines = b"x" * VALUE_BYTES, []
    for i in range(objects):
        lines.append(b"set key-%016d 0 0 %d noreply\r\n%s\r\n" % (i, VALUE_BYTES, value))
        if len(lines) == 2000 or i + 1 == objects:
            connection.sendall(b"".join(lines))
            lines.clear()
    # What was sent is stored when the reply to what followed it comes, and the first object is there still.
    connection.sendall(b"get key-%016d\r\n" % 0)
    head = connection.recv(1 << 16)
    assert head.startswith(b"VALUE"), head


folder = tempfile.TemporaryDirectory()
port, ours, http = free(), free(), free()
sets = ["origin.kind=none", f"memcached.node_listen=127.0.0.1:{ours}", f"serve.listen=127.0.0.1:{http}", "node.memory_bytes=1GiB", "device=[]"]
for name, command, port in (
    ("memcached", ["memcached", "-u", "root", "-l", "127.0.0.1", "-p", str(port), "-m", "1024"], port),
    ("node", [program, "serve"] + [part for one in sets for part in ("--set", one)], ours),
):
    process = subprocess.Popen(command, cwd=folder.name, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with connect(port) as connection:
            before = resident_bytes(process)
            fill(connection)
            grown = (resident_bytes(process) - before) / objects
        print(f"{name}: {grown - KEY_BYTES - VALUE_BYTES:.0f} bytes beside key and value")
    finally:
        process.terminate()
        process.wait()
