"""What a user would pick instead, each behind the same line protocol, timed in this process around its call.

    python peer.py PEER version           its version on one line, or why it is missing, with exit status 1
    python peer.py PEER build TASK DIR    makes its files of the task's records in DIR; says what that took
    python peer.py PEER serve TASK DIR    answers questions, one line of JSON each, until its input ends

TASK is a file of JSON that the experiment writes: the text, its records one to a line with the attributes that
will be asked for, and the program of this project. An answer is `{"cannot": WHY}`, or the time, how many there
are, and checksums of the records, which are made after the clock has stopped.
"""

import importlib.metadata
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
import zlib
from pathlib import Path

FIRST = 10
EVERYTHING = 1_000_000_000


def memory(name):
    """Bytes of a line of /proc/self/status."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    return 0


def records_of(task):
    """Id, text and values of every record."""
    with open(task["records"], encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            record = json.loads(line)
            yield number, record["text"], record["values"]


def wanted(form):
    return {"first": FIRST, "all": EVERYTHING}[form]


def quoted(text):
    """A string or name in SQL's and FTS5's double quotes."""
    return '"' + text.replace('"', '""') + '"'


class Sqlite:
    """FTS5 over the whole record and over the attributes of which parts are asked for; B-trees for the others.

    `trigram` finds any three bytes and more; `small` has it keep no positions, so that what it finds is read to be
    certain; `unicode61` finds words.
    """

    def __init__(self, task, folder, tokenizer, small=False):
        self.task, self.path = task, Path(folder) / "records.db"
        self.tokenizer, self.small = tokenizer, small
        self.database = None

    @staticmethod
    def version():
        return f"SQLite {sqlite3.sqlite_version}"

    def build(self):
        rows = list(records_of(self.task))
        equals, contains = self.task["equals"], self.task["contains"]
        self.database = sqlite3.connect(self.path, isolation_level=None)
        run = self.database.execute
        # As in any bulk load: what fails is made again.
        run("PRAGMA journal_mode = OFF")
        run("PRAGMA synchronous = OFF")
        run("PRAGMA cache_size = -65536")
        kept = equals + ([name for name in contains if name not in equals] if self.small else [])
        before = begin_build()
        columns = "".join(f", {quoted(name)} TEXT" for name in kept)
        run(f"CREATE TABLE records(id INTEGER PRIMARY KEY, text TEXT{columns})")
        run("BEGIN")
        holes = ", ".join("?" * (2 + len(kept)))
        self.database.executemany(
            f"INSERT INTO records VALUES ({holes})",
            ((number, text, *map(values.get, kept)) for number, text, values in rows),
        )
        for name in equals:
            run(f"CREATE INDEX {quoted('by ' + name)} ON records({quoted(name)})")
        options = "tokenize = 'trigram case_sensitive 1'"
        if self.tokenizer == "unicode61":
            options = "tokenize = 'unicode61 remove_diacritics 0'"
        options += ", content = 'records', content_rowid = 'id', detail = none" if self.small else ", content = ''"
        searched = "".join(f", {quoted(name)}" for name in contains)
        run(f"CREATE VIRTUAL TABLE search USING fts5(text{searched}, {options})")
        if self.small:
            run("INSERT INTO search(search) VALUES ('rebuild')")
        else:
            holes = ", ".join("?" * (2 + len(contains)))
            self.database.executemany(
                f"INSERT INTO search(rowid, text{searched}) VALUES ({holes})",
                ((number, text, *map(values.get, contains)) for number, text, values in rows),
            )
        run("INSERT INTO search(search) VALUES ('optimize')")
        run("COMMIT")
        took = end_build(before)
        # Not part of the time: only the size asks for it.
        run("VACUUM")
        return took

    def open(self):
        self.database = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)
        self.database.execute(f"PRAGMA mmap_size = {1 << 30}")

    def cannot(self, question):
        kind = question["kind"]
        if kind in ("regex", "occurrences"):
            return f"FTS5 answers no {'regular expressions' if kind == 'regex' else 'counts of occurrences'}"
        if kind == "substring" and self.tokenizer == "unicode61":
            return "finds words, not parts of them"
        if kind == "word" and self.tokenizer == "trigram":
            return "finds parts of words, not words"
        return None

    def ask(self, question):
        kind, attribute, value = question["kind"], question["attribute"], question["value"]
        column = quoted(attribute or "text")
        if kind in ("equals", "key"):
            source, condition, text = "records", f"{column} = ?", "text"
        elif self.small:
            source, condition, text = "search", f"{column} GLOB ?", "text"
            value = "*" + "".join(f"[{c}]" if c in "*?[" else c for c in value) + "*"
        else:
            source, condition, text = "search", "search MATCH ?", "records.text"
            value = f"{column} : {quoted(value)}"
        if question["form"] == "count":
            return self.database.execute(f"SELECT count(*) FROM {source} WHERE {condition}", (value,)).fetchone()[0], 0
        if text == "records.text":
            source = "search JOIN records ON records.id = search.rowid"
        rows = self.database.execute(
            f"SELECT {text} FROM {source} WHERE {condition} LIMIT ?", (value, wanted(question["form"]))
        )
        return [row[0] for row in rows], 0


class Tantivy:
    """Words of the record and of attributes by its default tokenizer, other attributes whole; the record stored.

    `position` is its default, for phrases; `basic` keeps which records hold a word and no more.
    """

    def __init__(self, task, folder, index_option):
        import tantivy

        self.tantivy, self.task, self.folder, self.index_option = tantivy, task, str(folder), index_option
        builder = tantivy.SchemaBuilder()
        builder.add_text_field("text", stored=True, index_option=index_option)
        for name in task["contains"]:
            builder.add_text_field("contains " + name, index_option=index_option)
        for name in task["equals"]:
            builder.add_text_field("equals " + name, tokenizer_name="raw", index_option="basic")
        self.schema = builder.build()
        self.index = self.searcher = None

    @staticmethod
    def version():
        return f"tantivy {importlib.metadata.version('tantivy')}"

    def build(self):
        rows = []
        for _, text, values in records_of(self.task):
            fields = {"text": text}
            for kind in ("contains", "equals"):
                fields |= {f"{kind} {name}": values[name] for name in self.task[kind] if name in values}
            rows.append(fields)
        before = begin_build()
        self.index = self.tantivy.Index(self.schema, path=self.folder)
        writer = self.index.writer()
        for fields in rows:
            writer.add_document(self.tantivy.Document(**fields))
        writer.commit()
        writer.wait_merging_threads()
        return end_build(before)

    def open(self):
        self.index = self.tantivy.Index(self.schema, path=self.folder)
        self.searcher = self.index.searcher()

    def cannot(self, question):
        return {
            "substring": "finds words, not parts of them",
            "regex": "matches regular expressions against words, not against records",
            "occurrences": "counts records, not occurrences",
        }.get(question["kind"])

    def ask(self, question):
        kind, attribute, value = question["kind"], question["attribute"], question["value"]
        if kind in ("equals", "key"):
            field = "equals " + attribute
        else:
            # A term is what the tokenizer made of the word.
            field, value = "contains " + attribute if attribute else "text", value.lower()
        if question["form"] == "count":
            return self.searcher.doc_freq(field, value), 0
        query = self.tantivy.Query.term_query(self.schema, field, value, index_option="basic")
        limit = min(wanted(question["form"]), max(self.searcher.num_docs, 1))
        hits = self.searcher.search(query, limit, count=False).hits
        return [self.searcher.doc(address).get_first("text") for _, address in hits], 0


class Duckdb:
    """A table with the record and the attributes that are asked for, without an index: every question reads columns.

    One thread, as all others.
    """

    def __init__(self, task, folder):
        import duckdb

        self.duckdb, self.task, self.path = duckdb, task, Path(folder) / "records.duckdb"
        self.database = None

    def version(self):
        return f"DuckDB {self.duckdb.__version__}"

    def connect(self, read_only):
        self.database = self.duckdb.connect(str(self.path), read_only=read_only)
        self.database.execute("SET threads = 1")

    def build(self):
        self.connect(read_only=False)
        names = list(dict.fromkeys(self.task["equals"] + self.task["contains"]))
        before = begin_build()
        # It reads the file itself, which is how it is loaded: row by row from Python takes minutes.
        paths = "".join(f", json_extract_string(values, '$.{quoted(name)}') AS {quoted(name)}" for name in names)
        self.database.execute(
            f"CREATE TABLE records AS SELECT text{paths} FROM read_json(?, format = 'newline_delimited', "
            "columns = {text: 'VARCHAR', values: 'JSON'})",
            [self.task["records"]],
        )
        self.database.execute("CHECKPOINT")
        took = end_build(before)
        self.database.close()
        return took

    def open(self):
        self.connect(read_only=True)

    def cannot(self, question):
        return None

    def ask(self, question):
        kind, attribute, value = question["kind"], question["attribute"], question["value"]
        if kind == "occurrences":
            counted = "SELECT sum(len(string_split(text, $1)) - 1) FROM records WHERE contains(text, $1)"
            return int(self.database.execute(counted, [value]).fetchone()[0] or 0), 0
        column = quoted(attribute or "text")
        if kind in ("equals", "key"):
            condition = f"{column} = $1"
        elif kind in ("word", "regex"):
            # Within a line, as ripgrep is asked. RE2 knows the same syntax but for the flag `u`; its `\\b` is of ASCII alone.
            line = question["line"].replace(r"(?-u:\b)", r"\b")
            condition, value = "regexp_matches(text, $1)", "(?m)" + line
        else:
            condition = f"contains({column}, $1)"
        if question["form"] == "count":
            return self.database.execute(f"SELECT count(*) FROM records WHERE {condition}", [value]).fetchone()[0], 0
        rows = f"SELECT text FROM records WHERE {condition} LIMIT {wanted(question['form'])}"
        return [row[0] for row in self.database.execute(rows, [value]).fetchall()], 0


class Processes:
    """Programs that are started for each question, timed with their start and until their output has ended."""

    def __init__(self, task, folder):
        self.task, self.folder = task, Path(folder)

    def build(self):
        return {"wall_s": 0.0, "cpu_s": 0.0, "memory_bytes": 0}

    def open(self):
        pass

    def ask(self, question):
        """Output of the last command of a pipe, and the CPU time of all."""
        children, source = [], subprocess.DEVNULL
        for command in self.commands(question):
            child = subprocess.Popen(command, stdin=source, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            if children:
                children[-1].stdout.close()
            children.append(child)
            source = child.stdout
        output = children[-1].stdout.read()
        cpu_ns = 0
        for child in children:
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            cpu_ns += int((usage.ru_utime + usage.ru_stime) * 1e9)
        children[-1].stdout.close()
        # As grep: 1 is that nothing was found.
        if children[-1].returncode not in (0, 1):
            raise RuntimeError(f"{children[-1].args[0]} ended with {children[-1].returncode}")
        if question["form"] == "count":
            return int(output or b"0"), cpu_ns
        return self.split(output), cpu_ns

    def split(self, output):
        return output.split(b"\n\n" if self.task["format"] == "stanzas" else b"\n")


class Ripgrep(Processes):
    """The lines that match. With `records`, several lines are one match: whole stanzas."""

    def __init__(self, task, folder, records=False, compressed=False):
        super().__init__(task, folder)
        self.records, self.compressed = records, compressed

    @staticmethod
    def version():
        return subprocess.run(["rg", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]

    def build(self):
        if not self.compressed:
            shutil.copyfile(self.task["text"], self.folder / "text")
            return super().build()
        start = time.perf_counter()
        # Its default level.
        child = subprocess.Popen(["zstd", "-q", "-3", self.task["text"], "-o", self.folder / "text.zst"])
        _, status, usage = os.wait4(child.pid, 0)
        if status:
            raise RuntimeError("zstd failed")
        return {
            "wall_s": time.perf_counter() - start,
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "memory_bytes": usage.ru_maxrss * 1024,
        }

    def cannot(self, question):
        if self.records and question["kind"] == "occurrences":
            return "counts lines or matches: see rg"
        return None

    def commands(self, question):
        if question["kind"] == "occurrences":
            find = ["rg", "-N", "-F", "--count-matches", "-e", question["value"]]
        else:
            fixed = question["kind"] == "substring" and not self.records
            pattern = question["value"] if fixed else question["line"]
            options = ["-F"] if fixed else []
            if self.records:
                pattern, options = rf"(?:.+\n)*.*(?:{pattern}).*\n(?:.+\n)*\n?", ["-U"]
            form = {"count": ["--count-matches" if self.records else "-c"], "first": ["-m", str(FIRST)], "all": []}
            find = ["rg", "-N", *options, *form[question["form"]], "-e", pattern]
        if self.compressed:
            return [["zstd", "-d", "-q", "-c", self.folder / "text.zst"], [*find, "-"]]
        return [[*find, self.folder / "text"]]

    def split(self, output):
        return super().split(output) if self.records else output.split(b"\n")


class Concertina(Processes):
    """This project's own command, started for each question as ripgrep is."""

    def version(self):
        return f"{self.task['program']} data"

    def cannot(self, question):
        return None

    def commands(self, question):
        program, kind, form = [self.task["program"], "data"], question["kind"], question["form"]
        place = [self.folder.name, "--folder", self.folder.parent]
        if kind == "occurrences":
            return [[*program, "count", *place, "--bytes", question["value"]]]
        if kind == "key":
            return [[*program, "get", *place, "--key", question["value"]]]
        if form == "count":
            return [[*program, "count", *place, question["query"]]]
        limit = ["--limit", str(wanted(form)), *(["--unsorted"] if form == "first" else [])]
        return [[*program, "search", *place, *limit, question["query"]]]


