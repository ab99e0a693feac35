"""What a registration algorithm is: a module from (moving, fixed) to a map. Only the contract lives here.

Neighbours: `from_network.py` makes algorithms from networks, `multistep.py` from other algorithms,
`consistent.py` such that the inverse comes for free, `direct.py` without any network; `objective.py` is the
loss that trains them.
"""

import abc

from torch import nn

from roundtrip._shapes import Image
from roundtrip.maps.map import Map


class AbstractRegistration(nn.Module, abc.ABC):
    """Finds the map phi that makes `moving(phi(x))` look like `fixed(x)`.

    phi takes points of the fixed image to points of the moving image. Nothing about the pair is stored: two
    calls cannot disturb each other. The images share one grid of any size, in 1, 2 or 3 dimensions.
    """

    @abc.abstractmethod
    def forward(self, moving: Image, fixed: Image) -> Map: ...
