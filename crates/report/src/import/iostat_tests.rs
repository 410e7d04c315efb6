//! Tests of iostat's reader.

use proptest::prelude::*;

use super::*;

/// As sysstat 12 prints it.
const TEXT: &str = "Linux 6.1.0 (host) \t11/22/2026 \t_x86_64_\t(2 CPU)

11/22/2026 04:15:00 AM
avg-cpu:  %user   %nice %system %iowait  %steal   %idle
           1.00    0.00    1.00   10.00    0.00   88.00

Device            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wkB/s   wrqm/s  %wrqm \
w_await wareq-sz  aqu-sz  %util
sda            999.00    400.00     0.00   0.00    9.00     4.00    0.00      0.00     0.00   0.00    \
0.00     0.00    0.80  60.00

11/22/2026 04:15:02 AM
Device            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wkB/s   wrqm/s  %wrqm \
w_await wareq-sz  aqu-sz  %util
loop0            5.00    400.00     0.00   0.00    9.00     4.00    0.00      0.00     0.00   0.00    \
0.00     0.00    0.80  60.00
sda            100.00    400.00     0.00   0.00    8.00     4.00   20.00      0.00     0.00   0.00    \
0.00     0.00    0.80  60,00
sdb              0.00      0.00     0.00   0.00    0.00     0.00    0.00      0.00     0.00   0.00    \
0.00     0.00    0.00   0.00
";

#[test]
fn text_becomes_windows_by_the_utilisation_law() {
    let devices = read(TEXT, Path::new("io"), &[]).unwrap();
    assert_eq!(devices.names, ["sda"]);
    assert!(devices.zone_assumed);
    let [window] = devices.windows.as_slice() else { panic!("{:?}", devices.windows.len()) };
    assert_eq!((window.start_unix_us, window.length_s), (1_795_320_900_000_000, 2.0));
    assert_eq!((window.queue.as_str(), window.arrivals, window.servers), ("device/0", 200, 1));
    // U/X = 0.6/120 = 5 ms; reads keep it busy for 200 × 5 ms.
    assert!((window.busy_s - 1.0).abs() < 1e-9);
    assert!((window.length_integral_s - 1.6).abs() < 1e-9);
    let times = &window.times[0];
    assert!((times.service.mean_s() / 0.005 - 1.0).abs() < 0.01, "{}", times.service.mean_s());
    assert!((times.response.mean_s() / 0.008 - 1.0).abs() < 0.01);
    assert!((times.waiting.mean_s() / 0.003 - 1.0).abs() < 0.01);
    let named = read(TEXT, Path::new("io"), &["sdb".to_owned()]).unwrap();
    assert_eq!(named.windows[0].arrivals, 0);
}

#[test]
fn json_is_read_as_text_is() {
    let report = |second: u32, reads: f64| {
        serde_json::json!({"timestamp": format!("2026-11-22T04:15:0{second}+0000"), "disk": [
            {"disk_device": "nvme0n1", "r/s": reads, "w/s": 0.0, "rkB/s": 4.0, "r_await": 2.0,
             "util": 50.0, "aqu-sz": 1.0}]})
    };
    let text = serde_json::json!({"sysstat": {"hosts": [{"nodename": "h",
        "statistics": [report(0, 1.0), report(1, 400.0)]}]}})
    .to_string();
    let devices = read(&text, Path::new("io"), &[]).unwrap();
    assert!(!devices.zone_assumed);
    assert_eq!(devices.windows.len(), 1);
    assert_eq!(devices.windows[0].completions, 400);
    assert!((devices.windows[0].busy_s - 0.5).abs() < 1e-9);
}

#[test]
fn what_cannot_be_read_is_named() {
    let cut = TEXT.replace("%util", "%x");
    for (text, expected) in [
        ("", "no device with reads"),
        (cut.as_str(), "line 7: the devices have no column `%util`"),
        ("{", "closes its JSON"),
        ("{}", "sysstat.hosts"),
        ("Device r/s r_await %util\nsda 1 2 3\n", "line 2: devices before the first time"),
        (
            "11/22/2026 04:15:02\nDevice r/s r_await %util\nsda 1 x 3\n",
            "`r_await` is not a number: `x`",
        ),
        ("11/22/2026 04:15:02\nDevice r/s r_await %util\nsda 1\n", "`r_await` is missing"),
    ] {
        let error = read(text, Path::new("io"), &[]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let error = read(TEXT, Path::new("io"), &["sdz".to_owned()]).unwrap_err().to_string();
    assert!(error.contains("the recording has loop0, sda, sdb"), "{error}");
}

proptest! {
    #[test]
    fn changed_text_never_panics(at in any::<prop::sample::Index>(), byte in any::<u8>(),
                                 cut in any::<prop::sample::Index>()) {
        let mut text = TEXT.as_bytes().to_vec();
        let at = at.index(text.len());
        text[at] = byte;
        let _ = read(&String::from_utf8_lossy(&text), Path::new("io"), &[]);
        let cut = cut.index(text.len());
        let _ = read(&String::from_utf8_lossy(&text[..cut]), Path::new("io"), &[]);
    }

    #[test]
    fn arbitrary_text_never_panics(text in "[{}\\[\\]\":, a-z0-9\n]{0,200}") {
        let _ = read(&text, Path::new("io"), &[]);
    }
}

/// A time of another locale, and a recording of a device that is built on others: what is wrong is named.
#[test]
fn what_is_wrong_with_a_recording_is_named() {
    let report = |time: &str, device: &str| {
        format!(
            "{time}\navg-cpu:  %user   %idle\n           1.00   99.00\n\nDevice r/s rkB/s r_await w/s wkB/s w_await %util\n{device} 5.00 20.00 1.00 0.00 0.00 0.00 0.50\n\n"
        )
    };
    let of = |times: [&str; 2], device: &str| {
        let text =
            "Linux 6.1 (host)\n\n".to_owned() + &times.map(|time| report(time, device)).concat();
        read(&text, Path::new("i.txt"), &[]).unwrap_err().to_string()
    };
    let error = of(["24.11.2025 16:00:00", "24.11.2025 16:00:01"], "sda");
    assert!(error.contains("line 3: `24.11.2025 16:00:00` is not read as a time"), "{error}");
    let error = of(["2026-11-22T04:15:00Z", "2026-11-22T04:15:01Z"], "dm-0");
    assert!(
        error.contains("built on others (dm-0)") && error.contains("--devices dm-0"),
        "{error}"
    );
}
