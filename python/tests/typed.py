"""Uses of the module that a type checker accepts; read by `mypy --strict`, never run."""

import numpy as np
import numpy.typing as npt
import polars as pl

import concertina

model = concertina.Model.published(150.0, 6, 0.815, 0.000501)
shares: npt.NDArray[np.float64] = model.predict([1.0, 2.0], 0.05, servers=3).share.value
curve: npt.NDArray[np.float64] = model.cdf(100.0, np.linspace(0.0, 1.0, 10))
fitted: concertina.Fit = concertina.fit({"arrival": [0.0], "departure": [1.0]}, hold_out=[1, "70/s"])
others: concertina.Model = concertina.fit(pl.DataFrame({"a": [0.0], "b": [1.0]}), "a", "b", closed_loop=[(8, 120.0)]).model
concertina.Shard.build(memoryview(b"a\n")).close()
concertina.Shard.build(np.frombuffer(b"a\n", dtype=np.uint8)).close()
with concertina.Shard.build(b"a\n") as shard:
    record: bytes = shard.get(0)
    numbers: npt.NDArray[np.uint64] = shard.search("a").records
