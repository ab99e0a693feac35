"""What is free is the least of what the machine, a control group and the process's own limit leave."""

import resource

import pytest

from roundtrip._free import free_memory

GB = 2**30


@pytest.fixture
def machine(tmp_path):
    """Folders as Linux has them, on a machine with 64 GB free; `write` adds files."""

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    write("proc/meminfo", f"MemTotal: {128 * 2**20} kB\nMemAvailable: {64 * 2**20} kB\n")
    write("proc/self/statm", "1000 10 10")
    write("proc/self/cgroup", "0::/job\n")

    def free():
        return free_memory(proc=tmp_path / "proc", cgroups=tmp_path / "cgroup")

    return write, free


def test_without_limits_it_is_the_machines(machine):
    write, free = machine
    assert free() == 64 * GB
    write("cgroup/job/memory.max", "max\n")
    write("cgroup/job/memory.current", str(GB))
    assert free() == 64 * GB


def test_a_job_has_what_its_group_and_those_around_it_leave(machine):
    write, free = machine
    write("cgroup/job/memory.max", str(16 * GB))
    write("cgroup/job/memory.current", str(6 * GB))
    write("cgroup/job/memory.stat", f"anon {2 * GB}\ninactive_file {4 * GB}\n")
    assert free() == 14 * GB
    write("cgroup/memory.max", str(8 * GB))
    write("cgroup/memory.current", str(5 * GB))
    assert free() == 3 * GB


def test_older_groups_are_known_too(machine):
    write, free = machine
    write("proc/self/cgroup", "11:cpu,cpuacct:/job\n4:memory:/job\n")
    write("cgroup/memory/job/memory.limit_in_bytes", str(4 * GB))
    write("cgroup/memory/job/memory.usage_in_bytes", str(1 * GB))
    write("cgroup/memory/memory.limit_in_bytes", str(2**63 - 4096))
    write("cgroup/memory/memory.usage_in_bytes", str(1 * GB))
    assert free() == 3 * GB


def test_a_limit_of_the_process_counts(machine, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (2 * GB, 2 * GB))
    assert machine[1]() == 2 * GB - 1000 * resource.getpagesize()


def test_more_taken_than_allowed_is_nothing_and_no_files_are_a_guess(machine, tmp_path):
    write, free = machine
    write("cgroup/job/memory.max", str(GB))
    write("cgroup/job/memory.current", str(2 * GB))
    assert free() == 0
    assert free_memory(proc=tmp_path / "none", cgroups=tmp_path / "none") > GB
