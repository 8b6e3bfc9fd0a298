"""One self-contained HTML page from run folders: nothing is loaded when it is opened, and no secret is in it."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from indelible.analyze.analysis import ANALYSIS, read_analysis
from indelible.base.files import write_text
from indelible.bench.attack_suite import Strongest, strongest
from indelible.report.charts import draw, panels
from indelible.report.drawing import COLUMN, as_inline, can_draw
from indelible.report.figures import figure_of
from indelible.report.mark_galleries import answers_of, caption, class_names, galleries, heat_map
from indelible.report.model_stages import ModelStages, attack_title, collect, is_marked, own_settings
from indelible.report.page_look import environment, filled_lines, text_environment
from indelible.report.run_tables import TITLES, before_after
from indelible.train.run_folder import Run

TITLE = "Watermarks before and after attack"


def write_report(
    runs: Sequence[str | Path], out: str | Path, *, title: str = TITLE, samples: bool = True,
    analyses: Sequence[str | Path] = (), ba_drop: float = 0.02,
) -> Path:  # fmt: skip
    """Write the report of some runs as one HTML file, whole or not at all.

    Args:
        runs: Folders of runs, or folders that contain runs; attacks are shown under the model they were made on.
        out: The file to write.
        title: The page's heading.
        samples: Show marked images. They give the mark away: hide them in a copy for others.
        analyses: Folders of analyses, or folders that contain some; those inside ``runs`` are shown in any case.
        ba_drop: Accuracy, as a fraction, that the strongest attack on a model may have cost.

    Returns:
        The path of the file.
    """
    models = collect(runs)
    stages = [
        (model.label if stage is model.before else f"{model.label}, after {stage.column}", stage)
        for model in models
        for stage in model.stages
    ]
    page = environment().get_template("page.html.j2").render(
        title=title, outcome=outcome_of_runs(models), table=before_after(models), titles=TITLES, stages=stages,
        samples=samples, galleries=galleries(models) if samples else [],
        books=[one for one in models if any(answers_of(stage.verdict) for stage in one.stages)],
        columns=[None, *dict.fromkeys(stage.column for one in models for stage in one.after)],
        answers_of=answers_of, caption=caption, class_names=class_names, heat_map=heat_map, can_draw=can_draw(),
        panels=panels(models), draw=draw, analyses=_analyses([*runs, *analyses], samples=samples),
        strongest=strongest_attacks(models, ba_drop), ba_drop=ba_drop, again=again,
    )  # fmt: skip
    write_text(out, page)
    return Path(out)


def outcome_of_runs(models: Sequence[ModelStages]) -> str:
    """Return the sentence for the top of a report."""
    judged = [(model, stage) for model in models for stage in model.stages if stage.owned is not None]
    parts = filled_lines(
        "outcome_of_runs.txt.j2", attack_title=attack_title,
        attacked=[(model, stage) for model, stage in judged if model.marked and stage is not model.before],
        unattacked=[(model, stage) for model, stage in judged if model.marked and stage is model.before],
        unmarked=[(model, stage) for model, stage in judged if not model.marked],
    )  # fmt: skip
    if not parts:
        return "No model has been verified yet: run `indelible verify` on each run, then write the report again."
    said = "; ".join(parts)
    return f"{said[0].upper()}{said[1:]}."


def again(run: Run) -> str:
    """Return what to type to make the run again: Python for a training, a command for an attack."""
    record = run.record
    if record.verb == "attack" and run.parent is not None:
        settings = dict(own_settings(record))
        protocol = settings.pop("protocol", None)
        words = ["indelible", "attack", run.parent.as_posix(), "--method", record.method]
        words += ["--protocol", str(protocol)] if protocol else []
        for name, value in settings.items():
            words += ["--set", f"{name}={value if isinstance(value, str) else json.dumps(value)}"]
        return shlex.join([*words, "--seed", str(record.seed), "--out", f"{run.folder.as_posix()}-again"])
    if "train" not in record.settings or record.verb == "attack":
        return ""
    return text_environment().get_template("again.py.j2").render(run=run, record=record, marked=is_marked(record))


def strongest_attacks(models: Sequence[ModelStages], ba_drop: float = 0.02) -> list[tuple[str, Strongest]]:
    """Return the strongest attack on each marked model that has two or more attacks with a verdict, by label."""
    found = [(model.label, strongest(model.after, ba_drop, model.before)) for model in models if model.marked]
    return [(label, row) for label, row in found if row.judged > 1]


def _analyses(paths: Sequence[str | Path], *, samples: bool) -> list[Mapping[str, Any]]:
    """Return the finished analyses in or under ``paths`` as the page shows them, each once, in the order of names."""
    folders = dict.fromkeys(file.parent.resolve() for path in paths for file in sorted(Path(path).rglob(ANALYSIS)))
    shown: list[Mapping[str, Any]] = []
    for number, analysis in enumerate(map(read_analysis, folders)):
        if samples or analysis.figure != "samples":
            figure = figure_of(analysis)
            drawing = figure.drawing(analysis)
            shown.append(
                {
                    "title": figure.title, "sentences": analysis.sentences(), "note": figure.note,
                    "svg": as_inline(drawing, f"a{number}") if can_draw() else None, "wide": drawing.width > COLUMN,
                }
            )  # fmt: skip
    return shown
