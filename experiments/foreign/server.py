"""Four services behind HTTP, each a process with one event loop.

    server.py DATABASE PORT [WORKERS]    GET /kN sums a range of rows of SQLite that N determines
    server.py compress PORT [WORKERS]    GET /kN compresses a text of a size that N determines (zlib, level 9)
    server.py postgres PORT CONNECTIONS SOCKETS WAIT_MS
                                         GET /kN sums such a range of rows of the PostgreSQL whose socket is in SOCKETS
    server.py collapse PORT 1 MEAN_MS    GET /kN holds a lock, the longer the more requests are inside

More workers are processes that share the listening socket. With one connection to PostgreSQL the event loop waits for
each sum; with more, requests wait in one line for the first connection that is free. With WAIT_MS above 0 a query also
sleeps in the database, for a time that N determines (of all N: exponential with this mean).
"""

import asyncio
import concurrent.futures
import ctypes
import math
import os
import signal
import socket
import sqlite3
import sys
import threading
import time
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
        found = database.execute(
            "SELECT COUNT(*), SUM(value), MAX(LENGTH(text)) FROM rows WHERE id >= ? AND id < ? AND value % 3 <> 1",
            between(number),
        ).fetchone()
        return repr(found).encode()

    return answer


def between(number):
    """Which rows a number stands for: 200 to 4,200 of them."""
    first = number * 7919 % ROWS
    return first, first + 200 + number * 104729 % 4000


class Postgres:
    """A connection by libpq, the C library that comes with PostgreSQL: no package of Python is needed."""

    def __init__(self, sockets):
        self.pq = pq = ctypes.CDLL("libpq.so.5")
        for name in ["PQconnectdb", "PQexec", "PQprepare", "PQexecPrepared"]:
            getattr(pq, name).restype = ctypes.c_void_p
        for name in ["PQgetvalue", "PQerrorMessage"]:
            getattr(pq, name).restype = ctypes.c_char_p
        for until in range(200, -1, -1):
            connection = pq.PQconnectdb(f"host={sockets} user=concertina dbname=postgres".encode())
            self.connection = ctypes.c_void_p(connection)
            if pq.PQstatus(self.connection) == 0:
                break
            if until == 0:
                raise RuntimeError(self.error())
            pq.PQfinish(self.connection)
            time.sleep(0.1)
        sums = "SELECT COUNT(*), SUM(value), MAX(LENGTH(text))%s FROM rows WHERE id >= $1 AND id < $2 AND value %% 3 <> 1"
        self.sums = [(sums % also).encode() for also in ["", ", pg_sleep($3)"]]

    def error(self):
        return self.pq.PQerrorMessage(self.connection).decode()

    def result(self, pointer):
        """The first two columns of the first row, if there is one."""
        found = ctypes.c_void_p(pointer)
        try:
            if self.pq.PQresultStatus(found) not in (1, 2):
                raise RuntimeError(self.error())
            if self.pq.PQntuples(found) == 0:
                return b""
            return self.pq.PQgetvalue(found, 0, 0) + b" " + self.pq.PQgetvalue(found, 0, 1)
        finally:
            self.pq.PQclear(found)

    def do(self, statement):
        return self.result(self.pq.PQexec(self.connection, statement.encode()))

    def prepare(self):
        for also, statement in enumerate(self.sums):
            name = b"sum%d" % also
            self.result(self.pq.PQprepare(self.connection, name, statement, 2 + also, None))

    def sum(self, number, wait_s):
        values = [b"%d" % row for row in between(number)] + ([b"%.6f" % wait_s] if wait_s else [])
        count = len(values)
        name = b"sum%d" % (count - 2)
        values = (ctypes.c_char_p * count)(*values)
        return self.result(self.pq.PQexecPrepared(self.connection, name, count, values, None, None, 0))


def fill_postgres(sockets):
    """Makes the rows that SQLite has."""
    database = Postgres(sockets)
    database.do("CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, value INTEGER, text TEXT)")
    database.do("TRUNCATE rows")
    database.do(
        "INSERT INTO rows SELECT i, i * 2654435761 % 1000003, 'row ' || i || ' of the table'"
        f" FROM generate_series(0::bigint, {ROWS - 1}) i"
    )
    database.do("VACUUM ANALYZE rows")


