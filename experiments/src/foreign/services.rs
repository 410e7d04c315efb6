//! The services, as processes on the processor of the services. They end with this process.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

use super::disk::Throttled;
use super::postgres::Database;
use crate::lab;
use crate::network::Network;
use crate::nginx::parts::SlowDisk;

/// Objects of a service.
const OBJECTS: u64 = 400;
/// Files of the slow disk: so many that next to none is read twice, because the page cache keeps what was read.
const DISK_OBJECTS: u64 = 4_000_000;
/// Burst of a limited link, bytes: two packets.
const BURST: u32 = 3_000;
/// A throttled disk, bytes, and what versitygw on it and the page cache that it uses may hold: less than its objects.
const DISK_BYTES: u64 = 256 << 20;
const DISK_MEMORY: u64 = 64 << 20;
/// Sizes of nginx's files there, KiB.
const BUFFERS: [usize; 5] = [128, 192, 256, 320, 384];
/// Objects of versitygw there.
const S3_DISK_OBJECTS: u64 = 1_000;
/// Bytes/s that a reply gets where each has a rate of its own.
const REPLY_RATE: u64 = 2_000_000;

/// A service of `config.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Service {
    pub name: String,
    pub kind: Kind,
    /// Processes, or connections to PostgreSQL.
    #[serde(default = "default_workers")]
    pub workers: u32,
    /// Its link.
    pub mbit_per_s: Option<f64>,
    /// Its disk, MB/s, by the kernel's I/O controller.
    pub disk_mb_per_s: Option<f64>,
    /// The mean time that the slow disk takes, that a query of PostgreSQL sleeps, or that a lock is held by a request that is alone.
    pub service_ms: Option<f64>,
    /// Requests/s, where a closed loop does not show it.
    pub capacity: Option<f64>,
    /// Clients of further closed loops, where the service carries less with more.
    #[serde(default)]
    pub closed_others: Vec<u32>,
    /// Seconds of each closed loop, where those of all are too few.
    pub closed_s: Option<f64>,
    pub fit_s: f64,
    pub judge_s: f64,
    /// Seconds of a short run, where those of all are too few.
    pub short_fit_s: Option<f64>,
    pub short_judge_s: Option<f64>,
    pub expected: Option<ServiceDescription>,
}

fn default_workers() -> u32 {
    1
}

/// What is known of a service beforehand.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServiceDescription {
    pub discipline: model::queue::Discipline,
    /// None for no limit.
    pub servers: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Compress,
    /// One line whose work grows with the number that wait.
    Collapse,
    Static,
    Rate,
    Disk,
    Memcached,
    Sqlite,
    /// PostgreSQL behind a process of Python with `workers` connections.
    Postgres,
    Versitygw,
    /// nginx that stores what is put (WebDAV).
    Dav,
    /// A node of ours with a dataset, asked for a word of some records: nothing but its replies is used.
    Dataset,
}

/// A running service, with what it stands on in the order in which it is to end.
pub(crate) struct Running {
    pub url: String,
    /// Arguments of every load.
    pub arguments: Vec<String>,
    processes: Vec<Process>,
    _network: Option<Network>,
    disk: Option<SlowDisk>,
    throttled: Option<Throttled>,
    _database: Option<Database>,
}

struct Process {
    child: Child,
    log: PathBuf,
    /// What ends it in order; it is killed if that takes seconds.
    ends: Signal,
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&self.child), self.ends);
        }
        for _ in 0..250 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// The processes.
    pub fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(|process| process.child.id()).collect()
    }

    /// Throttles its disk, if it is to be: once it has its objects.
    pub fn throttle(&self) -> anyhow::Result<()> {
        self.throttled.as_ref().map_or(Ok(()), Throttled::throttle)
    }

    /// An error if a process does not run any more.
    pub fn check(&mut self) -> anyhow::Result<()> {
        for process in &mut self.processes {
            if let Some(status) = process.child.try_wait()? {
                bail!("the service ended ({status}): {}", lab::tail(&process.log));
            }
        }
        self.disk.as_mut().map_or(Ok(()), SlowDisk::check)
    }
}

