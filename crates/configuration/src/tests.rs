//! Reading, printing and the mistakes that are told.

use std::path::Path;

use toml::Value;

use super::config::SECTIONS;
use super::*;

fn mistakes(text: &str, overrides: &[&str]) -> String {
    let overrides: Vec<String> = overrides.iter().map(|&s| s.to_owned()).collect();
    Config::parse(text, "test.toml", &overrides).expect_err("has a mistake").to_string()
}

#[test]
fn what_is_printed_reads_as_the_same() {
    let plain = Config::parse("", "", &[]).unwrap();
    assert_eq!(Config::parse(&plain.print(), "", &[]).unwrap(), plain);
    let without = Config { devices: Vec::new(), ..plain };
    assert_eq!(Config::parse(&without.print(), "", &[]).unwrap(), without);
    assert_eq!(SECTIONS.len(), without.table().len());
    let text = r#"
        [serve]
        listen = "0.0.0.0:80"
        hosts = "a \"quoted\" one"
        token = "of-clients"
        [[device]]
        path = "a"
        count = 128
        bytes = "1.5GB"
        service = { kind = "lognormal", mean_ms = 10.75, scv = 4 }
        [[device]]
        path = "b"
        class = "hot"
        segment_bytes = 1048576
        [observe]
        objectives_ms = [1, 2.5]
    "#;
    let config = Config::parse(text, "", &["node.memory_bytes=1KiB".to_owned()]).unwrap();
    assert_eq!(config.node.memory_bytes, Size(1024));
    assert_eq!(config.devices[0].bytes, Size(1_500_000_000));
    let printed = config.print();
    assert!(printed.contains("# token =   (set; not shown)\n"), "{printed}");
    // All but the token.
    let token = ["serve.token=of-clients".to_owned()];
    assert_eq!(Config::parse(&printed, "", &token).unwrap(), config);
    assert_eq!(
        config.laboratory().unwrap(),
        "128 devices hold each read for a lognormal time of mean 10.75 ms and SCV 4"
    );
    assert!(!config.as_table()["serve"].as_table().unwrap().contains_key("token"));
    assert_eq!(config.devices[0].folders()[5], Path::new("a/05"));
}

/// An invalid number is refused even if its section is not used yet.
#[test]
fn no_number_may_be_nan() {
    let mut tried = 0;
    for (section, options) in Config::default().table() {
        for (name, value) in options.as_table().into_iter().flatten() {
            let wrong = match value {
                Value::Float(_) => "nan",
                Value::Array(all) if all.first().is_some_and(Value::is_float) => "[nan]",
                _ => continue,
            };
            let told = mistakes("", &[&format!("{section}.{name}={wrong}")]);
            assert!(told.contains(section.as_str()), "{section}.{name}: {told}");
            tried += 1;
        }
    }
    assert!(tried > 30, "{tried}");
}

#[test]
fn overrides_reach_devices() {
    let set = |s: &str| s.to_owned();
    let config = Config::parse(
        "",
        "",
        &[
            set("device.0.path=/d e"),
            set("device.0.service={kind=\"exponential\",mean_ms=2}"),
            set("serve.listen=127.0.0.1:0"),
            set("observe.objectives_ms=[5]"),
            set("observe.objectives_ms.1=7"),
            set("device.1={path=\"second\"}"),
        ],
    )
    .unwrap();
    assert_eq!(config.devices[1].path, Path::new("second"));
    assert_eq!(config.devices[0].path, Path::new("/d e"));
    assert_eq!(config.devices[0].service.as_ref().unwrap().mean_ms, 2.0);
    assert_eq!(config.devices[0].servers(), 1);
    assert_eq!(config.observe.objectives_ms, [5.0, 7.0]);
    let none = Config::parse("[[device]]\npath = \"a\"", "", &[set("device=[]")]).unwrap();
    assert!(none.devices.is_empty());
}

#[test]
fn all_mistakes_are_told_at_once() {
    let told = mistakes(
        "[serve]\nlisten = 5\nport = 1\n[nod]\n[node]\nmemory_byte = 3\nrevalidate_s = \"x\"\n\
         [device]\npath = \"x\"",
        &["nonsense", "a=1", "device.7.path=x"],
    );
    for part in [
        "serve.listen: must be a string, not integer `5`",
        "serve.port: unknown key; the keys here are: role, listen, ",
        "nod: unknown key; did you mean `node`?",
        "node.memory_byte: unknown key; did you mean `memory_bytes`?",
        "node.revalidate_s: must be a number, not string \"x\"",
        "device: must be a list: write [[device]], not [device]",
        "--set …: has no `=`",
        "--set …: has no section",
    ] {
        assert!(told.contains(part), "{part:?} is missing in {told}");
    }
}

