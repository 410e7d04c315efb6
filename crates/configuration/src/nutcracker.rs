//! The configuration of twemproxy (`nutcracker.yml`), translated to ours.
//!
//! Source: twemproxy 0.5, `nc_conf.c`. Values are text there whatever YAML takes them for, so the file is read as events.
//! What cannot be meant here (Redis, `random`, a name that would place keys elsewhere) is an error; what has another
//! meaning here is translated to the nearest, with a warning that says what differs.

use std::fmt::Write as _;

use engine::pool::{Distribution, Hash};
use saphyr_parser::{Event, Parser};

use super::error::Error;

/// A translation.
#[derive(Debug)]
pub struct Translation {
    /// Our configuration, in TOML.
    pub text: String,
    /// What differs from twemproxy, a sentence each.
    pub warnings: Vec<String>,
}

/// A pool of the file.
#[derive(Debug, Default)]
struct YamlPool {
    name: String,
    /// Directives with their values and lines, in order.
    directives: Vec<Directive>,
    servers: Vec<String>,
}

#[derive(Debug)]
struct Directive {
    key: String,
    value: String,
    line: usize,
}

/// A server of the file.
struct YamlServer {
    address: String,
    weight: u32,
    name: Option<String>,
}

/// Directives that have no counterpart and need none, and the value at which they mean nothing.
const IDLE: [(&str, &str, &str); 6] = [
    ("backlog", "", "the queue of connections that wait to be accepted has 4096 places"),
    ("client_connections", "0", "bound them by memcached.connections_max"),
    ("tcpkeepalive", "false", "clients that stop in a request are closed after memcached.stall_s"),
    ("reuseport", "false", "one process serves its port with several threads"),
    ("preconnect", "false", "connections to servers are made when they are first needed"),
    ("server_connections", "1", "each thread has one connection to each server"),
];

/// Translates the pool of a `nutcracker.yml`: its only one, or that with a name.
///
/// # Errors
/// The text is not YAML of twemproxy's form, has several pools of which none was chosen, or asks for something that this
/// proxy does not have. The message says where and what to do.
pub fn translate(text: &str, pool: Option<&str>) -> Result<Translation, Error> {
    let pools = read(text)?;
    let names = || pools.iter().map(|pool| pool.name.as_str()).collect::<Vec<_>>().join(", ");
    let chosen = match (pool, &*pools) {
        (_, []) => return Err(Error::NoPools),
        (Some(name), pools) => pools
            .iter()
            .find(|pool| pool.name == name)
            .ok_or_else(|| Error::UnknownPool { name: name.to_owned(), names: names() })?,
        (None, [one]) => one,
        (None, pools) => {
            return Err(Error::SeveralPools { count: pools.len(), names: names() });
        }
    };
    let unusable = |source: Error| Error::Pool { name: chosen.name.clone(), source: source.into() };
    chosen.translate().map_err(unusable)
}

/// The pools of a file.
fn read(text: &str) -> Result<Vec<YamlPool>, Error> {
    let mut pools: Vec<YamlPool> = Vec::new();
    // How many mappings and sequences are open, and the key whose value comes next.
    let (mut depth, mut key) = (0, None::<String>);
    for next in Parser::new_from_str(text) {
        let (event, span) = next.map_err(|error| Error::Yaml(error.to_string()))?;
        let line = span.start.line();
        let wrong = |what: &str| Error::Line { line, what: what.to_owned() };
        match event {
            Event::MappingStart(..) => {
                if depth >= 2 {
                    return Err(wrong("a mapping inside of a pool"));
                }
                if depth == 1 {
                    let name = key.take().ok_or_else(|| wrong("a pool without a name"))?;
                    pools.push(YamlPool { name, ..YamlPool::default() });
                }
                depth += 1;
            }
            Event::SequenceStart(..) => {
                if depth != 2 || key.as_deref() != Some("servers") {
                    return Err(wrong("an unexpected list"));
                }
                depth += 1;
            }
            Event::MappingEnd | Event::SequenceEnd => {
                depth -= 1;
                key = None;
            }
            Event::Scalar(text, ..) => match (depth, key.take()) {
                (1 | 2, None) => key = Some(text.into_owned()),
                (2, Some(key)) => {
                    let pool = pools.last_mut();
                    let pool = pool.ok_or_else(|| wrong("a directive outside of a pool"))?;
                    if pool.directives.iter().any(|other| other.key == key) {
                        return Err(wrong(&format!("{key:?} is a duplicate")));
                    }
                    pool.directives.push(Directive { key, value: text.into_owned(), line });
                }
                (3, of) => {
                    let pool = pools.last_mut();
                    let pool = pool.ok_or_else(|| wrong("a server outside of a pool"))?;
                    pool.servers.push(text.into_owned());
                    key = of;
                }
                _ => {
                    let what = format!("{text:?} is not expected here; pools have directives");
                    return Err(wrong(&what));
                }
            },
            Event::Alias(_) => return Err(wrong("aliases are not supported")),
            _ => {}
        }
    }
    Ok(pools)
}

