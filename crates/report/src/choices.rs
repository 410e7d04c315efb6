//! Reads the file of choices: what can be bought, and its prices.

use std::collections::BTreeMap;
use std::path::Path;

use ground::window::Outcome;
use model::plan::{Catalogue, Choices, Curves, DeviceChoice, Memory, SizeLaw, SizedCurves};
use model::storage::Popularity;
use serde::Deserialize;

use crate::error::{Context as _, Result, bail};

/// The contents of the file, before validation; docs/plan.md describes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    prices_in: Option<String>,
    servers: Servers,
    #[serde(default)]
    memory: Option<MemoryFile>,
    #[serde(default)]
    devices: BTreeMap<String, Devices>,
    #[serde(default)]
    replicas: Option<Replicas>,
    #[serde(default)]
    catalogue: Option<CatalogueFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Servers {
    counts: Counts,
    #[serde(default)]
    price: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemoryFile {
    fitted_gib: f64,
    #[serde(default)]
    gib: Vec<f64>,
    #[serde(default)]
    price_per_gib: f64,
    #[serde(default)]
    exponent: Option<f64>,
    #[serde(default)]
    hit_ratio: Option<Vec<(f64, f64)>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Devices {
    counts: Counts,
    #[serde(default)]
    price: f64,
    #[serde(default)]
    gib: Option<f64>,
    #[serde(default)]
    exponent: Option<f64>,
    #[serde(default)]
    reads: Option<Vec<(f64, f64)>>,
    #[serde(default)]
    service_ms: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Replicas {
    counts: Counts,
    #[serde(default)]
    price: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CatalogueFile {
    #[serde(default)]
    servers: Option<f64>,
    #[serde(default)]
    gib: Option<f64>,
}

/// A list or a range of whole numbers.
#[derive(Deserialize)]
#[serde(untagged, expecting = "counts are a list, [1, 2, 4], or a range, { from = 1, to = 40 }")]
enum Counts {
    List(Vec<u32>),
    Range(Range),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    from: u32,
    to: u32,
    #[serde(default = "default_step")]
    step: u32,
}

/// The most numbers of a range: as many as configurations are compared.
const RANGE_MAX: u64 = 5_000_000;

fn default_step() -> u32 {
    1
}

impl Counts {
    fn list(self, key: &str) -> Result<Vec<u32>> {
        match self {
            Counts::List(list) => Ok(list),
            Counts::Range(Range { from, to, step }) => {
                if step == 0 || from > to {
                    bail!("{key}: a range must ascend, in steps above 0");
                }
                let count = u64::from((to - from) / step) + 1;
                if count > RANGE_MAX {
                    bail!(
                        "{key}: the range has {count} numbers, of at most {RANGE_MAX}; give a larger `step`"
                    );
                }
                Ok((from..=to).step_by(step as usize).collect())
            }
        }
    }
}

/// The dependence of a share on a size: an exponent or a table, not both.
fn law(
    key: &str,
    exponent: Option<f64>,
    table: Option<Vec<(f64, f64)>>,
    table_key: &str,
) -> Result<Option<SizeLaw>> {
    match (exponent, table) {
        (Some(_), Some(_)) => bail!("{key}: give `exponent` or `{table_key}`, not both"),
        (Some(exponent), None) => {
            let popularity = Popularity::new(exponent).context(|| format!("{key}.exponent"))?;
            Ok(Some(SizeLaw::Power(popularity)))
        }
        (None, Some(table)) if table.is_empty() => bail!("{key}.{table_key}: the table is empty"),
        (None, table) => Ok(table.map(SizeLaw::Table)),
    }
}

/// The bytes of the file's unit of sizes.
const GIB: f64 = (1u64 << 30) as f64;

fn memory(file: Option<MemoryFile>, shared: bool, curved: bool) -> Result<Memory> {
    let Some(file) = file else {
        if shared {
            bail!(
                "[memory] is missing: `catalogue.servers` makes the memory for each object grow with the \
                 servers, so state what the fitted server had (`fitted_gib`), and how the hit ratio \
                 follows memory (`exponent` or `hit_ratio`)"
            );
        }
        return Ok(Memory::default());
    };
    let fitted = file.fitted_gib;
    let sizes = if file.gib.is_empty() { vec![fitted] } else { file.gib };
    let hits = match law("memory", file.exponent, file.hit_ratio, "hit_ratio")? {
        Some(_) if curved => {
            bail!("[memory]: --curves has the hit ratio: give neither `exponent` nor `hit_ratio`")
        }
        Some(law) => law,
        None if curved => Memory::default().hits,
        None if sizes == [fitted] && !shared => Memory::default().hits,
        None => bail!(
            "[memory]: state how the hit ratio depends on it: `exponent` (1 if all objects are equally \
             popular, 1 - s for Zipf's s below 1), or `hit_ratio = [[GiB, share], …]`"
        ),
    };
    Ok(Memory { fitted, sizes, price: file.price_per_gib, hits })
}

/// Reads a file of choices, and the currency of its prices. `servers` is the number of servers that
/// the fitted server was one of, used where the model knows it and the file does not state it. With
/// `curves`, these say what memory and hot devices serve.
///
/// # Errors
/// If the file cannot be read, and what is wrong with its contents.
pub fn read(
    path: &Path,
    servers: Option<f64>,
    curves: Option<Curves>,
) -> Result<(Choices, String)> {
    let shown = path.display();
    let text = record::file::read_text(path).context(|| {
        format!(
            "cannot read the choices {shown} (docs/plan.md describes them, docs/examples/choices.toml is an example)"
        )
    })?;
    parse(&text, servers, curves)
        .context(|| format!("invalid choices file {shown} (docs/plan.md describes it)"))
}

/// Reads the text of such a file.
///
/// # Errors
/// What is wrong with it.
pub fn parse(
    text: &str,
    servers: Option<f64>,
    curves: Option<Curves>,
) -> Result<(Choices, String)> {
    from_file(toml::from_str(text)?, servers, curves)
}

fn from_file(
    file: File,
    servers: Option<f64>,
    curves: Option<Curves>,
) -> Result<(Choices, String)> {
    let catalogue = file.catalogue.unwrap_or(CatalogueFile { servers: None, gib: None });
    // Without [memory], the servers of a cluster keep the memory that they had.
    let servers = catalogue.servers.or(servers.filter(|_| file.memory.is_some()));
    let memory = memory(file.memory, servers.is_some(), curves.is_some())?;
    let mut devices = Vec::new();
    for (class, given) in file.devices {
        let key = format!("devices.{class}");
        let hot = class == Outcome::HotDevice.as_str();
        if curves.is_some() && hot && (given.exponent.is_some() || given.reads.is_some()) {
            bail!(
                "{key}: --curves has its share of the reads: give neither `exponent` nor `reads`"
            );
        }
        if given.service_ms.is_some() && !(hot && curves.is_some()) {
            bail!(
                "{key}.service_ms: only hot devices can be added, with --curves, to a server without them"
            );
        }
        let reads = law(&key, given.exponent, given.reads, "reads")?;
        let counts = given.counts.list(&format!("{key}.counts"))?;
        let service_s = given.service_ms.map(|ms| ms * 1e-3);
        let (price, holds) = (given.price, given.gib);
        devices.push(DeviceChoice { class, counts, price, holds, reads, service_s });
    }
    let (replicas, replica_price) = match file.replicas {
        Some(given) => (given.counts.list("replicas.counts")?, given.price),
        None => (vec![1], 0.0),
    };
    let choices = Choices {
        servers: file.servers.counts.list("servers.counts")?,
        server_price: file.servers.price,
        memory,
        devices,
        replicas,
        replica_price,
        catalogue: Catalogue { servers, size: catalogue.gib },
        curves: curves.map(|curves| SizedCurves { curves, unit_bytes: GIB }),
    };
    choices.check()?;
    Ok((choices, file.prices_in.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    fn parse(text: &str) -> Result<Choices> {
        Ok(super::parse(text, None, None)?.0)
    }

    const SERVERS: &str = "[servers]\ncounts = { from = 2, to = 8, step = 3 }\nprice = 10\n";

    #[test]
    fn choices_are_read() {
        let choices = parse(&format!(
            "{SERVERS}[memory]\nfitted_gib = 64\ngib = [64, 128]\nhit_ratio = [[64, 0.5], [128, 0.6]]\n\
             [devices.bulk_device]\ncounts = [4, 8]\nprice = 3.5\ngib = 1000\n\
             [replicas]\ncounts = [2, 3]\n[catalogue]\nservers = 4\ngib = 5000\n"
        ));
        let choices = choices.unwrap();
        assert_eq!((choices.servers.as_slice(), choices.server_price), (&[2, 5, 8][..], 10.0));
        assert_eq!(choices.memory.hits, SizeLaw::Table(vec![(64.0, 0.5), (128.0, 0.6)]));
        assert_eq!(choices.devices[0].holds, Some(1000.0));
        assert_eq!(choices.catalogue, Catalogue { servers: Some(4.0), size: Some(5000.0) });
        assert_eq!(choices.configurations(), Ok(3 * 2 * 2 * 2));
        let simple = parse(SERVERS).unwrap();
        assert_eq!((simple.replicas, simple.memory), (vec![1], Memory::default()));
    }

    #[test]
    fn curves_take_the_place_of_laws() {
        let curves = || Curves {
            memory_bytes: vec![0.0, 1e9],
            hot_bytes: vec![0.0, 1e9],
            memory_share: vec![0.0, 0.5],
            hot_share: vec![vec![0.0, 0.5], vec![0.0, 0.2]],
        };
        let parse = |text: &str| {
            let file = toml::from_str(&format!("{SERVERS}[catalogue]\nservers = 2\n{text}"))?;
            Ok::<_, Error>(from_file(file, None, Some(curves()))?.0)
        };
        let memory = "[memory]\nfitted_gib = 1\ngib = [1, 2]\n";
        let hot = "[devices.hot_device]\ncounts = [0, 1]\ngib = 64\nservice_ms = 0.5\n";
        let choices = parse(&format!("{memory}{hot}")).unwrap();
        assert_eq!(choices.devices[0].service_s, Some(0.0005));
        assert_eq!(choices.curves.unwrap().unit_bytes, GIB);
        for (text, says) in [
            (format!("{memory}exponent = 0.3\n"), "--curves has the hit ratio"),
            (format!("{memory}{hot}exponent = 0.3\n"), "--curves has its share"),
            (format!("{memory}[devices.hot_device]\ncounts = [1]\n"), "capacity of a hot_device"),
            (
                format!("{memory}[devices.bulk_device]\ncounts = [1]\nservice_ms = 1\n"),
                "service_ms",
            ),
            (String::new(), "fitted_gib"),
        ] {
            let error = parse(&text).err().map(|e| ground::with_causes(&e)).unwrap_or_default();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_key() {
        for (text, says) in [
            ("", "servers"),
            ("[servers]\ncounts = 3\n", "{ from = 1, to = 40 }"),
            ("[servers]\ncounts = []\n", "no number of servers"),
            ("[servers]\ncounts = [3, 1]\n", "must ascend"),
            ("[servers]\ncounts = { from = 3, to = 1 }\n", "servers.counts"),
            ("[servers]\ncounts = [1]\nprize = 3\n", "prize"),
            ("[servers]\ncounts = [1]\nprice = -3\n", "price of a server"),
            ("[servers]\ncounts = [1]\n[catalogue]\nservers = 4\n", "fitted_gib"),
            ("[servers]\ncounts = [1]\n[memory]\nfitted_gib = 4\ngib = [8]\n", "exponent"),
            (
                "[servers]\ncounts = [1]\n[memory]\nfitted_gib = 4\nexponent = 2\n",
                "memory.exponent",
            ),
            ("[servers]\ncounts = [1]\n[replicas]\ncounts = [0]\n", "0 replicas"),
        ] {
            let error = parse(text).err().map(|e| ground::with_causes(&e)).unwrap_or_default();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
