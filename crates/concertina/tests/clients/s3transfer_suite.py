"""s3transfer's own integration tests, from its source distribution, unchanged: `s3transfer_suite.py FOLDER`.

They make a bucket at AWS and remove it; here they get the bucket `objects`, and an endpoint from the environment. Prints a line for
each test: its name, and `ok`, `failed` or `skipped`; what failed goes to standard error.
"""

import os
import sys
import unittest

sys.path.insert(0, sys.argv[1])

import botocore.session
import tests.integration as integration


@classmethod
def begin(cls):
    cls.region = "us-west-2"
    cls.session = botocore.session.get_session()
    cls.client = cls.session.create_client("s3", cls.region)
    cls.bucket_name = "objects"


@classmethod
def end(cls):
    pass


integration.BaseTransferManagerIntegTest.setUpClass = begin
integration.BaseTransferManagerIntegTest.tearDownClass = end


class Lines(unittest.TestResult):
    def line(self, test, what):
        print(test.id().removeprefix("tests.integration."), what, flush=True)

    def addSuccess(self, test):
        self.line(test, "ok")

    def addSkip(self, test, reason):
        self.line(test, "skipped")

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.line(test, "failed")
        print(self.failures[-1][1], file=sys.stderr)

    def addError(self, test, error):
        super().addError(test, error)
        self.line(test, "failed")
        print(self.errors[-1][1], file=sys.stderr)


modules = ["test_copy", "test_delete", "test_download", "test_processpool", "test_s3transfer", "test_upload"]
os.chdir(sys.argv[1])
suite = unittest.defaultTestLoader.loadTestsFromNames([f"tests.integration.{name}" for name in modules])
suite.run(Lines())
