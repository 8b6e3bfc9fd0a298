"""Tables of runs: before and after attack for terminal, Markdown and HTML; the paper's row; what each attack cost.

Models of one method that differ in seed only have a row each, and one more with mean ± sample standard deviation, the
largest p-value and how many verdicts show ownership.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from indelible.bench.attack_suite import AttackSuite
from indelible.bench.measurement import PAPER_ATTACKS, Measurement
from indelible.report.format import (
    ABSENT,
    BEFORE,
    SIGNS,
    markdown_text,
    p_value,
    percent,
    stage_title,
    verdict_sign,
    verdict_word,
)
from indelible.report.model_stages import ModelStages, collect, run_of, short_title
from indelible.report.table_grid import Value
from indelible.train.run_folder import Run

if TYPE_CHECKING:
    from rich.table import Table as RichTable

_TITLES = {
    "ba": "BA %",
    "wsr": "WSR %",
    "wsr_embedded": "WSR % on embedded samples",
    "p_value": "p-value",
    "verdict": "Verdict",
}
_NARROW = {"wsr_embedded": "embedded %"}  # columns of a terminal are dear


@dataclass(frozen=True)
class RunColumn:
    """One column: its stage ("Before attack", or an attack's title) and a measure, which has a title."""

    group: str
    measure: str

    @property
    def title(self) -> str:
        """The heading."""
        return _TITLES[self.measure]


@dataclass(frozen=True)
class RunCell:
    """One cell: its text, whether it is the best of its column, and whether it is a verdict that shows ownership."""

    text: str
    best: bool = False
    owned: bool = False


@dataclass(frozen=True)
class RunRow:
    """One model, or the mean over the seeds of a method."""

    label: str
    cells: tuple[RunCell, ...]


@dataclass(frozen=True)
class RunTable:
    """Columns and rows; every row has one cell for each column."""

    columns: tuple[RunColumn, ...]
    rows: tuple[RunRow, ...]

    @property
    def groups(self) -> dict[str, int]:
        """The stages in order, with the number of columns of each."""
        return Counter(column.group for column in self.columns)

    def empty(self, row: RunRow, group: str) -> bool:
        """Tell whether ``row`` has nothing to say on a stage."""
        pairs = zip(self.columns, row.cells, strict=True)
        return all(cell.text == ABSENT for column, cell in pairs if column.group == group)


def before_after(models: Sequence[ModelStages]) -> RunTable:
    """Return the table of ``models``: a row for each, a group of columns for each stage."""
    known = [model.before for model in models if model.before is not None]
    columns = [RunColumn(BEFORE, measure) for measure in ("ba", "wsr")]
    if any(stage.wsr_embedded is not None for stage in known):  # a codebook is stamped anew in every pass
        columns.append(RunColumn(BEFORE, "wsr_embedded"))
    # A WSR never stands without its verdict, and be it that there is none.
    if any(stage.verdict is not None or stage.wsr is not None for stage in known):
        columns += [RunColumn(BEFORE, measure) for measure in ("p_value", "verdict")]
    for title in dict.fromkeys(str(stage.column) for model in models for stage in model.after):
        columns += [RunColumn(title, measure) for measure in ("ba", "wsr", "p_value", "verdict")]
    best = _best(models)
    rows = [
        RunRow(label, tuple(_cell(members, column, best) for column in columns)) for label, members in _rows(models)
    ]
    return RunTable(tuple(columns), tuple(rows))


def _rows(models: Sequence[ModelStages]) -> list[tuple[str, list[ModelStages]]]:
    """Return (label, models) of each row: every model alone, and behind the last seed of a method all of its seeds."""
    rows: list[tuple[str, list[ModelStages]]] = []
    for number, model in enumerate(models):
        rows.append((model.label, [model]))
        alike = [other for other in models if other.method == model.method]
        seeds = {run_of(other.stages[0]).record.seed for other in alike}
        if len(alike) == len(seeds) > 1 and model.method not in [other.method for other in models[number + 1 :]]:
            rows.append((f"{model.method}, mean of {len(seeds)} seeds", alike))
    return rows


def _best(models: Sequence[ModelStages]) -> dict[str, str]:
    """Return the highest WSR that remains after each attack, as printed: what looks equal counts as equal."""
    best: dict[str, float] = {}
    for model in models:
        for stage in model.after:
            if model.marked and stage.wsr is not None:
                best[str(stage.column)] = max(best.get(str(stage.column), 0.0), stage.wsr)
    return {title: percent(rate) for title, rate in best.items()}


def _stage(model: ModelStages, group: str) -> Measurement | None:
    if group == BEFORE:
        return model.before
    return next((stage for stage in model.after if stage.column == group), None)


def _cell(models: Sequence[ModelStages], column: RunColumn, best: Mapping[str, str]) -> RunCell:
    stages = [stage for model in models if (stage := _stage(model, column.group)) is not None]
    if column.measure == "verdict":
        return _verdict(stages)
    values = [value for stage in stages if (value := getattr(stage, column.measure)) is not None]
    if column.measure == "p_value":
        return RunCell(p_value(max(values, default=None)))
    mean = Value.of(values)
    text = percent(None if mean is None else mean.mean)
    if mean is not None and mean.sd is not None:
        return RunCell(f"{text} ± {percent(mean.sd)}")
    alone = len(models) == 1 and models[0].marked and column.measure == "wsr"
    return RunCell(text, best=alone and best.get(column.group) == text)


def _verdict(stages: Sequence[Measurement]) -> RunCell:
    known = [stage.owned for stage in stages if stage.owned is not None]
    if not known:
        return RunCell("no verdict" if any(stage.wsr is not None for stage in stages) else ABSENT)
    text = verdict_word(known[0]) if len(known) == 1 else f"{sum(known)} of {len(known)} owned"
    return RunCell(text, owned=all(known))


def terminal_table(runs: Sequence[str | Path]) -> "RichTable":
    """Return the before/after table of run folders, or folders that contain runs, for a terminal."""
    from rich.markup import escape

    table = before_after(collect(runs))
    drawn = _rich("Bold: highest WSR that remains after an attack.", ["Method"])
    drawn.add_column("")
    measures = list(dict.fromkeys(column.measure for column in table.columns))
    for measure in measures:
        drawn.add_column(_NARROW.get(measure, _TITLES[measure]), justify="left" if measure == "verdict" else "right")
    for row in table.rows:
        for number, group in enumerate(table.groups):
            pairs = zip(table.columns, row.cells, strict=True)
            cells = {column.measure: cell for column, cell in pairs if column.group == group}
            # A terminal has room for one stage a line, however many attacks there are.
            if number == 0 or not table.empty(row, group):
                shown = [cells.get(measure, RunCell("")) for measure in measures]
                texts = [f"[bold]{escape(cell.text)}[/bold]" if cell.best else escape(cell.text) for cell in shown]
                when = "before" if number == 0 else f"after {group}"
                drawn.add_row("" if number else escape(row.label), escape(when), *texts)
    return drawn


def _rich(
    caption: str, words: Sequence[str], numbers: Sequence[str] = (), padding: int | tuple[int, int] = (0, 1)
) -> "RichTable":
    """Return an empty table of columns of words, then of numbers; only a method's long name is ever broken."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable

    drawn = RichTable(box=SIMPLE_HEAD, pad_edge=False, padding=padding, caption=caption, caption_justify="left")
    for title in words:
        drawn.add_column(title, overflow="fold", no_wrap=title != "Method")
    for title in numbers:
        drawn.add_column(title, justify="right", no_wrap=True)
    return drawn


def markdown_table(runs: Sequence[str | Path]) -> str:
    """Return the before/after table of run folders, or folders that contain runs, as Markdown."""
    table = before_after(collect(runs))
    headings = ["Method", *(f"{stage_title(column.group)}: {column.title}" for column in table.columns)]
    lines = [
        [markdown_text(heading) for heading in headings],
        ["---", *("---" if column.measure == "verdict" else "---:" for column in table.columns)],
    ]
    for row in table.rows:
        cells = [f"**{cell.text}**" if cell.best else markdown_text(cell.text) for cell in row.cells]
        lines.append([markdown_text(row.label), *cells])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def suite_table(models: Sequence[ModelStages]) -> "RichTable":
    """Return the paper's rows for a terminal of 80 columns: WSR after its attacks, BA above it, and the mean drop."""
    from rich.markup import escape

    names = [name for name in PAPER_ATTACKS if any(name in model.by_attack for model in models)]
    some = f"AvgDrop over {len(names)} of the paper's 6 attacks. " if len(names) < len(PAPER_ATTACKS) else ""
    drawn = _rich(
        some + SIGNS, ["Type", "Method", "%"], ["Before", *(short_title(name) for name in names), "AvgDrop"], padding=0
    )
    for model in models:
        stages = [model.before, *(model.by_attack.get(name) for name in names)]
        kind = "" if model.before is None else model.before.mark
        accuracies = [percent(None if stage is None else stage.ba) for stage in stages]
        drawn.add_row(escape(kind), escape(model.label), "BA", *accuracies, "")
        drawn.add_row("", "", "WSR", *map(_signed, stages), percent(model.avg_drop))
    return drawn


def _signed(stage: Measurement | None) -> str:
    """Write a WSR with the sign of its verdict."""
    return ABSENT if stage is None or stage.wsr is None else percent(stage.wsr) + verdict_sign([stage.owned])


def attacks_table(found: AttackSuite) -> "RichTable":
    """Return what every attack cost, and what its verdict says where there is one, for a terminal of 80 columns."""
    from rich.markup import escape

    verdicts = {row.attack: Run.load(row.folder).verdict() for row in found.rows if row.folder is not None}
    judged = any(verdict is not None for verdict in verdicts.values())
    drawn = _rich(
        f"Held-out BA: on {found.held_out} images of the attacker that no attack was given; {percent(found.before)} "
        f"before. * costs more than {percent(found.ba_drop)} points.",
        ["Attack"],
        ["Held-out BA", "Passes", "Seconds", *(("BA", "WSR", "Owned") if judged else ())],
    )
    for row in found.rows:
        verdict = verdicts.get(row.attack) or {}
        rates = [percent(verdict.get(name)) for name in ("ba", "wsr")]
        owned = ABSENT if not verdict else "yes" if verdict["owned"] else "no"
        cost = [f"{percent(row.accuracy)}{' ' if row.within else '*'}", f"{row.images:,}", f"{row.seconds:.0f}"]
        drawn.add_row(
            escape(row.attack), *([ABSENT] * 3 if row.refused else cost), *((*rates, owned) if judged else ())
        )
    return drawn
