"""How much memory this process may still take: of the machine, of its share of it, and of its own limit.

A container, and a job on a cluster, may have far less than the machine. Neighbour: `_memory.py`.
"""

import os
from collections.abc import Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")

# Limits beyond this are none: version 1 of control groups writes a huge number for that.
_UNLIMITED = 2**60


def free_memory(*, proc: Path = Path("/proc"), cgroups: Path = _CGROUPS) -> int:
    """In bytes; a lot where nobody can tell."""
    known = [*_of_machine(proc), *_of_group(proc, cgroups), *_of_process(proc)]
    return max(min(known), 0) if known else 2**34


def _of_machine(proc: Path) -> Iterator[int]:
    try:
        lines = (proc / "meminfo").read_text(encoding="ascii").splitlines()
        sizes = {name: int(rest.split()[0]) for name, rest in (line.split(":", 1) for line in lines)}
        yield sizes["MemAvailable"] * 1024
        return
    except (OSError, KeyError, ValueError, IndexError):
        pass
    try:
        yield os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, OSError, ValueError):
        return


def _of_group(proc: Path, cgroups: Path) -> Iterator[int]:
    """Of every control group this process is in, from its own to the outermost."""
    try:
        lines = (proc / "self" / "cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            root, names = cgroups, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            root = cgroups / "memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        own = root / path.strip("/")
        # In a container the path may be one of the machine, and its files lie in the root.
        for folder in {root, *(part for part in (own, *own.parents) if part.is_relative_to(root))}:
            yield from _of_folder(folder, *names)


def _of_folder(folder: Path, limit: str, used: str, cache: str) -> Iterator[int]:
    try:
        most = int((folder / limit).read_text(encoding="ascii"))
        taken = int((folder / used).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return
    if most >= _UNLIMITED:
        return
    try:
        lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
        # Files kept in memory make room when it is needed.
        taken -= int(next((line.split()[1] for line in lines if line.split()[0] == cache), 0))
    except (OSError, ValueError, IndexError):
        pass
    yield most - taken


def _of_process(proc: Path) -> Iterator[int]:
    """What `ulimit -v` leaves."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            pages = int((proc / "self" / "statm").read_text(encoding="ascii").split()[0])
            yield limit - pages * resource.getpagesize()
    except (ImportError, OSError, ValueError, IndexError):
        return
