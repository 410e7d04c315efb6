"""What the tests share: the program beside which answers are compared, and a service whose truth is known."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


class Program:
    """The command line."""

    def __init__(self, path: str) -> None:
        self.path = path

    def run(self, *arguments: object, check: bool = True) -> "subprocess.CompletedProcess[str]":
        line = [self.path, *map(str, arguments)]
        return subprocess.run(line, capture_output=True, text=True, check=check, cwd=ROOT, timeout=300)

    def json(self, *arguments: object) -> dict:
        return json.loads(self.run(*arguments, "--json").stdout)

    def error(self, *arguments: object) -> str:
        failed = self.run(*arguments, check=False)
        assert failed.returncode != 0
        return failed.stderr.removeprefix("concertina: ").rstrip("\n")


@pytest.fixture(scope="session")
def program() -> Program:
    """The binary that CONCERTINA names."""
    path = os.environ.get("CONCERTINA")
    if path is None:
        pytest.fail("set CONCERTINA to the program: target/debug/concertina")
    return Program(path)


def served(rate: float, count: int, start: float, work: np.ndarray) -> "tuple[np.ndarray, np.ndarray]":
    """Poisson arrivals at one server, first come, first served, and when each request leaves."""
    arrivals = start + np.cumsum(np.random.default_rng(int(rate)).exponential(1 / rate, count))
    departures = np.empty(count)
    free = 0.0
    for i in range(count):
        free = max(free, arrivals[i]) + work[i]
        departures[i] = free
    return arrivals, departures


@pytest.fixture(scope="session")
def requests() -> "dict[str, np.ndarray]":
    """A server with a mean of 10 ms at 30 and at 70 requests/s."""
    works = np.random.default_rng(7).gamma(2.0, 0.005, 3_000)
    light = served(30, 1_000, 1.7e9, works[:1_000])
    heavy = served(70, 2_000, light[1][-1] + 1.0, works[1_000:])
    return {"arrival": np.r_[light[0], heavy[0]], "departure": np.r_[light[1], heavy[1]]}
