"""Documents from records: HTML pages of runs and of tables, and tables as Markdown and LaTeX.

Their templates say what stands where. A page loads nothing when it is opened, and no secret is in it. The one script of
a page of tables is in it, and the page's policy admits that script by its digest and no other.
"""

import base64
import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from indelible.analyze.analysis import ANALYSIS, read_analysis
from indelible.base.errors import InputError, UnknownNameError
from indelible.base.files import write_text
from indelible.bench.attack_suite import Strongest, strongest
from indelible.report.charts import draw, panels, sparkline, table_charts
from indelible.report.drawing import COLUMN, as_inline, can_draw
from indelible.report.figures import figure_of
from indelible.report.mark_galleries import answers_of, caption, class_names, galleries, heat_map
from indelible.report.model_stages import ModelStages, attack_title, collect, is_marked, own_settings
from indelible.report.page_look import environment, filled_lines, text_environment
from indelible.report.run_tables import TITLES, before_after
from indelible.report.table_grid import Grid
from indelible.train.run_folder import Run

TITLE = "Watermarks before and after attack"
FORMATS = {"html": ".html", "markdown": ".md", "latex": ".tex"}
"""Format of tables -> ending of its files."""
_NO_MARK = "unmarked"
"""What presets call training without a mark."""
BESIDE = "Measured ± standard deviation (reported, difference)."


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
    page = _page(
        "page.html.j2", title=title, outcome=outcome_of_runs(models), table=before_after(models), titles=TITLES,
        stages=stages, samples=samples, galleries=galleries(models) if samples else [],
        books=[one for one in models if any(answers_of(stage.verdict) for stage in one.stages)],
        columns=[None, *dict.fromkeys(stage.column for one in models for stage in one.after)],
        class_names=class_names, panels=panels(models), analyses=_analyses([*runs, *analyses], samples=samples),
        strongest=strongest_attacks(models, ba_drop), ba_drop=ba_drop, again=again,
    )  # fmt: skip
    write_text(out, page)
    return Path(out)


def write_tables(grids: Sequence[Grid], out: str | Path, *, form: str = "html", title: str | None = None) -> Path:
    """Write tables into one file, whole or not at all.

    Args:
        grids: Filled tables.
        out: The file to write.
        form: A name of :data:`FORMATS`.
        title: Heading of the HTML page.

    Returns:
        The file.
    """
    if form not in FORMATS:
        raise UnknownNameError("format", form, FORMATS)
    if not grids:
        raise InputError("there is no table to write: the results hold nothing that fits one.")
    other = as_latex if form == "latex" else as_markdown
    write_text(out, as_html(grids, title=title) if form == "html" else other(grids))
    return Path(out)


def as_markdown(grids: Sequence[Grid]) -> str:
    """Return the tables as one Markdown document."""
    return text_environment().get_template("tables.md.j2").render(grids=grids, beside=BESIDE)


def as_latex(grids: Sequence[Grid]) -> str:
    """Return the tables as LaTeX, each a floating ``table*``; its first line names the packages that it needs."""
    return text_environment().get_template("tables.tex.j2").render(grids=grids)


def as_html(grids: Sequence[Grid], *, title: str | None = None) -> str:
    """Return the tables as one HTML page."""
    from markupsafe import Markup

    script = Path(__file__).with_name("templates").joinpath("tables.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _page(
        "tables.html.j2", title=title, outcome=outcome_of_tables(grids), grids=grids, table_charts=table_charts,
        sparkline=sparkline, script=Markup(script), digest=digest,  # noqa: S704 - our own script, which ships with the package
    )  # fmt: skip


def _page(template: str, **values: Any) -> str:
    """Fill the template of a page, which may draw charts and pictures of codebooks."""
    return environment().get_template(template).render(
        answers_of=answers_of, caption=caption, heat_map=heat_map, draw=draw, can_draw=can_draw(), **values
    )  # fmt: skip


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


def wins(grid: Grid, *, measured: bool) -> tuple[tuple[int, int], tuple[int, int]]:
    """Count where APP is best among at least two: ``((cells won, of), (groups with the least AvgDrop, of))``.

    Equal numbers, as printed, are a win for both.
    """
    cells, drops = [0, 0], [0, 0]
    for group in grid.groups:
        for number, column in enumerate(grid.columns):
            counted = cells if column.group == "After" else drops if column.title == "AvgDrop" else None
            entries = {row.key[-1]: row.entries[number] for row in group}
            known = {key: entry for key, entry in entries.items() if entry.comparable(measured=measured) is not None}
            if counted is not None and "app" in known and len(known) > 1:
                counted[0] += known["app"].best_measured if measured else known["app"].best_reported
                counted[1] += 1
    return (cells[0], cells[1]), (drops[0], drops[1])


def outcome_of_tables(grids: Sequence[Grid]) -> str:
    """Return the sentences for the top of a page of tables."""
    tables = [_counts(grid) for grid in grids if grid.measure == "wsr"]
    measured = any(grid.measured for grid in grids)
    return " ".join(filled_lines("outcome_of_tables.txt.j2", tables=tables, measured=measured))


def _counts(grid: Grid) -> Mapping[str, Any]:
    """Count attack cells, and those, before attack too, whose verdict shows ownership for every seed; APP apart.

    Training without a mark is not counted: nothing attacks it, and nothing should be shown of it.
    """
    rows = [row for row in grid.rows if row.key[-1] != _NO_MARK]
    after = [
        (row, entry)
        for row in rows
        for column, entry in zip(grid.columns, row.entries, strict=True)
        if column.group == "After"
    ]
    judged = [(row.key[-1], entry.owned) for row in rows for entry in row.entries if entry.verdicts]
    return {
        "title": grid.title, "by_kind": grid.layout.axes[0].field == "kind",
        "done": sum(entry.measured is not None for _, entry in after),
        "total": sum(not row.quoted for row, _ in after),
        "judged": [owned for _, owned in judged], "app": [owned for method, owned in judged if method == "app"],
        "ours": wins(grid, measured=True), "theirs": wins(grid, measured=False),
    }  # fmt: skip
