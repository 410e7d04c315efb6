"""What only Python meets: arrays, frames, signals, closed shards, types."""

import array
import copy
import inspect
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from conftest import ROOT, Program

import concertina

SPOTIFY = concertina.Model.published(150.0, 6, 0.815, 0.000501)


def test_shapes_follow_the_arguments() -> None:
    times = np.linspace(0.001, 0.1, 12)
    shares = SPOTIFY.cdf(400.0, times)
    assert shares.shape == (12,) and shares.dtype == np.float64 and (np.diff(shares) > 0).all()
    assert np.array_equal(SPOTIFY.cdf(400.0, times.reshape(3, 4)), shares.reshape(3, 4))
    # Neither the order of the memory nor the dtype matters.
    assert np.array_equal(SPOTIFY.cdf(400.0, np.asfortranarray(times.reshape(3, 4))), shares.reshape(3, 4))
    assert np.array_equal(SPOTIFY.cdf(400.0, times[::2]), shares[::2])
    assert SPOTIFY.cdf(400.0, 0.05).shape == ()
    assert np.array_equal(SPOTIFY.cdf(400.0, pd.Series(times)), SPOTIFY.cdf(400.0, pl.Series(times)))
    assert SPOTIFY.cdf(400.0, []).shape == (0,)
    found = SPOTIFY.predict(np.arange(100, 500, 100), [0.02])
    assert len(found) == 4 and found.share.value.shape == (4, 1) and found.share.low.shape == (4, 1)


def test_a_table_of_predictions() -> None:
    table = SPOTIFY.predict([400.0, 2000.0], [0.005, 0.05]).to_pandas()
    assert table.index.name == "rate" and table.index.tolist() == [400.0, 2000.0]
    assert table["stable"].tolist() == [True, False]
    assert table.loc[400.0, "share_50ms"] > table.loc[400.0, "share_5ms"] > 0.5
    assert np.isnan(table.loc[2000.0, "share_50ms"])


def test_bad_input_is_an_error() -> None:
    with pytest.raises(concertina.UnstableError) as raised:
        SPOTIFY.cdf(2000.0, [0.1])
    assert raised.value.rate == 2000.0 and 1168 < raised.value.saturation < 1169
    for number, call in enumerate((
        lambda: SPOTIFY.cdf(float("nan"), [0.1]),
        lambda: SPOTIFY.predict([400.0], [-1.0]),
        lambda: SPOTIFY.predict([400.0], servers=0),
        lambda: SPOTIFY.quantile(400.0, 1.5),
        lambda: SPOTIFY.cluster_limits([1.5]),
        lambda: SPOTIFY.largest_rate("99 within 50ms"),
        lambda: SPOTIFY.plan({"servers": {"counts": []}}, "99% within 50ms", 100.0),
        lambda: SPOTIFY.plan({"servers": {"counts": [1], "prize": 3}}, "99% within 50ms", 100.0),
        lambda: SPOTIFY.with_mix([("get", None, 1.0)]),
        lambda: concertina.network({"station": {}}),
        lambda: concertina.capacity({"size_bytes": [1], "read_share": [1, 0], "throughput": [1]}),
        lambda: concertina.factors({"a": [1, 2], "y": [1.0, 2.0]}, "y", model="other"),
        lambda: concertina.fit({"arrival": [0.0], "departure": [1.0]}),
        lambda: concertina.fit({"arrival": [2.0, 3.0], "departure": [1.0, 4.0]}),
        lambda: concertina.fit({"arrival": [float("nan")], "departure": [1.0]}),
        lambda: concertina.Shard.build("a\n", format="xml"),
        lambda: concertina.Shard.build("a\n", sa_sampling=0),
    )):  # fmt: skip
        try:
            call()
        except concertina.Error:
            continue
        pytest.fail(f"the call {number} was answered")


