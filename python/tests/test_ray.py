"""Tasks on a real Ray on this machine: what they make is what one process makes, byte for byte."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Program

import concertina
import concertina.ray as on_ray

if os.environ.get("CI") != "true":
    # In CI it must be there.
    pytest.importorskip("ray", reason="Ray is not installed (sh .ci/setup)")

import ray


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    """Ray with two processors, without its page; nothing leaves this machine."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False)
    yield
    ray.shutdown()


def content(folder: Path) -> "dict[str, bytes]":
    """The files of a dataset, without the digits that are drawn for each."""
    files = {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".") and path.name != "lock"}
    manifest = json.loads(files.pop("dataset.json"))
    manifest["id"] = manifest["checksum"] = ""
    return {**files, "manifest": json.dumps(manifest).encode()}


def test_an_import_is_that_of_one_process(program: Program, tmp_path: Path) -> None:
    rows = [f'{at},"name ""{at % 97}""\nof two lines",{at * 7 % 1000}\n' for at in range(20_000)]
    for number in range(2):
        (tmp_path / f"{number}.csv").write_text("id,name,size\n" + "".join(rows[number::2]))
    files = [tmp_path / "0.csv", tmp_path / "1.csv"]
    options = ["--format", "csv", "--key", "id", "--order", "size"]
    found = on_ray.import_dataset(
        files, "rows", parts=5, folder=tmp_path / "ray", options=options, program=program.path, memory=1 << 30
    )
    local = program.json("data", "import", *files, "--name", "rows", "--parts", 5, "--folder", tmp_path / "one", *options)
    assert (found["records"], found["shards"]) == (20_000, 5)
    assert {**found, "memory_bytes_max": 0} == {**local, "memory_bytes_max": 0}
    assert content(tmp_path / "ray/rows") == content(tmp_path / "one/rows")
    with pytest.raises(concertina.Error, match="exists already"):
        on_ray.import_dataset(files, "rows", parts=5, folder=tmp_path / "ray", program=program.path)


CLUSTER = """
[node]
memory_bytes = "0"
[[device]]
path = "device"
service = { kind = "exponential", mean_ms = 10.0 }
"""


def test_a_study_is_that_of_one_process(program: Program, tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    asked = ["--config", "cluster.toml", "--keys", "drawn", "--hit-ratio", "50%", "--rate", "50,100", "--duration", "60s", "--runs", "3"]
    found = on_ray.simulate(asked, "study", parts=4, program=program.path, directory=tmp_path)
    program.json("simulate", *asked[2:], "--config", tmp_path / "cluster.toml", "--out", tmp_path / "one")
    assert found["seeds"] == [1, 2, 3] and len(found["steps"]) == 2
    assert (tmp_path / "study/intervals.json").read_bytes() == (tmp_path / "one/intervals.json").read_bytes()


def test_a_plan_is_that_of_one_process(program: Program, tmp_path: Path) -> None:
    model = concertina.Model.stated("exp:10ms", devices=2, q0=0.5, loads=(10.0, 250.0))
    model.write(tmp_path / "model.toml")
    (tmp_path / "choices.toml").write_text("[servers]\ncounts = { from = 5, to = 9 }\nprice = 100\n")
    asked = [tmp_path / "model.toml", "--choices", tmp_path / "choices.toml", "--objective", "99% within 100ms", "--rate", "1000"]
    asked += ["--simulate", "2", "--runs", "3", "--requests", "2000"]
    found = on_ray.plan([str(word) for word in asked], tmp_path / "study", parts=3, program=program.path)
    assert found == program.json("plan", *asked)
    assert len(found["simulated"]["candidates"]) == 2


def test_what_a_command_refuses_is_an_error(program: Program, tmp_path: Path) -> None:
    with pytest.raises(concertina.Error, match="cannot open"):
        on_ray.import_dataset([tmp_path / "none"], "d", parts=2, folder=tmp_path, program=program.path)
    with pytest.raises(concertina.Error, match="--runs"):
        on_ray.simulate(["--rate", "1"], tmp_path / "study", parts=2, program=program.path)
