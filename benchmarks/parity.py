"""Roundtrip beside the published package: the same weights, images and random points give the same numbers.

    benchmarks/environment.sh && benchmarks/environment/bin/python benchmarks/parity.py

For every network and nesting that both have, in ICON and GradICON, with batch norm in training and in eval
mode, in double and single precision, it prints how far apart are

- maps: phi_AB on the grid and at the random points around it, at most, in voxels (of each axis);
- terms: inverse consistency, similarity, total, magnitude, at most, relative;
- learned: the gradients of the total and the batch statistics after the step, relative in norm;

and how far the package in single precision is from itself in double, by rounding alone. For scale, the number
of folds, and the largest displacement in voxels. It ends with exit code 1 if anywhere maps differ by more
than 1e-5 voxels, terms by more than 1e-5 relative, or folds at all; in single precision, by more than that
and more than twice rounding alone. The weights are random, and the maps rougher than those of trained
networks.

Our inverse consistency and magnitude are sums over the N components where the package's are means; that
factor is taken out.
"""

import argparse
import contextlib
import functools
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from unittest import mock

import icon_registration as icon
import torch
from icon_registration import networks as published
from torch import Tensor, nn

from roundtrip.algorithms.description import describe
from roundtrip.algorithms.from_network import (
    AffineRegistration,
    DisplacementRegistration,
)
from roundtrip.algorithms.icon_weights import algorithm_for_icon_weights, load_icon_weights
from roundtrip.algorithms.multistep import AtHalfResolution, TwoStep
from roundtrip.algorithms.objective import InverseConsistent
from roundtrip.losses.regularity import gradicon, inverse_consistency, points_as_published
from roundtrip.losses.similarity import mse
from roundtrip.maps.grid import along_channels, unit_grid
from roundtrip.maps.map import on_grid_of
from roundtrip.networks.affine import AffineNetwork
from roundtrip.networks.conv_only import ConvOnly
from roundtrip.networks.encoder_decoder import EncoderDecoder
from roundtrip.networks.mlp import MLP
from roundtrip.networks.unet import UNet

TOLERANCE = 1e-5
LAMBDA = 50.0
SEED = 3


Make = Callable[[], nn.Module]
Pair = tuple[Make, Make]
"""The package's algorithm, and ours."""


@dataclass(frozen=True)
class Case:
    """One algorithm, as the package makes it and as we do, and the grid to try it on."""

    name: str
    theirs: Make
    ours: Make
    shape: tuple[int, ...]
    batch: int = 2


@dataclass(frozen=True)
class Setting:
    """How a case is run."""

    gradient: bool
    training: bool

    def __str__(self) -> str:
        return f"{'GradICON' if self.gradient else 'ICON':9} {'train' if self.training else 'eval':6}"


@dataclass(frozen=True)
class Step:
    """What came out of one training step, by the package's definitions and our names."""

    maps: Tensor
    terms: Tensor
    folds: float
    learned: dict[str, Tensor]


@dataclass(frozen=True)
class Differences:
    """How far two steps are apart."""

    maps: float
    terms: float
    learned: float
    folds: float

    def __str__(self) -> str:
        return f"{self.maps:9.1e}{self.terms:9.1e}{self.learned:9.1e}"

    def within(self, rounding: "Differences | None" = None) -> bool:
        # Two results, both rounded, may be twice as far apart as one of them is from the truth.
        slack = (
            Differences(*(2 * value for value in astuple(rounding))) if rounding else Differences(0, 0, 0, 0)
        )
        return (
            self.maps <= max(TOLERANCE, slack.maps)
            and self.terms <= max(TOLERANCE, slack.terms)
            and self.folds <= slack.folds
        )


def field(net: Make) -> Make:
    return lambda: icon.FunctionFromVectorField(net())


def displacement(net: Make) -> Make:
    return lambda: DisplacementRegistration(net())


def tall(dims: int) -> Pair:
    """The published U-Net."""
    return (
        field(lambda: published.tallUNet2(dimension=dims)),
        displacement(lambda: UNet(dims=dims)),
    )


def shallow(dims: int) -> Pair:
    """Three of its five levels, for nestings that would need large images otherwise."""
    down, up = (16, 32, 64), (16, 32, 64)
    return (
        field(lambda: published.UNet2(len(down), [[2, *down], up], dims)),
        displacement(lambda: UNet(dims=dims, down_features=down, up_features=up)),
    )


