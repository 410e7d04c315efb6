//! `experiments/shard-peers`: datasets of compressed shards beside the alternatives that a user has
//! (ripgrep, SQLite's FTS5, Tantivy), on the same records and queries.
//!
//! Every engine is a separate process that times its own calls. The engines take turns, and their
//! replies are compared with scans of the plain text. The tables show every cell, including those in
//! which ours is slower; the claims cover a few cells.

mod config;
mod engine;
mod measure;
mod oracle;
mod ours;
mod protocol;
mod questions;
mod table;
#[cfg(test)]
mod tests;
mod text;

use std::path::Path;

use anyhow::Context as _;

use super::claims::{Claim, Goal, Peer};
use super::context::Context;
use config::{Class, Config, Goals, TextConfig};
use engine::{COMMAND, Engine};
use measure::{Cell, TextMeasurements};
pub use ours::{Command, run as answer};
use protocol::{Form, Kind, Task};
use text::{Sources, Text};

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    config.check()?;
    let folder = context.folder.canonicalize()?;
    context.say("preparing the peers");
    let (engines, missing) = engine::engines(&config, &folder, &context.scratch)?;
    for engine in &engines {
        context.provenance.peer(&engine.name, &engine.version)?;
    }
    for why in &missing {
        context.say(format!("missing: {why}"));
    }
    let (mut all, mut tables) = (Vec::new(), String::new());
    for of in &config.text {
        let measured = measure(context, &config, &engines, &folder, of, &missing)?;
        tables.push_str(&table::text(&measured));
        tables.push('\n');
        all.push(measured);
        // What was measured is kept if a later text fails.
        write(&context.out.join("measurements.json"), &serde_json::to_string_pretty(&all)?)?;
        write(&context.out.join("cells.txt"), &tables)?;
    }
    context.say(&tables);
    let first = all.first().context("no text was measured")?;
    let ours: Vec<&str> = config.shard.iter().map(|shard| &*shard.name).collect();
    let mut claims = goals(first, ours[0], &config.goals);
    for measured in &all {
        claims.extend(beside(measured, &ours));
    }
    Ok(claims)
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The measurements on one text.
fn measure(
    context: &Context,
    config: &Config,
    engines: &[Engine],
    folder: &Path,
    of: &TextConfig,
    missing: &[String],
) -> anyhow::Result<TextMeasurements> {
    context.say(format!("{}: drawing questions", of.name));
    let sources = Sources {
        data: folder.join(&config.data),
        generated: folder.join(&config.generated),
        scratch: context.scratch.clone(),
    };
    let text = Text::load(&sources, of)?;
    let queries = questions::draw(&text, of, config, config.questions(context.short))?;
    // Not by the text's name alone, which a generated text has in this folder.
    let place = context.scratch.join(format!("{}-engines", of.name));
    std::fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
    let path = |name: &str| place.join(name).to_string_lossy().into_owned();
    let task = Task {
        text: path("text"),
        records: path("records.jsonl"),
        format: of.format.clone(),
        key: of.key.clone(),
        equals: of.equals.clone(),
        contains: of.contains.clone(),
        program: engine::own_program()?,
    };
    engine::write_task(&place, &task, &text.content)?;
    text.write_records(Path::new(&task.records))?;
    // A row of a CSV file is a line already.
    let takes = |engine: &&Engine| engine.name != "rg-records" || of.format == "stanzas";
    let engines: Vec<Engine> = engines.iter().filter(takes).cloned().collect();
    let mut sizes = measure::build(context, &engines, &place)?;
    let rows = measure::ask(context, config, &engines, &place, &queries, &mut sizes)?;
    Ok(TextMeasurements {
        text: of.name.clone(),
        bytes: text.content.len() as u64,
        records: text.records.len() as u64,
        missing: missing.to_vec(),
        sizes,
        questions: queries.into_iter().map(|query| (query.class, query.question)).collect(),
        rows,
    })
}

/// The claims with goals, of the first text.
fn goals(measured: &TextMeasurements, ours: &str, goals: &Goals) -> Vec<Claim> {
    let mut claims = resource_goals(measured, ours, goals);
    claims.extend(time_goals(measured, ours, goals));
    claims
}