# What NumPy makes numbers of when it is told a dtype, and what has no number in a place.
NO_NUMBERS = [
    None, "0.05", ["0.05"], [None, 0.05], [float("nan")], pd.Series([0.05, None]), pd.Series([0.05, None], dtype="Float64"),
    pl.Series([0.05, None]), np.ma.array([0.05, 0.06], mask=[False, True]), np.array([True, False]), np.array([0.05 + 1j]),
    np.array([50], dtype="timedelta64[ms]"), pd.Series(pd.to_timedelta([50], unit="ms")), np.array(["2026-01-01"], dtype="datetime64[ns]"),
    pl.Series([1, 2]).cast(pl.Duration("ms")), pd.Series(["0.05"]), {0.05}, (t for t in [0.05]), [[0.05], [0.05, 0.06]],
]  # fmt: skip


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: repr(value).replace("\n", " ")[:40])
def test_what_is_no_number_is_never_taken_for_one(value: object) -> None:
    usl = {"concurrency": [1, 2, 4, 8], "throughput": [9.0, 17.0, 30.0, 40.0]}
    for number, call in enumerate((
        lambda: SPOTIFY.cdf(400.0, value),
        lambda: SPOTIFY.predict(400.0, value) if value is not None else SPOTIFY.predict(value),
        lambda: SPOTIFY.quantile(value, 0.5),
        lambda: SPOTIFY.cluster_limits(value),
        lambda: concertina.capacity({**usl, "throughput": value}),
        lambda: concertina.factors({"a": [1, 2], "y": value}, "y"),
    )):  # fmt: skip
        with pytest.raises((concertina.Error, TypeError, ValueError)):
            call()
            pytest.fail(f"the call {number} was answered")


def test_a_message_says_which_value_and_which_argument() -> None:
    with pytest.raises(concertina.Error, match=r"value 1 is missing or not a number \(NaN\)") as raised:
        SPOTIFY.cdf(400.0, [0.05, float("nan")])
    assert any("times" in note for note in raised.value.__notes__) or sys.version_info < (3, 11)
    for call in (
        lambda: SPOTIFY.predict(400.0, servers=-1),
        lambda: SPOTIFY.predict(400.0, servers=10**5000),
        lambda: SPOTIFY.largest_rate("99% within 50ms", servers=0),
        lambda: SPOTIFY.largest_rate("99% within 50ms", servers=10**7),
        lambda: concertina.Model.stated("exp:6ms", devices=-1),
        lambda: concertina.network(ROOT / "docs/examples/middlewares.toml", within=[-1.0]),
        lambda: concertina.network(ROOT / "docs/examples/middlewares.toml", customers=[-1]),
        lambda: concertina.network(ROOT / "docs/examples/middlewares.toml", sweep_class="clients"),
        lambda: concertina.factors({"a": [1, 2], "y": [1.0, 2.0]}, "y", seed=-1),
        lambda: concertina.factors({"a": [1, 2], "y": [1.0, 2.0]}, "y", factors=["a", "a"]),
        lambda: concertina.factors({"a": [1, None], "y": [1.0, 2.0]}, "y"),
        lambda: concertina.factors({"a": [1.0, float("nan")], "y": [1.0, 2.0]}, "y"),
        lambda: concertina.capacity({"concurrency": [1, 2, 4], "throughput": [1, 2, 3]}, point_error=0.1),
        lambda: concertina.capacity({"size_bytes": [1, 1], "read_share": [1, 0], "throughput": [2, 1]}, point_error=float("nan")),
        lambda: concertina.fit_runs(["nothing"], closed_loop=[(8, 3.0)]),
        lambda: concertina.Shard.build("a,b\n1,2\n3,4\n", format="csv", order=["nothing"]),
    ):
        with pytest.raises(concertina.Error):
            call()


def test_levels_that_are_dates_are_dates() -> None:
    days = np.array(["2026-01-01", "2026-02-01"] * 2, dtype="datetime64[ns]")
    found = concertina.factors({"day": days, "y": [1.0, 2.0, 1.1, 2.1]}, "y")
    assert [level[:10] for level in found["factors"][0]["levels"]] == ["2026-01-01", "2026-02-01"]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["copy", "pickle"])
