//! Outages that can be seen, names that are looked up again, and pools that are read again.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{signal, talk};
use crate::measure::Running;
use crate::measure_protocols::memcached;
use crate::serve_client::{Client, until};

/// A proxy of a configuration file, with its log in a file.
pub(super) struct Proxy {
    pub(super) folder: tempfile::TempDir,
    process: Running,
    http: String,
    address: String,
}

impl Proxy {
    pub(super) fn start(pools: &str) -> Proxy {
        let folder = tempfile::tempdir().unwrap();
        let proxy = |folder: &tempfile::TempDir| {
            let log = std::fs::File::create(folder.path().join("log")).unwrap();
            let mut child = Command::new(env!("CARGO_BIN_EXE_concertina"))
                .args(["serve", "--json", "--config", "proxy.toml"])
                .current_dir(folder.path())
                .stdout(Stdio::piped())
                .stderr(log)
                .spawn()
                .unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            (Running(child), serde_json::from_str::<serde_json::Value>(&line).unwrap())
        };
        write(&folder, pools);
        let (process, json) = proxy(&folder);
        let text = |name: &str| json[name].as_str().unwrap().to_owned();
        Proxy { folder, process, http: text("address"), address: text("memcached") }
    }

    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// Whether `/metrics` says that a server fails.
    fn counts_a_fault(&self) -> bool {
        let metrics = Client::connect(self.http.parse().unwrap()).get("/metrics").text();
        metrics.contains("concertina_degraded{what=\"server\"} 1\n")
    }

    /// The status and the body of `/readyz`.
    pub(super) fn ready(&self) -> (u16, String) {
        let reply = Client::connect(self.http.parse().unwrap()).get("/readyz");
        (reply.status, reply.text())
    }

    pub(super) fn hang_up(&self) {
        signal("-HUP", self.process.0.id());
    }

    pub(super) fn ask(&self, commands: &str) -> String {
        talk(&self.address, format!("{commands}quit\r\n").as_bytes(), 100_000)
    }
}

pub(super) fn write(folder: &tempfile::TempDir, pools: &str) {
    let head = "[serve]\nrole = \"proxy\"\nlisten = \"127.0.0.1:0\"\n[memcached]\nlisten = \"127.0.0.1:0\"\nping_s = 0.05\n";
    std::fs::write(folder.path().join("proxy.toml"), format!("{head}{pools}")).unwrap();
}

#[test]
fn an_outage_is_told_once_with_its_end() {
    const TEST: &str = "memcached_proxy::outages::an_outage_is_told_once_with_its_end";
    let servers: Option<Vec<_>> = (0..2).map(|_| memcached(TEST)).collect();
    let Some(mut servers) = servers else { return };
    let names: Vec<String> = servers.iter().map(|(_, address)| address.clone()).collect();
    let proxy = Proxy::start(&format!(
        "[[pool]]\nservers = [\"{} name=a\", \"{} name=b\"]\nrouting = \"replicated\"\n",
        names[0], names[1]
    ));
    assert_eq!(proxy.ask("set k 0 0 1\r\nx\r\nget k nope\r\n").lines().count(), 4);
    assert_eq!(proxy.ready().0, 200);
    assert!(!proxy.counts_a_fault());
    let port = names[1].rsplit(':').next().unwrap().to_owned();
    drop(servers.pop());
    until("the failure", || {
        proxy.ask("set k 0 0 1\r\ny\r\n");
        proxy.log().contains("the server b failed: ")
    });
    let (status, text) = proxy.ready();
    assert!(status == 200 && text.contains("1 of 2 servers of the pool main fail (b: "), "{text}");
    assert!(proxy.counts_a_fault());
    let arguments = ["status", "--server", &format!("http://{}", proxy.http)];
    let output = Command::new(env!("CARGO_BIN_EXE_concertina")).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("pool main: ") && text.contains("; failed: "), "{text}");
    let again = Command::new("memcached")
        .args(["-l", "127.0.0.1", "-p", &port, "-U", "0", "-u", "root"])
        .spawn()
        .unwrap();
    let _again = Running(again);
    until("its end", || proxy.log().contains("the server b answers again after "));
    assert_eq!(proxy.log().matches("the server b failed: ").count(), 1, "{}", proxy.log());
    // Hits and misses add up, until they are reset.
    let stats = proxy.ask("stats\r\n");
    for line in ["cmd_get 2", "get_hits 1", "get_misses 1"] {
        assert!(stats.contains(&format!("STAT {line}\r\n")), "{line}: {stats}");
    }
    let version = proxy.ask("version\r\n").replace("VERSION ", "STAT version ");
    assert!(stats.contains(&version), "{stats}");
    assert!(proxy.ask("stats reset\r\nstats\r\n").contains("STAT cmd_get 0\r\n"));
}

