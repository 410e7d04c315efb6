"""Stands for tests/utils.py of python-memcached, which its package of PyPI leaves out: the tests import one name from it."""

import io
from contextlib import redirect_stderr


def captured_stderr():
    return redirect_stderr(io.StringIO())
