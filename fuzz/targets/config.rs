//! Any text as the configuration of a process: what is accepted is printed, and read again as it was.

#![no_main]

mod edits;

use std::sync::LazyLock;

use configuration::Config;
use libfuzzer_sys::fuzz_target;

static WHOLE: LazyLock<String> = LazyLock::new(|| {
    let lines = Config::default().print();
    lines.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect()
});
const CLUSTER: &[u8] = b"serve.role = \"all\"\ncluster.name = \"a\"\ndevice = []\n[[member]]\nname = \"a\"\n\
    address = \"127.0.0.1:7000\"\nweight = 2\n[[member]]\nname = \"b\"\naddress = \"127.0.0.1:7001\"\n[gateway]\n\
    policy = \"least\"\n[s3]\nlisten = \"127.0.0.1:9000\"\nkeys = \"keys\"\nbuckets = [\"abc=x/\"]\n";
const POOLS: &[u8] =
    b"serve.role = \"proxy\"\n[memcached]\nlisten = \"127.0.0.1:11211\"\n[[pool]]\nname = \"a\"\n\
    servers = [\"127.0.0.1:11212 2\", \"unix:/tmp/x\"]\n[[route]]\nprefix = \"u:\"\npool = \"a\"\n";

fuzz_target!(|data: &[u8]| {
    let text = edits::edited(&[WHOLE.as_bytes(), CLUSTER, POOLS], data);
    let Ok(text) = String::from_utf8(text) else { return };
    // The rest of a line `#…` is an override, as `--set` has it.
    let sets: Vec<String> =
        text.lines().filter_map(|line| Some(line.strip_prefix("#!")?.to_owned())).collect();
    match Config::parse(&text, "here", &sets) {
        Ok(mut config) => {
            // What is never shown is not printed.
            (config.origin.secret_access_key, config.origin.session_token) = (None, None);
            let again = Config::parse(&config.print(), "printed", &[]);
            assert_eq!(again.as_ref(), Ok(&config), "{}", config.print());
            let _ = config.as_table();
        }
        Err(mistakes) => assert!(!mistakes.0.is_empty() && !mistakes.to_string().is_empty()),
    }
});