impl YamlPool {
    fn translate(&self) -> Result<Translation, Error> {
        let mut warnings = Vec::new();
        for directive in &self.directives {
            directive.check(&mut warnings)?;
        }
        let listen = self.value("listen").ok_or_else(|| invalid("\"listen\" is missing"))?;
        let listen = listen_address(listen, &mut warnings)?;
        let hash: Hash = parse_value("hash", self.value("hash").unwrap_or("fnv1a_64"))?;
        let distribution = self.value("distribution").unwrap_or("ketama");
        let ring: Distribution = parse_value("distribution", distribution)?;
        let tag = self.value("hash_tag").unwrap_or_default();
        if !tag.is_empty() && tag.len() != 2 {
            return Err(invalid(format!("hash_tag {tag:?} must have two characters")));
        }
        if self.servers.is_empty() {
            return Err(invalid("the pool has no servers"));
        }
        let mut servers = Vec::new();
        for text in &self.servers {
            servers.push(server(text)?.listed(&mut warnings));
        }
        let ejects = self.is("auto_eject_hosts")?;
        self.warn_of_ejection(ejects, ring, &mut warnings);
        let timeout_s = self.timeout_s(&mut warnings)?;
        let mut text = format!("# Translated from the pool {:?} of twemproxy.\n", self.name);
        for warning in &warnings {
            let _ = writeln!(text, "# - {warning}");
        }
        let string = |text: &str| toml::Value::from(text).to_string();
        let _ = write!(
            text,
            "[serve]\nrole = \"proxy\"\n\n[memcached]\nlisten = {}\n",
            string(&listen.address)
        );
        if listen.is_open {
            text += "unauthenticated = true\n";
        }
        if timeout_s >= 5.0 {
            let _ = writeln!(text, "deadline_s = {:.1}", timeout_s * 2.0);
        }
        let name = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
        let name: String = self.name.chars().map(name).take(64).collect();
        let _ = write!(text, "\n[[pool]]\nname = {}\nservers = [\n", string(&name));
        for server in &servers {
            let _ = writeln!(text, "    {},", string(server));
        }
        let ring = serde_name(ring)?;
        let _ = write!(text, "]\nring = \"{ring}\"\nhash = \"{}\"\n", hash.as_str());
        if !tag.is_empty() {
            let _ = writeln!(text, "hash_tag = {}", string(tag));
        }
        let on_failure = if ejects { "move" } else { "error" };
        let _ = write!(text, "on_failure = \"{on_failure}\"\ntimeout_s = {timeout_s:?}\n");
        Ok(Translation { text, warnings })
    }

    fn value(&self, key: &str) -> Option<&str> {
        let found = self.directives.iter().find(|directive| directive.key == key);
        found.map(|directive| directive.value.as_str())
    }

    fn is(&self, key: &str) -> Result<bool, Error> {
        match self.value(key) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => Err(invalid(format!("{key} is {other:?}; write true or false"))),
        }
    }

    fn timeout_s(&self, warnings: &mut Vec<String>) -> Result<f64, Error> {
        let Some(text) = self.value("timeout") else {
            warnings.push(
                "twemproxy without a timeout waits for ever; here a request to a server fails after timeout_s, and a client's \
                 after memcached.deadline_s"
                    .to_owned(),
            );
            return Ok(1.0);
        };
        let milliseconds: u32 = text
            .parse()
            .map_err(|_| invalid(format!("timeout is {text:?}; write a number of milliseconds")))?;
        Ok(f64::from(milliseconds.clamp(1, 3_600_000)) / 1e3)
    }

    fn warn_of_ejection(&self, ejects: bool, ring: Distribution, warnings: &mut Vec<String>) {
        if !ejects {
            return;
        }
        let limit = self.value("server_failure_limit").unwrap_or("2");
        let retry = self.value("server_retry_timeout").unwrap_or("30000");
        warnings.push(format!(
            "auto_eject_hosts is on_failure = \"move\": a server is left out at its first failure, not its {limit}. in a row, and \
             taken back when it answers a ping (every memcached.ping_s), not after {retry} ms; it is emptied first, so that no old \
             value is read (flush_on_return)"
        ));
        if ring == Distribution::Modula {
            warnings.push(
                "with modula twemproxy gives nearly every key another server while one is ejected; here only the keys of that \
                 server move"
                    .to_owned(),
            );
        }
    }
}

