"""Runs two suites of tests that are not ours, Ceph's s3-tests and MinIO's mint, against an S3 front: docs/s3.md says with what result.

python3 s3_suites.py PLACE CONCERTINA VERSITYGW SUITE,... FACE,...

PLACE has the suites (`s3-tests`, `mint`, `minio-py`) as their repositories have them, and `python`, an environment with what they need. Suites are
`ceph` and the parts `awscli`, `s3cmd` and `minio-py` of mint; faces are `folder` (the front on a folder), `before` (before versitygw) and `alone`
(versitygw without the front). Results are PLACE/results/SUITE.FACE.json: for each test null if it passed, or what it said. Prints the table.
"""
import json, os, pathlib, re, shutil, socket, subprocess, sys, tempfile, time
import xml.etree.ElementTree as ElementTree

HERE = pathlib.Path(__file__).parent
PLACE = pathlib.Path(sys.argv[1]).resolve()
CONCERTINA, VERSITYGW = sys.argv[2:4]
SUITES, FACES = sys.argv[4].split(","), sys.argv[5].split(",")
PYTHON = PLACE / "python/bin"
# Who administrates, and others, whom the suite of Ceph wants to be there.
ADMIN, OTHERS = ("admin", "admin-secret-of-the-suite"), ["alt", "tenant", "iam", "iam-root", "iam-alt-root"]
# Buckets of the suites: Ceph's numbers its own; mint draws numbers, which are 1, 2, … here.
BUCKETS = [f"b-{at}" for at in range(1, 500)] + ["awscli-mint-test-bucket-1", "s3cmd-test-bucket-1", "s3cmd-test-bucket-2"]
BUCKETS += [f"minio-py-test-{at}" for at in range(1, 100)]
SIZES = {"0-b": 0, "1-b": 1, "1-kB": 1 << 10, "10-kB": 10 << 10, "33-kB": 33 << 10, "100-kB": 100 << 10, "1.03-MB": 1056 << 10}
SIZES |= {f"{at}-MB": at << 20 for at in [1, 5, 6, 10, 11, 65]} | {"5243880-b": 5243880}


def secret_of(name):
    return f"{name}-secret-of-the-suite"


def free():
    with socket.create_server(("127.0.0.1", 0)) as one:
        return f"127.0.0.1:{one.getsockname()[1]}"


class Face:
    """The processes of a face, and where its clients connect."""

    def __init__(self, name):
        self.folder, self.processes = pathlib.Path(tempfile.mkdtemp()), []
        start = {"folder": self.on_a_folder, "before": self.before, "alone": self.alone}[name]
        try:
            self.address = start()
        except BaseException:
            self.stop()
            raise

    def start(self, *command):
        log = open(self.folder / f"log{len(self.processes)}", "wb")
        process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=log, env=environment())
        self.processes.append(process)
        return process

    def alone(self):
        address = free()
        for name in ["data/objects", "iam"]:
            (self.folder / name).mkdir(parents=True)
        keys = ["--access", ADMIN[0], "--secret", ADMIN[1]]
        self.start(VERSITYGW, "--port", address, *keys, "--quiet", "--iam-dir", self.folder / "iam", "posix", self.folder / "data")
        while socket.socket().connect_ex(("127.0.0.1", int(address.rsplit(":", 1)[1]))):
            time.sleep(0.05)
        for name in OTHERS:
            create = ["create-user", "--access", name, "--secret", secret_of(name), "--role", "userplus"]
            subprocess.run([VERSITYGW, "admin", *keys, "--endpoint-url", f"http://{address}", *create], check=True, stdout=subprocess.DEVNULL)
        return address

    def before(self):
        origin = {"kind": "s3", "endpoint": f"http://{self.alone()}", "bucket": "objects", "allow_http": "true", "timeout_s": "60"}
        origin |= {"access_key_id": ADMIN[0], "secret_access_key": ADMIN[1]}
        return self.front(origin)

    def front(self, origin):
        keys = self.folder / "keys.toml"
        entry = lambda id, secret, scope: f"[[key]]\nid = {id!r}\nsecret = {secret!r}\nscopes = [{scope!r}]\n"
        keys.touch(mode=0o600)
        keys.write_text(entry(*ADMIN, "*:admin") + "".join(entry(name, secret_of(name), "none:write") for name in OTHERS))
        buckets = json.dumps([f"{name}={name}/" for name in BUCKETS])
        sets = {"serve.listen": "127.0.0.1:0", "s3.listen": "127.0.0.1:0", "s3.keys": keys, "s3.buckets": buckets, "device.0.path": self.folder / "device"}
        sets |= {f"origin.{name}": value for name, value in origin.items()}
        served = self.start(CONCERTINA, "serve", "--json", *(part for name, value in sets.items() for part in ["--set", f"{name}={value}"]))
        s3 = json.loads(served.stdout.readline())["s3"]
        relay = self.start(PYTHON / "python", HERE / "s3_buckets.py", s3)
        return relay.stdout.readline().decode().strip()

    def on_a_folder(self):
        return self.front({"path": self.folder / "objects"})

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def environment(**more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    kept |= {"AWS_ACCESS_KEY_ID": ADMIN[0], "AWS_SECRET_ACCESS_KEY": ADMIN[1], "AWS_DEFAULT_REGION": "us-east-1"}
    return kept | {"AWS_EC2_METADATA_DISABLED": "true", "PYTHONDONTWRITEBYTECODE": "1"} | more


def ceph(face, folder):
    """Runs what s3_ceph.py selects of Ceph's suite."""
    host, port = face.address.split(":")
    sections = {"DEFAULT": {"host": host, "port": port, "is_secure": "False"}, "fixtures": {"bucket prefix": "b-"}}
    user = lambda id, secret: {"access_key": id, "secret_key": secret, "user_id": id, "display_name": id, "email": f"{id}@example.com"}
    sections["s3 main"] = user(*ADMIN) | {"api_name": "default"}
    title = lambda name: name.replace("-", " ") if name.startswith("iam") else f"s3 {name}"
    sections |= {title(name): user(name, secret_of(name)) | {"tenant": name} for name in OTHERS}
    settings, junit = folder / "s3tests.conf", folder / "junit.xml"
    lines = (f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in pairs.items()) for name, pairs in sections.items())
    settings.write_text("".join(lines))
    tests = [f"s3tests/functional/test_{part}.py" for part in ["s3", "headers"]]
    command = [PYTHON / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "s3_ceph", "--timeout", "300", f"--junit-xml={junit}", *tests]
    more = environment(S3TEST_CONF=str(settings), PYTHONPATH=str(HERE))
    subprocess.run([str(part) for part in command], cwd=PLACE / "s3-tests", env=more, stdout=subprocess.DEVNULL)
    results = {}
    for test in ElementTree.parse(junit).iter("testcase"):
        said = [part.get("message") for part in test if part.tag in ("failure", "error")]
        results[test.get("name")] = said[0] if said else None
    return results


