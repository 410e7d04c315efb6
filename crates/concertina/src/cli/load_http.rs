//! The options of commands that send HTTP: headers, secrets, the names of the host, HTTP/2, and what
//! is requested.
//!
//! Secrets come from files. A command line is in the list of processes, in the shell's history and in
//! logs, so that headers which usually hold one are refused there.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use load::Plan;
use load::client::{
    BODY_BYTES_MAX, Header, HttpRequest, HttpSettings, RequestBody, STREAMS, cookies,
    parse_requests,
};
use record::clock;

/// Connections with HTTP/1, which has a request at a time on each, and with HTTP/2.
const CONNECTIONS: usize = 8192;
const CONNECTIONS_HTTP2: usize = 16;

/// How HTTP is spoken.
#[derive(clap::Args)]
#[command(next_help_heading = "HTTP")]
pub(super) struct HttpOptions {
    /// A header of every request, 'Name: value'; @FILE reads such lines from a file, which is where those
    /// with secrets belong. May be repeated; {key} is replaced by the key
    #[arg(long = "header", short = 'H', value_name = "HEADER")]
    headers: Vec<String>,
    /// A file that contains a bearer token
    #[arg(long, alias = "token-file", value_name = "FILE")]
    bearer_file: Option<PathBuf>,
    /// A file of cookies: name=value; name=value, or as curl -c writes it
    #[arg(long, value_name = "FILE")]
    cookie_file: Option<PathBuf>,
    /// The virtual host: the value of Host (:authority) [default: that of the address]
    #[arg(long, value_name = "NAME[:PORT]")]
    host: Option<String>,
    /// https: the name that TLS asks for and that the certificate must have [default: that of the address]
    #[arg(long, value_name = "NAME")]
    sni: Option<String>,
    /// Speak HTTP/2: agreed on by ALPN with https://, with prior knowledge with http://
    #[arg(long)]
    http2: bool,
    /// HTTP/2: the most requests in progress on a connection
    #[arg(long, default_value_t = STREAMS, value_name = "N", requires = "http2")]
    http2_streams: usize,
    /// https: trusted root certificates (PEM) [default: the system's]
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
}

/// What is requested, beside reads and writes of keys.
#[derive(clap::Args)]
#[command(next_help_heading = "HTTP")]
pub(super) struct RequestOptions {
    /// The method [default: GET, with --body POST]
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,
    /// The body of every request: text, or @FILE; {key} is replaced by the key, {{key}} by {key}
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
    /// A file that lists requests with weights, paths, methods, headers and bodies, as TOML or JSON lines
    /// (docs/load.md). load: a number instead is the length of each step in requests
    #[arg(long, value_name = "FILE")]
    requests: Vec<String>,
}

impl HttpOptions {
    /// Puts the options into a plan; `given` is the number of connections, if it was.
    ///
    /// # Errors
    /// If a file cannot be read, or an option is wrong.
    pub fn apply(&self, plan: &mut Plan, given: Option<usize>) -> anyhow::Result<()> {
        let default = if self.http2 { CONNECTIONS_HTTP2.max(plan.threads) } else { CONNECTIONS };
        plan.connections = given.unwrap_or(default);
        plan.ca_file.clone_from(&self.ca_file);
        plan.token = self.bearer_file.as_deref().map(|path| read("token", path)).transpose()?;
        let mut http = HttpSettings {
            host: self.host.clone(),
            server_name: self.sni.clone(),
            http2: self.http2,
            streams: self.http2_streams,
            ..HttpSettings::default()
        };
        for given in &self.headers {
            for header in headers(given)? {
                // As with curl, a header Host names the virtual host.
                if header.name == "host" {
                    ensure!(http.host.is_none(), "the host is given twice: leave out one");
                    http.host = Some(header.value);
                } else {
                    http.headers.push(header);
                }
            }
        }
        if let Some(path) = &self.cookie_file {
            let host = http.host.as_deref().unwrap_or_else(|| host_of(&plan.url));
            let unix_s = (i128::from(clock::now()) + clock::unix_offset_ns()) / 1_000_000_000;
            let is_tls = plan.url.starts_with("https://");
            let text = read("cookies", path)?;
            let header = cookies(&text, without_port(host), is_tls, unix_s as i64);
            http.headers.push(
                header
                    .map_err(|why| anyhow::anyhow!("the cookies in {}: {why}", path.display()))?,
            );
        }
        plan.http = http;
        Ok(())
    }
}

impl RequestOptions {
    /// The length of a step, if `--requests` is a number.
    ///
    /// # Errors
    /// If there are two.
    pub fn count(&self) -> anyhow::Result<Option<u64>> {
        let mut counts = self.requests.iter().filter_map(|text| count(text));
        let first = counts.next();
        ensure!(counts.next().is_none(), "--requests: two numbers are given; leave out one");
        Ok(first)
    }

    /// Puts the requests into a plan.
    ///
    /// # Errors
    /// If a file cannot be read, or its text is wrong.
    pub fn apply(&self, plan: &mut Plan) -> anyhow::Result<()> {
        let mut files = self.requests.iter().filter(|text| count(text).is_none());
        let file = files.next().map(PathBuf::from);
        ensure!(files.next().is_none(), "--requests: two files are given; write one list");
        let of_one = self.method.is_some() || self.body.is_some();
        ensure!(
            file.is_none() || !of_one,
            "--method and --body are of one request; write them into the list of --requests"
        );
        if let Some(path) = file {
            plan.http.requests = listed(&path)?;
            plan.http.requests_file = Some(path);
        } else if of_one {
            let body = self.body.as_deref().map(body).transpose()?;
            let default = if body.is_some() { "POST" } else { "GET" };
            let request = HttpRequest::new(self.method.as_deref().unwrap_or(default), body);
            plan.http.requests = vec![request];
        }
        Ok(())
    }
}