/// Starts a service with its files below `folder`; `own` is the folder of the experiment.
pub(crate) fn start(service: &Service, own: &Path, folder: &Path) -> anyhow::Result<Running> {
    fs::create_dir_all(folder)?;
    let network = match service.mbit_per_s {
        None => None,
        Some(mbit) => {
            let network = Network::make(1)?;
            network.limit(0, Some((mbit * 1e6, BURST)))?;
            Some(network)
        }
    };
    let address = match &network {
        Some(network) => network.address(0).to_string(),
        None => format!("127.0.0.1:{}", TcpListener::bind("127.0.0.1:0")?.local_addr()?.port()),
    };
    let throttled = match service.disk_mb_per_s {
        None => None,
        Some(mb) => {
            let memory = (service.kind == Kind::Versitygw).then_some(DISK_MEMORY);
            Some(Throttled::start(folder, DISK_BYTES, (mb * 1e6) as u64, memory)?)
        }
    };
    let starting = Starting {
        service,
        own,
        folder,
        network: network.as_ref(),
        throttled: throttled.as_ref(),
        address: &address,
    };
    let (mut running, disk) = match service.kind {
        Kind::Static | Kind::Rate | Kind::Disk | Kind::Dav => starting.nginx()?,
        Kind::Memcached => (starting.memcached()?, None),
        Kind::Sqlite | Kind::Compress => (starting.python(&[])?, None),
        Kind::Collapse => {
            let mean_ms =
                service.service_ms.context("a service that collapses needs service_ms")?;
            (starting.python(&[mean_ms.to_string()])?, None)
        }
        Kind::Postgres => (starting.postgres()?, None),
        Kind::Versitygw => (starting.versitygw()?, None),
        Kind::Dataset => (starting.dataset()?, None),
    };
    let dataset = (service.kind == Kind::Dataset).then(|| folder.join("files"));
    running.disk = disk;
    running._network = network;
    running.throttled = throttled;
    let until = Instant::now() + Duration::from_secs(20);
    while std::net::TcpStream::connect(&address).is_err() {
        running.check()?;
        ensure!(Instant::now() < until, "{} does not listen at {address}", service.name);
        std::thread::sleep(Duration::from_millis(20));
    }
    if let Some(files) = dataset {
        push(&files, &address)?;
    }
    Ok(running)
}

struct Starting<'a> {
    service: &'a Service,
    own: &'a Path,
    folder: &'a Path,
    network: Option<&'a Network>,
    throttled: Option<&'a Throttled>,
    address: &'a str,
}