#[test]
fn every_mistake_in_lists_and_tables_has_its_place_and_shows_no_secret() {
    let text = r#"
        [[device]]
        bytes = "1 GiB"
        [[device]]
        count = -1
        parallel = 1.5
        service = { kind = 3, mean_ms = true, sdv = 2, file = 1 }
        [observe]
        objectives_ms = [1, "x"]
        events = 1
        [serve]
        token = 123456
        [origin]
        session_token = [123456]
        [gateway]
        spread = "al"
    "#;
    let set = ["serve.listen.port=1", "device.9.count=1", "device.x.count=1", "token=123456"];
    let told = mistakes(text, &set);
    assert_eq!(
        told.lines().map(str::trim).collect::<Vec<_>>(),
        [
            "15 mistakes in the configuration:",
            "--set device.9.count: index 9 is beyond a list of 2",
            "--set device.…: the part after a list is not an index",
            "--set token: has no section; write it as section.key=value",
            "device.1.count: must be a whole number from 0 to 4294967295, not integer `-1`",
            "device.1.parallel: must be a whole number from 0 to 4294967295, not floating point `1.5`",
            "device.1.service.file: must be a path, not integer `1`",
            "device.1.service.kind: must be one of `exponential`, `gamma`, `lognormal`, `empirical`, \
             not `3`",
            "device.1.service.mean_ms: must be a number, not boolean `true`",
            "device.1.service.sdv: unknown key; did you mean `scv`?",
            "gateway.spread: must be one of `primary`, `warm`, `all`, not `al`",
            "observe.events: must be true or false, not integer `1`",
            "observe.objectives_ms: must be a number, not string \"x\"",
            "origin.session_token: must be a string",
            "serve.listen: must be a string, not a table",
            "serve.token: must be a string",
        ]
    );
}

#[test]
fn values_are_checked() {
    let rows: &[(&str, &str)] = &[
        ("[serve]\nlisten = \"0.0.0.0:1\"", "set serve.token"),
        ("[serve]\nlisten = \"here\"", "not an address"),
        ("[serve]\nheader_bytes_max = 1", "between 8KiB and 16MiB"),
        ("[node]\nmemory_bytes = -1", "node.memory_bytes: must be bytes, like 4096 or"),
        ("[node]\nrevalidate_s = -1", "node.revalidate_s: must be between"),
        ("[[device]]\nbytes = \"1MiB\"", "must hold two segments"),
        (
            "[[device]]\nbytes = \"1TiB\"\nsegment_bytes = \"4GiB\"",
            "segment_bytes: must be between",
        ),
        ("[[device]]\nbytes = \"1TiB\"\nsegment_bytes = \"1MiB\"", "more than 60000 segments"),
        ("[[device]]\nbytes = \"99999999999GiB\"", "is not a size"),
        ("[[device]]\nscrub_s = -1", "scrub_s: must be between"),
        (
            "[[device]]\nparallel = 4\nservice = { kind = \"exponential\", mean_ms = 1 }",
            "one server",
        ),
        ("[[device]]\nservice = { kind = \"gamma\" }", "device.0.service.mean_ms: must be above 0"),
        (
            "[[device]]\nservice = { kind = \"normal\", mean_ms = 1 }",
            "device.0.service.kind: must be one of `exponential`, `gamma`, ",
        ),
        ("[[device]]\nservice = { kind = \"exponential\", mean_ms = 1, scv = 2 }", "SCV 1"),
        ("[[device]]\n[[device]]", "is used twice"),
        ("[observe]\nevents = true", "needs observe.run_dir"),
        (
            "[origin]\nkind = \"gcs\"",
            "origin.kind: must be one of `folder`, `s3`, `none`, not `gcs`",
        ),
        ("[origin]\nkind = \"s3\"", "origin.bucket: invalid bucket name \"\""),
        ("[origin]\nkind = \"s3\"\nbucket = \"b\"\nendpoint = \"here\"", "invalid URL"),
        (
            "[origin]\nkind = \"s3\"\nbucket = \"b\"\nendpoint = \"https://a:99999\"",
            "65535 is the largest",
        ),
        ("[origin]\nkind = \"s3\"\nbucket = \"b\"\nendpoint = \"http://a:1\"", "allow_http = true"),
        ("[origin]\nkind = \"s3\"\nbucket = \"b\"\nprefix = \"a\"", "end in \"/\""),
        ("[origin]\nkind = \"s3\"\nbucket = \"b\"\nprefix = \"a//\"", "end in \"/\""),
        ("[origin]\nsecret_access_key = 5", "secret_access_key: must be a string"),
        ("[serve\n", "test.toml, line 1, column 7 (`serve`): "),
    ];
    for (text, part) in rows {
        let told = mistakes(text, &[]);
        assert!(told.contains(part), "{part:?} is missing in {told} of {text}");
    }
}

