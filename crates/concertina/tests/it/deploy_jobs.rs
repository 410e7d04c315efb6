//! `deploy/kubernetes`: jobs that run the parts of an import and of a study. Their commands are run here as the pods run them, without a cluster.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::deploy::manifests;
use crate::left_out::left_out;

const NO_YAML: &str = "no PyYAML; .ci/setup installs it with the AWS CLI";

/// A job: its commands, one for each pod.
struct Job {
    step: String,
    pods: u64,
    args: Vec<String>,
}

/// Checks a manifest's job, and takes what its pods run.
fn job(manifest: &Value) -> Job {
    assert_eq!((&manifest["apiVersion"], &manifest["kind"]), (&"batch/v1".into(), &"Job".into()));
    let (spec, labels) = (&manifest["spec"], &manifest["metadata"]["labels"]);
    let pod = &spec["template"]["spec"];
    assert_eq!(spec["template"]["metadata"]["labels"], *labels);
    // A pod of a job must not be started for ever, and one whose node is lost is replaced.
    assert_eq!(pod["restartPolicy"], "Never");
    assert!(spec["backoffLimit"].as_u64().unwrap() > 0);
    let is_indexed = spec["completionMode"] == "Indexed";
    let pods = spec["completions"].as_u64().unwrap_or(1);
    assert_eq!(spec["parallelism"].as_u64().unwrap_or(1), pods, "all at once");
    let containers = pod["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 1);
    let args = containers[0]["args"].as_array().unwrap().iter();
    let args: Vec<String> = args.map(|one| one.as_str().unwrap().to_owned()).collect();
    // Kubernetes gives the index to indexed jobs only.
    let uses_index = args.iter().any(|one| one.contains("$(JOB_COMPLETION_INDEX)"));
    assert_eq!((is_indexed, pods > 1), (uses_index, uses_index));
    for mount in containers[0]["volumeMounts"].as_array().unwrap() {
        let volumes = pod["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).unwrap();
        assert_eq!(volume["persistentVolumeClaim"]["claimName"], "concertina-data");
        assert_eq!(mount["mountPath"], "/data");
    }
    Job { step: labels["step"].as_str().unwrap().to_owned(), pods, args }
}

/// Runs the pod of a job with this index, with the claim at `data`.
fn run(job: &Job, index: u64, data: &Path) -> Output {
    let index = index.to_string();
    // As the kubelet does with a variable of the container.
    let given = |one: &String| {
        one.replace("$(JOB_COMPLETION_INDEX)", &index)
            .replace("/data/", &format!("{}/", data.display()))
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
    command.args(job.args.iter().map(given)).env("JOB_COMPLETION_INDEX", &index);
    let output = command.current_dir("/").output().unwrap();
    assert!(output.status.success(), "{}: {output:?}", job.step);
    output
}

/// Runs all pods of some jobs, the last pod first, and gives the output of the last job.
fn run_all(jobs: &[Job], data: &Path) -> Output {
    let mut last = None;
    for job in jobs {
        for index in (0..job.pods).rev() {
            last = Some(run(job, index, data));
        }
        // A pod whose end was not seen is started again.
        if job.pods > 1 {
            run(job, 0, data);
        }
    }
    last.unwrap()
}

fn jobs(file: &str) -> Option<Vec<Job>> {
    Some(manifests(file)?.iter().map(job).collect())
}

#[test]
fn the_jobs_of_an_import_make_the_dataset_of_one_process() {
    let Some(jobs) = jobs("import.yaml") else {
        return left_out("the_jobs_of_an_import_make_the_dataset_of_one_process", NO_YAML);
    };
    assert_eq!(
        jobs.iter().map(|job| job.step.as_str()).collect::<Vec<_>>(),
        ["split", "build", "join"]
    );
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    std::fs::create_dir(data.join("input")).unwrap();
    let record =
        |at: u32| format!("{{\"id\":{at},\"text\":\"{}\"}}\n", "word ".repeat((at % 9) as usize));
    let text: String = (0..5_000).map(record).collect();
    std::fs::write(data.join("input/logs.jsonl"), &text).unwrap();
    run_all(&jobs, data);
    let parts = format!("--parts={}", jobs[1].pods);
    assert!(jobs[0].args.contains(&parts), "as many parts as pods: {parts}");
    let local = Command::new(env!("CARGO_BIN_EXE_concertina"))
        .args(["data", "import", "input/logs.jsonl", "--name", "logs", "--folder", "local", &parts])
        .current_dir(data)
        .output()
        .unwrap();
    assert!(local.status.success(), "{local:?}");
    assert_eq!(content(&data.join("datasets/logs")), content(&data.join("local/logs")));
}

/// The files of a dataset by name. The manifest without what is drawn for each dataset.
fn content(place: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(place).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let mut bytes = std::fs::read(place.join(&name)).unwrap();
        if name == "dataset.json" {
            let mut manifest: Value = serde_json::from_slice(&bytes).unwrap();
            manifest["id"].take();
            manifest["checksum"].take();
            bytes = manifest.to_string().into_bytes();
        }
        if name != "lock" && !name.starts_with('.') {
            all.push((name, bytes));
        }
    }
    all.sort();
    assert_eq!(
        all.len(),
        9,
        "eight shards and a manifest: {:?}",
        all.iter().map(|(name, _)| name).collect::<Vec<_>>()
    );
    all
}

const CLUSTER: &str = "
[node]
memory_bytes = \"0\"
[[device]]
path = \"device\"
service = { kind = \"exponential\", mean_ms = 0.2 }
";

#[test]
fn the_jobs_of_a_study_find_what_one_process_finds() {
    let Some(mut jobs) = jobs("simulate.yaml") else {
        return left_out("the_jobs_of_a_study_find_what_one_process_finds", NO_YAML);
    };
    assert_eq!(jobs.iter().map(|job| job.step.as_str()).collect::<Vec<_>>(), ["run", "join"]);
    let parts = |job: &Job| job.args.iter().any(|one| one.ends_with(&format!(")/{}", job.pods)));
    assert!(parts(&jobs[0]), "as many parts as pods");
    // Everything but the part is the same: otherwise it is another study.
    let options = |job: &Job| -> Vec<String> {
        let own = ["--part", "--join", "--threads", "--quiet"];
        let others = |one: &&String| !own.iter().any(|name| one.starts_with(name));
        job.args.iter().filter(others).cloned().collect()
    };
    assert_eq!(options(&jobs[0]), options(&jobs[1]));
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    std::fs::write(data.join("cluster.toml"), CLUSTER).unwrap();
    for job in &mut jobs {
        // A short form.
        for one in job.args.iter_mut().filter(|one| one.starts_with("--duration=")) {
            *one = "--duration=2s".to_owned();
        }
        job.args.extend(["--warmup=1s", "--keys=drawn", "--hit-ratio=70%"].map(str::to_owned));
    }
    let shown = run_all(&jobs, data);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("16 runs"), "{shown:?}");
    let local = Job {
        step: "local".to_owned(),
        pods: 1,
        args: options(&jobs[0])
            .iter()
            .map(|one| one.replace("/data/study", "/data/local"))
            .collect(),
    };
    run(&local, 0, data);
    let intervals = |of: &str| std::fs::read(data.join(of).join("intervals.json")).unwrap();
    assert!(intervals("study") == intervals("local"), "the same bytes");
}