impl Starting<'_> {
    /// A process that the kernel ends with this one.
    fn spawn(&self, program: &str, arguments: &[String]) -> anyhow::Result<Process> {
        let command: Vec<String> =
            [program.to_owned()].into_iter().chain(arguments.iter().cloned()).collect();
        self.spawn_with(&self.service.name, Signal::KILL, &command)
    }

    /// A process that a signal ends, by its command with options of `setpriv` before it.
    fn spawn_with(&self, name: &str, ends: Signal, words: &[String]) -> anyhow::Result<Process> {
        let log = self.folder.join(format!("{name}.log"));
        let setpriv = Path::new("setpriv");
        let mut command = match self.network {
            Some(network) => network.command(0, setpriv),
            None => Command::new(setpriv),
        };
        let child = command
            .args(["--pdeathsig", if ends == Signal::INT { "INT" } else { "KILL" }])
            .args(words)
            .stdin(Stdio::null())
            .stdout(File::create(self.folder.join(format!("{name}.out")))?)
            .stderr(File::create(&log)?)
            .spawn()
            .with_context(|| format!("cannot start {name} (setpriv is of util-linux)"))?;
        let process = Process { child, log, ends };
        if let Some(throttled) = self.throttled {
            throttled.add(process.child.id())?;
        }
        Ok(process)
    }

    fn running(&self, url: String, own: &[&str], process: Process) -> Running {
        let keys = ["--keys=uniform", "--key-format=k{i}", "--window=100ms", "--sample-one-in=0"];
        let mut arguments: Vec<String> = keys.iter().chain(own).map(|&a| a.to_owned()).collect();
        let count = match (self.service.kind, self.throttled) {
            (Kind::Disk, _) => DISK_OBJECTS,
            (Kind::Versitygw, Some(_)) => S3_DISK_OBJECTS,
            _ => OBJECTS,
        };
        arguments.push(format!("--count={count}"));
        Running {
            url,
            arguments,
            processes: vec![process],
            _network: None,
            disk: None,
            throttled: None,
            _database: None,
        }
    }

    fn nginx(&self) -> anyhow::Result<(Running, Option<SlowDisk>)> {
        let (root, disk) = match self.service.kind {
            Kind::Disk => {
                let mount = self.folder.join("mount");
                let mean = self.service.service_ms.context("service_ms is missing")?;
                let arguments = [
                    format!("--files={DISK_OBJECTS}"),
                    "--bytes=4096".to_owned(),
                    format!("--mean-ms={mean}"),
                ];
                let log = self.folder.join("slowdisk.log");
                let program = lab::helper("slowdisk")?;
                (mount.clone(), Some(SlowDisk::start(&program, &mount, &log, &arguments)?))
            }
            Kind::Dav => (self.files(1, 2)?, None),
            Kind::Rate => (self.files(8 << 10, 64 << 10)?, None),
            _ if self.throttled.is_some() => (self.files_of_buffers()?, None),
            _ => (self.files(2 << 10, 32 << 10)?, None),
        };
        let conf = self.folder.join("nginx.conf");
        fs::write(&conf, self.configuration(&root))?;
        let path = |p: &Path| p.display().to_string();
        let arguments = ["-p".to_owned(), path(self.folder), "-c".to_owned(), path(&conf)];
        let process = self.spawn("nginx", &arguments)?;
        let url = format!("http://{}/{{key}}", self.address);
        Ok((self.running(url, &[], process), disk))
    }

    /// Text files of sizes between two, log-uniform.
    fn files(&self, from: u64, to: u64) -> anyhow::Result<PathBuf> {
        let root = self.folder.join("files");
        let size = |object: u64| {
            let share = object as f64 / (OBJECTS - 1) as f64;
            (from as f64 * (to as f64 / from as f64).powf(share)) as usize
        };
        texts(&root, size)?;
        Ok(root)
    }

    /// On the throttled disk: files as large as one of `BUFFERS`, which the last digit of their number tells. nginx
    /// reads directly only what fills a buffer (the rest it reads through the page cache).
    fn files_of_buffers(&self) -> anyhow::Result<PathBuf> {
        let root = self.throttled.context("no throttled disk")?.mount().join("files");
        texts(&root, |object| BUFFERS[(object % 10 / 2) as usize] << 10)?;
        Ok(root)
    }

    fn configuration(&self, root: &Path) -> String {
        let (folder, root, address) = (self.folder.display(), root.display(), self.address);
        let service = self.service;
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("    {name}_temp_path {folder}/{name};\n"))
            .concat();
        let inside = match service.kind {
            Kind::Rate => format!("root {root};\n        limit_rate {REPLY_RATE};\n"),
            Kind::Disk => {
                // Read directly: a file fills a buffer.
                format!(
                    "root {root};\n        aio threads=disk;\n        directio 512;\n        output_buffers 1 4k;\n"
                )
            }
            // Each file in one read.
            Kind::Static if self.throttled.is_some() => {
                let mut all =
                    format!("root {root};\n        aio threads=disk;\n        directio 512;\n");
                for (digit, kib) in BUFFERS.iter().enumerate().map(|(i, kib)| (2 * i, kib)) {
                    let next = digit + 1;
                    all.push_str(&format!(
                        "        location ~ [{digit}{next}]$ {{ output_buffers 1 {kib}k; }}\n"
                    ));
                }
                all
            }
            Kind::Dav => {
                format!(
                    "root {root};\n        dav_methods PUT;\n        client_max_body_size 2g;\n"
                )
            }
            _ => format!("root {root};\n"),
        };
        format!(
            "daemon off;\nmaster_process {};\nworker_processes {};\nuser root;\npid \
             {folder}/nginx.pid;\nerror_log stderr error;\nthread_pool disk threads=256 max_queue=65536;\nevents \
             {{ worker_connections 8192; }}\nhttp {{\n    access_log off;\n    default_type \
             text/plain;\n{temporary}    sendfile off;\n    tcp_nodelay on;\n    keepalive_timeout \
             1d;\n    keepalive_requests 1000000000;\n    server {{\n        listen {address} \
             backlog=4096;\n        location / {{\n        {inside}        }}\n    }}\n}}\n",
            if service.workers > 1 { "on" } else { "off" },
            service.workers,
        )
    }

    fn memcached(&self) -> anyhow::Result<Running> {
        let (host, port) = self.address.rsplit_once(':').context("no port")?;
        let arguments = [
            "-u", "root", "-t", "1", "-c", "16384", "-m", "512", "-I", "4m", "-l", host, "-p", port,
        ];
        let process = self.spawn("memcached", &arguments.map(str::to_owned))?;
        let url = format!("memcached://{}", self.address);
        Ok(self.running(url, &["--size=2k..32k"], process))
    }

    /// PostgreSQL, and a process of Python before it.
    fn postgres(&self) -> anyhow::Result<Running> {
        let database = Database::new()?;
        let server = self.spawn_with("postgres", Signal::INT, &database.command()?)?;
        let wait_ms = self.service.service_ms.unwrap_or(0.0).to_string();
        let mut running = self.python(&[database.sockets().display().to_string(), wait_ms])?;
        running.processes.push(server);
        running._database = Some(database);
        Ok(running)
    }

    /// A process of Python, with as many workers as are asked for.
    fn python(&self, further: &[String]) -> anyhow::Result<Running> {
        let port = self.address.rsplit_once(':').context("no port")?.1.to_owned();
        let path = |p: PathBuf| p.display().to_string();
        let program = path(self.own.join("server.py"));
        let what = match self.service.kind {
            Kind::Compress => "compress".to_owned(),
            Kind::Collapse => "collapse".to_owned(),
            Kind::Postgres => "postgres".to_owned(),
            _ => path(self.folder.join("rows")),
        };
        let arguments =
            [&[program, what, port, self.service.workers.to_string()][..], further].concat();
        let process = self.spawn("python3", &arguments)?;
        Ok(self.running(format!("http://{}/{{key}}", self.address), &[], process))
    }

    /// A node with a dataset in one shard: records of twelve words, of which one in 400 is asked for.
    fn dataset(&self) -> anyhow::Result<Running> {
        let files = self.folder.join("files");
        let text = self.folder.join("records.txt");
        let mut all = String::new();
        let mut state = 7u64;
        for record in 0..RECORDS {
            all.push_str(&format!("Id: {record}\nWords:"));
            for _ in 0..12 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
                // Words of low numbers are more frequent.
                let share = (state >> 11) as f64 / (1u64 << 53) as f64;
                all.push_str(&format!(" k{}x", (share * share * OBJECTS as f64) as u64));
            }
            all.push_str("\n\n");
        }
        fs::write(&text, all)?;
        let status = Command::new(lab::program()?)
            .args(["data", "import"])
            .arg(&text)
            .args(["--format", "stanzas", "--name", "records", "--folder"])
            .arg(&files)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        ensure!(status.success(), "`data import` failed");
        let set = |key: &str, value: String| ["--set".to_owned(), format!("{key}={value}")];
        let path = |name: &str| self.folder.join(name).display().to_string();
        let arguments: Vec<String> = ["serve".to_owned(), "--role".to_owned(), "node".to_owned()]
            .into_iter()
            .chain(set("serve.listen", self.address.to_owned()))
            .chain(set("origin.path", path("origin")))
            .chain(set("datasets.path", path("copies")))
            .chain(set("datasets.layers_bytes", "0".to_owned()))
            .collect();
        let program = lab::program()?.display().to_string();
        let process = self.spawn(&program, &arguments)?;
        let what = "datasets/records/records?limit=10&query={key}";
        let mut running = self.running(format!("http://{}/{what}", self.address), &[], process);
        // Whole words.
        for argument in &mut running.arguments {
            if argument.starts_with("--key-format") {
                *argument = "--key-format=k{i}x".to_owned();
            }
        }
        Ok(running)
    }

    fn versitygw(&self) -> anyhow::Result<Running> {
        let data = self.throttled.map_or(self.folder, Throttled::mount).join("data");
        fs::create_dir_all(data.join("objects"))?;
        fs::create_dir_all(self.folder.join("iam"))?;
        let credentials = self.folder.join("credentials");
        let keys = "[default]\naws_access_key_id = foreign-access\naws_secret_access_key = foreign-secret\n";
        fs::write(&credentials, keys)?;
        let path = |p: &Path| p.display().to_string();
        let (iam, data) = (path(&self.folder.join("iam")), path(&data));
        let arguments = [
            "--port",
            self.address,
            "--access",
            "foreign-access",
            "--secret",
            "foreign-secret",
            "--quiet",
            "--iam-dir",
            &iam,
            "posix",
            &data,
        ];
        let program = versitygw_program()?;
        let process = self.spawn(&path(&program), &arguments.map(str::to_owned))?;
        let url = format!("s3://objects?endpoint=http://{}", self.address);
        let credentials = format!("--credentials={}", path(&credentials));
        let size = if self.throttled.is_some() { "--size=64k..256k" } else { "--size=4k..64k" };
        Ok(self.running(url, &[size, &credentials], process))
    }
}

