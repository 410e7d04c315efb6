//! `deploy/`: what it starts is accepted, and its manifests fit together. Nothing is asked of a network.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

use configuration::Config;
use serde_json::Value;

use crate::left_out::left_out;
use crate::serve_client::{Client, start};

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(deploy().join(path)).unwrap()
}

/// The variables that hold the tokens.
const TOKENS: [(&str, &str); 2] =
    [("CONCERTINA_TOKEN", "serve.token"), ("CONCERTINA_CLUSTER_TOKEN", "cluster.token")];

/// Checks a command line of `concertina serve` on a configuration's text, with names in `$(NAME)` or
/// `${NAME}` replaced.
fn accepted(arguments: &[String], text: &str, names: &HashMap<String, String>) {
    // Tokens come from the environment, where other users do not see them.
    assert!(!arguments.iter().any(|one| one.contains("token=")), "{arguments:?}");
    let mut set = Vec::new();
    for (variable, key) in TOKENS {
        set.extend(names.get(variable).map(|token| format!("{key}={token}")));
    }
    let mut config = false;
    let mut arguments = arguments.iter().flat_map(|one| match one.split_once('=') {
        Some((name, value)) if name.starts_with("--") => vec![name.to_owned(), value.to_owned()],
        _ => vec![one.clone()],
    });
    while let Some(argument) = arguments.next() {
        let mut value = || {
            let mut value = arguments.next().unwrap();
            for (name, by) in names {
                value =
                    value.replace(&format!("$({name})"), by).replace(&format!("${{{name}}}"), by);
            }
            assert!(!value.contains('$'), "{value}: an unknown name");
            value
        };
        match argument.as_str() {
            "--config" => config = value() == "/etc/concertina/concertina.toml",
            "--role" => set.push(format!("serve.role={}", value())),
            "--set" => set.push(value()),
            other => panic!("unknown argument {other}"),
        }
    }
    assert!(config);
    if let Err(mistakes) = Config::parse(text, "deploy", &set) {
        panic!("{set:?}: {mistakes}");
    }
}

#[test]
fn units_start_what_the_configuration_allows() {
    for unit in ["systemd/concertina-node.service", "systemd/concertina-gateway.service"] {
        let text = read(unit).replace("\\\n", " ");
        let start = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        let rest = start.strip_prefix("/usr/local/bin/concertina serve ").unwrap();
        let arguments: Vec<String> = rest.split_whitespace().map(str::to_owned).collect();
        let names = [
            ("NAME", "a"),
            ("ADDRESS", "10.0.0.11:7071"),
            ("LISTEN", "10.0.0.11:7070"),
            ("S3_LISTEN", "10.0.0.11:9000"),
            ("CREDENTIALS_DIRECTORY", "/run/credentials"),
            ("CONCERTINA_TOKEN", "clients"),
            ("CONCERTINA_CLUSTER_TOKEN", "between"),
        ];
        let names = names.map(|(name, by)| (name.to_owned(), by.to_owned()));
        // systemd sets the folder of credentials itself.
        for (name, _) in names.iter().filter(|(name, _)| name != "CREDENTIALS_DIRECTORY") {
            let is_token = TOKENS.iter().any(|(variable, _)| variable == name);
            let used = is_token || rest.contains(&format!("${{{name}}}"));
            let said = text.lines().any(|l| l.starts_with('#') && l.contains(&format!("{name}=")));
            assert!(!used || said, "{unit}: {name} is not explained");
        }
        accepted(&arguments, &read("concertina.toml"), &names.into_iter().collect());
    }
    // The sockets that are kept over a restart are those that the gateway listens on.
    let socket = read("systemd/concertina-gateway.socket");
    let kept = socket.lines().filter_map(|line| line.strip_prefix("ListenStream="));
    let said = read("systemd/concertina-gateway.service");
    let said = said.lines().filter_map(|line| line.strip_prefix('#')?.split_once("LISTEN="));
    let said: Vec<&str> = said.filter_map(|(_, at)| at.split_whitespace().next()).collect();
    assert_eq!(kept.collect::<Vec<_>>(), said);
}

/// The manifests of a file, by a YAML reader in Python that the AWS CLI brings along.
pub fn manifests(file: &str) -> Option<Vec<Value>> {
    let clients = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?.join("clients");
    let script =
        "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(sys.stdin.read()))))";
    let read = |python: &Path| {
        let file = std::fs::File::open(deploy().join("kubernetes").join(file)).unwrap();
        let output = Command::new(python).args(["-c", script]).stdin(file).output().ok()?;
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    };
    read(&clients.join("s3/bin/python")).or_else(|| read(Path::new("python3")))
}