def coarse_to_fine(unet: Pair, *, dims: int, halvings: int, more: int) -> Pair:
    """U-Nets nested as in the package's GradICON models: a step for each halving, `more` at the end."""
    their_unet, our_unet = unet

    def theirs() -> nn.Module:
        net = their_unet()
        for _ in range(halvings):
            net = icon.TwoStepRegistration(icon.DownsampleRegistration(net, dimension=dims), their_unet())
        for _ in range(more):
            net = icon.TwoStepRegistration(net, their_unet())
        return net

    def ours() -> nn.Module:
        algorithm = our_unet()
        for _ in range(halvings):
            algorithm = TwoStep(AtHalfResolution(algorithm), our_unet())
        for _ in range(more):
            algorithm = TwoStep(algorithm, our_unet())
        return algorithm

    return theirs, ours


def paper_knees(unet: Pair) -> Pair:
    """The paper's knees: two steps at half resolution, two more at full, a U-Net in every place."""
    unet_theirs, unet_ours = unet
    low_theirs, low_ours = coarse_to_fine(unet, dims=3, halvings=0, more=1)

    def theirs() -> nn.Module:
        half = icon.DownsampleRegistration(low_theirs(), dimension=3)
        return icon.TwoStepRegistration(icon.TwoStepRegistration(half, unet_theirs()), unet_theirs())

    def ours() -> nn.Module:
        return TwoStep(TwoStep(AtHalfResolution(low_ours()), unet_ours()), unet_ours())

    return theirs, ours


def two_kinds() -> Pair:
    """A matrix at half resolution, then displacements."""

    def theirs() -> nn.Module:
        matrix = icon.FunctionFromMatrix(published.ConvolutionalMatrixNet(dimension=2))
        half = icon.DownsampleRegistration(matrix, dimension=2)
        return icon.TwoStepRegistration(half, icon.FunctionFromVectorField(published.tallAE()))

    def ours() -> nn.Module:
        matrix = AffineRegistration(AffineNetwork(dims=2))
        return TwoStep(AtHalfResolution(matrix), DisplacementRegistration(EncoderDecoder(dims=2)))

    return theirs, ours


# The package pools no axis of one voxel in 3D: each halving doubles the smallest grid it can work on.
CASES = (
    Case("MLP 2D", field(lambda: published.FCNet(size=9)), displacement(lambda: MLP((9, 9))), (9, 9)),
    Case(
        "encoder-decoder 2D",
        field(published.tallAE),
        displacement(lambda: EncoderDecoder(dims=2)),
        (29, 36),
    ),
    Case("ConvOnly 2D", field(published.RegisNet), displacement(lambda: ConvOnly(dims=2)), (29, 36)),
    Case("U-Net 2D", *tall(2), (29, 36)),
    Case("U-Net 3D", *tall(3), (17, 20, 23)),
    Case("two steps 2D", *coarse_to_fine(tall(2), dims=2, halvings=0, more=1), (29, 36)),
    Case("two steps 3D", *coarse_to_fine(tall(3), dims=3, halvings=0, more=1), (17, 20, 23)),
    Case("half, full 2D", *coarse_to_fine(tall(2), dims=2, halvings=1, more=0), (29, 36)),
    Case("half, full 3D", *coarse_to_fine(tall(3), dims=3, halvings=1, more=0), (33, 34, 35), batch=1),
    Case("quarter, half, full x 2 2D", *coarse_to_fine(tall(2), dims=2, halvings=2, more=1), (41, 38)),
    Case(
        "quarter, half, full x 2 3D, shallow",
        *coarse_to_fine(shallow(3), dims=3, halvings=2, more=1),
        (17, 20, 23),
    ),
    Case("half x 2, full x 2 3D", *paper_knees(tall(3)), (33, 34, 35), batch=1),
    Case(
        "matrix 2D",
        lambda: icon.FunctionFromMatrix(published.ConvolutionalMatrixNet(dimension=2)),
        lambda: AffineRegistration(AffineNetwork(dims=2)),
        (29, 36),
    ),
    Case(
        "matrix 3D",
        lambda: icon.FunctionFromMatrix(published.ConvolutionalMatrixNet(dimension=3)),
        lambda: AffineRegistration(AffineNetwork(dims=3)),
        (33, 34, 35),
    ),
    Case("half matrix, encoder-decoder 2D", *two_kinds(), (29, 36)),
)
# A quarter of an hour.
LONG = (
    Case(
        "quarter, half, full x 2 3D",
        *coarse_to_fine(tall(3), dims=3, halvings=2, more=1),
        shape=(65, 65, 66),
        batch=1,
    ),
)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--only", default="", help="cases whose name contains this")
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--long", action="store_true", help="also the largest case, a quarter of an hour")
    chosen = arguments.parse_args()
    torch.set_num_threads(chosen.threads)

    missed = 0
    heading = "     maps    terms  learned"
    print(f"{'':58}{'double precision':^27} | {'single precision':^27} | {'rounding alone':^27} |")
    print(f"{'':58}{heading} | {heading} | {heading} |    folds   voxels")
    for case in (*CASES, *(LONG if chosen.long else ())):
        if chosen.only not in case.name:
            continue
        for setting in (Setting(g, t) for g in (False, True) for t in (True, False)):
            theirs, ours = both(case, setting)
            double, single = (apart(case, ours[p], theirs[p]) for p in (torch.float64, torch.float32))
            rounding = apart(case, theirs[torch.float32], theirs[torch.float64])
            good = double.within() and single.within(rounding)
            missed += not good
            grid = unit_grid(case.shape, like=theirs[torch.float64].maps)
            displacement = in_voxels(theirs[torch.float64].maps[: case.batch] - grid, case.shape)
            print(
                f"{case.name:42}{setting}{double} | {single} | {rounding} |"
                f"{theirs[torch.float64].folds:9g}{displacement:9.1f}{'' if good else '  MISSED'}",
                flush=True,
            )
    print(f"{missed} missed" if missed else "all agree")
    return 1 if missed else 0


