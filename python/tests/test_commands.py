"""Every answer equals that of the command, to the last digit, and every refusal has its text."""

import csv
import tomllib
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, Program

import concertina

PUBLISHED = (150.0, 6, 0.815, 0.000501)


@pytest.fixture(scope="session")
def stated(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with intervals."""
    path = tmp_path_factory.mktemp("stated") / "model.toml"
    program.run(
        "model", "--service", "gamma:7.5..8.5ms,0.5", "--devices", 4, "--memory", "60%", "--memory-time", "0.2ms",
        "--outside", "0.4ms", "--loads", "100/s..900/s", "--out", path,
    )  # fmt: skip
    return path


def test_predictions(program: Program, stated: Path) -> None:
    rates, times = [200.0, 600.0, 1100.0, 5000.0], [0.005, 0.02, 0.05]
    told = program.json("predict", stated, "--rate", "200,600,1100,5000", "--within", "5ms,20ms,50ms", "--objective", "99% within 50ms")
    model = concertina.Model.read(stated)
    found = model.predict(rates, times)
    tails = model.quantile(rates, 0.99)
    assert found.confidence_limit == told["confidence_limit"] and found.trust_limit == told["trust_limit"]
    for i, row in enumerate(told["predictions"]):
        assert found.stable[i] == row["stable"]
        if not row["stable"]:
            assert np.isnan(found.share.value[i]).all() and np.isnan(tails.value[i])
            continue
        for end in ("value", "low", "high"):
            shares = [point["concertina"][end] for point in row["points"]]
            assert getattr(found.share, end)[i].tolist() == shares
            published = [point["spotify"][end] for point in row["points"] if point["spotify"]]
            assert getattr(found.spotify, end)[i].tolist() == published or not published
            assert getattr(tails, end)[i] == row["response_p99"][end]
            assert getattr(found.mean_s, end)[i] == row["response_mean"][end]
            assert getattr(found.utilisation, end)[i] == row["utilisation_max"][end]
            assert getattr(found.hit_ratio, end)[i] == row["hit_ratio"][end]
        assert found.beyond_trust[i] == row["beyond_trust"] and found.beyond_limit[i] == row["beyond_limit"]
    assert model.largest_rate("99% within 50ms") == told["objectives"][0]
    assert model.trust() == told["trust"]


def test_drawn_questions(program: Program, tmp_path: Path) -> None:
    """Questions that nobody chose: services, loads and times that are drawn."""
    draw = np.random.default_rng(11)
    for case in range(12):
        service = ["exp:{:.3g}ms", "gamma:{:.3g}ms,0.37", "lognormal:{:.3g}ms,2.3", "hyper:{:.3g}ms,3.1", "det:{:.3g}ms"][case % 5].format(
            draw.uniform(0.5, 20.0)
        )
        stated = {"devices": int(draw.integers(1, 9)), "q0": round(draw.uniform(0.0, 0.9), 4), "alpha": round(draw.uniform(0.0, 1e-4), 7)}
        model = concertina.Model.stated(service, **stated)  # type: ignore[arg-type]
        path = tmp_path / f"{case}.toml"
        model.write(path)
        saturation = model.limits()["saturation"]["value"]
        servers = int(draw.integers(1, 30))
        rates = [round(rate, 3) for rate in draw.uniform(0.05, 1.1, 4) * saturation * servers]
        times = [round(t, 7) for t in draw.uniform(1e-4, 0.2, 3)]
        told = program.json(
            "predict", path, "--rate", ",".join(f"{rate}" for rate in rates), "--servers", servers,
            "--within", ",".join(f"{t * 1e3:.4f}ms" for t in times), "--objective", f"{90 + case * 0.7:.1f}% within 80ms",
        )  # fmt: skip
        # A time is that which the command read in its text.
        read = [point["t_s"] for row in told["predictions"] if row["stable"] for point in row["points"]][: len(times)] or times
        assert np.allclose(read, times, rtol=1e-3, atol=1e-7)
        found = model.predict(rates, read, servers=servers)
        for i, row in enumerate(told["predictions"]):
            assert found.rate[i] == row["rate"] and found.stable[i] == row["stable"]
            if row["stable"]:
                shares = [point["concertina"]["value"] for point in row["points"]]
                assert found.share.value[i].tolist() == shares
                assert found.mean_s.value[i] == row["response_mean"]["value"]
        assert model.largest_rate(f"{90 + case * 0.7:.1f}% within 80ms", servers=servers) == told["objectives"][0]


def test_what_if(program: Program, tmp_path: Path) -> None:
    model = concertina.Model.stated("gamma:8ms,0.5", devices=4, q0=0.6)
    model.write(tmp_path / "model.toml")
    changed = model.with_arrivals("renewal:0").with_front(workers=64)
    told = program.json(
        "predict", tmp_path / "model.toml", "--rate", "600", "--arrivals", "renewal:0", "--workers", 64, "--within", "20ms"
    )  # fmt: skip
    assert changed.predict(600.0, 0.02).share.value[0, 0] == told["predictions"][0]["points"][0]["concertina"]["value"]


def test_published_model(program: Program) -> None:
    told = program.json("predict", "--published", ",".join(map(str, PUBLISHED)), "--rate", "12000", "--servers", 17)
    model = concertina.Model.published(*PUBLISHED)
    row = told["predictions"][0]
    assert model.predict(12000.0, servers=17).spotify.value[0].tolist() == [p["spotify"]["value"] for p in row["points"]]
    assert model.cluster_limits([17], published=True)[0] == told["confidence_limit_spotify"]
    table = program.json("model", "--published", "a=150,6,0.815,0.000501", "--published", "b=93,1,0.946,0.0137")
    assert model.limits()["spotify_single"]["value"] == table["servers"][0]["confidence_limit"]


def test_stated_model(program: Program) -> None:
    told = program.run("model", "--service", "lognormal:8ms,2", "--devices", 4, "--memory", "0.6-0.0002/s", "--outside", "0.4ms")
    model = concertina.Model.stated("lognormal:8ms,2", devices=4, q0=0.6, alpha=0.0002, outside="0.4ms")
    assert model.to_toml() == told.stdout
    assert concertina.Model.parse(told.stdout).to_toml() == told.stdout


CHOICES = """
[servers]
counts = { from = 3, to = 8 }
price = 200
[memory]
fitted_gib = 64
gib = [64, 128]
price_per_gib = 1.5
exponent = 0.3
[devices.bulk_device]
counts = [4, 8]
price = 25
[replicas]
counts = [2, 3]
"""


def test_plan(program: Program, tmp_path: Path) -> None:
    model = concertina.Model.stated("gamma:8ms,0.5", devices=4, q0=0.6, loads=(100.0, 900.0))
    model.write(tmp_path / "model.toml")
    file = tmp_path / "choices.toml"
    file.write_text(CHOICES)
    question = ["--objective", "99% within 50ms", "--rate", 3000, "--growth", "5%/month", "--months", 6, "--with-one-lost"]
    told = program.json("plan", tmp_path / "model.toml", "--choices", file, *question)
    told.pop("curves")
    asked = {"objective": "99% within 50ms", "rate": 3000.0, "growth": 0.05, "months": 6, "with_one_lost": True}
    assert model.plan(file, **asked) == told  # type: ignore[arg-type]
    assert model.plan(tomllib.loads(CHOICES), **asked) == told  # type: ignore[arg-type]
    assert told["holds"]


def test_fit(program: Program, requests: "dict[str, np.ndarray]", tmp_path: Path) -> None:
    log = tmp_path / "requests.csv"
    with log.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["start", "end"])
        rows.writerows([f"{start:.9f}", f"{end:.9f}"] for start, end in zip(*requests.values(), strict=True))
    run = tmp_path / "requests"
    program.run("import", log, "--fields", "start=start,end=end", "--out", run)
    told = program.json("fit", run, "--servers", "auto", "--hold-out", 1, "--out", tmp_path / "model.toml")
    found = concertina.fit(requests, hold_out=[1])
    # The log has no name here, and its path there.
    named = (tmp_path / "model.toml").read_text().replace(str(log), "the table")
    assert found.model.to_toml() == named
    for key in ("servers", "hypotheses", "misfit", "known"):
        assert found.found[key] == told[key]
    assert found.model.parameters == told["parameters"]
    # The run folder gives the requests back.
    again = concertina.Run.read(run).requests()
    assert np.allclose(np.sort(again["departure_ns"]) * 1e-9, np.sort(requests["departure"]), atol=1e-6, rtol=0)
    table = concertina.read_run(run)["requests"]
    assert table["departure_ns"].tolist() == again["departure_ns"].tolist() and table["outcome"] == again["outcome"]
    assert concertina.fit_runs([run], service=True, hold_out=["1"]).model.to_toml() == (tmp_path / "model.toml").read_text()


def test_network(program: Program) -> None:
    file = ROOT / "docs/examples/middlewares.toml"
    told = program.json("network", file, "--within", "10ms,20ms", "--customers", "1,10,100")
    told.pop("file")
    found = concertina.network(file, within=[0.01, 0.02], customers=[1, 10, 100])
    assert found == told
    forks = ROOT / "docs/examples/multi-gets.toml"
    told = program.json("network", forks, "--set", "station.caches.fork=20", "--within", "10ms")
    found = concertina.network(forks, set=["station.caches.fork=20"], within=[0.01])
    assert found["before"]["classes"] == told["before"]["classes"] and found["paths"] == told["paths"]


def test_capacity(program: Program, tmp_path: Path) -> None:
    disk = {"size_bytes": [4096, 4096, 4096, 65536, 65536, 65536], "read_share": [1, 0, 0.5] * 2,
            "throughput": [20000, 8000, 11600, 6000, 2000, 3050]}  # fmt: skip
    table = tmp_path / "disk.csv"
    lines = zip(*disk.values(), strict=True)
    table.write_text("\n".join([",".join(disk), *(",".join(map(str, line)) for line in lines)]) + "\n")
    told = program.json("capacity", table, "--at", "0.7,4096", "--mix", "0.7,4096:0.9,65536:0.1", "--by", "ios")
    found = concertina.capacity(disk, at=[(0.7, 4096)], mixes=[(0.7, {4096: 0.9, 65536: 0.1})])
    told.pop("file")
    assert found == told
    threads = {"concurrency": [1, 2, 4, 8, 16, 32], "throughput": [950, 1850, 3500, 6200, 9500, 11000]}
    table = tmp_path / "threads.csv"
    lines = zip(*threads.values(), strict=True)
    table.write_text("\n".join([",".join(threads), *(",".join(map(str, line)) for line in lines)]) + "\n")
    told = program.json("capacity", table, "--at", 64)
    told.pop("file")
    assert concertina.capacity(threads, at=[64]) == told


def test_factors(program: Program, tmp_path: Path) -> None:
    runs = {
        "servers": [1, 2, 1, 2] * 3,
        "threads": [8, 8, 64, 64] * 3,
        "throughput": [3409.9, 4299.0, 5100.2, 8800.1, 3380.3, 4310.2, 5088.0, 8790.9, 3420.1, 4288.8, 5120.7, 8811.3],
    }
    table = tmp_path / "runs.csv"
    lines = zip(*runs.values(), strict=True)
    table.write_text("\n".join([",".join(runs), *(",".join(map(str, line)) for line in lines)]) + "\n")
    told = program.json("factors", table, "--response", "throughput", "--bootstrap", 1000)
    told.pop("file")
    found = concertina.factors(runs, "throughput", bootstrap=1000)
    found.pop("file")
    assert found == told


def test_shard(program: Program, tmp_path: Path) -> None:
    text = b"".join(b'{"name":"n%d","size":%d,"tag":"%s"}\n' % (i, i * 7 % 1000, b"odd" if i % 2 else b"even") for i in range(2000))
    (tmp_path / "records.json").write_bytes(text)
    path = tmp_path / "records.shard"
    with concertina.Shard.build(text, path) as shard:
        assert len(shard) == 2000 and shard.format == "json" and shard.text_bytes == len(text)
        assert shard.shard_bytes == path.stat().st_size
        for query in ("tag:=odd size:100..300", 'name:^n1 NOT tag:odd', "name:~n.*99"):
            told = program.json("data", "search", path, query, "--limit", 1000)
            found = shard.search(query, limit=1000)
            assert found.records.tolist() == [record["id"] for record in told["records"]]
            assert shard.count(query) == len(found)
        program.run("data", "import", tmp_path / "records.json", "--name", "records", "--folder", tmp_path)
    made = next((tmp_path / "records").glob("*.shard"))
    assert made.read_bytes() == path.read_bytes()
    with concertina.Shard.open(made) as shard:
        assert shard.extract(0, len(text)) == text


@pytest.mark.parametrize(
    ("command", "call"),
    [
        (("predict", "/nonexistent/model.toml"), lambda: concertina.Model.read("/nonexistent/model.toml")),
        (("predict", ROOT / "Cargo.toml"), lambda: concertina.Model.read(ROOT / "Cargo.toml")),
        (("model", "--service", "exp:6ms", "--devices", "0"), lambda: concertina.Model.stated("exp:6ms", devices=0)),
        (("network", "/nonexistent.toml"), lambda: concertina.network("/nonexistent.toml")),
        (
            ("network", ROOT / "docs/examples/middlewares.toml", "--set", "station.nothing.servers=2"),
            lambda: concertina.network(ROOT / "docs/examples/middlewares.toml", set=["station.nothing.servers=2"]),
        ),
    ],
)
def test_errors_have_the_texts_of_the_commands(program: Program, command: "tuple[object, ...]", call) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises((concertina.Error, OSError)) as raised:
        call()
    assert str(raised.value) == program.error(*command)
