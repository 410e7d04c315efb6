"""Imports and simulation studies as tasks on Ray (https://ray.io).

Ray is the engine: it places the tasks, runs them again where a machine was lost, and knows nothing of what they do. Each task runs the
program `concertina`, which is on the path of every machine (or where `program` says), and so is this module. Files are seen by all machines under the
same path, as on a shared file system; relative paths are relative to `directory`, which is that of the caller unless it is given.

Needs Ray: `pip install 'concertina[ray]'`. Without a connection, `ray.init()` starts Ray on this machine. A call that is interrupted cancels its tasks;
called again, it goes on with the parts that are missing.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
from collections.abc import Sequence
from os import PathLike
from typing import Any

from ._concertina import Error

__all__ = ["import_dataset", "plan", "simulate"]

_Path = str | PathLike[str]


def import_dataset(
    files: Sequence[_Path],
    name: str,
    *,
    parts: int,
    folder: _Path = "datasets",
    options: Sequence[str] = (),
    replace: bool = False,
    memory: int | None = None,
    program: _Path = "concertina",
    directory: _Path | None = None,
    resources: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Imports files as the dataset `name`, in `parts` shards that are built by as many tasks; returns what `data import --json` prints.

    Each task reads its part of the files alone. The shards are, byte for byte, those of `concertina data import --parts N` of the same files on one
    machine. `options` are further options of `concertina data parts split`, such as `["--format", "csv", "--key", "id"]`. `memory` is the limit of each
    task in bytes, which Ray reserves; a part takes up to eight times its bytes. `resources` are options of Ray's tasks (`num_cpus`, 1 unless given).

    The three steps are those of docs/data.md; files must not be compressed.
    """
    at = ["--folder", os.fspath(folder)]
    again = ["--replace"] if replace else []
    engine = _Engine(program, directory, {**({"memory": memory} if memory else {}), **(resources or {})})
    split = ["data", "parts", "split", *[os.fspath(file) for file in files], "--name", name, "--parts", str(parts), *options]
    found = engine.one([*split, *at, *again, "--quiet"])
    limit = ["--memory", str(memory)] if memory else []
    build = ["data", "parts", "build", name, *at, *limit, "--quiet", "--part"]
    engine.all([[*build, str(part)] for part in range(found["parts"])])
    return engine.one(["data", "parts", "join", name, *at, *again])


def simulate(
    arguments: Sequence[str],
    out: _Path,
    *,
    parts: int,
    program: _Path = "concertina",
    directory: _Path | None = None,
    resources: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Simulates the seeds and loads of `concertina simulate` in `parts` tasks; returns what it prints with `--json`.

    `arguments` are its options without `--out`, with `--runs`: `["--config", "cluster.toml", "--rate", "1000,2000", "--runs", "16"]`. The folder `out` gets
    a file for each part, the run folders of its runs, and `intervals.json`, which has the same bytes as that of one process.
    """
    return _study(["simulate", *arguments, "--out", os.fspath(out), "--quiet"], parts, _Engine(program, directory, resources))


def plan(
    arguments: Sequence[str],
    out: _Path,
    *,
    parts: int,
    program: _Path = "concertina",
    directory: _Path | None = None,
    resources: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Plans as `concertina plan --simulate`, with the runs of all candidates in `parts` tasks; returns what it prints with `--json`.

    `arguments` are its arguments and options without `--out`: `["model.toml", "--choices", "choices.toml", "--objective", "99% within 50ms", "--rate",
    "12000", "--simulate"]`. The folder `out` gets a file for each part. The result is that of one process, to the last digit.
    """
    return _study(["plan", *arguments, "--out", os.fspath(out), "--quiet"], parts, _Engine(program, directory, resources))


def _study(command: list[str], parts: int, engine: _Engine) -> dict[str, Any]:
    engine.all([[*command, "--part", f"{part}/{parts}"] for part in range(parts)])
    return engine.one([*command, "--join"])


class _Engine:
    """Commands of the program as tasks of Ray."""

    def __init__(self, program: _Path, directory: _Path | None, resources: dict[str, Any] | None) -> None:
        try:
            # Not by a statement: the types of the module are checked where Ray is not installed.
            self._ray: Any = importlib.import_module("ray")
        except ImportError as error:
            raise ImportError("Ray is not installed: pip install 'concertina[ray]'") from error
        self._program = os.fspath(program)
        self._directory = os.path.abspath(os.getcwd() if directory is None else directory)
        if not self._ray.is_initialized():
            self._ray.init()
        # A command uses one processor unless it is told otherwise.
        self._task = self._ray.remote(**{"num_cpus": 1, **(resources or {})})(_run)

    def one(self, command: Sequence[str]) -> dict[str, Any]:
        """The result of a command."""
        return self.all([command])[0]

    def all(self, commands: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
        """The results of commands that are run side by side."""
        waiting = [self._task.remote([self._program, *command, "--json"], self._directory) for command in commands]
        try:
            # Each command is over before one that failed is reported.
            ended: list[tuple[int, str, str]] = self._ray.get(waiting)
        except BaseException:
            for task in waiting:
                self._ray.cancel(task)
            raise
        for code, _, problem in ended:
            if code != 0:
                raise Error(problem.removeprefix("concertina: ").strip() or f"the program ended with code {code}")
        return [json.loads(output) for _, output, _ in ended]


def _run(command: list[str], directory: str) -> tuple[int, str, str]:
    """Runs a command in a task, and gives its exit code and what it printed."""
    # More threads would be more processors than Ray reserved.
    if command[1] in ("simulate", "plan") and "--part" in command and "--threads" not in command:
        command = [*command, "--threads", "1"]
    ended = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout, ended.stderr
