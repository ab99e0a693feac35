"""`roundtrip evaluate`: how well a model registers the images of a manifest."""

import contextlib
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:
    from roundtrip._launch import Ranks
    from roundtrip.data.records import Record
    from roundtrip.data.selection import RecordPair, Selection
    from roundtrip.data.sources import Reading
    from roundtrip.evaluation.journal import Judged
    from roundtrip.pairwise.evaluate import Evaluation
    from roundtrip.pairwise.model import Model
    from roundtrip.pairwise.refine import Refinement
    from roundtrip.reports.evaluation import EvaluationPages


def evaluate(
    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")],
    *,
    data: Annotated[Path, tyro.conf.arg(metavar="MANIFEST")],
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="DIR")],
    part: str | None = None,
    split: Path | None = None,
    pairs: Annotated[Path | None, tyro.conf.arg(metavar="CSV")] = None,
    within_subject: bool = False,
    count: int | None = None,
    refine: int | None = None,
    refine_similarity: str | None = None,
    refine_lambda: float | None = None,
    refine_rate: float = 1e-4,
    transforms: bool = False,
    reports: int = 3,
    orientation: str | None = None,
    replace_nan: float | None = None,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    devices: int | None = None,
    nodes: int | None = None,
    threads: int | None = None,
    seed: int = 0,
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Register the pairs of a manifest with a model, and measure each at the resolution of its images.

    The manifest is CSV, TSV or JSON lines with a line for every image: image, subject, and if there are,
    labels, mask, landmarks, group. Writes index.html, a table to sort and look at, and summary.json,
    summary.md, pairs.csv and labels.csv. Stopped, it goes on where it was when the same command is given
    again.

    Args:
        model: Folder of a model, as `roundtrip train` and `roundtrip convert` write it.
        data: The manifest.
        output: Folder for the results; pairs that it remembers are not done again.
        part: Only images of this part, e.g. test: by MODEL/split.json, or by the manifest's column `part`.
        split: Another split.json to look `--part` up in.
        pairs: Only these pairs: a table with the columns moving and fixed; else all across subjects.
        within_subject: Pair images of one subject instead.
        count: At most so many pairs, spread over all of them.
        refine: Steps in which a copy of the weights adapts to each pair before it registers it.
        refine_similarity: What refinement maximises, e.g. lncc; as in training unless given.
        refine_lambda: Weight of inverse consistency in refinement; as in training unless given.
        refine_rate: Learning rate of refinement.
        transforms: Also write each pair's transform and its inverse, of the refined weights if there are.
        reports: Of so many pairs, the worst, a page to look at, which index.html opens.
        orientation: Which way the axes run where a header does not say, such as RAS.
        replace_nan: Stands in for values that are not numbers, which are refused otherwise.
        device: What to compute on; a GPU if there is one.
        devices: Processes on this machine, which share the pairs; 1 unless a launcher says more.
        nodes: Machines; started by torchrun or SLURM, this is known.
        threads: Processor threads of each process; all unless given.
        seed: Decides the random points of refinement.
        json: Print the summary as one JSON object, alone, on standard output.
        quiet: Print nothing but errors.
    """
    _require_usable(output, count=count, refine=refine, reports=reports, seed=seed)

    from roundtrip._launch import Resources, is_first_process, launched
    from roundtrip.cli.console import announce, progress
    from roundtrip.data.selection import Selection
    from roundtrip.data.sources import Reading
    from roundtrip.evaluation.journal import Journal
    from roundtrip.pairwise.evaluate import Evaluation, names_of, require_same_settings
    from roundtrip.pairwise.model import open_model
    from roundtrip.reports.evaluation import EvaluationPages
    from roundtrip.reports.tables import as_lines, write_tables
    from roundtrip.training.refining import refinement_for

    speaks = is_first_process()
    with _silent_unless(speaks):
        opened = open_model(model)
        selection = Selection(part, _split(model, part, split), pairs, within_subject, count)
        chosen = _chosen(data, opened, selection)
        refinement = None
        if refine is not None:
            refinement = refinement_for(
                opened.card,
                steps=refine,
                similarity=refine_similarity,
                weight=refine_lambda,
                learning_rate=refine_rate,
                seed=seed,
            )
        pages = EvaluationPages(output)
        reading = Reading(orientation=orientation, replace_nan=replace_nan)
        about = _about(model, data, reading, refinement, refine_similarity)
        require_same_settings(output, about, writes=speaks)
        with launched(Resources(devices, nodes, threads=threads, accelerator=device)) as ranks:
            evaluation = Evaluation(
                opened.to(ranks.device),
                output,
                reading,
                refinement,
                writes_transforms=transforms,
                keep=pages.keep_thumbnail,
            )
            known = Journal(evaluation.journal).read()
            left = [p for p in chosen if (one := known.get(names_of(p))) is None or one.error is not None]
            share = len(ranks.own(left))
            with progress("registering", share, quiet=quiet or not speaks) as advance:
                judged = evaluation.run(chosen, ranks=ranks, on_pair=lambda one: advance(one.moving))
            _write_reports(pages, evaluation, chosen, judged, reports, ranks)
        if not speaks:
            return
        values = write_tables(output, judged, {**about, "part": part})
        pages.write_index(judged, values)
        where = [
            f"look at    {output / 'index.html'}",
            f"written    {output}  summary.json, pairs.csv, labels.csv",
        ]
        lines = [*as_lines(values), "", *where]
        announce(lines, values, as_json=json, quiet=quiet)
        if not values["pairs"]:
            raise ValueError(f"none of the {len(judged)} pairs could be judged: {judged[0].error}")


def _require_usable(output: Path, *, count: int | None, refine: int | None, reports: int, seed: int) -> None:
    if output.exists() and not output.is_dir():
        raise ValueError(f"{output} is a file; name a folder, e.g. `--output evaluation`.")
    for name, value in (("count", count), ("refine", refine)):
        if value is not None and value < 1:
            raise ValueError(f"--{name} is {value}; a number from 1 is needed, or leave it out.")
    if reports < 0:
        raise ValueError(f"--reports is {reports}; a number from 0 is needed.")
    if not 0 <= seed < 2**63:
        raise ValueError(f"--seed is {seed}; a whole number from 0 to 2^63 - 1 is needed.")


def _split(model: Path, part: str | None, split: Path | None) -> Path | None:
    """The split that `--part` speaks of: the one that was named, or that of the training."""
    if split is not None and part is None:
        raise ValueError("--split says who is in which part; add which one is meant, e.g. `--part test`.")
    written = model / "split.json"
    return split if split is not None else written if part is not None and written.exists() else None


def _chosen(data: Path, model: "Model", selection: "Selection") -> "list[RecordPair]":
    """The pairs; everything that is wrong with the manifest is said at once."""
    from roundtrip._problems import Problems
    from roundtrip.data.manifest import read_manifest
    from roundtrip.data.records import require_mirror_column
    from roundtrip.data.selection import selected_pairs

    problems = Problems()
    records: list[Record] = read_manifest(data, problems)
    require_mirror_column(records, model.preparation, problems)
    chosen = selected_pairs(records, selection, problems)
    problems.raise_any("the data")
    return chosen


def _write_reports(
    pages: "EvaluationPages",
    evaluation: "Evaluation",
    chosen: "Sequence[RecordPair]",
    judged: "Sequence[Judged]",
    count: int,
    ranks: "Ranks",
) -> None:
    """Registers the worst pairs once more, each process its share of them."""
    from roundtrip.evaluation.cohort import FAULTS_OF_A_PAIR
    from roundtrip.pairwise.evaluate import names_of

    pairs = {names_of(pair): pair for pair in chosen}
    own = ranks.own(pages.worst(judged, count))
    # Nobody writes before all have looked which there are.
    ranks.wait()
    for one in own:
        try:
            kept = evaluation.again(pairs[one.pair])
            pages.write_report(one, kept, shlex.join(["roundtrip", *sys.argv[1:]]))
        except FAULTS_OF_A_PAIR as error:
            print(f"roundtrip: no page of {one.moving} to {one.fixed}: {error}", file=sys.stderr)
    ranks.wait()


def _about(
    model: Path,
    data: Path,
    reading: "Reading",
    refinement: "Refinement | None",
    similarity: str | None,
) -> dict[str, Any]:
    """What decides the numbers of a pair: what a folder remembers is only continued with the same."""
    from importlib.metadata import version

    from roundtrip.pairwise.evaluate import digest_of_model

    refined = None
    if refinement is not None:
        refined = {
            "steps": refinement.steps,
            "learning_rate": refinement.learning_rate,
            "lambda": refinement.objective.weight,
            "similarity": similarity or "as in training",
            "seed": refinement.seed,
        }
    return {
        "model": model.name,
        "weights": digest_of_model(model)[:16],
        "data": str(data.resolve()),
        "reading": reading.model_dump(exclude_none=True),
        "refinement": refined,
        "version": version("roundtrip"),
    }


@contextlib.contextmanager
def _silent_unless(speaks: bool) -> Iterator[None]:
    """What goes wrong in all processes alike is said by the first alone."""
    try:
        yield
    except (ValueError, OSError, FloatingPointError):
        if speaks:
            raise
        raise SystemExit(2) from None