def test_a_copy_of_a_model_is_the_model(copied: "Callable[[concertina.Model], concertina.Model]") -> None:
    for model in (SPOTIFY, concertina.Model.stated("lognormal:7.3ms,2.1", devices=3, q0=1 / 3, alpha=1e-5, loads=(1.0, 100.0))):
        again = copied(model)
        assert again.to_toml() == model.to_toml()
        times = np.linspace(1e-4, 0.1, 50)
        assert np.array_equal(again.cdf(100.0, times), model.cdf(100.0, times))


def test_times_that_are_none_are_named(requests: "dict[str, np.ndarray]") -> None:
    whole = {name: np.rint(column * 1e9).astype("int64") for name, column in requests.items()}
    dates = {name: column.astype("datetime64[ns]") for name, column in whole.items()}

    def without(row: int, value: object) -> "dict[str, object]":
        changed = dates["departure"].astype(object) if value is None else dates["departure"].copy()
        changed[row] = value
        return {**dates, "departure": changed}

    for frame, text in (
        (without(7, np.datetime64("NaT")), "request 7 has no time"),
        ({**requests, "departure": np.where(np.arange(3_000) == 7, np.nan, requests["departure"])}, "request 7 has the time nan"),
        ({**requests, "departure": [*requests["departure"][:-1], None]}, "request 2999 has None"),
        ({name: column / 1e6 for name, column in whole.items()}, "to_datetime"),
        ({name: [str(moment) for moment in column] for name, column in requests.items()}, "seconds, dates or durations"),
        ({name: column + 1j for name, column in requests.items()}, "complex"),
        ({name: np.array(["3000-01-01"] * 600, dtype="datetime64[s]") for name in requests}, "2262"),
        ({name: column.reshape(-1, 2) for name, column in requests.items()}, "2 dimensions"),
        ({name: column[:0] for name, column in requests.items()}, "no requests"),
    ):
        with pytest.raises(concertina.Error, match=text):
            concertina.fit(frame)
    for sizes in (np.full(3_000, -1), np.full(3_000, np.nan), np.full(3_000, 0.5), np.full(3_000, 2**64 - 1, dtype="uint64"), ["x"] * 3_000):
        with pytest.raises(concertina.Error, match=r"value 0|request 0|text"):
            concertina.fit({**requests, "size": sizes}, bytes="size")
    for loop in (float("nan"), -3.0, (0, 95.0)):
        with pytest.raises(concertina.Error, match="closed_loop"):
            concertina.fit(requests, closed_loop=[loop])
    # No hint at an option that the module does not have.
    with pytest.raises(concertina.Error, match="lenient=True"):
        concertina.fit({"arrival": np.arange(600.0), "departure": np.arange(600.0)})


@pytest.mark.parametrize("count", [100, 499])
def test_few_requests_give_a_fit_that_says_so(requests: "dict[str, np.ndarray]", count: int) -> None:
    fitted = concertina.fit({name: column[:count] for name, column in requests.items()})
    assert any("to tell how many servers there are" in warning for warning in fitted.model.warnings)
    assert fitted.found["hypotheses"]
    with pytest.raises(concertina.Error, match="49 answered reads are too few"):
        concertina.fit({name: column[:49] for name, column in requests.items()})


