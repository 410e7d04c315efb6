"""The response-time CDF of M/G/1 with gamma service of mean 1 by numpy, Euler's inversion of all times at once.

    python cdf.py POINTS UTILISATION SCV END
"""

import json
import math
import sys
import time

import numpy as np

points, rho, scv, end = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
A, DIRECT, AVERAGED = 18.4, 15, 11
taper = [1 - sum(math.comb(AVERAGED, i) for i in range(j)) / 2**AVERAGED for j in range(AVERAGED + 1)]
weights = np.array([1.0] * DIRECT + taper) * (-1.0) ** np.arange(DIRECT + AVERAGED + 1)
weights[0] = 0.5


def cdf(t):
    s = (A / 2 + 1j * math.pi * np.arange(DIRECT + AVERAGED + 1)) / t[:, None]
    b = (1 + s * scv) ** (-1 / scv)
    transform = (1 - rho) * b / (s - rho * (1 - b))
    return math.exp(A / 2) / t * (transform.real @ weights)


t = end * np.arange(1, points + 1) / points
values = cdf(t)
calls, start = 0, time.perf_counter()
while (seconds := time.perf_counter() - start) < 0.2:
    values = cdf(t)
    calls += 1
print(json.dumps({"seconds": seconds / calls, "answer": float(values.sum()), "version": f"numpy {np.__version__}"}))
