//! The walk-through of `docs/cluster.md` on three machines, which are network namespaces: what it says is
//! what runs here. Then one machine is lost, and reads and writes go on.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::left_out::left_out;
use crate::serve_client::until_or;

/// A section of the documentation: its text, and its code blocks.
struct Section {
    text: String,
    blocks: Vec<String>,
}

fn section(heading: &str) -> Section {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cluster.md");
    let all = std::fs::read_to_string(path).unwrap();
    let begin = all.find(&format!("\n## {heading}\n")).expect("the section is there");
    let rest = &all[begin + 4..];
    let text = rest[..rest.find("\n## ").unwrap_or(rest.len())].to_owned();
    let mut blocks: Vec<String> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        let code = line.strip_prefix("    ");
        match (code, inside) {
            (Some(code), true) => {
                let block = blocks.last_mut().unwrap();
                block.push('\n');
                block.push_str(code);
            }
            (Some(code), false) => blocks.push(code.to_owned()),
            (None, _) => {}
        }
        inside = code.is_some();
    }
    Section { text, blocks }
}

fn ip(arguments: &str) -> Result<String, String> {
    let done = Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .map_err(|error| error.to_string())?;
    match done.status.success() {
        true => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
        false => Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&done.stderr))),
    }
}

/// A machine: a network namespace, and what was started in it.
struct Machine {
    /// As the documentation sets it: `NAME=a IP=10.0.0.1`.
    variables: String,
    namespace: String,
    folder: PathBuf,
    started: Option<Child>,
}

impl Machine {
    /// The shell's text with the paths of this machine.
    fn script(&self, text: &str) -> String {
        let (own, shared) = (self.folder.display(), self.folder.parent().unwrap().display());
        let text = text
            .replace("/srv/origin", &format!("{shared}/origin"))
            .replace("/etc/concertina", &shared.to_string())
            .replace("/srv/device", &format!("{own}/device"))
            .replace("/var/lib/etcd", &format!("{own}/etcd"));
        assert!(!text.contains(" /srv") && !text.contains("=/srv"), "{text}");
        // The first machine's are there in the text.
        let lines = text.lines().filter(|line| !line.starts_with("NAME="));
        format!("{}\n{}", self.variables, lines.collect::<Vec<_>>().join("\n"))
    }

    fn command(&self, script: &str) -> Command {
        let program = Path::new(env!("CARGO_BIN_EXE_concertina"));
        let path =
            format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace, "sh", "-e", "-c", script]);
        command.env("PATH", path).stdin(Stdio::null());
        command
    }

    /// Starts what the documentation leaves in the background.
    fn start(&mut self, block: &str) {
        let log = std::fs::File::create(self.folder.join("log")).unwrap();
        let script = format!("{}\nwait", self.script(block));
        let mut command = self.command(&script);
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.started = Some(command.spawn().unwrap());
    }

    fn run(&self, block: &str) -> Output {
        self.command(&self.script(block)).output().unwrap()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// The machine is gone: its processes, and its link.
    fn lose(&mut self) {
        let _ = ip(&format!("-n {} link set eth0 down", self.namespace));
        // Those in this namespace are those that were started here.
        for pid in ip(&format!("netns pids {}", self.namespace)).unwrap_or_default().lines() {
            let _ = Command::new("kill").args(["-KILL", pid]).status();
        }
        if let Some(mut started) = self.started.take() {
            let _ = started.wait();
        }
    }
}

/// Three machines and what connects them, in a namespace of its own: their addresses are nobody else's.
struct Machines {
    hub: String,
    all: Vec<Machine>,
}