/// Every key that takes a number, with one that has 301 digits, of each kind.
#[test]
fn no_mistake_prints_a_number_with_hundreds_of_digits() {
    let mut tried = 0;
    for (section, options) in Config::default().table() {
        for (name, value) in options.as_table().into_iter().flatten() {
            for number in ["1e300", "-1e300", "1e-300"] {
                let number =
                    if value.is_array() { format!("[{number}]") } else { number.to_owned() };
                let set = [format!("{section}.{name}={number}")];
                if let Err(error) = Config::parse("", "", &set) {
                    let told = error.to_string();
                    let is_long = |run: &str| run.bytes().filter(u8::is_ascii_digit).count() > 30;
                    assert!(!told.split_whitespace().any(is_long), "{set:?}: {told}");
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 100, "{tried}");
}

#[test]
fn memcacheds_address_belongs_to_a_proxy() {
    let set = "memcached.listen=127.0.0.1:11312";
    for role in ["all", "node"] {
        let told = mistakes("", &[set, &format!("serve.role={role}")]);
        assert!(told.contains("memcached.listen: is where a proxy listens"), "{told}");
    }
    let told = mistakes(MEMBERS, &[set, "serve.role=gateway"]);
    assert!(told.contains("memcached.listen: is where a proxy listens"), "{told}");
    let pool = "pool.0={servers=[\"127.0.0.1:1\"]}";
    let set = [set, "serve.role=proxy", pool].map(str::to_owned);
    Config::parse("", "", &set).unwrap();
}

const MEMBERS: &str = r#"
    [[member]]
    name = "b"
    address = "127.0.0.1:7072"
    weight = 2
    [[member]]
    name = "a"
    address = "127.0.0.1:7071"
"#;

#[test]
fn members_become_a_ring() {
    let set = ["cluster.name=b".to_owned(), "gateway.policy=round_robin".to_owned()];
    let config = Config::parse(MEMBERS, "", &set).unwrap();
    assert_eq!(Config::parse(&config.print(), "", &[]).unwrap(), config);
    let ring = config.ring().unwrap();
    assert_eq!((ring.replica_count(), ring.name(0), ring.name(1)), (2, "a", "b"));
    assert_eq!((config.me(), config.node_address()), (Some(1), "127.0.0.1:7072"));
    assert_eq!(config.addresses()[0], "127.0.0.1:7071".parse().unwrap());
    assert!(config.is_node() && config.is_gateway());
    let settings = config.gateway.settings(ring, Default::default(), 0);
    assert_eq!(settings.policy, engine::route::Policy::RoundRobin);
    let alone = Config::parse("", "", &[]).unwrap();
    assert!(alone.is_node() && !alone.is_gateway());
    assert_eq!((alone.ring(), alone.me(), alone.node_address()), (None, None, "127.0.0.1:7070"));
    let ring = Config::parse(MEMBERS, "", &["serve.role=gateway".to_owned()]).unwrap().ring();
    let defaults = alone.gateway.settings(ring.clone().unwrap(), Default::default(), 0);
    assert_eq!(defaults, engine::gateway::Settings::new(ring.unwrap()));
}

#[test]
fn mistakes_of_a_cluster_are_told_at_once() {
    let wrong = r#"
        [[member]]
        name = "a"
        address = "127.0.0.1:7071"
        [[member]]
        name = "a"
        address = "127.0.0.1:7071"
        weight = 0
        [[member]]
        name = "b c"
        address = "here:0"
        [cluster]
        name = "x"
        replicas = 9
        lease_s = 0
        [gateway]
        hedge_quantile = 1
        ping_s = 0
    "#;
    let told = mistakes(wrong, &[]);
    for part in [
        "member.1.name: \"a\" is already the name of member.0",
        "member.1.address: 127.0.0.1:7071 is already the address of member.0",
        "member.1.weight: must be above 0",
        "member.2.name: invalid name \"b c\"",
        "member.2.address: \"here:0\" is not an address",
        "cluster.name: there is no member \"x\"; write one of: a, a, b c",
        "cluster.replicas: must be between 1 and 8",
        "cluster.lease_s: must be between",
        "gateway.hedge_quantile: must be above 0 and below 1",
        "gateway.ping_s: must be between",
    ] {
        assert!(told.contains(part), "{part:?} is missing in {told}");
    }
    let hash = token::hashed("x");
    let (hashed, same) = (format!("serve.token={hash}"), format!("cluster.token={hash}"));
    let rows: &[(&[&str], &str)] = &[
        (&[], "cluster.name: is missing; write which member this node is, one of: b, a"),
        (&["serve.role=gateway", "cluster.name=a"], "a gateway is not a member"),
        (
            &["serve.role=master"],
            "serve.role: must be one of `all`, `gateway`, `node`, `proxy`, not `master`",
        ),
        (&["cluster.name=a", "serve.listen=127.0.0.1:7071"], "its gateway needs another"),
        (&["cluster.name=a", "member.1.address=10.0.0.1:1"], "serve.token: must be set"),
        (&["cluster.name=a", "member.1.address=10.0.0.1:1"], "cluster.token: must be set"),
        (&["cluster.name=a", "serve.token=x"], "cluster.token: must be set"),
        (&["cluster.name=a", "serve.token=x", "cluster.token=x"], "cluster.token: must not be"),
        (&["cluster.name=a", &hashed, "cluster.token=x"], "cluster.token: must not be"),
        (&["cluster.name=a", "serve.token=y", &same], "cluster.token: must be the token itself"),
        (&["serve.token=blake3:00"], "serve.token: begins with blake3:"),
        (&["cluster.name=a", "member.1.address=0.0.0.0:1"], "nobody can connect to 0.0.0.0:1"),
        (
            &["cluster.name=a", "gateway.policy=fastest"],
            "gateway.policy: must be one of `smallest_expected_response`, ",
        ),
    ];
    for (set, part) in rows {
        let told = mistakes(MEMBERS, set);
        assert!(told.contains(part), "{part:?} is missing in {told} of {set:?}");
    }
    let told = mistakes("", &["serve.role=gateway"]);
    assert!(told.contains("a gateway needs nodes"), "{told}");
    let told = mistakes("[member]\nname = \"a\"", &[]);
    assert!(told.contains("write [[member]], not [member]"), "{told}");
    let told = mistakes("", &["cluster.name=a"]);
    assert!(told.contains("there is no member \"a\"; list all nodes"), "{told}");
}

#[test]
fn objects_are_reached_by_memcacheds_protocol_at_a_gateway_or_a_node_alone() {
    let set = "memcached.node_listen=127.0.0.1:11411";
    let told = mistakes(MEMBERS, &[set, "serve.role=node", "cluster.name=b"]);
    assert!(told.contains("memcached.node_listen: is for a process with a gateway"), "{told}");
    for (text, role) in [("", "node"), ("", "all"), (MEMBERS, "gateway")] {
        Config::parse(text, "", &[set.to_owned(), format!("serve.role={role}")]).unwrap();
    }
}

#[test]
fn memcacheds_protocol_is_open_to_others_only_where_that_is_said() {
    let proxy = "[serve]\nrole = \"proxy\"\n[[pool]]\nservers = [\"127.0.0.1:11211\"]\n";
    for (text, set) in
        [(proxy, "memcached.listen=0.0.0.0:11311"), ("", "memcached.node_listen=[::]:11411")]
    {
        for token in [None, Some("serve.token=of-clients")] {
            let set: Vec<&str> = token.into_iter().chain([set]).collect();
            let told = mistakes(text, &set);
            assert!(told.contains("no credentials"), "{told}");
            let allowed = [&set[..], &["memcached.unauthenticated=true"]].concat();
            let allowed: Vec<String> = allowed.into_iter().map(str::to_owned).collect();
            Config::parse(text, "", &allowed).unwrap();
        }
    }
}

#[test]
fn secrets_of_the_origin_are_taken_from_the_environment_and_never_shown() {
    let text = "[origin]\nkind = \"s3\"\nbucket = \"b\"\nsecret_access_key = \"hush\"";
    let mut config = Config::parse(text, "", &["origin.session_token=hush2".to_owned()]).unwrap();
    config.origin.fill_credentials(|name| Some(format!("of {name}")));
    let origin = &config.origin;
    assert_eq!(origin.access_key_id.as_deref(), Some("of AWS_ACCESS_KEY_ID"));
    assert_eq!(origin.secret_access_key.as_ref().unwrap().expose(), "hush");
    assert_eq!(origin.session_token.as_ref().unwrap().expose(), "hush2");
    for shown in [config.print(), config.as_table().to_string(), format!("{config:?}")] {
        assert!(shown.contains("AWS_ACCESS_KEY_ID") && !shown.contains("hush"), "{shown}");
    }
    let mut folder = Config::parse("", "", &[]).unwrap();
    folder.origin.fill_credentials(|_| panic!("a folder needs no credentials"));
}

#[test]
fn the_document_shows_the_defaults_as_they_are() {
    let document = include_str!("../../../docs/configuration.md");
    let printed = Config::parse("", "", &[]).unwrap().print();
    assert!(document.contains(&printed), "docs/configuration.md is to show:\n{printed}");
}

#[test]
fn what_contradicts_traces_is_a_mistake() {
    let mistakes = |overrides: &[&str]| {
        let overrides: Vec<String> = overrides.iter().map(|it| (*it).to_owned()).collect();
        Config::parse("", "-", &overrides).err().map(|all| all.to_string()).unwrap_or_default()
    };
    let endpoint = "traces.endpoint=\"http://127.0.0.1:4318\"";
    assert_eq!(mistakes(&[endpoint, "traces.token=\"Bearer 1\""]), "");
    for (more, expected) in [
        ("observe.sample_one_in=0", "traces.endpoint: needs samples"),
        ("traces.token=\"a\\nb\"", "traces.token: has characters"),
        ("traces.token_header=\"a b\"", "traces.token_header: invalid name"),
        ("traces.timeout_s=0", "traces.timeout_s"),
        ("traces.waiting_max=0", "traces.waiting_max"),
    ] {
        let told = mistakes(&[endpoint, more]);
        assert!(told.contains(expected), "{told}");
    }
    assert!(mistakes(&["traces.endpoint=\"c\""]).contains("traces.endpoint: invalid address"));
}

#[test]
fn budgets_that_memory_does_not_hold_are_advised_of() {
    let advice = |set: &[&str], limit_bytes: u64| {
        let set: Vec<String> = set.iter().map(|set| (*set).to_owned()).collect();
        Config::parse("", "", &set).unwrap().memory_advice(limit_bytes)
    };
    let gib = |n: u64| n << 30;
    assert_eq!(advice(&["node.memory_bytes=8GiB"], gib(10)), None);
    let node = advice(&["node.memory_bytes=10GB"], gib(10)).unwrap();
    assert!(
        node.contains(
            "node.memory_bytes is 10GB, node.appends_bytes_max 64MiB, and this process may use 10.0 GiB"
        ),
        "{node}"
    );
    assert!(node.ends_with("at most 9.0 GiB fit"), "{node}");
    // Layers count where there are datasets, and both have one budget where they share it.
    let layers = ["node.memory_bytes=8GiB", "datasets.layers_bytes=2GiB"];
    assert_eq!(advice(&layers, gib(10)), None);
    let served = [&layers[..], &["datasets.path=copies"]].concat();
    assert!(advice(&served, gib(10)).unwrap().contains("datasets.layers_bytes 2GiB"));
    let shared = [&served[..], &["node.memory_shared_bytes=8GiB"]].concat();
    assert_eq!(advice(&shared, gib(10)), None);
    assert!(advice(&shared, gib(8)).unwrap().contains("node.memory_shared_bytes is 8GiB"));
    // So do objects that wait to be written to devices.
    let appends = |bytes: &'static str| ["node.memory_bytes=8GiB", bytes];
    assert_eq!(advice(&appends("node.appends_bytes_max=1GiB"), gib(10)), None);
    let more = advice(&appends("node.appends_bytes_max=2GiB"), gib(10)).unwrap();
    assert!(more.contains("node.appends_bytes_max 2GiB, and"), "{more}");
    // The largest size that can be written is not too large to be added up.
    assert!(advice(&["node.memory_bytes=9223372036854775807"], u64::MAX / 2).is_some());
}

#[test]
fn a_size_is_shown_as_it_is_written() {
    for text in ["0B", "1B", "4GB", "64MiB", "1GiB", "1500MB", "1TB", "3KiB", "1025B", "1TiB"] {
        assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
    }
}

#[test]
fn places_to_listen_and_tokens_that_cannot_be_are_mistakes() {
    let s3 = "[s3]\nkeys = \"keys.toml\"\nlisten = ";
    for (text, expected) in [
        (format!("{s3}\"127.0.0.1:7070\""), "s3.listen"),
        (format!("[serve]\nlisten = \"127.0.0.1:9000\"\n{s3}\"0.0.0.0:9000\""), "serve.listen too"),
        ("[memcached]\nnode_listen = \"127.0.0.1:7070\"".to_owned(), "memcached.node_listen"),
        ("[serve]\ntoken = \"a \"".to_owned(), "serve.token"),
        ("[serve]\ntoken = \"a\\n\"".to_owned(), "serve.token"),
    ] {
        let found = mistakes(&text, &[]);
        assert!(found.contains(expected), "{text}: {found}");
    }
    for text in [
        format!("[serve]\nlisten = \"127.0.0.1:0\"\n{s3}\"127.0.0.1:0\""),
        format!("{s3}\"127.0.0.2:7070\""),
        "[serve]\ntoken = \"a b\"".to_owned(),
    ] {
        Config::parse(&text, "", &[]).unwrap();
    }
}

#[test]
fn what_a_cache_without_an_origin_cannot_do_is_a_mistake() {
    let cache = "[origin]\nkind = \"none\"\n";
    let found =
        mistakes(&format!("{cache}[s3]\nlisten = \"127.0.0.1:9000\"\nkeys = \"keys\""), &[]);
    assert!(found.contains("s3.listen: S3's protocol has lists"), "{found}");
    let found = mistakes(&format!("{cache}[serve]\nuploads_bytes_max = \"1MiB\""), &[]);
    assert!(
        found.contains("serve.uploads_bytes_max: must be at least node.object_bytes_max"),
        "{found}"
    );
    assert!(Config::parse(cache, "", &[]).is_ok());
}

#[test]
fn settings_of_layers_are_refused_by_their_names() {
    for (text, key) in [
        ("layers_smoothing = 0", "layers_smoothing"),
        ("layers_smoothing = 1e-300", "layers_smoothing"),
        ("layers_low = 5", "layers_low"),
        ("layers_high = nan", "layers_low"),
    ] {
        let found = mistakes(&format!("[datasets]\n{text}"), &[]);
        assert!(found.contains(&format!("datasets.{key}: ")), "{text}: {found}");
    }
}

#[test]
fn a_pool_has_as_many_servers_as_each_key_has() {
    let pool = |count: usize, more: &str| {
        let servers: Vec<String> = (1..=count).map(|n| format!("\"127.0.0.1:{n}\"")).collect();
        let servers = servers.join(", ");
        format!("[serve]\nrole = \"proxy\"\n[[pool]]\nservers = [{servers}]\n{more}")
    };
    let replicas = "routing = \"hash_replicas\"\nreplicas = 3\n";
    let found = mistakes(&pool(2, replicas), &[]);
    assert!(found.contains("pool.0.replicas: is 3, but the pool has 2 server(s)"), "{found}");
    for (count, more) in [(3, replicas), (2, "replicas = 3\n"), (1, "routing = \"replicated\"\n")] {
        Config::parse(&pool(count, more), "", &[]).unwrap();
    }
}

#[test]
fn a_route_does_not_lead_back_to_its_own_pool() {
    let pools = "[serve]\nrole = \"proxy\"\n[[pool]]\nname = \"a\"\nservers = [\"127.0.0.1:1\"]\n";
    for key in ["warm_from", "copy_to", "gutter"] {
        let found = mistakes(&format!("{pools}[[route]]\npool = \"a\"\n{key} = \"a\""), &[]);
        assert!(
            found.contains(&format!("route.0.{key}: \"a\" is the pool of these keys itself")),
            "{found}"
        );
    }
}
