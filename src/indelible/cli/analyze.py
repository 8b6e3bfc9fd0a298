"""``indelible analyze``: the paper's figures, and some of our own, from runs; numbers and pictures."""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from indelible import analyze
from indelible.analyze import Analysis, MarkedModel
from indelible.base.errors import InputError
from indelible.base.methods import Method
from indelible.cli.options import assignments, emit
from indelible.report.drawing import can_draw
from indelible.report.figures import write_figure
from indelible.report.model_stages import method_title
from indelible.train.devices import pinned_threads
from indelible.train.run_folder import Run


def run_draw(arguments: argparse.Namespace) -> int:
    """Draw figures again from their numbers."""
    written = [path for folder in arguments.folders for path in write_figure(analyze.read_analysis(folder), folder)]
    return emit(arguments, {"written": list(map(str, written))}, "\n".join(f"wrote {path}" for path in written))


def run(arguments: argparse.Namespace) -> int:
    """Make a figure: its numbers, and its picture if it can be drawn here."""
    out: Path = arguments.out or Path("analysis") / arguments.action
    with pinned_threads(arguments.threads):
        result = _curves(arguments) if arguments.action == "curves" else _of_models(arguments, out)
    analyze.write_analysis(out, result)  # the numbers first: without matplotlib they are there all the same
    lines, drawn = result.sentences(), can_draw()
    document = {"figure": result.figure, "folder": str(out), "sentences": lines, "drawn": drawn}
    if drawn:
        write_figure(result, out)
    else:
        hint = 'No figure was drawn: run pip install "indelible[plots]", then indelible analyze draw.'
        lines = [*lines, hint]
    return emit(arguments, document, "\n".join([*lines, f"kept in {out}"]))


def _marked_models(runs: Sequence[Path]) -> list[MarkedModel]:
    """Read runs, each with a label of its own."""
    found = [Run.load(folder) for folder in runs]
    names = [one.folder.name if one.record.verb == "attack" else method_title(one.record) for one in found]
    labels = [
        f"{name}, {one.folder.name}" if names.count(name) > 1 else name for name, one in zip(names, found, strict=True)
    ]
    return [MarkedModel.from_run(one, label) for one, label in zip(found, labels, strict=True)]


def _of_models(arguments: argparse.Namespace, out: Path) -> Analysis:
    """Make a figure of marked models; what takes long keeps its measurements in ``out``."""
    figures: dict[str, tuple[type[Method], Callable[..., Analysis]]] = {
        "landscape": (analyze.LandscapeSettings, partial(analyze.landscape, folder=out)),
        "batchnorm": (analyze.BatchNormSettings, analyze.batchnorm),
    }
    given = assignments(arguments.set)
    if arguments.action == "samples":
        if len(arguments.runs) != 1:
            raise InputError(f"`indelible analyze samples` takes one run, got {len(arguments.runs)}.")
        one = Run.load(arguments.runs[0])
        return analyze.samples(one.key(), one.images()[2], analyze.SamplesSettings.of(given))
    own = {name: getattr(arguments, name, None) for name in ("seed", "layer", "path", "attack")}
    own["settings"] = assignments(getattr(arguments, "attack_set", [])) or None
    given |= {name: value for name, value in own.items() if value is not None}
    if arguments.action not in figures:
        kind: type[Analysis] = analyze.ANALYSES[arguments.action].build
        return kind.of_models(_marked_models(arguments.runs), given, out)
    settings, make = figures[arguments.action]
    chosen = settings.of(given)
    return make(_marked_models(arguments.runs), chosen)


def _curves(arguments: argparse.Namespace) -> Analysis:
    found = analyze.read_measurements(arguments.runs)
    return analyze.curves(found, arguments.over, attack=arguments.attack, kind=arguments.kind)
