//! `deploy/`: what it starts is accepted, and its manifests fit together. Nothing is asked of a network.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use serve::config::Config;

use crate::left_out::left_out;

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(deploy().join(path)).unwrap()
}

/// Checks a command line of `concertina serve` on a configuration's text, with names in `$(NAME)` or
/// `${NAME}` replaced.
fn accepted(arguments: &[String], text: &str, names: &HashMap<String, String>) {
    let mut set = Vec::new();
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
            ("TOKEN", "clients"),
            ("CLUSTER_TOKEN", "between"),
        ];
        let names = names.map(|(name, by)| (name.to_owned(), by.to_owned()));
        for (name, _) in &names {
            let used = rest.contains(&format!("${{{name}}}"));
            let said = text.lines().any(|l| l.starts_with('#') && l.contains(&format!("{name}=")));
            assert!(!used || said, "{unit}: {name} is not explained");
        }
        accepted(&arguments, &read("concertina.toml"), &names.into_iter().collect());
    }
}

/// The manifests, by a YAML reader in Python that the AWS CLI brings along.
fn manifests() -> Option<Vec<Value>> {
    let clients = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?.join("clients");
    let script =
        "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(sys.stdin.read()))))";
    let read = |python: &Path| {
        let file = std::fs::File::open(deploy().join("kubernetes/concertina.yaml")).unwrap();
        let output = Command::new(python).args(["-c", script]).stdin(file).output().ok()?;
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    };
    read(&clients.join("s3/bin/python")).or_else(|| read(Path::new("python3")))
}

#[test]
fn manifests_fit_together() {
    let Some(all) = manifests() else {
        return left_out(
            "manifests_fit_together",
            "no PyYAML; .ci/setup installs it with the AWS CLI",
        );
    };
    let of = |kind: &'static str| all.iter().filter(move |one| one["kind"] == kind);
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
        let known: Vec<&Value> = volumes
            .iter()
            .map(|volume| &volume["name"])
            .chain(claims.iter().map(|claim| &claim["metadata"]["name"]))
            .collect();
        let first = pod["initContainers"].as_array().into_iter().flatten();
        for one in first.chain([container]) {
            for mount in one["volumeMounts"].as_array().unwrap() {
                assert!(known.contains(&&mount["name"]), "{mount}");
            }
        }
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
    for service in of("Service") {
        let app = service["spec"]["selector"]["app"].as_str().unwrap();
        for port in service["spec"]["ports"].as_array().unwrap() {
            let target = port["targetPort"].as_str().unwrap();
            assert!(ports[app].iter().any(|name| name == target), "{app}: {target}");
        }
    }
    // Each etcd is one of the list's, and of those that know each other.
    let etcd = of("StatefulSet").find(|one| one["metadata"]["name"] == "concertina-etcd").unwrap();
    let arguments = etcd["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
    let replicas = etcd["spec"]["replicas"].as_u64().unwrap();
    for at in 0..replicas {
        let host =
            format!("concertina-etcd-{at}.{}", etcd["spec"]["serviceName"].as_str().unwrap());
        assert!(text.contains(&format!("\"http://{host}:2379\"")), "{host}");
        assert!(arguments.contains(&format!("concertina-etcd-{at}=http://{host}:2380")), "{host}");
    }
    assert_eq!(text.matches("-etcd:2379").count() as u64, replicas);
    // Budgets and policies are of pods that there are, and of ports that those have.
    for kind in ["PodDisruptionBudget", "NetworkPolicy"] {
        for one in of(kind) {
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