def postgres(sockets, wait_ms):
    own = threading.local()

    def answer(number):
        if not hasattr(own, "database"):
            own.database = Postgres(sockets)
            own.database.prepare()
        # Equally spaced quantiles, in an order that has nothing to do with the rows.
        wait_s = -1e-3 * wait_ms * math.log((number * 271 % TEXTS + 0.5) / TEXTS)
        return own.database.sum(number, wait_s)

    return answer


def compress():
    """Texts of 2 to 16 KiB, log-uniform."""
    whole = " ".join(str(i * 2654435761 % 65521) for i in range(4000)).encode()
    sizes = [int(2048 * 8 ** (i / (TEXTS - 1))) for i in range(TEXTS)]

    def answer(number):
        at = number % TEXTS
        return zlib.compress(whole[at : at + sizes[at]], 9)

    return answer


class Crowd:
    """One line in the order of arrival, whose work grows with the number inside: a lock that many contend for. Alone and with up to 8 inside
    a request holds it for an exponential time that N determines; with 14 for 1.4 times as long, and with 64 for 1.75 times."""

    def __init__(self, mean_ms):
        self.mean_s = 1e-3 * mean_ms
        self.inside = 0
        self.lock = threading.Lock()

    def factor(self, inside):
        steps = [(8, 1.0), (14, 1.4), (32, 1.45), (64, 1.75), (128, 2.0)]
        for (low, less), (high, more) in zip(steps, steps[1:]):
            if inside <= high:
                return less + (more - less) * max(0.0, (inside - low) / (high - low))
        return steps[-1][1]

    def answer(self, number):
        with self.lock:
            # Equally spaced quantiles, in an order that has nothing to do with the numbers.
            work_s = -self.mean_s * math.log((number * 271 % TEXTS + 0.5) / TEXTS)
            time.sleep(work_s * self.factor(self.inside))
        return b"held"


class Connection(asyncio.Protocol):
    """A client, who sends a request after the reply to the one before. With a pool its threads answer."""

    def __init__(self, answer, pool=None, crowd=None):
        self.answer = answer
        self.pool = pool
        self.crowd = crowd
        self.buffer = b""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.buffer += data
        while b"\r\n\r\n" in self.buffer:
            head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
            key = head.split(b" ", 2)[1].rsplit(b"/", 1)[-1].decode()
            if self.pool is None:
                self.transport.write(self.reply(key))
            else:
                if self.crowd:
                    self.crowd.inside += 1
                made = asyncio.get_running_loop().run_in_executor(self.pool, self.reply, key)
                made.add_done_callback(self.done)

    def done(self, made):
        if self.crowd:
            self.crowd.inside -= 1
        self.transport.write(made.result())

    def reply(self, key):
        try:
            status, body = b"200 OK", self.answer(int(key.lstrip("k")))
        except ValueError:
            status, body = b"404 Not Found", b"no such key"
        return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


async def serve(answer, listening, pool=None, crowd=None):
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(answer, pool, crowd), sock=listening, backlog=4096)
    await server.serve_forever()


def main():
    what, port, workers = sys.argv[1], int(sys.argv[2]), int((sys.argv[3:] or ["1"])[0])
    if what not in ("compress", "postgres", "collapse"):
        fill(what).close()
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", port))
    if what == "postgres":
        sockets, wait_ms = sys.argv[4], float(sys.argv[5])
        fill_postgres(sockets)
        pool = concurrent.futures.ThreadPoolExecutor(workers) if workers > 1 else None
        return asyncio.run(serve(postgres(sockets, wait_ms), listening, pool))
    if what == "collapse":
        crowd = Crowd(float(sys.argv[4]))
        # One thread: a line, in the order of arrival.
        pool = concurrent.futures.ThreadPoolExecutor(1)
        return asyncio.run(serve(crowd.answer, listening, pool, crowd))
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
