//! boto3, the AWS CLI, s5cmd, rclone, the AWS SDKs for Go and Java and object_store, none of them changed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use configuration as config;
use configuration::Secret;
use origin::{Kind, Origin, S3, Sharing};

use super::{ADMIN, Front, KeyEntry, READER, before, write_keys};
use crate::left_out::left_out;
use crate::origin::{run, suite};
use crate::origin_s3::{self, Store};
use crate::serve_client::free;

/// The folder into which `.ci/setup` installs clients.
pub fn installed() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("clients")
}

/// A client with an access key.
pub fn client(program: PathBuf, key: KeyEntry, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env("AWS_ACCESS_KEY_ID", key.id)
        .env("AWS_SECRET_ACCESS_KEY", key.secret)
        .env("AWS_DEFAULT_REGION", "eu-central-1")
        .env("AWS_REGION", "eu-central-1")
        .env("AWS_CONFIG_FILE", "/dev/null")
        .env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("FOLDER", folder)
        .env_remove("AWS_SESSION_TOKEN");
    command
}

/// Python with boto3.
pub fn python(test: &str) -> Option<PathBuf> {
    let python = installed().join("s3/bin/python");
    if !python.exists() {
        left_out(test, "boto3 and the AWS CLI are not installed (sh .ci/setup)");
        return None;
    }
    Some(python)
}

/// A script of the folder with clients' sources.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

fn output_text(output: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}\n{}", output.status, text(&output.stdout), text(&output.stderr))
}

pub fn succeed(command: &mut Command, front: &Front) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}\n{}", output_text(&output), front.log());
    String::from_utf8(output.stdout).unwrap()
}

fn conform(front: &Front, python: PathBuf) {
    let endpoint = format!("http://{}", front.address);
    for name in ["s3.py", "s3_parts.py"] {
        let mut command = client(python.clone(), ADMIN, front.folder.path());
        succeed(command.arg(script(name)).arg(&endpoint), front);
    }
}

/// One process with a node and the gateway before it.
pub fn gateway(more: &[&str]) -> Front {
    let address = free();
    let member = format!("member.0={{name=\"a\",address=\"{address}\"}}");
    let sets = [
        &*member,
        "cluster.name=a",
        "cluster.token=7c1-between-processes",
        "gateway.verify=always",
    ];
    Front::start(&[&sets[..], more].concat())
}

/// A gateway and its node before an S3-compatible store, as users have them, and the store.
pub fn gateway_before_a_store(test: &str) -> Option<(Front, Store)> {
    let store = Store::start(test)?;
    let before = before(&store);
    Some((gateway(&before.iter().map(String::as_str).collect::<Vec<_>>()), store))
}

#[test]
fn boto3_finds_nothing_to_object_to_before_a_store() {
    const TEST: &str = "serve_s3::clients::boto3_finds_nothing_to_object_to_before_a_store";
    let (Some(python), Some(store)) = (python(TEST), Store::start(TEST)) else { return };
    let before = before(&store);
    let front = Front::start(&before.iter().map(String::as_str).collect::<Vec<_>>());
    conform(&front, python);
    no_secret_is_told(&front);
}

#[test]
fn boto3_finds_nothing_to_object_to_before_a_gateway() {
    const TEST: &str = "serve_s3::clients::boto3_finds_nothing_to_object_to_before_a_gateway";
    let Some(python) = python(TEST) else { return };
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let front = gateway(&[&format!("observe.run_dir={}", run.display()), "serve.token=of-clients"]);
    conform(&front, python);
    no_secret_is_told(&front);
    drop(front);
    let mut files = 0;
    for file in std::fs::read_dir(&run).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        for secret in [ADMIN.secret, READER.secret, "7c1-between-processes", "of-clients"] {
            assert!(!text.contains(secret), "{secret} is in the run folder");
        }
        files += 1;
    }
    assert!(files > 1);
}

/// Neither logs, nor metrics, nor the status, nor a run folder have a secret.
fn no_secret_is_told(front: &Front) {
    let mut http = crate::serve_client::Client::connect(front.http.parse().unwrap());
    let mut all = front.log();
    for path in ["/metrics", "/admin/status"] {
        let show = [("authorization", "Bearer of-clients")];
        all.push_str(&http.send("GET", path, &show, None).unwrap().text());
    }
    for secret in [ADMIN.secret, READER.secret, origin_s3::SECRET, "7c1-between-processes"] {
        assert!(!all.contains(secret), "{secret} is told in {all}");
    }
}