impl Directive {
    fn check(&self, warnings: &mut Vec<String>) -> Result<(), Error> {
        let Directive { key, value, line } = self;
        let wrong = |what: String| Err(Error::Line { line: *line, what });
        match key.as_str() {
            "redis" if value == "true" => {
                let what = "redis: true: this proxy speaks memcached's protocol; keep twemproxy for this pool";
                return wrong(what.to_owned());
            }
            // As a list, it is no directive (`read`).
            "servers" => {
                let what =
                    "servers is not a list; write a line \"- host:port:weight\" for each server";
                return wrong(what.to_owned());
            }
            "redis_auth" | "redis_db" => {
                return wrong(format!("{key} is only valid for a Redis pool"));
            }
            "listen"
            | "hash"
            | "hash_tag"
            | "distribution"
            | "timeout"
            | "redis"
            | "auto_eject_hosts"
            | "server_retry_timeout"
            | "server_failure_limit" => {}
            _ => match IDLE.iter().find(|(name, ..)| name == key) {
                Some((_, idle, why)) if value != idle => {
                    warnings.push(format!("{key}: {value} has no counterpart: {why}"));
                }
                Some(_) => {}
                None => return wrong(format!("{key:?} is not a directive of twemproxy")),
            },
        }
        Ok(())
    }
}

/// Where clients connect.
struct Listen {
    address: String,
    /// Whether others than this machine reach it.
    is_open: bool,
}

fn listen_address(text: &str, warnings: &mut Vec<String>) -> Result<Listen, Error> {
    if text.starts_with('/') {
        let (path, mode) = text.rsplit_once(' ').unwrap_or((text, ""));
        if !mode.is_empty() {
            warnings.push(format!(
                "the permissions {mode} of the socket are not set; protect its folder instead"
            ));
        }
        return Ok(Listen { address: format!("unix:{path}"), is_open: false });
    }
    let host_port = text.rsplit_once(':');
    let (host, port) = host_port.ok_or_else(|| invalid("listen needs a host and a port"))?;
    let wrong = |error| invalid(format!("listen has the port {port:?}: {error}"));
    let port = port.parse::<u16>().map_err(wrong)?;
    let host = host.trim_matches(['[', ']']);
    let is_loopback = |ip: std::net::IpAddr| ip.is_loopback();
    let is_open = host != "localhost" && !host.parse().is_ok_and(is_loopback);
    if is_open {
        warnings.push(format!(
            "{text} can be reached by others, and memcached's protocol has no credentials: make sure that only your applications \
             can (memcached.unauthenticated)"
        ));
    }
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    Ok(Listen { address: format!("{host}:{port}"), is_open })
}

/// Reads `host:port:weight [name]` or `/path:weight [name]`, from the end as twemproxy does.
fn server(text: &str) -> Result<YamlServer, Error> {
    let other_form = || Error::YamlServer(text.to_owned());
    let (place, name) = match text.rsplit_once(' ') {
        Some((place, name)) => (place, Some(name.to_owned())),
        None => (text, None),
    };
    let (address, weight) = place.rsplit_once(':').ok_or_else(other_form)?;
    let weight = weight.parse::<u32>().ok().filter(|weight| *weight > 0).ok_or_else(other_form)?;
    if weight > 1000 {
        return Err(Error::Weight { text: text.to_owned(), weight });
    }
    if let Some(path) = address.strip_prefix('/') {
        // Its name without one: with the colon, which a port would follow.
        let name = name.unwrap_or_else(|| format!("{address}:"));
        if path.is_empty() {
            return Err(other_form());
        }
        return Ok(YamlServer { address: format!("unix:{address}"), weight, name: Some(name) });
    }
    let (host, port) = address.rsplit_once(':').ok_or_else(other_form)?;
    let port = port.parse::<u16>().map_err(|_| other_form())?;
    if host.contains(':') {
        // Without brackets in its name, as the file has it.
        let plain = if port == 11211 { host.to_owned() } else { address.to_owned() };
        let name = name.or(Some(plain));
        return Ok(YamlServer { address: format!("[{host}]:{port}"), weight, name });
    }
    Ok(YamlServer { address: address.to_owned(), weight, name })
}

impl YamlServer {
    /// The server as a pool lists it.
    fn listed(&self, warnings: &mut Vec<String>) -> String {
        let mut text = self.address.clone();
        if self.weight > 1 {
            let _ = write!(text, " weight={}", self.weight);
        }
        let Some(name) = &self.name else { return text };
        if name.ends_with(":11211") {
            warnings.push(format!(
                "the server named {name:?} is placed without \":11211\" here, and with it by twemproxy: its keys start cold"
            ));
        }
        let _ = write!(text, " name={name}");
        text
    }
}

