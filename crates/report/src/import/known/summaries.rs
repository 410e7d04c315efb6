//! Recognises outputs that hold summaries and no requests, to say so and where they can be used.

use super::sample::Sample;

/// A summary: how it is recognised, what it is, and what to do with it.
struct Summary {
    /// Texts that all occur.
    marks: &'static [&'static str],
    name: &'static str,
    instead: &'static str,
}

const CURVE: &str = "its rate and mean (or quantiles) at several loads are a table for `concertina capacity` and \
    `concertina factors`";

const SUMMARIES: &[Summary] = &[
    Summary { marks: &["Percentile spectrum"], name: "wrk2's latency spectrum", instead: CURVE },
    Summary {
        marks: &["Running ", " test @ ", "threads and"],
        name: "wrk's report",
        instead: CURVE,
    },
    Summary {
        marks: &["User Count", "Requests/s", "Failures/s"],
        name: "a table of Locust's statistics",
        instead: "log each request from Locust instead (events.request: response_time in ms), or use \
            `concertina capacity` with the rates and means of several loads",
    },
    Summary {
        marks: &["Request Count", "Failure Count", "Median Response Time"],
        name: "a table of Locust's statistics",
        instead: "log each request from Locust instead (events.request: response_time in ms), or use \
            `concertina capacity` with the rates and means of several loads",
    },
    Summary {
        marks: &["fio version", "jobs"],
        name: "fio's report",
        instead: "the means and rates of several depths or rates are a table for `concertina capacity`; with \
            `--write_lat_log=FILE --log_avg_msec=0` fio logs each operation, which `--fields` reads",
    },
    Summary { marks: &["Stage,Op-Name,Op-Type"], name: "COSBench's report", instead: CURVE },
    Summary {
        marks: &["Op-Type", "Avg-ResTime", "Throughput"],
        name: "COSBench's report",
        instead: CURVE,
    },
    Summary { marks: &["ALL STATS", "Ops/sec"], name: "memtier's report", instead: CURVE },
    Summary {
        marks: &["This is ApacheBench"],
        name: "ApacheBench's report",
        instead: "`ab -g FILE` writes each request, with stamps of whole seconds",
    },
    Summary {
        marks: &["Percentage served", "Time in ms"],
        name: "ApacheBench's percentiles",
        instead: "`ab -g FILE` writes each request, with stamps of whole seconds",
    },
    Summary {
        marks: &["time for request:", "finished in"],
        name: "h2load's report",
        instead: "`h2load --log-file=FILE` writes each request: start (us), status, response time (us); import it with \
            --fields start=1:us,status=2,response=3:us",
    },
    Summary {
        marks: &["Response time histogram", "Summary:", "Latency distribution"],
        name: "hey's report",
        instead: "`hey -o csv` writes each request",
    },
    Summary {
        marks: &["Response time histogram", "Summary:"],
        name: "oha's or hey's report",
        instead: "`oha --output-format csv` and `hey -o csv` write each request",
    },
    Summary {
        marks: &["\"responseTimeHistogram\"", "\"latencyPercentiles\""],
        name: "oha's report in JSON",
        instead: "`oha --output-format csv` writes each request",
    },
    Summary {
        marks: &["\"aggregate\"", "\"http.response_time\""],
        name: "Artillery's report",
        instead: CURVE,
    },
    Summary {
        marks: &["\"2xx\"", "\"p99\"", "\"throughput\""],
        name: "autocannon's report in JSON",
        instead: CURVE,
    },
    Summary { marks: &["97.5%", "Latency", " Stat "], name: "autocannon's report", instead: CURVE },
    Summary { marks: &["Bombarding ", "connection"], name: "bombardier's report", instead: CURVE },
    Summary {
        marks: &["\"timeTakenSeconds\"", "\"rps\"", "\"latency\""],
        name: "bombardier's report in JSON",
        instead: CURVE,
    },
    Summary {
        marks: &["\"meanNumberOfRequestsPerSecond\"", "\"percentiles1\""],
        name: "Gatling's statistics",
        instead: "the simulation.log of the same run has each request",
    },
    Summary {
        marks: &["\"latencies\"", "\"50th\"", "\"throughput\""],
        name: "vegeta's report",
        instead: "`vegeta encode --to csv` writes each request",
    },
    Summary {
        marks: &["\"metrics\"", "\"http_req_duration\"", "\"p(95)\""],
        name: "k6's summary",
        instead: "`k6 run --out csv=FILE` or `--out json=FILE` writes each request",
    },
    Summary {
        marks: &["[OVERALL], RunTime(ms)", "AverageLatency(us)"],
        name: "YCSB's summary",
        instead: "`-p measurementtype=raw -p measurement.raw.output_file=FILE` writes each request",
    },
    Summary {
        marks: &["\"resultType\"", "\"matrix\""],
        name: "a response of Prometheus",
        instead: "give it with --prometheus",
    },
    Summary {
        marks: &["%util", "r_await"],
        name: "the output of iostat",
        instead: "give it with --iostat",
    },
];

/// Why a file cannot be imported as requests, if it is a summary.
pub(super) fn reason(sample: &Sample, head: &[u8]) -> Option<String> {
    // The marks stand near the beginning; a log of requests may name any program in its agents further on.
    let text = String::from_utf8_lossy(head.get(..head.len().min(8192)).unwrap_or_default());
    let is_log = text.contains(" HTTP/1") && sample.lines.len() > 30;
    let raw = text.contains("latency raw data");
    let found = SUMMARIES.iter().find(|summary| summary.marks.iter().all(|m| text.contains(m)));
    found.filter(|_| !is_log && !raw).map(|summary| {
        format!(
            "it is {}, which holds summaries and not the single requests that an import needs; {}",
            summary.name, summary.instead
        )
    })
}