/// What the containers of a pod mount is a volume of the pod, or a claim.
fn mounts_are_known(pod: &Value, volumes: &[Value], claims: &[Value]) {
    let known: Vec<&Value> = volumes
        .iter()
        .map(|volume| &volume["name"])
        .chain(claims.iter().map(|claim| &claim["metadata"]["name"]))
        .collect();
    let first = pod["initContainers"].as_array().into_iter().flatten();
    for one in first.chain([&pod["containers"][0]]) {
        for mount in one["volumeMounts"].as_array().unwrap() {
            assert!(known.contains(&&mount["name"]), "{mount}");
        }
    }
}

#[test]
fn manifests_fit_together() {
    let Some(all) = manifests("concertina.yaml") else {
        return left_out(
            "manifests_fit_together",
            "no PyYAML; .ci/setup installs it with the AWS CLI",
        );
    };
    let of = |kind: &'static str| of_kind(&all, kind);
    let named =
        |kind: &'static str, name: &Value| of(kind).any(|one| one["metadata"]["name"] == *name);
    assert_eq!((all.len(), of("StatefulSet").count(), of("Deployment").count()), (12, 2, 1));
    let text = of("ConfigMap").next().unwrap()["data"]["concertina.toml"].as_str().unwrap();
    let mut ports: HashMap<String, Vec<String>> = HashMap::new();
    for workload in of("StatefulSet").chain(of("Deployment")) {
        let spec = &workload["spec"];
        let labels = &spec["template"]["metadata"]["labels"];
        assert_eq!(spec["selector"]["matchLabels"], *labels);
        assert!(workload["kind"] == "Deployment" || named("Service", &spec["serviceName"]));
        let pod = &spec["template"]["spec"];
        let container = &pod["containers"][0];
        let claims = spec["volumeClaimTemplates"].as_array().cloned().unwrap_or_default();
        let volumes = pod["volumes"].as_array().cloned().unwrap_or_default();
        mounts_are_known(pod, &volumes, &claims);
        for volume in volumes.iter().filter(|volume| volume["emptyDir"].is_null()) {
            let secret = volume["secret"]["secretName"] == "concertina";
            assert!(secret || named("ConfigMap", &volume["configMap"]["name"]), "{volume}");
        }
        let names = container["ports"].as_array().unwrap().iter();
        let names: Vec<String> = names.map(|port| port["name"].as_str().unwrap().into()).collect();
        for probe in ["livenessProbe", "readinessProbe"] {
            let of = |kind: &str| container[probe][kind]["port"].as_str();
            let port = of("httpGet").or(of("tcpSocket"));
            assert!(port.is_none_or(|port| names.iter().any(|name| name == port)));
        }
        ports.insert(labels["app"].as_str().unwrap().to_owned(), names);
        let arguments: Vec<String> = container["args"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one.as_str().unwrap().to_owned())
            .collect();
        if let Some(("serve", rest)) = arguments.split_first().map(|(a, b)| (a.as_str(), b)) {
            let by = |name: &str| match name {
                "NAME" => "concertina-node-0".to_owned(),
                "ADDRESS" => "10.0.0.11".to_owned(),
                other => other.to_owned(),
            };
            let env = container["env"].as_array().unwrap().iter();
            let env = env.map(|one| one["name"].as_str().unwrap()).map(|n| (n.to_owned(), by(n)));
            accepted(rest, text, &env.collect());
        }
    }
    services_reach_ports(&all, &ports);
    each_etcd_is_listed(&all, text);
    rules_are_of_pods(&all, &ports);
}

fn of_kind<'a>(all: &'a [Value], kind: &'static str) -> impl Iterator<Item = &'a Value> {
    all.iter().filter(move |one| one["kind"] == kind)
}

fn services_reach_ports(all: &[Value], ports: &HashMap<String, Vec<String>>) {
    for service in of_kind(all, "Service") {
        let app = service["spec"]["selector"]["app"].as_str().unwrap();
        for port in service["spec"]["ports"].as_array().unwrap() {
            let target = port["targetPort"].as_str().unwrap();
            assert!(ports[app].iter().any(|name| name == target), "{app}: {target}");
        }
    }
}

