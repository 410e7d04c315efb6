"""A key that asks too much is told SlowDown; other keys are served, and false signatures cost a key nothing."""
import json, os, sys

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
assert read(admin) == 200
found = [read(admin) for _ in range(300)]
assert "SlowDown" in found and set(found) <= {200, "SlowDown"}, set(found)
assert read(reader) == 200
