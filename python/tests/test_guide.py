"""The code of docs/python.md, run in its order in a folder that has what it names."""

import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from conftest import ROOT, Program, served

import concertina


def blocks() -> "list[str]":
    """The indented blocks of the page."""
    found: list[list[str]] = [[]]
    for line in (ROOT / "docs/python.md").read_text().splitlines():
        if line.startswith("    "):
            found[-1].append(line[4:])
        elif found[-1]:
            found.append([])
    return ["\n".join(lines) for lines in found if lines]


def test_the_guide_runs_as_it_stands(program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    concertina.Model.stated("gamma:8ms,0.5", devices=4, q0=0.6, loads=(100.0, 900.0)).write("model.toml")
    (tmp_path / "node.toml").write_text('[[device]]\npath = "device"\nservice = { kind = "exponential", mean_ms = 10.0 }\n')
    program.run("simulate", "--config", tmp_path / "node.toml", "--rate", "50", "--duration", "5s", "--keys", 500, "--out", tmp_path / "runs/load")
    works = np.random.default_rng(7).gamma(2.0, 0.005, 4_000)
    parts, start = [], 1.7e9
    for at, (rate, count) in enumerate([(30, 1_000), (70, 2_000), (50, 1_000)]):
        parts.append(served(rate, count, start, works[1_000 * at : 1_000 * at + count]))
        start = parts[-1][1][-1] + 1.0
    started, finished = (np.concatenate([part[end] for part in parts]) for end in (0, 1))
    text = b"".join(b"Package: p%d\nSection: %s\nMaintainer: python team\n\n" % (i, b"admin" if i % 3 else b"libs") for i in range(300))
    names = {"frame": pl.DataFrame({"started": started, "finished": finished}), "text": text, "polars": pl, "pandas": pd}
    ran = 0
    for block in blocks():
        if "concertina.ray" in block:
            # tests/test_ray.py has them with a Ray.
            continue
        if block.startswith("pip "):
            _, line = block.splitlines()
            exec(shlex.split(line)[2], {})
            ran += 1
            continue
        # pandas reads Arrow's interface with pyarrow alone, which is not installed here.
        kept = [line for line in block.splitlines() if "from_arrow" not in line]
        exec("\n".join(kept), names)
        ran += 1
    assert ran == 5
    found, fitted, page = names["found"], names["fitted"], names["page"]
    assert found.share.value.shape == (9, 2)  # type: ignore[attr-defined]
    assert fitted.found["servers"]["likeliest"] == 1 and len(fitted.steps) == 3  # type: ignore[attr-defined]
    # The step that was held out judged the model, well or not.
    trust = fitted.model.trust()  # type: ignore[attr-defined]
    assert trust["held_out"] == 1 or 45 < trust["missed"]["rate"] < 55
    assert len(page) == 100 and page.next is not None  # type: ignore[arg-type, attr-defined]