/// A number of requests, rather than a file.
fn count(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// The headers of one option.
fn headers(given: &str) -> anyhow::Result<Vec<Header>> {
    if let Some(path) = given.strip_prefix('@') {
        let path = Path::new(path);
        let found = Header::parse_file(&read("headers", path)?);
        return found.map_err(|why| anyhow::anyhow!("the headers in {}: {why}", path.display()));
    }
    let header = Header::parse(given, false)
        .map_err(|why| anyhow::anyhow!("--header: {why}; write --header 'Name: value'"))?;
    if header.is_secret_name() {
        bail!(
            "--header {}: a command line is visible to others; write the line into a file and give \
             --header @FILE (for a bearer token --bearer-file, for cookies --cookie-file)",
            header.name
        );
    }
    Ok(vec![header])
}

/// A body that is text or `@FILE`.
fn body(given: &str) -> anyhow::Result<RequestBody> {
    match given.strip_prefix('@') {
        Some(path) => {
            let file = PathBuf::from(path);
            let text = bytes(&file).map_err(|why| anyhow::anyhow!("--body: {why}"))?;
            Ok(RequestBody { text, file: Some(file), is_public: false })
        }
        None => Ok(RequestBody { text: given.as_bytes().to_vec(), file: None, is_public: true }),
    }
}

/// The requests of a file, whose `body_file`s are relative to its folder.
fn listed(path: &Path) -> anyhow::Result<Vec<HttpRequest>> {
    let text = read("requests", path)?;
    let folder = path.parent().unwrap_or(Path::new("")).to_owned();
    let found = parse_requests(&text, &mut |file| bytes(&folder.join(file)));
    found.map_err(|why| anyhow::anyhow!("the requests in {}: {why}", path.display()))
}

fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    let read = record::file::read(path, BODY_BYTES_MAX);
    read.map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// Reads a text that an option names.
pub(super) fn read(what: &str, path: &Path) -> anyhow::Result<String> {
    let text = record::file::read_text(path);
    text.with_context(|| format!("cannot read the {what} in {}", path.display()))
}

/// Host and port of a URL.
fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?']).next().unwrap_or_default()
}

/// A host without its port.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((before, _)) if !before.contains(':') || before.ends_with(']') => before,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use load::Load;

    use super::super::load_options::LoadOptions;
    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: LoadOptions,
    }

    fn plan(words: &[&str]) -> anyhow::Result<Plan> {
        let line = Line::try_parse_from([&["x"], words].concat())?;
        line.options.plan(Load::Nothing, line.options.generated(), 1)
    }

    #[test]
    fn options_reach_the_plan_and_secrets_stay_out_of_records() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let (bearer, cookie) = (file("bearer", "hush1\n"), file("cookie", "sid=hush2\n"));
        let header = format!("@{}", file("header", "X-Api-Key: hush3\n"));
        let plan = plan(&[
            "https://127.0.0.1:1/search",
            "--bearer-file",
            &bearer,
            "--cookie-file",
            &cookie,
            "--header",
            &header,
            "-H",
            "Accept: text/plain",
            "-H",
            "Host: shop.example",
            "--sni",
            "tls.example",
            "--http2",
            "--http2-streams",
            "7",
            "--body",
            "{\"q\": \"{key}\"}",
        ])
        .unwrap();
        assert_eq!(plan.connections, CONNECTIONS_HTTP2);
        assert_eq!(plan.http.host.as_deref(), Some("shop.example"));
        assert_eq!((plan.http.streams, plan.http.headers.len()), (7, 3));
        assert_eq!(plan.http.requests[0].method, "POST");
        let record = toml::to_string(&plan).unwrap();
        assert!(!record.contains("hush"), "{record}");
        for words in ["accept: text/plain", "x-api-key: (not recorded)", "tls.example", "{key}"] {
            assert!(record.contains(words), "{words}: {record}");
        }
        assert!(!format!("{:?}", plan.http).contains("hush"));
    }

    #[test]
    fn requests_are_a_file_or_a_number() {
        let dir = tempfile::tempdir().unwrap();
        let list = dir.path().join("list.toml");
        let text = "[[request]]\npath = \"/a\"\nbody_file = \"body\"\n";
        std::fs::write(&list, text).unwrap();
        let list = list.to_str().unwrap();
        let missing = plan(&["http://127.0.0.1:1", "--requests", list]).unwrap_err();
        let error = format!("{missing:#}");
        assert!(error.contains("request 1: cannot read") && error.contains("body"), "{error}");
        std::fs::write(dir.path().join("body"), "text").unwrap();
        let both = plan(&["http://127.0.0.1:1", "--requests", list, "--requests", "30"]).unwrap();
        assert_eq!(both.http.requests[0].body.as_ref().unwrap().text, b"text");
        for (words, part) in [
            (&["--requests", list, "--method", "PUT"][..], "--method and --body are of one"),
            (&["--requests", list, "--requests", list], "two files"),
            (&["--header", "authorization: Basic hush"], "--header @FILE"),
            (&["--header", "x"], "no colon"),
            (&["--host", "a", "--header", "host: b"], "given twice"),
            (&["--body", "@/nowhere/body"], "/nowhere/body"),
        ] {
            let error =
                format!("{:#}", plan(&[&["http://127.0.0.1:1"], words].concat()).unwrap_err());
            assert!(error.contains(part) && !error.contains("hush"), "{error}");
        }
    }

    #[test]
    fn hosts_are_told_from_ports() {
        assert_eq!(without_port(host_of("http://[::1]:80/x")), "[::1]");
        assert_eq!(without_port(host_of("https://h?x")), "h");
        assert_eq!(without_port("h:8080"), "h");
    }
}
