from collections.abc import Sequence
from os import PathLike
from types import TracebackType
from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt

_Path: TypeAlias = str | PathLike[str]
_Numbers: TypeAlias = npt.ArrayLike

__all__ = [
    "Error",
    "Fit",
    "Interval",
    "Model",
    "Page",
    "Predictions",
    "Run",
    "Shard",
    "UnstableError",
    "factors_table",
    "fit_runs",
    "fit_times",
    "network",
    "scaling_capacity",
    "storage_capacity",
]

class Error(ValueError): ...

class UnstableError(Error):
    rate: float
    saturation: float

@final
class Interval:
    @property
    def value(self) -> npt.NDArray[np.float64]: ...
    @property
    def low(self) -> npt.NDArray[np.float64]: ...
    @property
    def high(self) -> npt.NDArray[np.float64]: ...

@final
class Predictions:
    @property
    def rate(self) -> npt.NDArray[np.float64]: ...
    @property
    def servers(self) -> int: ...
    @property
    def within_s(self) -> npt.NDArray[np.float64]: ...
    @property
    def stable(self) -> npt.NDArray[np.bool_]: ...
    @property
    def share(self) -> Interval: ...
    @property
    def spotify(self) -> Interval: ...
    @property
    def mean_s(self) -> Interval: ...
    @property
    def hit_ratio(self) -> Interval: ...
    @property
    def utilisation(self) -> Interval: ...
    @property
    def queue_length(self) -> Interval: ...
    @property
    def beyond_limit(self) -> npt.NDArray[np.bool_]: ...
    @property
    def beyond_trust(self) -> npt.NDArray[np.bool_]: ...
    @property
    def confidence_limit(self) -> float: ...
    @property
    def trust_limit(self) -> float: ...
    def to_pandas(self) -> Any: ...
    def __len__(self) -> int: ...

@final
class Model:
    @staticmethod
    def read(path: _Path) -> Model: ...
    @staticmethod
    def parse(text: str) -> Model: ...
    @staticmethod
    def published(mu_d: float, n_d: int, q0: float, alpha: float) -> Model: ...
    @staticmethod
    def stated(
        service: str,
        *,
        devices: int = 1,
        servers: int = 1,
        shared: bool = False,
        q0: float = 0.0,
        alpha: float = 0.0,
        memory_time: str | None = None,
        outside: str | None = None,
        loads: tuple[float, float] | None = None,
        title: str | None = None,
    ) -> Model: ...
    @property
    def title(self) -> str: ...
    @property
    def warnings(self) -> list[str]: ...
    @property
    def parameters(self) -> list[dict[str, Any]]: ...
    def to_toml(self) -> str: ...
    def write(self, path: _Path) -> None: ...
    def limits(self) -> dict[str, Any]: ...
    def trust(self) -> dict[str, Any]: ...
    def cluster_limits(self, servers: _Numbers, *, published: bool = False) -> npt.NDArray[np.float64]: ...
    def predict(self, rate: _Numbers, within: _Numbers | None = None, *, servers: int = 1) -> Predictions: ...
    def cdf(self, rate: float, times: _Numbers) -> npt.NDArray[np.float64]: ...
    def published_cdf(self, rate: float, times: _Numbers) -> npt.NDArray[np.float64]: ...
    def quantile(self, rate: _Numbers, p: float) -> Interval: ...
    def largest_rate(self, objective: str, *, servers: int = 1) -> dict[str, Any]: ...
    def with_arrivals(self, law: str) -> Model: ...
    def with_front(
        self, *, link: float | None = None, reply_bytes: float | None = None, workers: int | None = None
    ) -> Model: ...
    def with_mix(self, mix: Sequence[tuple[str, int | None, float]]) -> Model: ...
    def plan(
        self,
        choices: _Path | dict[str, Any],
        objective: str,
        rate: float,
        *,
        growth: float | None = None,
        months: int = 12,
        with_one_lost: bool = False,
        limit: str = "none",
        top: int = 10,
    ) -> dict[str, Any]: ...