def both(case: Case, setting: Setting) -> tuple[dict[torch.dtype, Step], dict[torch.dtype, Step]]:
    """One step of the package and one of ours, in each precision, from the same weights."""
    torch.manual_seed(SEED)
    weights = trained(case.theirs()).state_dict()
    found, made = describe(algorithm_for_icon_weights(weights)), describe(case.ours())
    assert found == made, f"{case.name} was taken for {found}"
    theirs, ours = {}, {}
    for dtype in (torch.float64, torch.float32):
        theirs[dtype] = their_step(case, setting, weights, dtype)
        ours[dtype] = our_step(case, setting, weights, dtype)
    return theirs, ours


def their_step(case: Case, setting: Setting, weights: dict[str, Tensor], dtype: torch.dtype) -> Step:
    inner = case.theirs()
    inner.load_state_dict(weights)
    objective = (icon.GradientICON if setting.gradient else icon.InverseConsistentNet)(
        inner, icon.SSD(), LAMBDA
    )
    objective.assign_identity_map((case.batch, 1, *case.shape))
    objective.to(dtype).train(setting.training)
    for module in objective.modules():
        # The package makes its grids in single precision; in double they would be wrong in the 7th digit.
        if isinstance(module, icon.RegistrationModule):
            module.identity_map.copy_(unit_grid(module.identity_map.shape[2:], like=module.identity_map))

    moving, fixed = images(case, dtype)
    x = points_of_evaluation(case, dtype)
    with precision(dtype):
        torch.manual_seed(SEED)
        terms = objective(moving, fixed)
        terms.all_loss.backward()
        with torch.no_grad():
            beyond = objective.phi_AB(x)
    # Our names for what it learned, by way of an algorithm of ours that takes it for weights.
    named = case.ours().to(dtype)
    load_icon_weights(named, inner.state_dict() | {k: p.grad for k, p in inner.named_parameters()})
    values = (
        terms.all_loss,
        terms.similarity_loss,
        terms.inverse_consistency_loss,
        terms.transform_magnitude,
    )
    return Step(
        maps=torch.cat([objective.phi_AB_vectorfield.detach(), beyond]),
        terms=torch.stack(values).detach(),
        folds=terms.flips.item(),
        learned=named.state_dict(),
    )


@contextlib.contextmanager
def precision(dtype: torch.dtype) -> Iterator[None]:
    """The package's constants are made in `dtype`; its random numbers are still drawn in single precision."""
    draw = functools.partial(torch.randn, dtype=torch.float32)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with mock.patch("torch.randn", draw):
            yield
    finally:
        torch.set_default_dtype(before)


