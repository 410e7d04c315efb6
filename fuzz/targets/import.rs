//! Any bytes as records of other services: access logs in a format of the input's or one that is recognised, iostat as text or JSON, responses of
//! Prometheus. What is read makes windows that can be written.

#![no_main]

mod edits;

use libfuzzer_sys::fuzz_target;
use report::import::Cut;
use report::import::fuzzing::{access_log, iostat, prometheus, steps};

const FORMAT: &str =
    "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent $request_time";
const LOG: &[u8] = b"10.0.0.1 - - [26/Jul/2026:10:00:00 +0200] \"GET /a HTTP/1.1\" 200 512 0.012\n\
    10.0.0.1 - - [26/Jul/2026:10:00:01 +0200] \"PUT /b HTTP/1.1\" 201 0 1.5\n";
const MSEC: &str = "$msec $request_time $upstream_response_time $status $upstream_cache_status";
const LOG_MSEC: &[u8] = b"1700000000.123 0.010 0.009 200 MISS\n1700000000.200 0.001 - 200 HIT\n1700000001.9 1 1,2 504 -\n";
const JSON: &[u8] =
    b"{\"msec\":1700000000.1,\"request_time\":0.5,\"status\":200,\"request\":\"GET /a\"}\n";
// Formats that are recognised, of each way in which lines are divided.
const KNOWN: &[&[u8]] = &[
    b"::1 - - [22/Nov/2026:04:15:00 +0000] \"GET /o HTTP/1.1\" 200 5 \"-\" \"curl\" 12345\n",
    b"[2026-11-22T04:15:00.250Z] \"GET /o HTTP/1.1\" 200 - 0 5 12 11 \"-\" \"curl\" \"id\" \"svc\" \"10.0.0.2:80\"\n",
    b"lb haproxy[1]: 10.0.0.1:3 [22/Nov/2026:04:15:00.123] in s/srv1 0/0/1/10/11 200 5 - - ---- 1/1/1/1/0 0/0 \"GET /o HTTP/1.1\"\n",
    b"#Fields: date time cs-method cs-uri-stem sc-status time-taken\n2026-11-22 04:15:00 GET /o 200 12\n",
    b"metric_name,timestamp,metric_value,status\nhttp_req_duration,1795320900,12.5,200\n",
    b"1795320900000000000,200,12000000,0,5,,Zm9v,atk,0,GET,http://x/o,\n",
    b"READ,latency raw data: op, timestamp(ms), latency(us)\nREAD,1795320900123,12345\n",
    b"<httpSample t=\"12\" ts=\"1795320900123\" s=\"true\" lb=\"get\" rc=\"200\"/>\n",
    b"{\"ts\":1795320900.25,\"request\":{\"uri\":\"/o\"},\"duration\":0.0125,\"status\":200}\n",
    b"{\"time\":\"2026-11-22T04:15:00Z\",\"status\":200,\"duration\":12}\n",
];
const IOSTAT: &[u8] = b"07/26/26 10:00:00\nDevice r/s w/s rkB/s r_await w_await %util\nsda 10.0 1.0 160.0 4.0 1.0 4.1\n\n\
    07/26/26 10:00:01\nDevice r/s w/s rkB/s r_await w_await %util\nsda 12.0 0.0 190.0 5.0 0.0 6.0\n";
const IOSTAT_JSON: &[u8] = br#"{"sysstat":{"hosts":[{"statistics":[{"timestamp":"2026-07-26T10:00:00Z","disk":[{"disk_device":"sda",
"r/s":10.0,"w/s":1.0,"rkB/s":160.0,"r_await":4.0,"util":4.1}]},{"timestamp":"2026-07-26T10:00:01Z","disk":[]}]}]}}"#;
const PROMETHEUS: &[u8] = br#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"le":"0.1"},"values":[
[1700000000,"1"],[1700000015,"5"]]},{"metric":{"le":"+Inf"},"values":[[1700000000,"1"],[1700000015,"7"]]}]}}"#;

// Input: `[source]`, then its text as edits of a right one; of source 3 the log's format too.
fuzz_target!(|data: &[u8]| {
    let [source, data @ ..] = data else { return };
    let lenient = source & 128 != 0;
    let text = |seeds: &[&[u8]]| String::from_utf8_lossy(&edits::edited(seeds, data)).into_owned();
    let windows = match source % 8 {
        6 => access_log(&edits::edited(KNOWN, data), "", lenient),
        7 => {
            let log = edits::edited(KNOWN, data);
            access_log(&log, "end=ts,response=duration:ms,status=status,path=request.uri", lenient)
        }
        0 => access_log(&edits::edited(&[LOG], data), FORMAT, lenient),
        1 => access_log(&edits::edited(&[LOG_MSEC], data), MSEC, lenient),
        2 => access_log(&edits::edited(&[JSON], data), "json", lenient),
        3 => {
            let cut = data.len().min(usize::from(data.first().copied().unwrap_or(0)));
            let (format, log) = data.split_at(cut);
            let format = edits::edited(&[FORMAT.as_bytes(), MSEC.as_bytes()], format);
            let log = edits::edited(&[LOG, LOG_MSEC], log);
            access_log(&log, &String::from_utf8_lossy(&format), lenient)
        }
        4 => iostat(&text(&[IOSTAT, IOSTAT_JSON])),
        _ => prometheus(&text(&[PROMETHEUS])),
    };
    match windows {
        Ok(windows) => {
            for window in &windows {
                let line = serde_json::to_vec(window).expect("a window is written");
                let again = serde_json::from_slice::<ground::window::Window>(&line);
                assert!(again.is_ok(), "{}", line.escape_ascii());
            }
            let _ = (steps(&windows, Cut::Levels), steps(&windows, Cut::Every(0.5)));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