/// Writes the objects, text files of given sizes, into a folder.
fn texts(root: &Path, size: impl Fn(u64) -> usize) -> anyhow::Result<()> {
    fs::create_dir_all(root)?;
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
        state >> 33
    };
    for object in 0..OBJECTS {
        let size = size(object);
        let mut text = String::with_capacity(size + 16);
        while text.len() < size {
            text.push_str(&format!("{:x} ", random() % 4096 * (1 + random() % 16)));
        }
        text.truncate(size);
        fs::write(root.join(format!("k{object}")), text)?;
    }
    Ok(())
}

/// Records of the dataset.
const RECORDS: u64 = 20_000;

/// Puts the dataset into a node, and waits until it is served.
fn push(files: &Path, address: &str) -> anyhow::Result<()> {
    let server = format!("http://{address}");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(lab::program()?);
        command.args(arguments).arg("--server").arg(&server).stdin(Stdio::null());
        Ok::<_, anyhow::Error>(
            command.stdout(Stdio::null()).stderr(Stdio::null()).status()?.success(),
        )
    };
    let files = files.display().to_string();
    ensure!(
        run(&["data", "push", "records", "--quiet", "--folder", &files])?,
        "`data push` failed"
    );
    let until = Instant::now() + Duration::from_secs(30);
    while !run(&["data", "get", "records", "0"])? {
        ensure!(Instant::now() < until, "the dataset is not served");
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Whether a service's objects are put by the load generator.
pub(crate) fn is_filled(kind: Kind) -> bool {
    matches!(kind, Kind::Memcached | Kind::Versitygw)
}

/// versitygw, which `.ci/setup` builds: from the path, or from Go's folder for programs.
pub(crate) fn versitygw_program() -> anyhow::Result<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.push(home.join("go/bin"));
    let found = folders.into_iter().map(|f| f.join("versitygw")).find(|p| p.is_file());
    found.context("this experiment lacks versitygw: .ci/setup builds it")
}