def our_step(case: Case, setting: Setting, weights: dict[str, Tensor], dtype: torch.dtype) -> Step:
    N = len(case.shape)
    moving, fixed = images(case, dtype)
    algorithm = case.ours()
    load_icon_weights(algorithm, weights)
    objective = InverseConsistent(
        algorithm,
        similarity=mse,
        weight=LAMBDA if setting.gradient else LAMBDA / N,
        regularity=gradicon if setting.gradient else inverse_consistency,
        points=points_as_published if dtype == torch.float32 else points_as_published_in_double,
    )
    objective.to(dtype).train(setting.training)

    terms = objective(moving, fixed, torch.Generator().manual_seed(SEED))
    terms.total.backward()
    irregularity = terms.inverse_consistency / (1 if setting.gradient else N)
    gradients = {name: parameter.grad for name, parameter in algorithm.named_parameters()}
    learned = {name: tensor.clone() for name, tensor in (algorithm.state_dict() | gradients).items()}
    with torch.no_grad():
        phi = algorithm(moving, fixed)
        maps = torch.cat([on_grid_of(phi, moving), phi(points_of_evaluation(case, dtype))])
    return Step(
        maps=maps,
        terms=torch.stack([terms.total, terms.similarity, irregularity, terms.magnitude / N]).detach(),
        folds=terms.folds.item(),
        learned=learned,
    )


def points_as_published_in_double(image: Tensor, generator: torch.Generator) -> Tensor:
    """As in single precision: the random numbers must be the same."""
    grid = unit_grid(image.shape[2:], like=image)
    return grid + torch.randn(grid.shape, generator=generator) / image.shape[-1]


def points_of_evaluation(case: Case, dtype: torch.dtype) -> Tensor:
    """Points on and beyond the image, others for each element of the batch."""
    noise = torch.randn(
        case.batch, len(case.shape), *case.shape, generator=torch.Generator().manual_seed(SEED)
    )
    return (unit_grid(case.shape) + noise / case.shape[-1]).to(dtype)


def images(case: Case, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Smooth blobs and a little noise, in [0, 1]."""
    generator = torch.Generator().manual_seed(SEED)
    grid = unit_grid(case.shape)
    centre = 0.3 + 0.4 * torch.rand(2 * case.batch, len(case.shape), generator=generator)
    distance = (grid - centre.reshape(*centre.shape, *[1] * len(case.shape))).norm(dim=1, keepdim=True)
    noise = torch.rand(distance.shape, generator=generator)
    moving, fixed = (0.9 * torch.sigmoid(20 * (0.3 - distance)) + 0.1 * noise).to(dtype).chunk(2)
    return moving, fixed


@torch.no_grad()
def trained(module: nn.Module) -> nn.Module:
    """Random weights everywhere: those the constructors leave at zero, and the batch statistics, too."""
    for name, tensor in module.state_dict().items():
        if not tensor.is_floating_point():
            continue
        noise = torch.randn(tensor.shape)
        if name.endswith("running_var"):
            tensor.copy_(1 + 0.5 * torch.rand(tensor.shape))
        elif tensor.ndim < 2:
            tensor.add_(0.05 * noise)
        else:
            last = any(layer in name for layer in ("lastConv", "dense3", "conv6"))
            tensor.copy_((0.2 if last else 1.0) * noise / math.sqrt(tensor[0].numel()))
    return module


def in_voxels(vectors: Tensor, shape: tuple[int, ...]) -> float:
    """The largest component."""
    sizes = torch.tensor([float(n - 1) for n in shape], dtype=vectors.dtype)
    return (vectors * along_channels(sizes, vectors)).abs().max().item()


def apart(case: Case, one: Step, other: Step) -> Differences:
    return Differences(
        maps=in_voxels(one.maps - other.maps, case.shape),
        terms=((one.terms - other.terms).abs() / other.terms).max().item(),
        learned=max(learned_apart(one, other, "running_"), learned_apart(one, other, "")),
        folds=abs(one.folds - other.folds),
    )


def learned_apart(one: Step, other: Step, kind: str) -> float:
    """The distance of all batch statistics, or of all gradients, by their length."""
    names = [n for n in other.learned if "num_batches" not in n and ("running_" in n) == bool(kind)]
    distance = sum((one.learned[n] - other.learned[n]).square().sum().item() for n in names)
    length = sum(other.learned[n].square().sum().item() for n in names)
    return math.sqrt(distance / length) if names else 0.0


if __name__ == "__main__":
    sys.exit(main())