def test_arrivals_of_every_kind_give_one_fit(requests: "dict[str, np.ndarray]") -> None:
    seconds = concertina.fit(requests, hold_out=[1])
    # The thousand works that are fitted have a mean of 9.4 ms by chance: 106 requests/s.
    assert abs(seconds.model.limits()["saturation"]["value"] - 106.1) < 3.0
    assert seconds.found["servers"]["likeliest"] == 1 and seconds.steps[0]["index"] == 0
    whole = {name: np.rint(column * 1e6).astype("int64") * 1000 for name, column in requests.items()}
    dates = {name: column.astype("datetime64[ns]") for name, column in whole.items()}
    zoned = pd.DataFrame(dates).apply(lambda column: column.dt.tz_localize("UTC"))
    of_pandas = concertina.fit(zoned, hold_out=[1]).model.to_toml()
    assert concertina.fit(pl.DataFrame(dates), hold_out=[1]).model.to_toml() == of_pandas
    local = zoned.apply(lambda column: column.dt.tz_convert("Asia/Tokyo"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        listed = {name: list(column) for name, column in local.items()}
        python = {name: [moment.to_pydatetime() for moment in column] for name, column in local.items()}
        since = {name: column - np.datetime64(0, "ns") for name, column in dates.items()}
        for frame in (local, listed, python, local.astype(object), since):
            assert concertina.fit(frame, hold_out=1).model.to_toml() == of_pandas


def test_data_frames_take_the_tables_of_a_run(program: Program, tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text('[[device]]\npath = "device"\nservice = { kind = "exponential", mean_ms = 10.0 }\n')
    folder = tmp_path / "run"
    program.run("simulate", "--config", tmp_path / "node.toml", "--rate", "50,80", "--duration", "20s", "--keys", 500, "--out", folder)
    run, tables = concertina.Run.read(folder), concertina.read_run(folder)
    assert list(tables) == ["windows", "requests", "samples", "host"]
    windows, columns = tables["windows"], run.windows()
    assert windows.columns == list(columns) and len(windows) == len(columns["queue"]) > 100
    # pandas reads Arrow's interface with pyarrow alone, which is not installed here; arrays it takes by themselves.
    of_polars, of_pandas = pl.DataFrame(windows), pd.DataFrame({name: windows[name] for name in windows.columns})
    assert of_polars.schema["queue"] == pl.Categorical
    for name, column in columns.items():
        for found in (windows[name], of_polars[name].to_list(), of_pandas[name].tolist()):
            assert list(found) == list(column), name
        if name != "queue":
            assert windows[name].dtype == column.dtype
    # One by one, and when what they were made of is gone.
    frames = [pl.DataFrame(table) for table in concertina.read_run(folder).values()]
    assert [len(frame) for frame in frames] == [len(table) for table in tables.values()]
    assert pl.Schema(windows)["busy_s"] == pl.Float64
    for call, error in ((lambda: windows["nothing"], KeyError), (lambda: run.table("nothing"), concertina.Error)):
        with pytest.raises(error, match="windows" if error is concertina.Error else "queue"):  # type: ignore[call-overload]
            call()


def test_a_format_says_nothing_of_a_header() -> None:
    """`--format csv` of the command looks for a header and for the delimiter, and so does `format="csv"`."""
    for text, attributes, records in (
        ("1,2\n3,4\n", ["column1", "column2"], 2),
        ("x;y\n1;2\n3;4\n", ["x", "y"], 2),
        ("a,b\n1,2\n", ["a", "b"], 1),
    ):
        shard = concertina.Shard.build(text, format="csv")
        assert (shard.attributes, len(shard)) == (attributes, records), text
    # The last row of a whole input is complete without a line end.
    assert concertina.Shard.build("1,2\n3,4").format == "csv"


def test_a_shard_in_memory_and_in_a_file(tmp_path: Path) -> None:
    text = b"name,size\ned,90\nnano,2900\nnvi,1500\n"
    with concertina.Shard.build(text, order=["size"]) as shard:
        page = shard.search("size:1000..3000")
        assert page.records.dtype == np.uint64 and page.records.tolist() == [1, 2] and page.next is None
        assert shard.get_all(page.records) == [b"nano,2900\n", b"nvi,1500\n"]
        first = shard.search("name:^n", limit=1)
        assert first.next is not None and shard.search("name:^n", limit=1, after=first.next).records.tolist() == [2]
        assert (shard.find("nvi"), shard.find(b"vim")) == (2, None)
        for none in ([-1], [0.5], np.array([True, False]), np.array([-1], dtype="int8"), [2**64], ["1"], pd.Series([0, None]), [[0]], [3]):
            with pytest.raises(concertina.Error):
                shard.get_all(none)
        assert shard.get_all([]) == [] and shard.get_all([1.0]) == shard.get_all(pl.Series([1])) == [b"nano,2900\n"]
        for view in (bytearray(text), memoryview(text), np.frombuffer(text, dtype="uint8"), array.array("B", text), text.decode()):
            assert concertina.Shard.build(view).extract(0, len(text)) == text
        assert concertina.Shard.build(memoryview(text[::-1])[::-1]).extract(0, len(text)) == text and shard.find(memoryview(b"nvi")) == 2
        for none in (5, None, [1], np.zeros(3)):
            with pytest.raises((TypeError, concertina.Error), match="bytes"):
                concertina.Shard.build(none)
        assert shard.attributes == ["name", "size"] and shard.key == "name"
        assert shard.offsets("n").tolist() == [at for at in range(len(text)) if text[at : at + 1] == b"n"]
        assert shard.occurrences("n") == text.count(b"n") and shard.extract(10, 5) == text[10:15]
        for call in (
            lambda: shard.get(3),
            lambda: shard.extract(30, 100),
            lambda: shard.search("name:("),
            lambda: shard.search("nothing:=1"),
        ):
            with pytest.raises(concertina.Error):
                call()
    with pytest.raises(concertina.Error, match="closed"):
        len(shard)
    path = tmp_path / "a.shard"
    concertina.Shard.build(text, path).close()
    with pytest.raises(FileExistsError):
        concertina.Shard.build(text, path)
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / "damaged").write_bytes(damaged)
    with pytest.raises(concertina.Error):
        concertina.Shard.open(tmp_path / "damaged")


def test_other_threads_run_meanwhile() -> None:
    """The interpreter's lock is free while a call computes."""
    counted = 0

    def count() -> None:
        nonlocal counted
        while not done.is_set():
            counted += 1
            time.sleep(0)

    done = threading.Event()
    thread = threading.Thread(target=count)
    thread.start()
    before, start = counted, time.monotonic()
    SPOTIFY.cdf(800.0, np.linspace(1e-4, 1.0, 3_000))
    during, taken = counted - before, time.monotonic() - start
    done.set()
    thread.join()
    assert during > 100 * taken


LONG = """
import numpy as np, concertina, sys, time
model = concertina.Model.published(150.0, 6, 0.815, 0.000501)
print("begins", flush=True)
try:
    model.predict(np.linspace(1.0, 1100.0, 10_000_000), np.linspace(1e-3, 1.0, 100))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_a_long_call() -> None:
    with subprocess.Popen([sys.executable, "-c", LONG], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert process.wait(timeout=30) == 0


def test_everything_says_what_it_is() -> None:
    for name in concertina.__all__:
        thing = getattr(concertina, name)
        assert inspect.getdoc(thing), name
        if inspect.isclass(thing) and thing.__module__ == "concertina":
            for member, of in vars(thing).items():
                if not member.startswith("_"):
                    assert inspect.getdoc(of), f"{name}.{member}"


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the checkers found out about NumPy, which takes most of their time."""
    return tmp_path_factory.mktemp("mypy")


@pytest.mark.parametrize(
    "checker",
    [
        ["mypy", "--strict", "--package", "concertina"],
        ["mypy.stubtest", "concertina"],
        ["mypy", "--strict", str(Path(__file__).with_name("typed.py"))],
    ],
    ids=lambda checker: " ".join(checker[:2]),
)
def test_types_are_right(checker: "list[str]", tmp_path: Path, cache: Path) -> None:
    line = [sys.executable, "-m", *checker]
    environment = {**os.environ, "MYPY_CACHE_DIR": str(cache)}
    checked = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("name", ["spotify", "own_log"])
def test_notebooks_run(name: str) -> None:
    nbclient = pytest.importorskip("nbclient")
    import nbformat

    path = Path(__file__).parents[1] / f"notebooks/{name}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}).execute()
    assert notebook.cells[-1].outputs
