# The public names, room by room; anything that is not listed here may change tomorrow.
from . import plot
from ._memory import keep_freed_memory
from .algorithms.card import Card
from .algorithms.consistent import ConsistentAffine, ConsistentTwoStep, ConsistentVelocity
from .algorithms.direct import DirectOptimisation
from .algorithms.from_network import AffineRegistration, DisplacementRegistration, VelocityRegistration
from .algorithms.icon_weights import load_icon_weights
from .algorithms.multistep import AtHalfResolution, Frozen, TwoStep
from .algorithms.objective import InverseConsistent, PairObjective
from .algorithms.registration import AbstractRegistration
from .algorithms.saved import load, save
from .losses.information import mutual_information
from .losses.local import lncc
from .losses.mind import mind_ssc
from .losses.regularity import (
    bending_energy, diffusion, expected_inverse_consistency, gradicon, inverse_consistency,
    noisy_inverse_consistency, points_off_grid, points_on_grid,
)  # fmt: skip
from .losses.similarity import mse, ncc
from .losses.supervision import landmark_distance, soft_dice
from .maps.affine import AffineMap
from .maps.displacement import DisplacementMap
from .maps.folds import folds_as_published, folds_central, non_diffeomorphic_volume
from .maps.grid import unit_grid
from .maps.interpolate import interpolate, interpolate_cubic, interpolate_nearest, interpolate_or_zero, warp
from .maps.inverse import invert
from .maps.jacobian import central_difference, determinant, jacobian
from .maps.map import AbstractMap, Composition, Identity, on_grid_of
from .maps.velocity import exponential
from .networks.affine import AffineNetwork
from .networks.conv_only import ConvOnly
from .networks.encoder_decoder import EncoderDecoder
from .networks.mlp import MLP
from .networks.unet import UNet
from .pairwise.register import register
from .space.files import read, write
from .space.transform import Transform
from .space.volume import Volume
from .training.engine import fit

__all__ = [
    "AbstractMap", "AbstractRegistration", "AffineMap", "AffineNetwork", "AffineRegistration", "AtHalfResolution",
    "Card", "Composition", "ConsistentAffine", "ConsistentTwoStep", "ConsistentVelocity", "ConvOnly",
    "DirectOptimisation", "DisplacementMap", "DisplacementRegistration", "EncoderDecoder", "Frozen", "Identity",
    "InverseConsistent", "MLP", "PairObjective", "Transform", "TwoStep", "UNet", "VelocityRegistration", "Volume",
    "bending_energy", "central_difference", "determinant", "diffusion", "expected_inverse_consistency", "exponential",
    "fit", "folds_as_published", "folds_central", "gradicon", "interpolate", "interpolate_cubic",
    "interpolate_nearest", "interpolate_or_zero", "inverse_consistency", "invert", "jacobian", "keep_freed_memory",
    "landmark_distance", "lncc", "load", "load_icon_weights", "mind_ssc", "mse", "mutual_information", "ncc",
    "noisy_inverse_consistency", "non_diffeomorphic_volume", "on_grid_of", "plot", "points_off_grid",
    "points_on_grid", "read", "register", "save", "soft_dice", "unit_grid", "warp", "write",
]  # fmt: skip
