"""Concertina's models of response times, its plans, and its compressed, searchable records.

Rates are in requests/s, times in seconds, sizes in bytes, shares from 0 to 1. Arrays are NumPy's; what takes an array takes a number,
a list, and a column of pandas or polars as well. A call that takes long holds no lock of the interpreter, and Ctrl-C ends it. An input
that has no answer raises `Error` with the text that the command would print; a file that cannot be read raises `OSError`.

Formulas, sources and limits: docs/models.md of the project. Guide: docs/python.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
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


# Seconds from 1970 to the last moment that nanoseconds in 64 bits have.
_SECONDS_MAX = 9_223_372_036


def _nanoseconds(column: Any, name: str) -> npt.NDArray[np.int64]:
    """Moments as nanoseconds: of numbers, which are seconds, of dates, and of durations since any moment."""
    if np.ma.is_masked(column):
        raise Error(f"{name}: the column has masked values: fill them, or leave them out")
    array = np.asarray(column)
    if array.ndim != 1:
        raise Error(f"{name}: one column is needed, and this has {array.ndim} dimensions")
    if array.dtype.kind == "O":
        # pandas has dates with a zone as objects until it is told a dtype.
        dates = getattr(getattr(column, "dtype", None), "tz", None) is not None
        array = np.asarray(column, dtype="datetime64[ns]") if dates else _of_objects(array, name)
    if array.dtype.kind in "mM":
        missing = np.flatnonzero(np.isnat(array))
        if len(missing):
            raise Error(f"{name}: request {missing[0]} has no time (NaT): leave it out")
        # NumPy wraps around where 64 bits are not enough.
        whole = array.astype(f"{array.dtype.kind}8[s]").astype(np.int64)
        if (np.abs(whole) >= _SECONDS_MAX).any():
            raise Error(f"{name}: times must lie between 1970 and 2262")
        return array.astype(f"{array.dtype.kind}8[ns]").astype(np.int64)
    if array.dtype.kind not in "iuf":
        raise Error(f"{name}: seconds, dates or durations are needed, and the column has the dtype {array.dtype}")
    seconds = array.astype(np.float64)
    wrong = np.flatnonzero(~(np.abs(seconds) <= 9e9))
    if len(wrong):
        raise Error(
            f"{name}: request {wrong[0]} has the time {seconds[wrong[0]]:g}: a finite number of seconds, at most 9e9 "
            "(of milliseconds or nanoseconds make dates, like pandas.to_datetime(column, unit='ms'))"
        )
    # A whole number of seconds apart, so that the parts keep their digits.
    whole = np.floor(seconds)
    return whole.astype(np.int64) * 1_000_000_000 + np.rint((seconds - whole) * 1e9).astype(np.int64)


def _of_objects(array: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    """A column of Python's objects, all dates or all numbers, as one of NumPy's."""
    if all(isinstance(value, datetime) for value in array):
        return np.array([_moment(value) for value in array], dtype="datetime64[ns]")
    for row, value in enumerate(array):
        if isinstance(value, (str, bytes, bool, complex)) or not hasattr(value, "__float__"):
            raise Error(f"{name}: request {row} has {value!r}: seconds or dates are needed, of one kind in a column")
    return array.astype(np.float64)


def _moment(value: datetime) -> np.datetime64:
    """A date of Python or of pandas, in UTC; one without a zone as it is."""
    if hasattr(value, "to_datetime64"):
        # pandas' has nanoseconds, and its zone turned into UTC.
        return np.datetime64(value.to_datetime64())
    return np.datetime64(value if value.tzinfo is None else value.astimezone(timezone.utc).replace(tzinfo=None))


def _steps(chosen: Iterable[int | str] | int | str) -> list[str]:
    """Steps of the load, as the command takes them."""
    return [str(chosen)] if isinstance(chosen, (int, str)) else [str(step) for step in chosen]


def fit(
    frame: Frame,
    arrival: str = "arrival",
    departure: str = "departure",
    *,
    bytes: str | None = None,
    servers: int | None = None,
    hold_out: Iterable[int | str] | int | str = (),
    steps: str = "levels",
    closed_loop: Sequence[float | tuple[int, float]] = (),
    no_hits: bool = False,
    lenient: bool = False,
    title: str | None = None,
) -> Fit:
    """Fits a service to the arrivals and departures of its requests: a row a request, all requests, in any order.

    `arrival` and `departure` name the columns: seconds since 1970 or since any later moment (float), or dates (exact to the nanosecond), or
    durations since one moment. `bytes` names that of the sizes, if they are known. Some 10,000 requests at two loads or more, to predict others.
    Of 20 to 499 requests the response times alone are fitted, which do not tell how many servers there are (`model.warnings` says so).

    `servers` is the number of requests that the service serves at once, if it is known; `hold_out` are steps of the load that judge the model
    (numbers, or rates like `"1500/s"`); `steps` is how the record is cut: where the load changes (`"levels"`), not at all (`"one"`), or a
    length (`"60s"`). `closed_loop` is what closed loops of enough clients carried, requests/s, or (clients, requests/s) of several. `lenient`
    takes records of which some cannot be true.

    The same as `concertina import` of a log with these times, and `concertina fit --servers auto`: how it works, and what it assumes, is in
    docs/models.md and the documentation of the crate `model`, module `fit::work`.
    """
    return fit_times(
        _nanoseconds(frame[arrival], arrival),
        _nanoseconds(frame[departure], departure),
        None if bytes is None else frame[bytes],
        servers=servers,
        hold_out=_steps(hold_out),
        steps=steps,
        closed_loop=[at if isinstance(at, tuple) else (None, at) for at in closed_loop],
        no_hits=no_hits,
        lenient=lenient,
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
        if len(mixes) or by != "ios" or point_error is not None:
            raise Error("mixes, by and point_error are for tables of size_bytes, read_share and throughput; this one has concurrency")
        return scaling_capacity(table["concurrency"], table["throughput"], at=at, confidence=confidence)
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
    levels = [_levels(table[name], name) for name in names]
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


def _levels(column: Any, name: str) -> list[str]:
    """The levels of a factor in all runs, as a table in a file would have them: 8.0 is the level 8."""
    array = np.asarray(column)
    if array.ndim != 1:
        raise Error(f"factor {name}: one column is needed, and this has {array.ndim} dimensions")
    # NumPy has dates to the nanosecond as integers, when it is asked for Python's objects.
    all_levels = array.astype(str).tolist() if array.dtype.kind in "mM" else array.tolist()
    for run, level in enumerate(all_levels):
        # What is missing is equal to nothing: NaN not to itself, and what compares to NA is not true.
        if level is None or (array.dtype.kind in "mM" and level == "NaT") or (level != level) is not False:
            raise Error(f"factor {name}: run {run} has no level")
    return [str(int(level)) if isinstance(level, float) and level.is_integer() else str(level) for level in all_levels]


def _names(table: Frame) -> list[str]:
    """The names of the columns."""
    for names in (getattr(table, "columns", None), getattr(getattr(table, "dtype", None), "names", None)):
        if names is not None:
            return [str(name) for name in names]
    return [str(name) for name in table] if isinstance(table, Mapping) else []
