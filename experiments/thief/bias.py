"""Does leaving out disturbed seconds favour light ones? Simulated: one processor, Poisson arrivals, a thief.

The thief takes the processor for exponential times. Stolen is only the time in which work waits, as a hypervisor counts.
Seconds with more than 5 % stolen are left out, but at least half are kept (crates/report/src/disturbed.rs).
"""

import random

SECONDS = 20_000
PULSE_S = 0.010


def simulate(rate, cost_s, share, seed):
    """Arrivals and stolen seconds of each second."""
    draw = random.Random(seed)
    arrivals, at = [], draw.expovariate(rate)
    while at < SECONDS:
        arrivals.append(at)
        at += draw.expovariate(rate)
    count, stolen = [0] * SECONDS, [0.0] * SECONDS
    for at in arrivals:
        count[int(at)] += 1
    following = iter(arrivals + [float("inf")])
    arrival, now, backlog = next(following), 0.0, 0.0
    while now < SECONDS:
        start = now + draw.expovariate(share / (PULSE_S * (1 - share)))
        while arrival < start:
            backlog = max(0.0, backlog - (arrival - now)) + cost_s
            now, arrival = arrival, next(following)
        backlog = max(0.0, backlog - (start - now))
        end = start + draw.expovariate(1 / PULSE_S)
        wanted = start if backlog > 0 else None
        while arrival < end:
            wanted = arrival if wanted is None else wanted
            backlog += cost_s
            arrival = next(following)
        if wanted is not None and start < SECONDS:
            stolen[int(start)] += end - wanted
        now = end
    return count, stolen


def main():
    print("requests/s  busy  taken  stolen  seconds kept  load of the kept seconds")
    for rate, cost_s in ((50, 0.004), (50, 0.008), (500, 0.0008), (4000, 0.0001)):
        for share in (0.02, 0.1):
            count, stolen = simulate(rate, cost_s, share, 1)
            most = max(sorted(stolen)[(SECONDS - 1) // 2], 0.05)
            kept = [n for n, lost in zip(count, stolen) if lost <= most]
            load = sum(kept) / len(kept) / (sum(count) / SECONDS) - 1
            print(
                f"{rate:10} {rate * cost_s:5.1f} {share:6.0%} {sum(stolen) / SECONDS:7.1%}"
                f" {len(kept) / SECONDS:13.0%} {load:+.2%}"
            )


main()
