"""Every test checks the shape annotations of all calls into the package, unless it asks otherwise."""

from collections.abc import Iterator

import jaxtyping
import pytest
from jaxtyping import install_import_hook

# Before anything of ours is imported, so that the annotations in `_shapes.py` are enforced in all of it.
install_import_hook("roundtrip", "beartype.beartype")


@pytest.fixture
def as_users_see_it() -> Iterator[None]:
    """Without the annotation checks, which no user has: wrong arguments meet our own messages."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
