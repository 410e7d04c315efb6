"""What a call from Python takes beside the same call from Rust: usage: speed.py TARGET-FOLDER/PROFILE, which has the program `speed`.

Prints the least time of sixty calls of each, in turns, and their ratio.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import concertina

COUNT, RATE = 100_000, 150.0


def main() -> None:
    program = Path(sys.argv[1]) / "speed"
    model = concertina.Model.stated("gamma:8ms,0.5", devices=4, q0=0.6)
    times = np.arange(1, COUNT + 1) / COUNT
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.toml"
        model.write(path)
        rust, python = [], []
        for _ in range(3):
            told = subprocess.run([program, path, str(RATE), str(COUNT)], capture_output=True, text=True, check=True)
            took, total = zip(*(map(float, line.split()) for line in told.stdout.splitlines()), strict=True)
            rust.append(min(took))
            for _ in range(20):
                start = time.perf_counter()
                shares = model.published_cdf(RATE, times)
                python.append(time.perf_counter() - start)
            assert abs(float(shares.sum()) - total[0]) < 1e-6
    print(f"{COUNT} times: Rust {min(rust) * 1e3:.3f} ms, Python {min(python) * 1e3:.3f} ms, ratio {min(python) / min(rust):.3f}")


main()
