//! The options that `concertina load` and `concertina measure` share: the service, the keys and the
//! requests.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::load_http::{HttpOptions, RequestOptions, read};
use super::load_values::{default_out, objective_ms, popularity, seconds, size};
use load::client::Credentials;
use load::{Keys, Load, Plan, Popularity, Size, Think};
use origin::marker::{Claim, FolderKind};

/// The forms of a service's address, for the end of both helps.
pub(super) const TARGETS: &str = "\
Services:
  http://HOST:PORT                   keys follow /objects/, or --prefix, or the path of the address
  'http://HOST:PORT/img/{key}.jpg'   {key} is replaced by the key; --fixed (and --method, --body,
                                     --requests) request the address unchanged
  's3://BUCKET?endpoint=http://HOST:PORT'
                                     objects of an S3-compatible store; &region=, if not us-east-1.
                                     Signed with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or by
                                     --credentials
  memcached://HOST:PORT              get, set and delete of the text protocol; --multi-get for
                                     several keys
  file:///PATH                       a folder, a file for each key, written only if the folder was
                                     empty or an earlier load wrote there; of a block device or
                                     file parts, which are only read
Write https:// instead of http:// for TLS; --ca-file adds certificates that the system does not know.";

/// The distribution of think times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ThinkArg {
    /// Exponential
    Exponential,
    /// Always the mean
    Constant,
}

/// The shared options.
#[derive(clap::Args)]
pub(super) struct LoadOptions {
    /// The service: http://HOST:PORT, s3://BUCKET?endpoint=…, memcached://HOST:PORT (see the end)
    url: String,

    /// Closed loop: mean think time between a reply and the next request, ms
    #[arg(long, default_value_t = 0.0, value_name = "MS", help_heading = "Clients")]
    think_ms: f64,
    /// Closed loop: distribution of think times
    #[arg(long, value_enum, default_value = "exponential", help_heading = "Clients")]
    think: ThinkArg,

    /// Request the address unchanged, without a key
    #[arg(long, help_heading = "What")]
    fixed: bool,
    /// Popularity of generated keys: zipf:S or uniform
    #[arg(long, default_value = "zipf:0.99", value_parser = popularity, help_heading = "What")]
    keys: Popularity,
    /// Number of generated keys
    #[arg(long, default_value_t = 10_000, value_name = "N", help_heading = "What")]
    count: u64,
    /// Bytes of each stored object (k and M for KiB and MiB), or MIN..MAX: log-uniform, determined
    /// by the key. With a trace: the size of objects whose size it does not state
    #[arg(long, default_value = "4096", value_parser = size, value_name = "BYTES")]
    #[arg(help_heading = "What")]
    pub size: Size,
    /// Format of generated keys; {i} is their number
    #[arg(long, default_value = "k{i}", value_name = "TEXT", help_heading = "What")]
    key_format: String,
    /// Share of gets among requests for generated keys; the rest are puts
    #[arg(long, default_value_t = 1.0, value_name = "SHARE", help_heading = "What")]
    read_share: f64,
    /// memcached: number of keys in a get. With --trace: a row's key is a list of up to N keys,
    /// separated by spaces
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "What")]
    multi_get: usize,
    /// Put every distinct key once before measuring
    #[arg(long, help_heading = "What")]
    pub fill: bool,
    /// Compare the bytes of replies with those that --fill and puts store; differences are errors
    #[arg(long, help_heading = "What")]
    verify: bool,

    #[command(flatten)]
    http: HttpOptions,
    #[command(flatten)]
    pub requests: RequestOptions,

    /// Path before the key, if the address has no path [default: /objects/]
    #[arg(long, value_name = "PATH", help_heading = "How")]
    prefix: Option<String>,
    /// s3: a file with aws_access_key_id = … and so on [default: AWS_ACCESS_KEY_ID … of the
    /// environment; without any, requests are not signed]
    #[arg(long, value_name = "FILE", help_heading = "How")]
    credentials: Option<PathBuf>,
    /// Number of generator threads
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "How")]
    threads: usize,
    /// The most connections [default: 8192, with --http2 16]. With --http2 all are used
    #[arg(long, value_name = "N", help_heading = "How")]
    connections: Option<usize>,
    /// Time after which a request without a reply is abandoned
    #[arg(long, default_value = "10s", value_parser = seconds, value_name = "TIME")]
    #[arg(help_heading = "How")]
    timeout: f64,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "How")]
    seed: u64,

    /// The run folder [default: runs/TIME]
    #[arg(long, value_name = "DIR", help_heading = "Result")]
    out: Option<PathBuf>,
    /// Response times at which completions are counted exactly: `50ms`, `0.5s`, or numbers of milliseconds
    #[arg(long, value_delimiter = ',', default_value = "20,50,100", value_name = "TIME,…", value_parser = objective_ms)]
    #[arg(help_heading = "Result")]
    objectives: Vec<f64>,
    /// Print the result as JSON
    #[arg(long, help_heading = "Result")]
    pub json: bool,
    /// Show no progress
    #[arg(long, short, help_heading = "Result")]
    pub quiet: bool,
}

