"""Launching: processes that work together also end together."""

import os
import signal
import subprocess
import sys
import time

import pytest

SCRIPT = """
import os, sys, time
from roundtrip._launch import Resources, launched
with launched(Resources(devices=2, threads=1, accelerator="cpu")) as ranks:
    open(os.path.join(sys.argv[1], str(ranks.rank)), "w").write(str(os.getpid()))
    time.sleep(120)
"""


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # Ended, and not yet asked about by whoever inherited it.
    status = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout
    return not status.strip().startswith("Z") and bool(status.strip())


@pytest.mark.slow
def test_no_process_outlives_the_first(tmp_path):
    script, told = tmp_path / "work.py", tmp_path / "told"
    script.write_text(SCRIPT)
    told.mkdir()
    with subprocess.Popen([sys.executable, str(script), str(told)]) as first:
        until = time.monotonic() + 100
        while not all((told / rank).exists() and (told / rank).read_text() for rank in "01"):
            assert time.monotonic() < until and first.poll() is None
            time.sleep(0.2)
        other = int((told / "1").read_text())
        first.send_signal(signal.SIGKILL)
    until = time.monotonic() + 20
    while is_alive(other) and time.monotonic() < until:
        time.sleep(0.2)
    assert not is_alive(other)
