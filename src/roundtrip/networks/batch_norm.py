"""`BatchNorm`: torch's, for any dimension, that can be told what its batch is a part or a collection of.

Registering both directions of a pair in one pass is faster than in two, but would mix their statistics:
`batches_apart` keeps them as they would have been. Splitting a batch over processes would narrow them:
`batches_across_ranks` takes them over all processes, on any device. Neighbours: `unet.py`, which uses it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable

from roundtrip._shapes import Float, Tensor


class BatchNorm(nn.modules.batchnorm._BatchNorm):
    """Each feature shifted and scaled to mean 0 and variance 1 over batch and grid, then as learned."""

    def __init__(self, num_features: int) -> None:
        super().__init__(num_features)
        self.batches = 1
        self.across_ranks = False
        self.remembers = True

    def parts(self, x: Tensor) -> list[Tensor]:
        """The consecutive batches that `x` is made of, each normalised by itself; `x` may be overwritten."""
        if torch.is_grad_enabled() or self.training or x.dtype != self.weight.dtype:
            return [self(part) for part in x.chunk(self.batches)]
        return [self._in_place(x)]

    def _in_place(self, x: Tensor) -> Tensor:
        """What evaluation does, for all of `x` at once: the largest tensors of a network are not doubled."""
        assert self.running_mean is not None and self.running_var is not None
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        shift = self.bias - self.running_mean * scale
        as_x = (1, -1, *[1] * (x.ndim - 2))
        return x.mul_(scale.view(as_x)).add_(shift.view(as_x))

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or (self.remembers and not self.across_ranks):
            return super().forward(input)
        if not self.across_ranks:
            # Copies learn, and are forgotten.
            mean, variance = (None if b is None else b.clone() for b in (self.running_mean, self.running_var))
            return F.batch_norm(input, mean, variance, self.weight, self.bias, training=True, eps=self.eps)
        mean, variance, count = _statistics_over_ranks(input)
        self._remember(mean, variance * (count / max(count - 1, 1)))
        return _NormalisedOverRanks.apply(input, self.weight, self.bias, mean, variance, count, self.eps)

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        """The running statistics of evaluation mode, kept as torch does, with the unbiased variance."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        if not self.remembers:
            return
        self.num_batches_tracked.add_(1)
        momentum = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
        self.running_var.lerp_(variance.to(self.running_var.dtype), momentum)

    def _check_input_dim(self, input: Tensor) -> None:
        """Any dimension will do."""


@contextmanager
def batches_apart(module: nn.Module, count: int) -> Iterator[None]:
    """Within, every `BatchNorm` of `module` treats its input as `count` batches, one after the other."""
    norms = [m for m in module.modules() if isinstance(m, BatchNorm)]
    for norm in norms:
        norm.batches = count
    try:
        yield
    finally:
        for norm in norms:
            norm.batches = 1


@contextmanager
def batches_across_ranks(module: nn.Module) -> Iterator[None]:
    """Within, every `BatchNorm` of `module` in training mode sees the batches of all processes as one.

    All processes of torch's default group take part, each with as many elements as every other. Without a
    group, or in a group of one, nothing changes. The gradients are those of the sum of all processes' losses.
    """
    apart = not torch.distributed.is_initialized() or torch.distributed.get_world_size() == 1
    norms = [m for m in module.modules() if isinstance(m, BatchNorm) and not apart]
    for norm in norms:
        norm.across_ranks = True
    try:
        yield
    finally:
        for norm in norms:
            norm.across_ranks = False


@contextmanager
def computing_again(norm: BatchNorm, *, across_ranks: bool) -> Iterator[None]:
    """Within, `norm` does what it did before, over the same ranks, and does not count it a second time.

    For activations that are computed again in the backward pass, when `batches_across_ranks` is over.
    """
    before = norm.across_ranks, norm.remembers
    norm.across_ranks, norm.remembers = across_ranks, False
    try:
        yield
    finally:
        norm.across_ranks, norm.remembers = before


def _statistics_over_ranks(x: Tensor) -> tuple[Float[Tensor, "C"], Float[Tensor, "C"], int]:
    """Mean and (biased) variance of every feature over all ranks, and of how many values each is."""
    ranks = torch.distributed.get_world_size()
    axes = [axis for axis in range(x.ndim) if axis != 1]
    with torch.no_grad():
        # Half precision would not hold a sum over a volume.
        local = x.to(torch.promote_types(x.dtype, torch.float32))
        variance, mean = torch.var_mean(local, dim=axes, correction=0)
        own = torch.stack([mean, variance])
        all_ranks = own.new_empty(ranks, *own.shape)
        torch.distributed.all_gather(list(all_ranks.unbind()), own)
        means, variances = all_ranks.unbind(dim=1)
        mean = means.mean(dim=0)
        variance = (variances + (means - mean).square()).mean(dim=0)
    return mean, variance, ranks * x.numel() // x.shape[1]


class _NormalisedOverRanks(torch.autograd.Function):
    """(x - mean) / sqrt(variance + eps) * weight + bias, where mean and variance depend on x of all ranks."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        mean: Tensor,
        variance: Tensor,
        count: int,
        eps: float,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, mean, variance)
        ctx.count, ctx.eps = count, eps
        return F.batch_norm(x, mean, variance, weight, bias, training=False, eps=eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, variance = ctx.saved_tensors
        # As if the statistics were constants ...
        direct, grad_weight, grad_bias = torch.ops.aten.native_batch_norm_backward(
            grad, x, weight, mean, variance, None, None, False, ctx.eps, [True, True, True]
        )
        # ... and through them: the sums over all ranks are the gradients of weight and bias there.
        sums = torch.stack([grad_weight, grad_bias])
        torch.distributed.all_reduce(sums)
        by_scale, by_shift = sums
        precision = (variance + ctx.eps).rsqrt()
        slope = -weight * precision.square() * by_scale / ctx.count
        offset = -weight * precision * by_shift / ctx.count - slope * mean
        as_x = (1, -1, *[1] * (x.ndim - 2))
        through = x * slope.to(x.dtype).view(as_x) + offset.to(x.dtype).view(as_x)
        return direct + through, grad_weight, grad_bias, None, None, None, None