impl LoadOptions {
    /// The mean and the distribution of think times.
    pub fn think(&self) -> (f64, Think) {
        let think = match self.think {
            ThinkArg::Exponential => Think::Exponential,
            ThinkArg::Constant => Think::Constant,
        };
        (self.think_ms, think)
    }

    /// The generated keys.
    pub fn generated(&self) -> Keys {
        Keys::Synthetic {
            popularity: self.keys,
            count: self.count,
            size: self.size,
            format: self.key_format.clone(),
            read_share: self.read_share,
        }
    }

    /// Makes a plan from these options; `fill_clients` is the number of clients of a fill.
    pub fn plan(&self, load: Load, keys: Keys, fill_clients: usize) -> anyhow::Result<Plan> {
        let out = self.out.clone().unwrap_or_else(default_out);
        let mut plan = Plan {
            fixed: self.fixed,
            prefix: self.prefix.clone(),
            credentials: self.credentials(|name| std::env::var(name).ok())?,
            multi_get: self.multi_get,
            fill: self.fill.then_some(fill_clients),
            verify: self.verify,
            threads: self.threads,
            timeout_s: self.timeout,
            objectives_ms: self.objectives.clone(),
            seed: self.seed,
            ..Plan::new(&self.url, load, keys, out)
        };
        self.http.apply(&mut plan, self.connections)?;
        self.requests.apply(&mut plan)?;
        Ok(plan)
    }

    /// The credentials for an S3 bucket: from the file if given, otherwise from the environment.
    /// Other services get none.
    fn credentials(
        &self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> anyhow::Result<Option<Credentials>> {
        if let Some(path) = &self.credentials {
            let found = Credentials::parse(&read("credentials", path)?);
            let found = found.map_err(|why| anyhow::anyhow!("{}: {why}", path.display()))?;
            return Ok(Some(found));
        }
        if !self.url.starts_with("s3://") {
            return Ok(None);
        }
        let variable = |name| variable(name).filter(|value| !value.is_empty());
        match (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY")) {
            (Some(access_key_id), Some(secret_access_key)) => Ok(Some(Credentials {
                access_key_id,
                secret_access_key,
                session_token: variable("AWS_SESSION_TOKEN"),
            })),
            (None, None) => Ok(None),
            _ => anyhow::bail!(
                "only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set: set both, or neither for \
                 requests without a signature"
            ),
        }
    }
}

/// Claims the folder of a `file://` URL for the objects of loads, if it is empty or has been claimed before. Returns whether it may
/// be written to.
///
/// # Errors
/// If the plan writes and the folder is another's, or its marker cannot be written.
pub fn claim(plan: &Plan) -> anyhow::Result<bool> {
    let Some(folder) = plan.url.strip_prefix("file://").map(Path::new) else { return Ok(false) };
    if !folder.is_dir() {
        return Ok(false);
    }
    let claim = Claim::new(FolderKind::Load, None);
    let writes = plan.fill.is_some()
        || matches!(&plan.keys, Keys::Synthetic { read_share, .. } if *read_share < 1.0);
    match claim.inspect(folder) {
        // Reads of others' files are measured as they are. Of a trace it is not known yet whether it writes; each write is
        // refused then.
        Err(_) if !writes => Ok(false),
        _ => Ok(claim.take(folder).map(|_| true)?),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: LoadOptions,
    }

    fn options(words: &[&str]) -> LoadOptions {
        Line::try_parse_from([&["x"], words].concat()).unwrap().options
    }

    #[test]
    fn buckets_are_asked_by_whom_the_file_or_the_environment_says() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        std::fs::write(&path, "aws_access_key_id = FILE\naws_secret_access_key = s\n").unwrap();
        let environment = |name: &str| match name {
            "AWS_SESSION_TOKEN" => Some(String::new()),
            name => Some(format!("of {name}")),
        };
        let bucket = options(&["s3://b?endpoint=http://127.0.0.1:1"]);
        let found = bucket.credentials(environment).unwrap().unwrap();
        assert_eq!(found.access_key_id, "of AWS_ACCESS_KEY_ID");
        assert_eq!(
            (&*found.secret_access_key, found.session_token),
            ("of AWS_SECRET_ACCESS_KEY", None)
        );
        assert_eq!(bucket.credentials(|_| None).unwrap(), None);
        let half = bucket.credentials(|name| (name == "AWS_ACCESS_KEY_ID").then(String::new));
        assert_eq!(half.unwrap(), None, "empty is unset");
        let half = |name: &str| (name == "AWS_ACCESS_KEY_ID").then(|| "x".to_owned());
        assert!(bucket.credentials(half).unwrap_err().to_string().contains("set both"));
        let http = options(&["http://127.0.0.1:1"]);
        assert_eq!(http.credentials(|_| panic!("http needs none")).unwrap(), None);
        let path = path.to_str().unwrap();
        let file = options(&["s3://b?endpoint=http://127.0.0.1:1", "--credentials", path]);
        assert_eq!(file.credentials(environment).unwrap().unwrap().access_key_id, "FILE");
        let none = options(&["s3://b", "--credentials", "/nowhere/keys"]);
        assert!(none.credentials(environment).unwrap_err().to_string().contains("/nowhere/keys"));
    }
}
