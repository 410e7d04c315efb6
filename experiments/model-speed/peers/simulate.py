"""M/M/3 by ciw, request by request: the mean response time.

    python simulate.py CUSTOMERS ARRIVALS_PER_S SERVICES_PER_S
"""

import json
import sys
import time

import ciw

customers, arrivals, services = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
network = ciw.create_network(
    arrival_distributions=[ciw.dists.Exponential(rate=arrivals)],
    service_distributions=[ciw.dists.Exponential(rate=services)],
    number_of_servers=[3],
)
ciw.seed(1)
simulation = ciw.Simulation(network)
start = time.perf_counter()
simulation.simulate_until_max_customers(customers)
seconds = time.perf_counter() - start
records = simulation.get_all_records()
mean = sum(r.exit_date - r.arrival_date for r in records) / len(records)
print(json.dumps({"seconds": seconds, "answer": mean, "version": f"ciw {ciw.__version__}"}))