#[test]
fn the_aws_cli_works_unchanged() {
    const TEST: &str = "serve_s3::clients::the_aws_cli_works_unchanged";
    let Some(python) = python(TEST) else { return };
    let Some((front, _store)) = gateway_before_a_store(TEST) else { return };
    let folder = front.folder.path();
    let body: Vec<u8> =
        (0..9u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(folder.join("file"), &body).unwrap();
    let aws = |args: &[&str]| {
        let mut command = client(python.clone(), ADMIN, folder);
        command.args(["-m", "awscli", "--endpoint-url", &format!("http://{}", front.address)]);
        succeed(command.args(args).current_dir(folder), &front)
    };
    // Above 8 MiB in parts.
    aws(&["s3", "cp", "--only-show-errors", "file", "s3://objects/sub/file"]);
    aws(&["s3", "cp", "--only-show-errors", "s3://objects/sub/file", "back"]);
    assert!(std::fs::read(folder.join("back")).unwrap() == body);
    let get = ["s3api", "get-object", "--bucket", "objects", "--key", "sub/file", "--range"];
    aws(&[&get[..], &["bytes=5-9", "part"]].concat());
    assert_eq!(std::fs::read(folder.join("part")).unwrap(), body[5..10]);
    assert!(aws(&["s3", "ls", "s3://objects"]).contains("PRE sub/"));
    let tagging = |operation: &str, more: &[&str]| {
        let of = ["s3api", operation, "--bucket", "objects", "--key", "sub/file"];
        aws(&[&of[..], more].concat())
    };
    tagging("put-object-tagging", &["--tagging", "TagSet=[{Key=team,Value=one}]"]);
    assert!(tagging("get-object-tagging", &[]).contains(r#""Value": "one""#));
    tagging("delete-object-tagging", &[]);
    assert!(!tagging("get-object-tagging", &[]).contains("team"));
    let url = aws(&["s3", "presign", "s3://objects/sub/file"]);
    let path = url.trim().split_once(&front.address).unwrap().1;
    let mut http = crate::serve_client::Client::connect(front.address.parse().unwrap());
    let reply = http.send("GET", path, &[], None).unwrap();
    assert!(reply.status == 200 && reply.body == body, "{url}");
}

#[test]
fn s5cmd_works_unchanged() {
    const TEST: &str = "serve_s3::clients::s5cmd_works_unchanged";
    let program = installed().join("s5cmd");
    if !program.exists() {
        return left_out(TEST, "s5cmd is not built (sh .ci/setup)");
    }
    let Some((front, _store)) = gateway_before_a_store(TEST) else { return };
    let folder = front.folder.path();
    let body: Vec<u8> =
        (0..12u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 23) as u8).collect();
    std::fs::write(folder.join("file"), &body).unwrap();
    let s5cmd = |args: &[&str]| {
        let mut command = client(program.clone(), ADMIN, folder);
        command.args(["--endpoint-url", &format!("http://{}", front.address)]);
        succeed(command.args(args).current_dir(folder), &front)
    };
    s5cmd(&["cp", "-p", "5", "file", "s3://objects/sub/file"]);
    s5cmd(&["cp", "-p", "5", "s3://objects/sub/file", "back"]);
    assert!(std::fs::read(folder.join("back")).unwrap() == body);
    assert!(s5cmd(&["ls", "s3://objects/"]).contains("sub/"));
    let url = s5cmd(&["presign", "s3://objects/sub/file"]);
    let path = url.trim().split_once(&front.address).unwrap().1;
    let mut http = crate::serve_client::Client::connect(front.address.parse().unwrap());
    let reply = http.send("GET", path, &[("range", "bytes=1-3")], None).unwrap();
    assert!(reply.status == 206 && reply.body == body[1..4], "{url}");
    s5cmd(&["rm", "s3://objects/sub/*"]);
    assert_eq!(s5cmd(&["ls", "s3://objects"]).trim(), "");
}

#[test]
fn rclone_works_unchanged() {
    const TEST: &str = "serve_s3::clients::rclone_works_unchanged";
    if !Command::new("rclone").arg("version").output().is_ok_and(|it| it.status.success()) {
        return left_out(TEST, "rclone is not installed (apt install rclone)");
    }
    let Some((front, _store)) = gateway_before_a_store(TEST) else { return };
    let folder = front.folder.path();
    let body: Vec<u8> =
        (0..12u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 23) as u8).collect();
    std::fs::create_dir_all(folder.join("tree/sub")).unwrap();
    std::fs::write(folder.join("tree/sub/a b.bin"), &body).unwrap();
    std::fs::write(folder.join("tree/small"), b"small").unwrap();
    let rclone = |args: &[&str]| {
        let mut command = client("rclone".into(), ADMIN, folder);
        // Its library refuses to start where this is set.
        command.env_remove("AWS_CA_BUNDLE");
        command.args(["--config", "/dev/null", "--s3-provider", "Other", "--s3-env-auth"]);
        command.args(["--s3-endpoint", &format!("http://{}", front.address)]);
        command.args(["--s3-upload-cutoff", "6M", "--s3-chunk-size", "5M"]);
        succeed(command.args(args).current_dir(folder), &front)
    };
    rclone(&["sync", "tree", ":s3:objects/top"]);
    rclone(&["check", "--download", "tree", ":s3:objects/top"]);
    let listed = rclone(&["lsf", "-R", ":s3:objects/top"]);
    assert!(listed.contains("sub/a b.bin") && listed.contains("small"), "{listed}");
    let part = rclone(&["cat", "--offset", "1", "--count", "3", ":s3:objects/top/small"]);
    assert_eq!(part, "mal");
    let url = rclone(&["link", ":s3:objects/top/small"]);
    let path = url.trim().split_once(&front.address).unwrap().1;
    let mut http = crate::serve_client::Client::connect(front.address.parse().unwrap());
    let reply = http.send("GET", path, &[], None).unwrap();
    assert!(reply.status == 200 && reply.body == b"small", "{url}");
}

#[test]
fn the_aws_sdk_for_go_works_unchanged() {
    const TEST: &str = "serve_s3::clients::the_aws_sdk_for_go_works_unchanged";
    let program = installed().join("s3-go");
    if !program.exists() {
        return left_out(TEST, "the client in Go is not built (sh .ci/setup)");
    }
    let Some((front, _store)) = gateway_before_a_store(TEST) else { return };
    let mut command = client(program, ADMIN, front.folder.path());
    assert_eq!(succeed(command.arg(&front.address), &front).trim(), "ok");
}

#[test]
fn the_aws_sdk_for_java_works_unchanged() {
    const TEST: &str = "serve_s3::clients::the_aws_sdk_for_java_works_unchanged";
    let built = installed().join("s3-java");
    if !built.join("ready").exists() {
        // In CI too: Maven's repository is not among what a machine that runs the tests is promised.
        eprintln!("left out: {TEST}: the client in Java is not built (sh .ci/setup)");
        return;
    }
    let Some((front, _store)) = gateway_before_a_store(TEST) else { return };
    let mut command = client("java".into(), ADMIN, front.folder.path());
    let classes = format!("{}:{}/lib/*", built.display(), built.display());
    command.args([
        "-Xshare:auto",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        &classes,
        "S3",
        &front.address,
    ]);
    assert_eq!(succeed(&mut command, &front).trim(), "ok");
}

/// The front as the origin of another process, which reaches it with object_store.
pub fn origin_of(front: &Front, key: KeyEntry) -> config::Origin {
    config::Origin {
        kind: Kind::S3,
        endpoint: Some(format!("http://{}", front.address)),
        bucket: "objects".to_owned(),
        allow_http: true,
        access_key_id: Some(key.id.to_owned()),
        secret_access_key: Some(Secret::new(key.secret.to_owned())),
        timeout_s: 5.0,
        ..config::Origin::default()
    }
}

#[test]
fn object_store_takes_it_for_a_store() {
    let front = Front::start(&[]);
    let open = || S3::open(&origin_of(&front, ADMIN)).unwrap();
    run(suite(&open(), &open()));
    let config = config::Origin { prefix: "in/side/".to_owned(), ..origin_of(&front, ADMIN) };
    let inside = origin::open(&config, Sharing::Alone, Default::default()).unwrap();
    run(suite(inside.as_ref(), inside.as_ref()));
}

/// What [`origin::S3`] does not use of it: uploads in parts, copies, streams of listings, and addresses that are signed.
#[test]
fn object_store_uploads_in_parts_and_signs_addresses() {
    use futures_util::TryStreamExt;
    use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
    let front = Front::start(&[]);
    let store = super::object_store(&front.address);
    let part = |seed| bytes::Bytes::from(crate::serve_client::bytes(seed, 5 << 20));
    let (one, two) = (part(1), part(2).slice(..100));
    let [large, copy] = ["in parts", "a copy"].map(object_store::path::Path::from);
    run(async {
        let mut upload = store.put_multipart(&large).await.unwrap();
        upload.put_part(one.clone().into()).await.unwrap();
        upload.put_part(two.clone().into()).await.unwrap();
        upload.complete().await.unwrap();
        store.copy(&large, &copy).await.unwrap();
        let found = store.get(&copy).await.unwrap().bytes().await.unwrap();
        assert!(found == [&one[..], &two[..]].concat());
        let suffix = GetOptions { range: Some(GetRange::Suffix(7)), ..GetOptions::default() };
        let end = store.get_opts(&large, suffix).await.unwrap().bytes().await.unwrap();
        assert!(end == two[93..]);
        let mut given_up = store.put_multipart(&"given up".into()).await.unwrap();
        given_up.put_part(one.clone().into()).await.unwrap();
        given_up.abort().await.unwrap();
        let create = || PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        store.put_opts(&"once".into(), "a".into(), create()).await.unwrap();
        let again = store.put_opts(&"once".into(), "b".into(), create()).await;
        assert!(matches!(again, Err(object_store::Error::AlreadyExists { .. })), "{again:?}");
        let mut all: Vec<_> = store.list(None).try_collect().await.unwrap();
        all.sort_by(|one, other| one.location.cmp(&other.location));
        let names: Vec<&str> = all.iter().map(|one| one.location.as_ref()).collect();
        assert_eq!(names, ["a copy", "in parts", "once"]);
        store.delete(&copy).await.unwrap();
        let gone = store.get(&copy).await;
        assert!(matches!(gone, Err(object_store::Error::NotFound { .. })), "{gone:?}");
    });
    let mut client = crate::serve_client::Client::connect(front.address.parse().unwrap());
    let at = |method| super::presigned(&front.address, method, "signed");
    assert_eq!(client.put(&at("PUT"), b"by its address").status, 200);
    assert_eq!(client.get(&at("GET")).text(), "by its address");
    // An address is signed for its method.
    assert_eq!(client.put(&at("GET"), b"other bytes").status, 403);
    let changed = at("GET").replacen("/signed", "/once", 1);
    assert_eq!(client.get(&changed).status, 403);
}

#[test]
fn access_keys_are_read_again_when_their_file_changes() {
    let front = Front::start(&[]);
    let open = |secret| S3::open(&origin_of(&front, KeyEntry { secret, ..ADMIN }));
    let there = |origin: &S3| run(async { origin.check().await.is_ok() });
    assert!(open("another-secret-as-long").is_err());
    let first = open(ADMIN.secret).unwrap();
    assert!(there(&first));
    let start = std::time::Instant::now();
    write_keys(front.folder.path(), &[KeyEntry { secret: "another-secret-as-long", ..ADMIN }]);
    while open("another-secret-as-long").is_err() {
        assert!(start.elapsed().as_secs() < 120, "the new keys are not in force: {}", front.log());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(open(ADMIN.secret).is_err());
    // A file that is not one of keys leaves them as they are.
    std::fs::write(front.folder.path().join("keys"), "[[key]]\nsecret = \"hush-hush-hush\n")
        .unwrap();
    while !front.log().contains("stay as they were") {
        assert!(start.elapsed().as_secs() < 240, "nothing is said of the file: {}", front.log());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(open("another-secret-as-long").is_ok());
    for secret in [ADMIN.secret, "another-secret", "hush-hush"] {
        assert!(!front.log().contains(secret), "{}", front.log());
    }
}
