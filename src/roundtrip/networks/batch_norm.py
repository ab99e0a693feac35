"""`BatchNorm`: torch's, for any dimension, that can be told what its batch is a part or a collection of.

Registering both directions of a pair in one pass is faster than in two, but would mix their statistics:
`batches_apart` keeps them as they would have been. Splitting a batch over processes would narrow them:
`batches_across_ranks` takes them over all processes, on any device. On a CPU its sums are more exact than
torch's. Neighbours: `unet.py`, which uses it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed
import torch.nn.functional as F
from torch import nn

from roundtrip._shapes import Float, Tensor
from roundtrip.networks.layers import CHANNELS_LAST

FEW = 2**12
"""So many values in a row are added up well enough in float32."""


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
        if not self.training:
            return super().forward(input)
        if self.across_ranks or _is_summed_carelessly(input):
            mean, variance, count = _statistics(input, self.across_ranks)
            self._remember(mean, variance * (count / max(count - 1, 1)))
            of_batch = mean, variance, count
            return _Normalised.apply(input, self.weight, self.bias, of_batch, self.eps, self.across_ranks)
        if self.remembers:
            return super().forward(input)
        # Copies learn, and are forgotten.
        copies = [None if b is None else b.clone() for b in (self.running_mean, self.running_var)]
        return F.batch_norm(input, copies[0], copies[1], self.weight, self.bias, training=True, eps=self.eps)

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


def _is_summed_carelessly(x: Tensor) -> bool:
    """Where torch's batch norm adds up a feature value by value: on a CPU, with channels last.

    In float32 a variance over 300 000 voxels is then off by 1e-4 of itself; with channels first, by 1e-7.
    """
    return x.device.type == "cpu" and x.is_contiguous(memory_format=CHANNELS_LAST[x.ndim]) and x.ndim > 3


@torch.no_grad()
def _statistics(x: Tensor, across_ranks: bool) -> tuple[Float[Tensor, "C"], Float[Tensor, "C"], int]:
    """Mean and (biased) variance of every feature, over all ranks if asked for, and of how many values."""
    lines = x.movedim(1, -1).flatten(0, -2)
    # Half precision would not hold a sum over a volume, and torch would round what it returns to it.
    dtype = torch.promote_types(x.dtype, torch.float32)
    if _is_summed_carelessly(x):
        parts = lines.split(FEW)
        as_images = (part.to(dtype).mT[None, ..., None] for part in parts)
        found = [torch.batch_norm_update_stats(image, None, None, 0.0) for image in as_images]
        means, variances = (torch.stack(values).double() for values in zip(*found, strict=True))
        counts = means.new_tensor([len(part) for part in parts])[:, None]
        mean, variance = _pooled(means, variances, counts / len(lines))
    else:
        variance, mean = torch.var_mean(lines.to(dtype), dim=0, correction=0)
    count = len(lines)
    if across_ranks:
        own = torch.stack([mean, variance])
        all_ranks = own.new_empty(torch.distributed.get_world_size(), *own.shape)
        torch.distributed.all_gather(list(all_ranks.unbind()), own)
        means, variances = all_ranks.unbind(dim=1)
        mean, variance = _pooled(means, variances, own.new_tensor(1 / len(all_ranks)))
        count *= len(all_ranks)
    return mean.to(dtype), variance.to(dtype), count


def _pooled(means: Tensor, variances: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of a whole whose parts, of such shares, have these."""
    mean = (shares * means).sum(dim=0)
    return mean, (shares * (variances + (means - mean).square())).sum(dim=0)


class _Normalised(torch.autograd.Function):
    """(x - mean) / sqrt(variance + eps) * weight + bias, where mean and variance depend on x of all ranks."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        of_batch: tuple[Tensor, Tensor, int],
        eps: float,
        across_ranks: bool,
    ) -> Tensor:
        mean, variance, ctx.count = of_batch
        ctx.save_for_backward(x, weight, bias, mean, variance)
        ctx.eps, ctx.across_ranks = eps, across_ranks
        return F.batch_norm(x, mean, variance, weight, bias, training=False, eps=eps)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, mean, variance = ctx.saved_tensors
        if torch.is_grad_enabled():
            assert not ctx.across_ranks, "second derivatives are not exchanged between processes"
            inputs = [t for t in (x, weight, bias) if t.requires_grad]
            out = F.batch_norm(x, None, None, weight, bias, training=True, eps=ctx.eps)
            grads = iter(torch.autograd.grad(out, inputs, grad, create_graph=True))
            return (*(next(grads) if t.requires_grad else None for t in (x, weight, bias)), None, None, None)

        precision = (variance + ctx.eps).rsqrt()
        through_statistics = not ctx.across_ranks
        grad_x, grad_weight, grad_bias = torch.ops.aten.native_batch_norm_backward(
            grad, x, weight, mean, variance, mean, precision, through_statistics, ctx.eps, [True, True, True]
        )
        if ctx.across_ranks:
            # The sums over all ranks are the gradients of weight and bias there.
            sums = torch.stack([grad_weight, grad_bias])
            torch.distributed.all_reduce(sums)
            slope = -weight * precision.square() * sums[0] / ctx.count
            offset = -weight * precision * sums[1] / ctx.count - slope * mean
            as_x = (1, -1, *[1] * (x.ndim - 2))
            grad_x = grad_x + x * slope.to(x.dtype).view(as_x) + offset.to(x.dtype).view(as_x)
        return grad_x, grad_weight, grad_bias, None, None, None
