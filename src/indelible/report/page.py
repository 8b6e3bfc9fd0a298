"""One self-contained HTML page from run folders: nothing is loaded when it is opened, and no secret is in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from indelible.base.files import write_text
from indelible.report import format as written
from indelible.report.analyses import Shown, find_analyses, shown_analyses
from indelible.report.charts import can_draw, drawn
from indelible.report.codebook import pictured
from indelible.report.collect import Entry, Stage, collect
from indelible.report.curves import panels
from indelible.report.environment import environment
from indelible.report.outcome import outcome
from indelible.report.palette import DARK, LIGHT
from indelible.report.rerun import again, flattened
from indelible.report.samples import galleries
from indelible.report.table import before_after

__all__ = ["TITLE", "render", "write_report"]

TITLE = "Watermarks before and after attack"

_INPUTS = {
    "data_digest": "Digest of the data",
    "images": "Images in the data",
    "key": "Digest of the key",
    "kind": "Kind of mark",
    "scheme": "Key scheme",
    "target": "Target class",
    "model_digest": "Digest of the model at the start",
}


@dataclass(frozen=True)
class _Judged:
    """A stage with its verdict, as the page shows it."""

    title: str
    owned: bool
    verdict: Mapping[str, Any]


@dataclass(frozen=True)
class _Made:
    """A run as the last section shows it."""

    title: str
    stage: Stage
    facts: Mapping[str, str]
    settings: Mapping[str, str]
    again: str


def write_report(
    runs: Sequence[str | Path], out: str | Path, *, title: str = TITLE, samples: bool = True,
    analyses: Sequence[str | Path] = (),
) -> Path:  # fmt: skip
    """Write the report of some runs as one HTML file, whole or not at all.

    Args:
        runs: Folders of runs, or folders that contain runs; attacks are shown under the model they were made on.
        out: The file to write.
        title: The page's heading.
        samples: Show marked images. They give the mark away: hide them in a copy that leaves the house.
        analyses: Folders of analyses, or folders that contain some; those inside ``runs`` are shown in any case.

    Returns:
        The path of the file.
    """
    target = Path(out)
    shown = shown_analyses(find_analyses([*runs, *analyses]), samples=samples)
    write_text(target, render(collect(runs), title=title, samples=samples, analyses=shown))
    return target


def render(
    entries: Sequence[Entry], *, title: str = TITLE, samples: bool = True, analyses: Sequence[Shown] = ()
) -> str:
    """Return the page of ``entries`` as HTML."""
    judged = _judged(entries)
    assumptions = {tuple(one.verdict.get("assumptions") or ()) for one in judged}
    return environment().get_template("page.html.j2").render(
        title=title, outcome=outcome(entries), entries=entries, table=before_after(entries),
        alphas=sorted({one.verdict["alpha"] for one in judged if one.verdict.get("alpha") is not None}),
        samples=samples, galleries=galleries(entries) if samples else [], books=pictured(entries),
        drawn=drawn(panels(entries)) if can_draw() else None, judged=judged,
        assumptions=assumptions.pop() if len(assumptions) == 1 else None,
        made=[_made(entry, stage, samples=samples) for entry in entries for stage in entry.stages],
        analyses=analyses, light=LIGHT, dark=DARK,
    )  # fmt: skip


def _name(entry: Entry, stage: Stage) -> str:
    return entry.label if stage is entry.before else f"{entry.label}, after {stage.title}"


def _judged(entries: Sequence[Entry]) -> list[_Judged]:
    return [
        _Judged(_name(entry, stage), bool(stage.owned), stage.verdict)
        for entry in entries
        for stage in entry.stages
        if stage.verdict is not None
    ]


def _made(entry: Entry, stage: Stage, *, samples: bool) -> _Made:
    run, record = stage.run, stage.run.record
    speed = f"{written.plain_number(record.images / record.seconds)} images/s" if record.seconds else written.ABSENT
    # The data set and the network stand above by name; the target class is part of what hiding the marks hides.
    hidden = {"data", "model"} if samples else {"data", "model", "target"}
    facts = {
        "Folder": run.folder.as_posix(),
        "Network": f"{run.architecture.name}, {run.architecture.classes} classes, images "
        f"{' × '.join(map(str, run.architecture.shape))}",
        "Data": run.data,
        "Seed": str(record.seed),
        "Time": written.duration(record.seconds),
        "Images passed": written.plain_number(record.images),
        "Speed": speed,
        **{name.replace("_", " ").capitalize(): text for name, text in flattened(record.hardware)},
        **{f"Version of {name}": text for name, text in record.versions.items()},
        **{_INPUTS.get(name, name): text for name, text in flattened(record.inputs) if name not in hidden},
    }  # fmt: skip
    return _Made(_name(entry, stage), stage, facts, dict(flattened(record.settings)), again(run))