def mint(part, face, folder):
    """Runs a part of mint, each test whatever became of the one before; returns its lines."""
    data = folder / "data"
    data.mkdir()
    for name, size in SIZES.items():
        (data / f"datafile-{name}").write_bytes(os.urandom(size))
    (folder / "constant").write_text("unset RANDOM\nRANDOM=1\n")
    more = environment(
        MINT_DATA_DIR=str(data), DATA_DIR=str(data), MINT_MODE="full", SERVER_ENDPOINT=face.address, ACCESS_KEY=ADMIN[0], SECRET_KEY=ADMIN[1],
        ENABLE_HTTPS="0", SERVER_REGION="us-east-1", BASH_ENV=str(folder / "constant"), HOME=str(folder), PATH=f"{PYTHON}:{os.environ['PATH']}",
    )
    work = folder / part
    if part == "minio-py":
        # Which mint takes from that repository, at the version of the client.
        work.mkdir()
        text = (PLACE / "minio-py/tests/functional/tests.py").read_text()
        number = 'f"minio-py-test-{next(_bucket_numbers)}"'
        text = text.replace('f"minio-py-test-{uuid4()}"', number).replace("        raise TestFailed()", "        pass")
        text = text.replace("\nKB = 1024\n", "\nKB = 1024\n_bucket_numbers = iter(range(1, 100))\n")
        (work / "tests.py").write_text(text)
        command = [str(PYTHON / "python"), "tests.py"]
    else:
        shutil.copytree(PLACE / "mint/run/core" / part, work)
        # A second bucket beside the first.
        text = (work / "test.sh").read_text().replace('bucket_name="s3cmd-test-bucket-$RANDOM"', 'bucket_name="s3cmd-test-bucket-2"')
        head, main = text.split("\nmain() {" if part == "awscli" else "\nfunction run_test() {")
        begin = "\nmain() {" if part == "awscli" else "\nfunction run_test() {"
        # Names in /tmp would be those of another run beside this one.
        (work / "test.sh").write_text((head + begin + main.replace(" &&\n", "\n")).replace("/tmp/", f"{folder}/"))
        command = ["bash", "./test.sh", f"http://{face.address}"]
    done = subprocess.run(command, cwd=work, env=more, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return [line_of(line) for line in done.stdout.splitlines() if line.startswith("{")]


def line_of(text):
    try:
        return json.loads(text, strict=False)
    except json.JSONDecodeError:
        # The shell's tests put what a program said between quotes as it is.
        found = re.match(r'\{"name": "(?P<name>.*?)", .*"function": "(?P<function>.*?)", "status": "(?P<status>\w+)", .*?"error": "(?P<error>.*)"\}', text)
        return found.groupdict()


def of_mint(part, face, folder):
    results, count = {}, {}
    for line in mint(part, face, folder):
        # Ends of names only: the rest is the address and the folder of the day.
        name = re.sub(r"\S*(://|/tmp/)\S*", "…", line["name"] if part == "minio-py" else line["function"]).strip()
        count[name] = count.get(name, 0) + 1
        name = name if count[name] == 1 else f"{name} ({count[name]})"
        passed = line["status"] == "PASS"
        results[name] = None if passed else str(line.get("error") or line.get("message") or line.get("alert") or line["status"])
    return results


table = {}
(PLACE / "results").mkdir(exist_ok=True)
for face_name in FACES:
    face = Face(face_name)
    try:
        for suite in SUITES:
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                results = ceph(face, folder) if suite == "ceph" else of_mint(suite, face, folder)
            (PLACE / f"results/{suite}.{face_name}.json").write_text(json.dumps(results, indent=1))
            passed = sum(said is None for said in results.values())
            print(f"{suite} | {face_name} | {passed} of {len(results)}", flush=True)
    finally:
        face.stop()