/// Each etcd is one of the list's, and of those that know each other.
fn each_etcd_is_listed(all: &[Value], text: &str) {
    let mut sets = of_kind(all, "StatefulSet");
    let etcd = sets.find(|one| one["metadata"]["name"] == "concertina-etcd").unwrap();
    let arguments = etcd["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
    let replicas = etcd["spec"]["replicas"].as_u64().unwrap();
    for at in 0..replicas {
        let host =
            format!("concertina-etcd-{at}.{}", etcd["spec"]["serviceName"].as_str().unwrap());
        assert!(text.contains(&format!("\"http://{host}:2379\"")), "{host}");
        assert!(arguments.contains(&format!("concertina-etcd-{at}=http://{host}:2380")), "{host}");
    }
    assert_eq!(text.matches("-etcd:2379").count() as u64, replicas);
}

/// Budgets and policies are of pods that there are, and of ports that those have.
fn rules_are_of_pods(all: &[Value], ports: &HashMap<String, Vec<String>>) {
    for kind in ["PodDisruptionBudget", "NetworkPolicy"] {
        for one in of_kind(all, kind) {
            let spec = &one["spec"];
            let select = if spec["selector"].is_null() { "podSelector" } else { "selector" };
            let app =
                |selector: &Value| selector["matchLabels"]["app"].as_str().unwrap().to_owned();
            let own = &ports[&app(&spec[select])];
            for rule in spec["ingress"].as_array().into_iter().flatten() {
                for from in rule["from"].as_array().unwrap() {
                    assert!(ports.contains_key(&app(&from["podSelector"])), "{from}");
                }
                for port in rule["ports"].as_array().into_iter().flatten() {
                    assert!(own.iter().any(|name| port["port"] == **name), "{port}");
                }
            }
        }
    }
}

/// What a field of a manifest holds.
enum Kind {
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A whole number from the first to the second.
    Number(i64, i64),
    /// Texts by any name.
    Texts,
    Object(&'static [Field]),
    /// At least one of these.
    List(&'static [Field]),
}

/// A field's name, whether it must be there, and what it holds.
type Field = (&'static str, bool, Kind);

const POLICIES: [Field; 3] = [
    ("type", true, Kind::Word(&["Pods", "Percent"])),
    ("value", true, Kind::Number(1, i32::MAX as i64)),
    ("periodSeconds", true, Kind::Number(1, 1800)),
];
const RULES: [Field; 3] = [
    ("selectPolicy", false, Kind::Word(&["Max", "Min", "Disabled"])),
    ("stabilizationWindowSeconds", false, Kind::Number(0, 3600)),
    ("policies", false, Kind::List(&POLICIES)),
];
const BEHAVIOR: [Field; 2] =
    [("scaleUp", false, Kind::Object(&RULES)), ("scaleDown", false, Kind::Object(&RULES))];
const AUTOSCALER: [Field; 2] =
    [("behavior", false, Kind::Object(&BEHAVIOR)), ("name", false, Kind::Text)];
/// KEDA's ScaledObject v1alpha1 (2.x), without the fields that only targets of 0 replicas or other kinds of scalers need.
const SCALED_OBJECT: [Field; 4] = [
    ("apiVersion", true, Kind::Word(&["keda.sh/v1alpha1"])),
    ("kind", true, Kind::Word(&["ScaledObject"])),
    ("metadata", true, Kind::Object(&[("name", true, Kind::Text)])),
    (
        "spec",
        true,
        Kind::Object(&[
            (
                "scaleTargetRef",
                true,
                Kind::Object(&[
                    ("apiVersion", false, Kind::Text),
                    ("kind", false, Kind::Text),
                    ("name", true, Kind::Text),
                ]),
            ),
            ("minReplicaCount", false, Kind::Number(0, i32::MAX as i64)),
            ("maxReplicaCount", false, Kind::Number(1, i32::MAX as i64)),
            ("pollingInterval", false, Kind::Number(1, i32::MAX as i64)),
            (
                "advanced",
                false,
                Kind::Object(&[(
                    "horizontalPodAutoscalerConfig",
                    false,
                    Kind::Object(&AUTOSCALER),
                )]),
            ),
            (
                "triggers",
                true,
                Kind::List(&[
                    ("type", true, Kind::Word(&["prometheus"])),
                    ("metricType", false, Kind::Word(&["AverageValue", "Value"])),
                    ("metadata", true, Kind::Texts),
                    ("authenticationRef", false, Kind::Object(&[("name", true, Kind::Text)])),
                ]),
            ),
        ]),
    ),
];
/// What a trigger of the type prometheus reads, and whether it needs it.
const PROMETHEUS: [(&str, bool); 10] = [
    ("serverAddress", true),
    ("query", true),
    ("threshold", true),
    ("activationThreshold", false),
    ("ignoreNullValues", false),
    ("namespace", false),
    ("customHeaders", false),
    ("queryParameters", false),
    ("unsafeSsl", false),
    ("authModes", false),
];

/// The mistakes of an object: fields that are missing, unknown, or hold something else.
fn mistakes(value: &Value, fields: &[Field], at: &str) -> Vec<String> {
    let Some(object) = value.as_object() else { return vec![format!("{at}: no object")] };
    let mut found: Vec<String> = object
        .keys()
        .filter(|name| !fields.iter().any(|field| field.0 == name.as_str()))
        .map(|name| format!("{at}.{name}: unknown"))
        .collect();
    for (name, needed, kind) in fields {
        let at = format!("{at}.{name}");
        let Some(value) = object.get(*name) else {
            found.extend(needed.then(|| format!("{at}: missing")));
            continue;
        };
        let fits = match kind {
            Kind::Text => value.as_str().is_some_and(|text| !text.is_empty()),
            Kind::Word(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            Kind::Number(low, high) => value.as_i64().is_some_and(|n| (*low..=*high).contains(&n)),
            Kind::Texts => value.as_object().is_some_and(|all| all.values().all(Value::is_string)),
            Kind::Object(fields) => {
                found.extend(mistakes(value, fields, &at));
                true
            }
            Kind::List(fields) => value.as_array().is_some_and(|all| {
                found.extend(all.iter().flat_map(|one| mistakes(one, fields, &at)));
                !all.is_empty()
            }),
        };
        found.extend((!fits).then(|| format!("{at}: {value} does not fit")));
    }
    found
}

/// The metrics and labels that a query names.
fn names_of(query: &str) -> BTreeSet<&str> {
    query
        .split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|name| name.starts_with("concertina_"))
        .collect()
}

#[test]
fn the_autoscaler_asks_for_metrics_that_there_are() {
    let (Some(all), Some(cluster)) = (manifests("keda.yaml"), manifests("concertina.yaml")) else {
        return left_out(
            "the_autoscaler_asks_for_metrics_that_there_are",
            "no PyYAML; .ci/setup installs it with the AWS CLI",
        );
    };
    let scaled = all.iter().find(|one| one["kind"] == "ScaledObject").unwrap();
    assert_eq!(mistakes(scaled, &SCALED_OBJECT, "ScaledObject"), [""; 0]);
    // The check itself finds mistakes.
    let mut wrong = scaled.clone();
    wrong["spec"]["triggers"][0]["metadata"]["threshold"] = 0.7.into();
    wrong["spec"]["maxReplicas"] = 3.into();
    wrong["spec"]["scaleTargetRef"]["name"].take();
    assert_eq!(mistakes(&wrong, &SCALED_OBJECT, "ScaledObject").len(), 3);

    let spec = &scaled["spec"];
    let target = &spec["scaleTargetRef"];
    let there = cluster.iter().find(|one| {
        one["kind"] == target["kind"]
            && one["apiVersion"] == target["apiVersion"]
            && one["metadata"]["name"] == target["name"]
    });
    let there = there.expect("what is scaled is in concertina.yaml");
    let replicas = |of: &Value| of.as_i64().unwrap();
    assert_eq!(replicas(&spec["minReplicaCount"]), replicas(&there["spec"]["replicas"]));
    assert!(replicas(&spec["minReplicaCount"]) < replicas(&spec["maxReplicaCount"]));

    let metadata = spec["triggers"][0]["metadata"].as_object().unwrap();
    for name in metadata.keys() {
        assert!(PROMETHEUS.iter().any(|(known, _)| known == name), "{name}: unknown");
    }
    for (name, needed) in PROMETHEUS {
        assert!(!needed || metadata.contains_key(name), "{name}: missing");
    }
    let threshold: f64 = metadata["threshold"].as_str().unwrap().parse().unwrap();
    assert!((0.1..1.0).contains(&threshold), "a part of the capacity");
    let query = metadata["query"].as_str().unwrap();
    let count = |c: char| query.matches(c).count();
    assert_eq!((count('('), count('{')), (count(')'), count('}')), "{query}");

    // A node says each of the metrics, without labels of its own, before it knows anything.
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &[]);
    let reply = Client::connect(server.address()).get("/metrics");
    let page = String::from_utf8(reply.body).unwrap();
    let documented = std::fs::read_to_string(deploy().join("../docs/operations.md")).unwrap();
    let names = names_of(query);
    assert!(names.len() >= 2, "{names:?}");
    for name in names {
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        assert!(value.is_some_and(|value| value.parse::<f64>().is_ok()), "{name}: {value:?}");
        assert!(documented.contains(&format!("`{name}`")), "{name} is not in docs/operations.md");
    }
    server.stop();

    // Prometheus may reach the nodes, at a port that they have.
    let policy = all.iter().find(|one| one["kind"] == "NetworkPolicy").unwrap();
    let labels = &there["spec"]["template"]["metadata"]["labels"];
    assert_eq!(policy["spec"]["podSelector"]["matchLabels"], *labels);
    let ports = there["spec"]["template"]["spec"]["containers"][0]["ports"].as_array().unwrap();
    let port = &policy["spec"]["ingress"][0]["ports"][0]["port"];
    assert!(ports.iter().any(|one| one["name"] == *port), "{port}");
}