/// The goals of bytes and of processor time.
fn resource_goals(measured: &TextMeasurements, ours: &str, goals: &Goals) -> Vec<Claim> {
    let name = &measured.text;
    let bytes = measured.bytes as f64;
    let disk =
        |engine: &str| measured.size(engine).and_then(|size| size.disk_bytes).map(|b| b as f64);
    let cpu_s = |engine: &str| measured.size(engine)?.built.map(|built| built.cpu_s);
    // Bytes are counted; memory and processor time were measured once, so that they have no
    // interval.
    let counted = |what: String, value: Option<f64>, unit: &str, goal| {
        let name = format!("{name}: {what}");
        Claim::counted(name, value.unwrap_or(f64::NAN), unit, 1).with_goal(goal)
    };
    let once = |what: String, value: Option<f64>, unit: &str, goal| {
        Claim::once(format!("{name}: {what}"), value.unwrap_or(f64::NAN), unit).with_goal(goal)
    };
    let held = measured
        .size(ours)
        .and_then(|size| Some((size.cached_bytes? + size.anonymous_bytes?) as f64 / bytes));
    let small = "sqlite-trigram-small";
    let share = |over: Option<f64>, under: Option<f64>| Some(over? / under?);
    vec![
        counted(
            "size on disk".into(),
            disk(ours).map(|disk| disk / bytes),
            "× input",
            Goal::AtMost(goals.disk_max),
        ),
        once(
            "memory while it answers, page cache included".into(),
            held,
            "× input",
            Goal::AtMost(goals.memory_max),
        ),
        counted(
            format!("{small} over {ours}, size on disk"),
            share(disk(small), disk(ours)),
            "×",
            Goal::AtLeast(goals.substring_index_over_ours_min),
        ),
        once(
            format!("{ours} over sqlite-trigram, CPU time of building"),
            share(cpu_s(ours), cpu_s("sqlite-trigram")),
            "×",
            Goal::AtMost(goals.build_over_trigram_max),
        ),
    ]
}

/// The goals of times of queries, as ratios to those of rivals.
fn time_goals(measured: &TextMeasurements, ours: &str, goals: &Goals) -> Vec<Claim> {
    const RARE_FIRST: Cell = Cell { kind: Kind::Substring, class: Class::Rare, form: Form::First };
    const OFTEN: Cell = Cell { kind: Kind::Occurrences, class: Class::Frequent, form: Form::Count };
    let name = &measured.text;
    let mut claims = Vec::new();
    for (what, over, under, cell, goal) in [
        ("first 10 with a rare substring", "rg", ours, RARE_FIRST, goals.ripgrep_over_library_min),
        (
            "first 10 with a rare substring",
            "rg",
            COMMAND,
            RARE_FIRST,
            goals.ripgrep_over_command_min,
        ),
        (
            "first 10 with a rare substring",
            "zstd-rg",
            COMMAND,
            RARE_FIRST,
            goals.zstd_ripgrep_over_command_min,
        ),
        (
            "first 10 with a rare substring",
            "sqlite-trigram",
            ours,
            RARE_FIRST,
            goals.trigram_over_library_min,
        ),
        (
            "occurrences of a frequent substring",
            "rg",
            ours,
            OFTEN,
            goals.count_ripgrep_over_library_min,
        ),
    ] {
        let ratios = measured.ratios(over, under, cell);
        let theirs = measured.row(over, cell).and_then(|row| row.mean_s());
        let text = format!("{name}: {what}, time of {over} over {under}");
        claims.push(Claim {
            peer: theirs.map(|mean| Peer { name: format!("ms, {over}"), value: mean * 1e3 }),
            goal: Some(Goal::AtLeast(goal)),
            ..Claim::of_rounds(text, &ratios, "×")
        });
    }
    claims
}

/// Figures without a goal: all sizes, the cells in which ours is slower, and the replies of peers that
/// differ from the scan.
fn beside(measured: &TextMeasurements, ours: &[&str]) -> Vec<Claim> {
    let mut claims = Vec::new();
    let name = &measured.text;
    for size in &measured.sizes {
        if let Some(disk) = size.disk_bytes {
            let share = disk as f64 / measured.bytes as f64;
            let text = format!("{name}: {}, size on disk", size.engine);
            claims.push(Claim::counted(text, share, "× input", 1));
        }
    }
    for (under, cell) in [
        ("tantivy", Cell { kind: Kind::Word, class: Class::Rare, form: Form::First }),
        ("tantivy", Cell { kind: Kind::Word, class: Class::Frequent, form: Form::Count }),
        ("sqlite-words", Cell { kind: Kind::Word, class: Class::Rare, form: Form::First }),
        ("sqlite-words", Cell { kind: Kind::Equals, class: Class::Frequent, form: Form::All }),
        ("rg", Cell { kind: Kind::Regex, class: Class::Frequent, form: Form::All }),
    ] {
        let Cell { kind, class, form } = cell;
        let what = format!("{}, {}, {}", kind.name(), class.name(), form.name());
        for ours in ours {
            let ratios = measured.ratios(ours, under, cell);
            // A text may have no question of a class.
            if !ratios.is_empty() {
                let text = format!("{name}: {what}, time of {ours} over {under}");
                claims.push(Claim::of_rounds(text, &ratios, "×"));
            }
        }
    }
    for size in &measured.sizes {
        let rows = measured.rows.iter().filter(|r| r.engine == size.engine && r.cannot.is_none());
        let (wrong, queries) =
            rows.fold((0, 0), |(wrong, queries), row| (wrong + row.wrong, queries + row.questions));
        let share = wrong as f64 / (queries as f64).max(1.0);
        let text = format!("{name}: {}, answers other than the scan's", size.engine);
        claims.push(Claim::counted(text, share, "of 1", queries));
    }
    claims
}
