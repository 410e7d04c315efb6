#!/usr/bin/env python3
"""`concertina load` beside h2load and hey (and oha, if it is there): nginx with TLS and HTTP/2, a virtual host, a POST with a JSON
body behind a bearer token. Closed loops of the same number of clients, each on a connection of its own, in turn and several times,
so that all meet the same machine.

    http2.py CONCERTINA [--clients 4] [--requests 2000] [--rounds 5]

Needs nginx, openssl, h2load (Debian nghttp2-client) and hey. Times are those from sending a request to the end of its reply, ms.
"""
import argparse, json, os, shutil, statistics, subprocess, sys, tempfile, time, socket

CONF = """daemon on; pid {d}/pid; error_log {d}/log; worker_processes 1; events {{}}
http {{ access_log off; client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
 keepalive_requests 1000000;
 server {{ listen 127.0.0.1:{p} ssl http2 default_server; ssl_certificate {d}/cert.pem; ssl_certificate_key {d}/key.pem; return 421; }}
 server {{ listen 127.0.0.1:{p} ssl http2; server_name shop.example; ssl_certificate {d}/cert.pem; ssl_certificate_key {d}/key.pem;
  location / {{ if ($http_authorization != "Bearer sesame") {{ return 401; }} if ($request_method != POST) {{ return 405; }}
   if ($content_type != "application/json") {{ return 415; }} return 200 "{{}}"; }} }} }}
"""

def quantiles(times):
    times = sorted(times)
    at = lambda p: times[min(len(times) - 1, int(p * len(times)))]
    return {"n": len(times), "mean": statistics.fmean(times), "p50": at(.5), "p90": at(.9), "p99": at(.99)}

def run(words, **more):
    done = subprocess.run(words, capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{words[0]}: {done.stderr or done.stdout}")
    return done.stdout

def concertina(o, d, url, n):
    out = f"{d}/run-{time.monotonic_ns()}"
    text = run([o.concertina, "load", url, "--http2", "--connections", str(o.clients), "--http2-streams", "1", "--clients", str(o.clients),
                "--requests", str(n), "--warmup-requests", "100", "--host", "shop.example", "--sni", "shop.example", "--ca-file", f"{d}/cert.pem",
                "--bearer-file", f"{d}/token", "--body", f"@{d}/body", "--header", "Content-Type: application/json",
                "--json", "-q", "--out", out])
    step = json.loads(text)["steps"][0]
    assert step["errors"] == 0, step
    times = step["service_ms"]
    return {"n": step["completions"], "mean": times["mean"], "p50": times["p50"], "p90": times["p90"], "p99": times["p99"]}

def h2load(o, d, url, n):
    log = f"{d}/h2load.log"
    if os.path.exists(log):
        os.remove(log)
    run(["h2load", "-c", str(o.clients), "-m", "1", "-n", str(n), "-d", f"{d}/body", "-H", ":authority: shop.example",
         "-H", "authorization: Bearer sesame", "-H", "content-type: application/json", f"--log-file={log}", url])
    rows = [line.split() for line in open(log)]
    assert all(row[1] == "200" for row in rows), rows[0]
    return quantiles([int(row[2]) / 1e3 for row in rows])

def hey(o, d, url, n):
    text = run(["hey", "-h2", "-c", str(o.clients), "-n", str(n), "-m", "POST", "-D", f"{d}/body", "-host", "shop.example",
                "-H", "Authorization: Bearer sesame", "-T", "application/json", "-o", "csv", url])
    rows = [line.split(",") for line in text.splitlines()[1:] if line]
    assert all(row[6] == "200" for row in rows), rows[0]
    return quantiles([float(row[0]) * 1e3 for row in rows])

def oha(o, d, url, n):
    text = run(["oha", "--no-tui", "--output-format", "json", "--http2", "--insecure", "-c", str(o.clients), "-p", "1", "-n", str(n), "-m", "POST",
                "-D", f"{d}/body", "--host", "shop.example", "-H", "Authorization: Bearer sesame", "-T", "application/json", url])
    found = json.loads(text)
    times = found["latencyPercentiles"]
    return {"n": n, "mean": found["summary"]["average"] * 1e3, **{k: times[k] * 1e3 for k in ("p50", "p90", "p99")}}

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("concertina")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as d:
        s = socket.socket(); s.bind(("127.0.0.1", 0)); port = s.getsockname()[1]; s.close()
        run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{d}/key.pem",
             "-out", f"{d}/cert.pem", "-days", "2", "-subj", "/CN=shop.example", "-addext", "subjectAltName=DNS:shop.example",
             "-addext", "basicConstraints=critical,CA:FALSE"])
        for name, text in (("nginx.conf", CONF.format(d=d, p=port)), ("token", "sesame\n"), ("body", '{"query": "some words", "limit": 20}')):
            open(f"{d}/{name}", "w").write(text)
        run(["nginx", "-p", d, "-c", f"{d}/nginx.conf", "-e", f"{d}/log"])
        try:
            url = f"https://127.0.0.1:{port}/search"
            tools = [concertina] + [t for t in (h2load, hey, oha) if shutil.which(t.__name__)]
            found = {t.__name__: [] for t in tools}
            for _ in range(o.rounds):
                for tool in tools:
                    found[tool.__name__].append(tool(o, d, url, o.requests))
            print(f"{o.clients} clients, {o.requests} requests, {o.rounds} rounds; median (smallest to largest) of the rounds, ms; load {os.getloadavg()[0]:.1f}")
            for name, rounds in found.items():
                cells = []
                for what in ("mean", "p50", "p90", "p99"):
                    values = sorted(r[what] for r in rounds)
                    cells.append(f"{what} {statistics.median(values):.3f} ({values[0]:.3f} to {values[-1]:.3f})")
                print(f"{name:11}", "  ".join(cells))
        finally:
            run(["nginx", "-p", d, "-c", f"{d}/nginx.conf", "-e", f"{d}/log", "-s", "stop"])
main()
