"""One stage while it trains: the algorithm, its optimizer, lambda, and how far it has come.

All that is random is a function of seed, stage and step (`randomness.py`), so a stage that goes on from a
checkpoint does what it would have done. Neighbours: `step.py` (the loss), `run.py` (the loop over stages).
"""

import time
from collections.abc import Mapping
from typing import Any

import torch

from roundtrip._launch import Ranks
from roundtrip._shapes import Scalar, Tensor
from roundtrip.algorithms.registration import AbstractRegistration
from roundtrip.data.subset import AbstractSubset
from roundtrip.maps.grid import voxel_size
from roundtrip.networks.batch_norm import batches_across_ranks
from roundtrip.training.batches import Batches
from roundtrip.training.checkpoint import Checkpoint, Place, optimizer_tensors, restore_optimizer
from roundtrip.training.config import StageConfig
from roundtrip.training.control import Observation
from roundtrip.training.failure import explosion, has_exploded
from roundtrip.training.records import StepRecord
from roundtrip.training.step import Given, StageObjective


class StageRun:
    """A stage and all that changes while it trains; `advance` makes one step."""

    def __init__(
        self,
        stage: StageConfig,
        algorithm: AbstractRegistration,
        subset: AbstractSubset,
        batches: Batches,
        ranks: Ranks,
    ) -> None:
        self.stage, self.algorithm = stage, algorithm
        self.step, self.lambda_, self.best = 0, stage.lambda_.first(), None
        self._subset, self._batches, self._ranks = subset, batches, ranks
        self._objective = StageObjective(algorithm, stage)
        weights = [weight for weight in algorithm.parameters() if weight.requires_grad]
        if not weights:
            raise ValueError(
                f"stage {stage.name} has no weight to train: all it is made of is frozen. Put a new part "
                "beside what is frozen, or leave out `frozen: true`."
            )
        # Its optimizer's state lies where its weights do: they move first.
        self._objective.to(ranks.device)
        self._optimizer = torch.optim.Adam(
            weights, lr=stage.learning_rate.at(1, steps=stage.steps), fused=True
        )
        self._wrapped, self._wrapped_optimizer = ranks.fabric.setup(self._objective, self._optimizer)
        self._voxel = voxel_size(self._grid()).square().mean().item()

    best: float | None
    """The best score of a validation so far."""

    @property
    def is_done(self) -> bool:
        return self.step >= self.stage.steps

    def advance(self) -> StepRecord:
        """One step of Adam on all processes together, and of lambda."""
        start, step = time.perf_counter(), self.step + 1
        rate = self.stage.learning_rate.at(step, steps=self.stage.steps)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._objective.train()
        self._objective.with_weight(self.lambda_.value)
        self._wrapped_optimizer.zero_grad()
        portions = self._batches.of_step(step)
        terms = [self._descend(Given(p), last=p is portions[-1]) for p in portions]
        means = self._means(terms)
        speed = self.stage.batch / (time.perf_counter() - start)
        record = StepRecord(
            stage=self.stage.name,
            step=step,
            lambda_=self.lambda_.value,
            learning_rate=rate,
            pairs_per_second=round(speed, 3),
            **means,
        )
        if has_exploded(record):
            raise explosion(record, self._objective, portions, self._subset, self._ranks)
        self._wrapped_optimizer.step()
        seen = Observation(step, record.folds, record.inverse_consistency, self._voxel)
        self.step, self.lambda_ = step, self.stage.lambda_.after(self.lambda_, seen)
        return record

    def checkpoint(self, number: int, config: Mapping[str, Any]) -> Checkpoint:
        """The stage as it is; `FloatingPointError` where its weights are no numbers."""
        weights = self.algorithm.state_dict()
        if not all(w.isfinite().all() for w in weights.values() if w.is_floating_point()):
            raise FloatingPointError(
                f"weights became NaN or infinite by step {self.step} of stage {self.stage.name}; the last "
                "checkpoint is from before. Try a smaller learning rate, e.g. "
                f"{self.stage.learning_rate.start / 4:.2g}, or a warmup."
            )
        return Checkpoint(
            place=Place(number, self.step),
            stage_name=self.stage.name,
            weights=weights,
            optimizer=optimizer_tensors(self._optimizer),
            lambda_=self.lambda_,
            config=config,
            best=self.best,
            scaler=self._ranks.fabric.strategy.precision.state_dict(),
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from there."""
        self.algorithm.load_state_dict(checkpoint.weights)
        restore_optimizer(self._optimizer, checkpoint.optimizer)
        if checkpoint.scaler:
            self._ranks.fabric.strategy.precision.load_state_dict(dict(checkpoint.scaler))
        self.step, self.lambda_, self.best = checkpoint.place.step, checkpoint.lambda_, checkpoint.best

    def _descend(self, given: Given, *, last: bool) -> dict[str, Scalar]:
        """The gradients of one portion, added to those before; processes share them after the last."""
        fabric = self._ranks.fabric
        with fabric.no_backward_sync(self._wrapped, enabled=not last):
            with batches_across_ranks(self.algorithm):
                terms: dict[str, Scalar] = self._wrapped(given)
            fabric.backward(terms["total"] / self.stage.accumulation)
        return {name: value.detach() for name, value in terms.items()}

    def _means(self, terms: list[dict[str, Tensor]]) -> dict[str, float]:
        """Over all portions and processes, fetched from their device all at once."""
        names = list(terms[0])
        values = torch.stack([torch.stack([one[name].double() for name in names]) for one in terms])
        return dict(zip(names, self._ranks.mean(values.mean(dim=0)).tolist(), strict=True))

    def _grid(self) -> list[int]:
        return [-(-n // self.stage.resolution) for n in self._subset.grid]
