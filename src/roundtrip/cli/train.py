"""`roundtrip train`: from images to a model that registers images like them."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:
    from roundtrip.training.config import TrainingConfig
    from roundtrip.training.run import Trained
    from roundtrip.training.watch import AbstractWatcher


def train(
    config: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CONFIG")],
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="DIR")],
    *,
    seed: int = 0,
    resume: bool = False,
    overrides: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(name="set", metavar="KEY=VALUE")
    ] = (),
    cache: Path | None = None,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    devices: int | None = None,
    nodes: int | None = None,
    precision: Literal["32", "bf16-mixed", "16-mixed"] = "32",
    threads: int | None = None,
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Train a registration network, stage by stage, and write a model that `roundtrip register` uses.

    CONFIG is a YAML file, or one of the built-in experiments: triangles-tiny (about a minute on two cores),
    triangles, mnist, hippocampus, oai-knees. A run that was stopped, however, goes on with the same command
    and --resume, and ends as if it had not been.

    Args:
        config: A YAML file, or the name of a built-in experiment.
        output: Folder for the model and the run: checkpoints, log, curves.
        seed: Decides the first weights and all that is random.
        resume: Go on with the run in DIR, or begin if there is none.
        overrides: Replace a field of the configuration, e.g. `--set stages.0.batch=8`; repeat for more.
        cache: Folder for prepared images, which runs may share; DIR/cache unless given.
        device: What to compute on; a GPU if there is one.
        devices: Processes on this machine, one per GPU, or as many on its CPU; 1 unless a launcher says more.
        nodes: Machines; started by torchrun or SLURM, this is known.
        precision: Of the networks.
        threads: Processor threads of each process; all unless given.
        json: Print the result as one JSON object, alone, on standard output.
        quiet: Print nothing but errors.
    """
    from roundtrip._launch import Resources, is_first_process, launched
    from roundtrip.cli.console import announce
    from roundtrip.cli.training_bar import training_bar
    from roundtrip.training.run import train as run_training

    asked = _read(config, overrides)
    _require_usable(output, seed)
    speaks = is_first_process()
    resources = Resources(devices, nodes, precision, threads, device)
    with (
        training_bar(quiet=quiet or not speaks) as bar,
        _silent_unless(speaks),
        launched(resources) as ranks,
    ):
        trained = run_training(
            asked,
            output,
            ranks=ranks,
            seed=seed,
            resume=resume,
            cache=cache,
            watchers=_watchers(output, bar) if ranks.is_first else (),
            on_prepared=bar.on_prepared,
        )
    if speaks:
        announce(_lines(trained, output), _values(trained, output, seed), as_json=json, quiet=quiet)


def _read(config: str, overrides: Sequence[str]) -> "TrainingConfig":
    from roundtrip.experiments.named import EXPERIMENTS
    from roundtrip.training.config_file import checked, read_plain, with_overrides

    lines: dict[tuple[str | int, ...], int] = {}
    if config in EXPERIMENTS:
        plain = EXPERIMENTS[config]().as_plain()
    elif Path(config).exists():
        plain, lines = read_plain(Path(config))
    else:
        raise ValueError(
            f"{config} is neither a file nor a built-in experiment; these are {', '.join(EXPERIMENTS)}."
        )
    return checked(with_overrides(plain, overrides), source=config, lines=lines)


def _require_usable(output: Path, seed: int) -> None:
    if output.exists() and not output.is_dir():
        raise ValueError(f"{output} is a file; name a folder, e.g. `--output model`.")
    if not 0 <= seed < 2**63:
        raise ValueError(f"--seed is {seed}; a whole number from 0 to 2^63 - 1 is needed.")


def _watchers(output: Path, bar: "AbstractWatcher") -> list["AbstractWatcher"]:
    from roundtrip.reports.watchers import Curves, TensorBoard

    return [bar, Curves(output), TensorBoard(output / "tensorboard")]


@contextlib.contextmanager
def _silent_unless(speaks: bool) -> Iterator[None]:
    """What goes wrong in all processes alike is said by the first alone."""
    try:
        yield
    except (ValueError, FloatingPointError):
        if speaks:
            raise
        raise SystemExit(2) from None


def _values(trained: "Trained", output: Path, seed: int) -> dict[str, Any]:
    """What --json prints."""
    return {
        "model": str(output),
        "seed": seed,
        "validation": trained.card.numbers,
        "version": trained.card.training["versions"]["roundtrip"],  # type: ignore[index, call-overload]
    }


def _lines(trained: "Trained", output: Path) -> list[str]:
    numbers, lines = trained.card.numbers, []
    if numbers:
        lines = [f"{'held-out pairs, on average':34}{'before':>10}{'after':>10}"]
        for name, value in numbers.items():
            if not name.endswith("_before") and name != "labels":
                before = numbers.get(f"{name}_before")
                lines.append(f"{name:34}{'' if before is None else f'{before:.4g}':>10}{value:>10.4g}")
        lines.append("")
    return [*lines, f"{output}  model.safetensors, card.json, training.png, log.jsonl"]