#[test]
fn a_name_that_is_not_known_does_not_stop_the_others() {
    const TEST: &str =
        "memcached_proxy::outages::a_name_that_is_not_known_does_not_stop_the_others";
    let Some((_server, address)) = memcached(TEST) else { return };
    let port = address.rsplit(':').next().unwrap();
    // It has two addresses where the machine has IPv6, and listens at one of them.
    let proxy = Proxy::start(&format!(
        "[[pool]]\nname = \"known\"\nservers = [\"localhost:{port}\"]\n[[pool]]\nname = \"other\"\n\
         servers = [\"no-such-host.invalid:11211\"]\n[[route]]\nprefix = \"\"\npool = \"known\"\n\
         [[route]]\nprefix = \"o:\"\npool = \"other\"\n"
    ));
    assert_eq!(proxy.ask("set k 0 0 1\r\nx\r\n"), "STORED\r\n");
    until("the failure", || proxy.ask("get o:k\r\n").starts_with("SERVER_ERROR "));
    until("its reason", || proxy.ready().1.contains("its name is not known"));
    until("its line", || proxy.log().contains("the server no-such-host.invalid:11211 failed: "));
    let (status, text) = proxy.ready();
    assert!(status == 503 && text.contains("no-such-host.invalid"), "{text}");
    assert_eq!(proxy.ask("get k\r\n"), "VALUE k 0 1\r\nx\r\nEND\r\n");
}

#[test]
fn pools_are_read_again_and_clients_stay() {
    const TEST: &str = "memcached_proxy::outages::pools_are_read_again_and_clients_stay";
    let servers: Option<Vec<_>> = (0..2).map(|_| memcached(TEST)).collect();
    let Some(servers) = servers else { return };
    let pool = |at: usize| format!("[[pool]]\nservers = [\"{} name=a\"]\n", servers[at].1);
    let proxy = Proxy::start(&pool(0));
    let mut client = TcpStream::connect(&proxy.address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let read = |client: &mut TcpStream, expected: &str| {
        let mut reply = vec![0; expected.len()];
        client.read_exact(&mut reply).unwrap();
        assert_eq!(String::from_utf8_lossy(&reply), expected);
    };
    client.write_all(b"set k 0 0 1\r\nx\r\n").unwrap();
    read(&mut client, "STORED\r\n");
    // A file with mistakes: the pool that was is kept.
    write(&proxy.folder, "[[pool]]\nservers = []\n");
    proxy.hang_up();
    until("the mistake", || proxy.log().contains("the configuration in use is kept"));
    client.write_all(b"get k\r\n").unwrap();
    read(&mut client, "VALUE k 0 1\r\nx\r\nEND\r\n");
    // Half of a request is read before, the rest after.
    talk(&servers[1].1, b"set k 0 0 3\r\nold\r\nquit\r\n", 1000);
    client.write_all(b"set l 0 0 5\r\nhe").unwrap();
    write(&proxy.folder, &format!("{}[observe]\nwindow_s = 3.0\n", pool(1)));
    proxy.hang_up();
    until("the other pool", || proxy.log().contains("are in use now"));
    // What a reload does not take is told.
    until("the rest", || proxy.log().contains("in use from the next start on: observe.window_s"));
    client.write_all(b"llo\r\n").unwrap();
    // Until the server of the same name is emptied, which may have old values, it is not read.
    until("the flush", || talk(&servers[1].1, b"get k\r\nquit\r\n", 1000) == "END\r\n");
    let mut reply = [0; 256];
    let count = client.read(&mut reply).unwrap();
    let said = String::from_utf8_lossy(&reply[..count]).into_owned();
    assert!(said == "STORED\r\n" || said.starts_with("SERVER_ERROR "), "{said}");
    assert_eq!(talk(&servers[0].1, b"get l\r\nquit\r\n", 1000), "END\r\n");
    until("the new server", || proxy.ask("set m 0 0 1\r\nm\r\nget m\r\n").contains("VALUE m "));
    assert!(talk(&servers[1].1, b"get m\r\nquit\r\n", 1000).contains("VALUE m "));
}
