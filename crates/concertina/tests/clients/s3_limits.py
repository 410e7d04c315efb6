"""A key that asks too much is told SlowDown; other keys are served, and false signatures cost a key nothing."""
import json, os, socket, sys

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

keys = json.loads(os.environ["KEYS"])


def client(who, secret=None):
    config = Config(retries={"max_attempts": 0}, s3={"addressing_style": "path"})
    return boto3.client("s3", endpoint_url=f"http://{sys.argv[1]}", aws_access_key_id=keys[who][0],
                        aws_secret_access_key=secret or keys[who][1], config=config)


def code(ask):
    try:
        ask()
        return 200
    except ClientError as error:
        return error.response["Error"]["Code"]


admin, reader, thief = client("admin"), client("reader"), client("admin", "not-the-secret")
read = lambda of: code(lambda: of.get_object(Bucket="objects", Key="a")["Body"].read())
assert code(lambda: admin.put_object(Bucket="objects", Key="a", Body=b"x")) == 200
assert all(read(thief) == "SignatureDoesNotMatch" for _ in range(100)), "they are refused, and nothing else"
# So do lengths that are stated beside a key's id and not sent.
host, port = sys.argv[1].rsplit(":", 1)
for _ in range(20):
    with socket.create_connection((host, int(port))) as stream:
        stream.sendall(f"POST /objects?delete HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000000\r\nauthorization: "
                       f"AWS4-HMAC-SHA256 Credential={keys['admin'][0]}/\r\n\r\n".encode())
        assert stream.recv(100).startswith(b"HTTP/1.1 4")
assert read(admin) == 200
found = [read(admin) for _ in range(300)]
assert "SlowDown" in found and set(found) <= {200, "SlowDown"}, set(found)
assert read(reader) == 200
