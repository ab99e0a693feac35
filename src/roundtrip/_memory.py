"""Memory of the process: keep what was freed for the next tensor instead of giving it back to the system.

glibc returns every block of more than 32 MB at once and asks for it again, page by page, at the next
operation: on a CPU that costs several times the arithmetic of an elementwise operation on a volume.
The command line does this for itself; a library never does it for others.
"""

import ctypes
import sys

# From malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def keep_freed_memory() -> bool:
    """Ask the C library to keep freed memory for the life of the process; False where it has no such switch.

    A process then holds on to its peak of memory. Worth it for training and for large volumes on a CPU.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # a C library other than glibc
        return False
    return bool(mallopt(_M_MMAP_MAX, 0)) and bool(mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))
