//! Clients that know nothing of the proxy: memcapable, pymemcache, pylibmc, gomemcache. `.ci/setup`
//! installs them. (A client in Java: `tests/clients/java`; the clients' own tests and memcached's: `memcached_suites`.)

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::proxy;
use crate::left_out::left_out;
use crate::measure::Running;
use crate::measure_protocols::memcached;

/// Proxies over one server, over three, and over three with copies of everything; with the servers.
fn proxies(test: &str) -> Option<(Vec<Running>, Vec<String>)> {
    let servers: Option<Vec<_>> = (0..3).map(|_| memcached(test)).collect();
    let (mut running, names): (Vec<Running>, Vec<String>) = servers?.into_iter().unzip();
    let mut ports = Vec::new();
    for (servers, routing) in [(1, "hash"), (3, "hash"), (3, "replicated"), (3, "hash_replicas")] {
        let routing = format!("pool.0.routing={routing}");
        let (process, address) = proxy(&names[..servers], &[&routing]);
        running.push(process);
        ports.push(address.rsplit(':').next().unwrap().to_owned());
    }
    Some((running, ports))
}

pub fn output_text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

#[test]
fn memcapable_finds_nothing_to_object_to() {
    const TEST: &str = "memcached_proxy::clients::memcapable_finds_nothing_to_object_to";
    // Debian's name, and that of libmemcached.
    let name = ["memccapable", "memcapable"]
        .into_iter()
        .find(|name| Command::new(name).arg("-h").output().is_ok());
    let Some(name) = name else {
        return left_out(TEST, "memccapable cannot be run (apt-get install libmemcached-tools)");
    };
    let Some((_running, ports)) = proxies(TEST) else { return };
    for port in ports {
        let output = Command::new(name)
            .args(["-h", "127.0.0.1", "-p", &port, "-a", "-t", "20"])
            .output()
            .unwrap();
        assert!(
            output.status.success() && !output_text(&output).contains("FAIL"),
            "{}",
            output_text(&output)
        );
    }
}

/// The folder with clients' sources.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}

/// The folder into which `.ci/setup` installs them.
pub fn installed() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("clients")
}

/// The programs that use a server, with all but its port.
pub fn programs(test: &str) -> Vec<Command> {
    let mut commands = Vec::new();
    let python = installed().join("python/bin/python");
    if python.exists() {
        let mut command = Command::new(python);
        command.arg(sources().join("clients.py"));
        commands.push(command);
    } else {
        left_out(test, "pymemcache and pylibmc are not installed (sh .ci/setup)");
    }
    let go = installed().join("go-client");
    if go.exists() {
        commands.push(Command::new(go));
    } else {
        left_out(test, "gomemcache is not built (sh .ci/setup)");
    }
    commands
}

#[test]
fn clients_in_python_and_go_need_no_change() {
    const TEST: &str = "memcached_proxy::clients::clients_in_python_and_go_need_no_change";
    let commands = programs(TEST);
    if commands.is_empty() {
        return;
    }
    let Some((_running, ports)) = proxies(TEST) else { return };
    for port in ports {
        for command in &commands {
            let mut again = Command::new(command.get_program());
            let output = again.args(command.get_args()).arg(&port).output().unwrap();
            assert!(output.status.success(), "{command:?}: {}", output_text(&output));
        }
    }
}
