"""What a map is: a function of points. Here: the type, our abstract base, `Identity` and `Composition`.

A map of (moving, fixed) takes points of the fixed image to points of the moving image, both in unit
coordinates, so that `moving(phi(x))` looks like `fixed(x)`. Any callable may stand where a `Map` is asked
for; ours (`affine.py`, `displacement.py`, here) are frozen objects that print, compose and move to a device.
"""

import abc
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from roundtrip._shapes import Float, Points, Tensor
from roundtrip.maps.grid import unit_grid

Map: TypeAlias = Callable[[Points], Points]

# Not `typing.Self`: the annotation checks of the tests decorate methods, where that has no meaning.
SameMap = TypeVar("SameMap", bound="AbstractMap")


class AbstractMap(abc.ABC):
    """A function of points `(B, N, *P)` in unit coordinates that does not depend on a resolution."""

    @abc.abstractmethod
    def __call__(self, x: Float[Tensor, "#B N *P"]) -> Points: ...

    def on_grid_of(self, image: Tensor) -> Points:
        """The map at every voxel of `image`, whose values do not matter.

        A map that is stored on that very grid answers without interpolating.
        """
        return self(unit_grid(image.shape[2:], like=image))

    def __matmul__(self, inner: Map) -> "Composition":
        return Composition(self, inner)

    def __rmatmul__(self, outer: Map) -> "Composition":
        return Composition(outer, self)

    def to(self: SameMap, *args: Any, **kwargs: Any) -> SameMap:
        """The same map with every tensor moved or converted as `Tensor.to` does it."""
        return _with_tensors(self, lambda tensor: tensor.to(*args, **kwargs))

    def detach(self: SameMap) -> SameMap:
        """The same map, cut off from the graph that computed it."""
        return _with_tensors(self, Tensor.detach)

    def __getitem__(self: SameMap, batch: slice) -> SameMap:
        """The maps of some elements of the batch: `phi[:2]` are the first two."""
        if not isinstance(batch, slice):
            raise ValueError(f"phi[{batch!r}] selects from the batch; give a slice, e.g. phi[0:1].")
        return _with_tensors(self, lambda tensor: tensor[batch] if tensor.shape[0] > 1 else tensor)

    def __deepcopy__(self: SameMap, memo: Any) -> SameMap:
        # torch refuses to copy what a network computed, unless it is asked for a clone.
        return _with_tensors(self, Tensor.clone)

    def __repr__(self) -> str:
        parts = (f"{f.name}={_brief(getattr(self, f.name))}" for f in dataclasses.fields(self))  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(parts)})"


@dataclass(frozen=True, eq=False, repr=False)
class Identity(AbstractMap):
    """Every point stays where it is."""

    def __call__(self, x: Float[Tensor, "#B N *P"]) -> Points:
        return x


@dataclass(frozen=True, eq=False, repr=False)
class Composition(AbstractMap):
    """(outer o inner)(x) = outer(inner(x)). Written `outer @ inner`."""

    outer: Map
    inner: Map

    def __post_init__(self) -> None:
        _require_map(self.outer)
        _require_map(self.inner)

    def __call__(self, x: Float[Tensor, "#B N *P"]) -> Points:
        return self.outer(self.inner(x))

    def on_grid_of(self, image: Tensor) -> Points:
        return self.outer(on_grid_of(self.inner, image))


def on_grid_of(phi: Map, image: Tensor) -> Points:
    """Any map at every voxel of `image`; see `AbstractMap.on_grid_of`."""
    if isinstance(phi, AbstractMap):
        return phi.on_grid_of(image)
    _require_map(phi)
    return phi(unit_grid(image.shape[2:], like=image))


def _require_map(phi: Any) -> None:
    if not callable(phi):
        raise ValueError(
            f"a map is a function of points, but a {type(phi).__name__} was given. A displacement in unit "
            "coordinates, (batch, N, *grid), becomes one by `rt.DisplacementMap(displacement)`; a network an "
            "algorithm, which returns one, by `rt.DisplacementRegistration(network)`."
        )


def _with_tensors(phi: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A copy of a map whose tensors, and those of the maps it is made of, went through `change`."""

    def changed(value: Any) -> Any:
        if isinstance(value, Tensor):
            return change(value)
        return _with_tensors(value, change) if isinstance(value, AbstractMap) else value

    fields = dataclasses.fields(phi)
    return dataclasses.replace(phi, **{f.name: changed(getattr(phi, f.name)) for f in fields})


def _brief(value: Any) -> str:
    """A tensor by its shape, precision and device; anything else as it prints itself."""
    if not isinstance(value, Tensor):
        return repr(value)
    return f"<{'x'.join(map(str, value.shape))} {str(value.dtype).removeprefix('torch.')} on {value.device}>"
