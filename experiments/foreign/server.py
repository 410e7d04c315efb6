"""Two services behind HTTP, each a process with one event loop.

    server.py DATABASE PORT [WORKERS]    GET /kN sums a range of rows of SQLite that N determines
    server.py compress PORT [WORKERS]    GET /kN compresses a text of a size that N determines (zlib, level 9)

More workers are processes that share the listening socket.
"""

import asyncio
import os
import signal
import socket
import sqlite3
import sys
import zlib

ROWS = 20_000
TEXTS = 400


def fill(path):
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, value INTEGER, text TEXT)")
    if database.execute("SELECT COUNT(*) FROM rows").fetchone()[0] != ROWS:
        database.execute("BEGIN")
        database.execute("DELETE FROM rows")
        each = ((i, i * 2654435761 % 1000003, f"row {i} of the table") for i in range(ROWS))
        database.executemany("INSERT INTO rows VALUES (?, ?, ?)", each)
        database.execute("COMMIT")
    return database


def rows(path):
    database = fill(path)

    def answer(number):
        first = number * 7919 % ROWS
        length = 200 + number * 104729 % 4000
        found = database.execute(
            "SELECT COUNT(*), SUM(value), MAX(LENGTH(text)) FROM rows WHERE id >= ? AND id < ? AND value % 3 <> 1",
            (first, first + length),
        ).fetchone()
        return repr(found).encode()

    return answer


def compress():
    """Texts of 2 to 16 KiB, log-uniform."""
    whole = " ".join(str(i * 2654435761 % 65521) for i in range(4000)).encode()
    sizes = [int(2048 * 8 ** (i / (TEXTS - 1))) for i in range(TEXTS)]

    def answer(number):
        at = number % TEXTS
        return zlib.compress(whole[at : at + sizes[at]], 9)

    return answer


class Connection(asyncio.Protocol):
    def __init__(self, answer):
        self.answer = answer
        self.buffer = b""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.buffer += data
        while b"\r\n\r\n" in self.buffer:
            head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
            key = head.split(b" ", 2)[1].rsplit(b"/", 1)[-1].decode()
            try:
                status, body = b"200 OK", self.answer(int(key.lstrip("k")))
            except ValueError:
                status, body = b"404 Not Found", b"no such key"
            reply = b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)
            self.transport.write(reply)


async def serve(answer, listening):
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(answer), sock=listening, backlog=4096)
    await server.serve_forever()


def main():
    what, port, workers = sys.argv[1], int(sys.argv[2]), int((sys.argv[3:] or ["1"])[0])
    if what != "compress":
        fill(what).close()
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", port))
    children = []
    for _ in range(workers - 1):
        child = os.fork()
        if child == 0:
            parent_ends()
            break
        children.append(child)
    answer = compress() if what == "compress" else rows(what)
    asyncio.run(serve(answer, listening))


def parent_ends():
    """A worker ends with the first one, however that ends (prctl PR_SET_PDEATHSIG)."""
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


main()
