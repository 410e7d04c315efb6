//! Every engine answers every query as the oracle does, on a small text; a wrong answer is found.

use std::path::Path;
use std::process::Command;

use shard::naive;
use shard_queries_bench::config::Config;
use shard_queries_bench::engine::{Engine, Query, Slice};
use shard_queries_bench::oracle::{Expected, Oracle};
use shard_queries_bench::ours;
use shard_queries_bench::queries::Queries;
use shard_queries_bench::sdsl::Sdsl;
use shard_queries_bench::tune::{Choice, Kind};

/// Records with fields, of which some values are frequent and some are not.
fn text() -> Vec<u8> {
    let record = |i: usize| {
        let (town, week) = (["Łódź", "Kyiv", "Quito", "Accra"][i % 7 % 4], i * i % 53);
        format!("id={i} town={town} week={week} note={}\n", "x".repeat(i % 3))
    };
    (0..400).map(record).collect::<String>().into_bytes()
}

fn config() -> Config {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut config = Config::read(&folder.join("config.toml")).unwrap();
    (config.extracts, config.patterns, config.block) = (100, 64, 16);
    (config.hits_max, config.hits_mean) = (200, 20);
    config
}

fn with_queries(check: impl FnOnce(&[u8], &Queries, &Expected, &Path)) {
    let text = text();
    let oracle = Oracle::new(&text).unwrap();
    let queries = Queries::draw(&oracle, &config().draw()).unwrap();
    oracle.check(&queries.patterns, queries.patterns.len()).unwrap();
    let expected = Expected::new(&oracle, &queries);
    let dir = tempfile::tempdir().unwrap();
    queries.write(&text, dir.path()).unwrap();
    check(&text, &queries, &expected, dir.path());
}

fn slices() -> impl Iterator<Item = Slice> {
    Query::ALL.into_iter().flat_map(|query| {
        // Not a multiple of the batch, and past the last query.
        [(1, 0, 64), (16, 0, 64), (16, 50, 130), (1, 1000, 7)].map(|(batch, first, count)| Slice {
            query,
            batch,
            first,
            count,
        })
    })
}

fn agrees(engine: &mut Engine, expected: &Expected, batches: bool) {
    for slice in slices().filter(|slice| batches || slice.batch == 1) {
        let answer = engine.ask(&slice).unwrap();
        assert_eq!(Some(answer.checksum), expected.checksum(&slice), "{slice}");
    }
}

#[test]
fn queries_are_as_asked_and_survive_their_files() {
    with_queries(|text, queries, expected, folder| {
        assert_eq!((queries.extracts.len(), queries.patterns.len()), (100, 64));
        assert!((expected.hits_mean - 20.0).abs() < 5.0, "{}", expected.hits_mean);
        assert_eq!(&Queries::read(folder).unwrap(), queries);
        assert_eq!(Queries::read_text(folder).unwrap(), text);
        let path = folder.join("patterns");
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert!(Queries::read(folder).unwrap_err().to_string().contains("cut off"));
    });
}

#[test]
fn the_naive_twin_agrees_with_the_oracle_and_another_text_does_not() {
    with_queries(|text, queries, expected, _| {
        let mut other = text.to_vec();
        let twin = naive::Text::new(other.clone());
        // One byte in the middle of what the first query reads.
        other[queries.extracts[0] as usize + 32] ^= 1;
        let other = naive::Text::new(other);
        for slice in slices() {
            let right = expected.checksum(&slice).unwrap();
            assert_eq!(ours::answer(&twin, queries, &slice).unwrap(), right, "{slice}");
        }
        let slice = Slice { query: Query::Extract64, batch: 1, first: 0, count: 1 };
        let wrong = ours::answer(&other, queries, &slice).unwrap();
        assert_ne!(Some(wrong), expected.checksum(&slice));
    });
}

#[test]
fn the_shard_agrees_with_the_oracle() {
    with_queries(|text, _, expected, folder| {
        for (sa, isa, layer) in [(4, 8, None), (64, 16, None), (64, 64, Some("--text-layer"))] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_shard-queries-bench"));
            command.arg("serve").arg(folder);
            command.arg(format!("--alpha-sa={sa}")).arg(format!("--alpha-isa={isa}"));
            let mut engine = Engine::start("shard", command.args(layer)).unwrap();
            assert!(engine.ready().unwrap() > 0 && !text.is_empty());
            agrees(&mut engine, expected, true);
        }
    });
}

#[test]
fn the_ceiling_answers() {
    with_queries(|text, _, _, folder| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shard-queries-bench"));
        let mut engine =
            Engine::start("ceiling", command.arg("serve").arg(folder).arg("--ceiling")).unwrap();
        assert_eq!(engine.ready().unwrap(), text.len() as u64 / 4 * 4);
        let slice = Slice { query: Query::Access, batch: 16, first: 0, count: 1600 };
        assert!(engine.ask(&slice).unwrap().ns > 0);
    });
}

/// Left out where sdsl-lite or a C++ compiler is missing; in CI that is a failure.
#[test]
fn the_rivals_agree_with_the_oracle() {
    let scratch = tempfile::tempdir().unwrap();
    let sdsl = match Sdsl::find(scratch.path()) {
        Ok(sdsl) => sdsl,
        Err(missing) if std::env::var_os("CI").is_none() => {
            eprintln!("left out: {missing}");
            return;
        }
        Err(missing) => panic!("{missing}"),
    };
    with_queries(|text, _, expected, folder| {
        let choices = [
            Choice { kind: Kind::Sada { psi_density: 64 }, sa: 8, isa: 16 },
            Choice { kind: Kind::Wavelet, sa: 16, isa: 8 },
        ];
        for (mut engine, bytes) in sdsl.start(folder, &choices).unwrap() {
            assert!(bytes as usize > text.len() / 10);
            agrees(&mut engine, expected, false);
        }
    });
}