@final
class Fit:
    @property
    def model(self) -> Model: ...
    @property
    def found(self) -> Any: ...
    @property
    def steps(self) -> Any: ...
    @property
    def notes(self) -> list[str]: ...

@final
class Run:
    @staticmethod
    def read(path: _Path) -> Run: ...
    @property
    def kind(self) -> str: ...
    def about(self) -> dict[str, Any]: ...
    def steps(self) -> list[dict[str, Any]]: ...
    def windows(self) -> dict[str, Any]: ...
    def requests(self) -> dict[str, Any]: ...

@final
class Page:
    @property
    def records(self) -> npt.NDArray[np.uint64]: ...
    @property
    def next(self) -> int | None: ...
    @property
    def verified(self) -> int: ...
    def __len__(self) -> int: ...

@final
class Shard:
    @staticmethod
    def build(
        text: bytes | str,
        path: _Path | None = None,
        *,
        format: str | None = None,
        key: str | None = None,
        order: Sequence[str] = ...,
        sa_sampling: int = 32,
        isa_sampling: int = 32,
    ) -> Shard: ...
    @staticmethod
    def open(path: _Path) -> Shard: ...
    def close(self) -> None: ...
    def __enter__(self) -> Shard: ...
    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...
    def __len__(self) -> int: ...
    @property
    def format(self) -> str: ...
    @property
    def attributes(self) -> list[str]: ...
    @property
    def key(self) -> str | None: ...
    @property
    def text_bytes(self) -> int: ...
    @property
    def shard_bytes(self) -> int: ...
    def search(self, query: str, *, limit: int = 100, after: int | None = None) -> Page: ...
    def count(self, query: str) -> int: ...
    def get(self, record: int) -> bytes: ...
    def get_all(self, records: npt.ArrayLike) -> list[bytes]: ...
    def find(self, key: bytes | str) -> int | None: ...
    def extract(self, offset: int, length: int) -> bytes: ...
    def occurrences(self, bytes: bytes | str) -> int: ...
    def offsets(self, bytes: bytes | str) -> npt.NDArray[np.uint64]: ...

def fit_times(
    arrival_ns: npt.ArrayLike,
    departure_ns: npt.ArrayLike,
    bytes: npt.ArrayLike | None = None,
    *,
    servers: int | None = None,
    hold_out: Sequence[str] = ...,
    steps: str = "levels",
    closed_loop: Sequence[tuple[int | None, float]] = ...,
    no_hits: bool = False,
    title: str | None = None,
) -> Fit: ...
def fit_runs(
    runs: Sequence[_Path],
    *,
    service: bool = False,
    servers: int | None = None,
    hold_out: Sequence[str] = ...,
    closed_loop: Sequence[tuple[int | None, float]] = ...,
    no_hits: bool = False,
    title: str | None = None,
) -> Fit: ...
def network(
    network: _Path | dict[str, Any],
    *,
    set: Sequence[str] = ...,
    within: npt.ArrayLike | None = None,
    customers: Sequence[int] = ...,
    sweep_class: str | None = None,
) -> dict[str, Any]: ...
def storage_capacity(
    size_bytes: npt.ArrayLike,
    read_share: npt.ArrayLike,
    throughput: npt.ArrayLike,
    *,
    at: Sequence[tuple[float, float]] = ...,
    mixes: Sequence[tuple[float, Sequence[tuple[float, float]]]] = ...,
    by: str = "ios",
    point_error: float | None = None,
    confidence: float = 0.95,
) -> dict[str, Any]: ...
def scaling_capacity(
    concurrency: npt.ArrayLike,
    throughput: npt.ArrayLike,
    *,
    at: npt.ArrayLike | None = None,
    confidence: float = 0.95,
) -> dict[str, Any]: ...
def factors_table(
    names: Sequence[str],
    levels: Sequence[Sequence[str]],
    response: npt.ArrayLike,
    *,
    name: str = "response",
    form: str | None = None,
    confidence: float = 0.95,
    bootstrap: int | None = None,
    seed: int = 1,
) -> dict[str, Any]: ...