impl Machines {
    fn new(variables: &[String], folder: &Path) -> Result<Machines, String> {
        let hub = format!("ck{}hub", std::process::id());
        // Not permitted everywhere; whoever may do this may do the rest.
        ip(&format!("netns add {hub}"))?;
        let mut machines = Machines { hub, all: Vec::new() };
        let hub = machines.hub.clone();
        let does = |arguments: String| ip(&arguments).unwrap();
        does(format!("-n {hub} link add name br0 type bridge"));
        does(format!("-n {hub} link set br0 up"));
        for variables in variables {
            let (name, address) = variables.split_once(' ').unwrap();
            let name = name.strip_prefix("NAME=").unwrap();
            let address = address.strip_prefix("IP=").unwrap();
            let namespace = format!("ck{}{name}", std::process::id());
            does(format!("netns add {namespace}"));
            let folder = folder.join(name);
            std::fs::create_dir(&folder).unwrap();
            let (variables, started) = (variables.clone(), None);
            let machine = Machine { variables, namespace: namespace.clone(), folder, started };
            machines.all.push(machine);
            let end = format!("to-{name}");
            does(format!(
                "-n {hub} link add name {end} type veth peer name eth0 netns {namespace}"
            ));
            does(format!("-n {hub} link set {end} master br0 up"));
            does(format!("-n {namespace} address add {address}/24 dev eth0"));
            does(format!("-n {namespace} link set eth0 up"));
            does(format!("-n {namespace} link set lo up"));
        }
        Ok(machines)
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        self.all.iter_mut().for_each(Machine::lose);
        for namespace in self.all.iter().map(|machine| &machine.namespace).chain([&self.hub]) {
            let _ = ip(&format!("netns delete {namespace}"));
        }
    }
}

fn output_text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Runs commands until they succeed; returns what they printed, and after how long.
fn runs(machine: &Machine, block: &str, what: &str) -> (String, Duration) {
    let begun = Instant::now();
    let last = std::cell::RefCell::new(String::new());
    let why = || format!("{}: {}", last.borrow(), machine.log());
    until_or(what, why, || {
        let output = machine.run(block);
        *last.borrow_mut() = output_text(&output);
        output.status.success()
    });
    (last.into_inner(), begun.elapsed())
}

#[test]
fn the_walk_through_of_three_machines_works() {
    for program in ["etcd", "curl", "ip"] {
        let found =
            Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap();
        if !found.status.success() {
            return left_out("machines", &format!("{program} is not installed"));
        }
    }
    let Section { text, blocks } = section("Three machines");
    let [config, start, put, get, status] = &blocks[..] else {
        panic!("{} blocks: {blocks:#?}", blocks.len());
    };
    let begins = text.match_indices("NAME=").map(|(at, _)| &text[at..]);
    let variables = begins.map(|at| at[..at.find(['`', '\n']).unwrap()].to_owned());
    let mut variables: Vec<String> = variables.collect();
    variables.sort();
    assert_eq!(variables.len(), 3, "{variables:?}");

    let folder = tempfile::tempdir().unwrap();
    let mut machines = match Machines::new(&variables, folder.path()) {
        Ok(machines) => machines,
        Err(why) => return left_out("machines", &format!("no network namespaces here: {why}")),
    };
    let name = config.lines().next().unwrap().strip_prefix("# /etc/concertina/").unwrap();
    std::fs::create_dir(folder.path().join("origin")).unwrap();
    let config = machines.all[0].script(config);
    let config = config.split_once('\n').unwrap().1;
    std::fs::write(folder.path().join(name), config).unwrap();
    machines.all.iter_mut().for_each(|machine| machine.start(start));

    // Each gateway takes an object, and has all three.
    for machine in &machines.all {
        runs(machine, put, "a put");
    }
    for machine in &machines.all {
        let (read, _) = runs(machine, get, "a get");
        for name in ["a", "b", "c"] {
            assert!(read.contains(&format!("hello from {name}")), "{read}");
        }
    }
    let members = || runs(&machines.all[0], status, "the status").0;
    let live = || members().lines().filter(|line| line.contains(":7071: live")).count() == 3;
    until_or("three members", members, live);

    // One is lost. The others read and write on, though etcd may have to elect another leader.
    machines.all[2].lose();
    for machine in &machines.all[..2] {
        let (read, reads) = runs(machine, get, "a get without the third machine");
        assert!(read.contains("hello from c"), "{read}");
        let (_, writes) = runs(machine, put, "a put without the third machine");
        println!("{}: reads after {reads:?}, writes after {writes:?}", machine.variables);
    }
}