PEERS = {
    "sqlite-trigram": lambda task, folder: Sqlite(task, folder, "trigram"),
    "sqlite-trigram-small": lambda task, folder: Sqlite(task, folder, "trigram", small=True),
    "sqlite-words": lambda task, folder: Sqlite(task, folder, "unicode61"),
    "tantivy": lambda task, folder: Tantivy(task, folder, "position"),
    "tantivy-small": lambda task, folder: Tantivy(task, folder, "basic"),
    "duckdb": Duckdb,
    "rg": Ripgrep,
    "rg-records": lambda task, folder: Ripgrep(task, folder, records=True),
    "zstd-rg": lambda task, folder: Ripgrep(task, folder, compressed=True),
    "concertina-process": Concertina,
}
NOTHING = {"equals": [], "contains": [], "program": "", "format": "lines"}


def begin_build():
    with open("/proc/self/clear_refs", "w") as peak:
        # The peak begins anew.
        peak.write("5")
    return time.perf_counter(), time.process_time(), memory("VmRSS")


def end_build(before):
    wall, cpu, resident = before
    return {
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        "memory_bytes": memory("VmHWM") - resident,
    }


def answer(peer, question):
    cannot = peer.cannot(question)
    if cannot:
        return {"cannot": cannot}
    start, start_cpu = time.perf_counter_ns(), time.process_time_ns()
    found, cpu_ns = peer.ask(question)
    wall_ns, own_cpu_ns = time.perf_counter_ns() - start, time.process_time_ns() - start_cpu
    if isinstance(peer, Processes):
        # What this process did is neither the program's work nor the user's.
        own_cpu_ns = 0
    said = {"wall_ns": wall_ns, "cpu_ns": own_cpu_ns + cpu_ns}
    if isinstance(found, int):
        return said | {"count": found}
    records = [record.encode() if isinstance(record, str) else record for record in found]
    records = [record for record in (record.rstrip(b"\n") for record in records) if record]
    sums = [zlib.crc32(record) for record in records]
    said |= {"count": len(records), "bytes": sum(map(len, records)), "sum": sum(sums)}
    return said | {"some": sums[:FIRST]}


def serve(peer):
    baseline = memory("RssAnon")
    start = time.perf_counter()
    peer.open()
    print(json.dumps({"open_s": time.perf_counter() - start}), flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        if question == "memory":
            held = None if isinstance(peer, Processes) else max(memory("RssAnon") - baseline, 0)
            said = {"anonymous_bytes": held}
        else:
            said = answer(peer, question)
        print(json.dumps(said), flush=True)


def main():
    name, command, *paths = sys.argv[1:]
    if name not in PEERS:
        sys.exit(f"there is no peer {name}")
    if command == "version":
        try:
            print(PEERS[name](NOTHING, ".").version())
        except Exception as missing:
            sys.exit(f"{name}: {missing}")
        return
    task, folder = paths
    peer = PEERS[name](json.loads(Path(task).read_text()), folder)
    if command == "build":
        print(json.dumps(peer.build()))
    else:
        serve(peer)


if __name__ == "__main__":
    main()
