"""Roundtrip: image registration by inverse consistency. The public names are listed in `__init__.pyi`.

They are imported when first used, so that `import roundtrip` and the command line start at once.
"""

import lazy_loader

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