fn invalid(what: impl Into<String>) -> Error {
    Error::Directive(what.into())
}

/// A value that has the same name in both configurations.
fn parse_value<T: serde::de::DeserializeOwned>(key: &str, name: &str) -> Result<T, Error> {
    let value = toml::Value::from(name);
    value
        .try_into()
        .map_err(|error: toml::de::Error| invalid(format!("{key}: {}", error.message())))
}

fn serde_name(value: impl serde::Serialize) -> Result<String, Error> {
    let value = toml::Value::try_from(value)?;
    Ok(value.as_str().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    const FILE: &str = "
alpha:
  listen: 127.0.0.1:22121
  hash: fnv1a_64
  distribution: ketama
  auto_eject_hosts: true
  server_retry_timeout: 2000
  server_failure_limit: 1
  timeout: 400
  redis: false
  hash_tag: \"{}\"
  servers:
   - 127.0.0.1:11211:1
   - cache.example:11212:3 b
gamma:
  listen: 0.0.0.0:22123
  hash: jenkins
  distribution: modula
  server_connections: 4
  servers: [\"/var/run/mc.sock:2\", '10.0.0.1:11211:1 s:11211']
";

    fn checked(text: &str, pool: Option<&str>) -> (Config, Vec<String>) {
        let translation = translate(text, pool).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("proxy.toml");
        std::fs::write(&path, &translation.text).unwrap();
        let config = Config::load(Some(&path), &[]);
        (
            config.unwrap_or_else(|error| panic!("{error}\n{}", translation.text)),
            translation.warnings,
        )
    }

    #[test]
    fn a_pool_is_translated_with_what_differs() {
        let (config, warnings) = checked(FILE, Some("alpha"));
        let pool = &config.pools[0];
        assert_eq!(config.memcached.listen, "127.0.0.1:22121");
        assert_eq!(pool.servers, ["127.0.0.1:11211", "cache.example:11212 weight=3 name=b"]);
        assert_eq!((pool.hash, pool.ring), (Hash::Fnv1a64, Distribution::Ketama));
        assert_eq!((pool.hash_tag.as_str(), pool.timeout_s), ("{}", 0.4));
        assert_eq!(pool.on_failure, engine::pool::OnFailure::Move);
        assert!(warnings.len() == 1 && warnings[0].contains("after 2000 ms"), "{warnings:?}");

        let (config, warnings) = checked(FILE, Some("gamma"));
        let pool = &config.pools[0];
        assert!(config.memcached.unauthenticated);
        assert_eq!((pool.hash, pool.ring), (Hash::Jenkins, Distribution::Modula));
        let servers = [
            "unix:/var/run/mc.sock weight=2 name=/var/run/mc.sock:",
            "10.0.0.1:11211 name=s:11211",
        ];
        assert_eq!(pool.servers, servers);
        for said in ["0.0.0.0:22123", "server_connections", "\"s:11211\"", "without a timeout"] {
            assert!(warnings.iter().any(|warning| warning.contains(said)), "{said}: {warnings:?}");
        }
    }

    #[test]
    fn what_cannot_be_meant_here_is_refused() {
        let check = |text: &str, said: &str| {
            let error = translate(text, None).map(|it| it.text).unwrap_err();
            let error = ground::with_causes(&error);
            assert!(error.contains(said), "{said}: {error}");
        };
        check(FILE, "(alpha, gamma)");
        check("", "no pools");
        check("a: [", "line 1: an unexpected list");
        let pool =
            |more: &str| format!("a:\n  listen: 127.0.0.1:1\n{more}  servers:\n   - h:1:1\n");
        check(&pool("  redis: true\n"), "line 3: redis");
        check(&pool("  hash: sha1\n"), "sha1");
        check(&pool("  distribution: random\n"), "not supported");
        check(&pool("  listn: 1\n"), "listn");
        check(&pool("  hash_tag: \"{\"\n"), "two characters");
        check(&pool("  timeout: fast\n"), "milliseconds");
        check("a:\n  listen: h:1\n  servers:\n   - h:1\n", "host:port:weight");
        check("a:\n  servers:\n   - h:1:1\n", "listen");
        for empty in ["servers:", "servers: h:1:1", "servers: ''"] {
            check(&format!("a:\n  listen: h:1\n  {empty}\n"), "line 3: servers is not a list");
        }
        check("a:\n  listen: h:1\n  servers: []\n", "no servers");
    }

    proptest::proptest! {
        /// Whatever the file has, there is an answer.
        #[test]
        fn no_text_makes_it_panic(text in "[a-z:\\- \\n\"\\[\\]{}&*/0-9]{0,80}") {
            let _ = translate(&text, None);
        }
    }
}
