"""Concertina's models of response times, its plans, and its compressed, searchable records.

Rates are in requests/s, times in seconds, sizes in bytes, shares from 0 to 1. Arrays are NumPy's; what takes an array takes a number,
a list, and a column of pandas or polars as well. A call that takes long holds no lock of the interpreter, and Ctrl-C ends it. An input
that has no answer raises `Error` with the text that the command would print; a file that cannot be read raises `OSError`.

Formulas, sources and limits: docs/models.md of the project. Guide: docs/python.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ._concertina import (
    Error,
    Fit,
    Interval,
    Model,
    Page,
    Predictions,
    Run,
    Shard,
    TABLES,
    Table,
    UnstableError,
    factors_table,
    fit_runs,
    fit_times,
    network,
    scaling_capacity,
    storage_capacity,
)

__all__ = [
    "Error",
    "Fit",
    "Frame",
    "Interval",
    "Model",
    "Page",
    "Predictions",
    "Run",
    "Shard",
    "Table",
    "UnstableError",
    "capacity",
    "factors",
    "fit",
    "fit_runs",
    "network",
    "read_run",
]


def read_run(path: str | PathLike[str]) -> dict[str, Table]:
    """The tables of a run folder by name: `windows`, `requests`, `samples` and `host` (`Run.table` says what they have).

    `polars.DataFrame(tables["windows"])`, `pandas.DataFrame.from_arrow(…)` (with pyarrow) and `pyarrow.table(…)` make data frames of them, and `tables["windows"]["busy_s"]` is an
    array of NumPy. A folder that is still written is read up to its last complete line.
    """
    run = Run.read(path)
    return {name: run.table(name) for name in TABLES}


class Frame(Protocol):
    """Columns by name: a DataFrame of pandas or polars, a structured array of NumPy, a dict of arrays."""

    def __getitem__(self, name: str, /) -> Any: ...


def _nanoseconds(column: Any) -> npt.NDArray[np.int64]:
    """Moments as nanoseconds: of numbers, which are seconds, and of dates."""
    array = np.asarray(column)
    if array.dtype.kind in "MO":
        # Of the column again: pandas then turns a zone into UTC.
        return np.asarray(column, dtype="datetime64[ns]").astype(np.int64)
    seconds = array.astype(np.float64)
    if not np.isfinite(seconds).all() or (np.abs(seconds) > 9e9).any():
        raise Error("arrivals and departures are finite numbers of seconds, at most 9e9, or dates")
    # A whole number of seconds apart, so that the parts keep their digits.
    whole = np.floor(seconds)
    return whole.astype(np.int64) * 1_000_000_000 + np.rint((seconds - whole) * 1e9).astype(np.int64)


def fit(
    frame: Frame,
    arrival: str = "arrival",
    departure: str = "departure",
    *,
    bytes: str | None = None,
    servers: int | None = None,
    hold_out: Iterable[int | str] = (),
    steps: str = "levels",
    closed_loop: Sequence[float | tuple[int, float]] = (),
    no_hits: bool = False,
    title: str | None = None,
) -> Fit:
    """Fits a service to the arrivals and departures of its requests: a row a request, all requests, in any order.

    `arrival` and `departure` name the columns: seconds since 1970 or since any later moment (float), or dates (exact to the nanosecond).
    `bytes` names that of the sizes, if they are known. At least 500 requests; some 10,000 at two loads or more, to predict others.

    `servers` is the number of requests that the service serves at once, if it is known; `hold_out` are steps of the load that judge the model
    (numbers, or rates like `"1500/s"`); `steps` is how the record is cut: where the load changes (`"levels"`), not at all (`"one"`), or a
    length (`"60s"`). `closed_loop` is what closed loops of enough clients carried, requests/s, or (clients, requests/s) of several.

    The same as `concertina import` of a log with these times, and `concertina fit --servers auto`: how it works, and what it assumes, is in
    docs/models.md and the documentation of the crate `model`, module `fit::work`.
    """
    return fit_times(
        _nanoseconds(frame[arrival]),
        _nanoseconds(frame[departure]),
        None if bytes is None else np.asarray(frame[bytes]).astype(np.int64),
        servers=servers,
        hold_out=[str(step) for step in hold_out],
        steps=steps,
        closed_loop=[at if isinstance(at, tuple) else (None, at) for at in closed_loop],
        no_hits=no_hits,
        title=title,
    )


def capacity(
    table: Frame,
    *,
    at: Sequence[float] | Sequence[tuple[float, float]] = (),
    mixes: Sequence[tuple[float, Mapping[float, float]]] = (),
    by: str = "ios",
    point_error: float | None = None,
    confidence: float = 0.95,
) -> dict[str, Any]:
    """The capacity of a system from a table of throughputs at saturation, as `concertina capacity --json` (docs/capacity.md).

    With the columns `size_bytes`, `read_share` and `throughput` (I/Os per second): AT&T's law C = T_read + T_write·f_rw; `at` are pairs (share of
    reads, bytes), `mixes` pairs (share of reads, {bytes: share}) with shares of the I/Os or of the capacity (`by`).
    With the columns `concurrency` and `throughput`: the Universal Scalability Law (Gunther); `at` are concurrencies.
    """
    if "concurrency" in _names(table):
        if len(mixes):
            raise Error("mixes are for tables of size_bytes, read_share and throughput; this one has concurrency")
        others = np.asarray(at, dtype=np.float64)
        return scaling_capacity(table["concurrency"], table["throughput"], at=others, confidence=confidence)
    pairs = [(float(read), float(size)) for read, size in at]  # type: ignore[misc]
    listed = [(read, [(float(size), share) for size, share in sizes.items()]) for read, sizes in mixes]
    return storage_capacity(
        table["size_bytes"],
        table["read_share"],
        table["throughput"],
        at=pairs,
        mixes=listed,
        by=by,
        point_error=point_error,
        confidence=confidence,
    )


def factors(
    table: Frame,
    response: str,
    *,
    factors: Sequence[str] | None = None,
    model: str | None = None,
    confidence: float = 0.95,
    bootstrap: int | None = None,
    seed: int = 1,
) -> dict[str, Any]:
    """Which factors of an experiment matter, how much, and with what confidence, as `concertina factors --json` (docs/factors.md).

    A row of `table` is one run, in the order of the runs: the level of each factor, and the measured `response`. Without `factors` all other columns
    are factors. `model` is `"additive"` or `"multiplicative"`; without it the data decide.
    """
    names = [name for name in _names(table) if name != response] if factors is None else list(factors)
    levels = [[_level(level) for level in np.asarray(table[name]).tolist()] for name in names]
    return factors_table(
        names,
        levels,
        table[response],
        name=response,
        form=model,
        confidence=confidence,
        bootstrap=bootstrap,
        seed=seed,
    )


def _level(level: object) -> str:
    """A level as a table in a file would have it: 8.0 is the level 8."""
    return str(int(level)) if isinstance(level, float) and level.is_integer() else str(level)


def _names(table: Frame) -> list[str]:
    """The names of the columns."""
    for names in (getattr(table, "columns", None), getattr(getattr(table, "dtype", None), "names", None)):
        if names is not None:
            return [str(name) for name in names]
    return [str(name) for name in table] if isinstance(table, Mapping) else []
