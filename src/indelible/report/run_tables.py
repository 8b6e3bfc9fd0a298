"""Tables of runs: before and after attack for terminal, Markdown and HTML; the paper's row; what each attack cost.

Models of one method that differ in seed only have a row each, and one more with mean ± sample standard deviation, the
largest p-value and how many verdicts show ownership.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from indelible.bench.attack_suite import AttackSuite
from indelible.bench.measurement import PAPER_ATTACKS
from indelible.report.format import ABSENT, BEFORE, SIGNS, p_value, percent, verdict_sign, verdict_word
from indelible.report.model_stages import ModelStages, collect, run_of, short_title
from indelible.report.page_look import text_environment
from indelible.report.table_grid import Value
from indelible.train.run_folder import Run

if TYPE_CHECKING:
    from rich.table import Table as RichTable

TITLES = {
    "ba": "BA %",
    "wsr": "WSR %",
    "wsr_embedded": "WSR % on embedded samples",
    "p_value": "p-value",
    "verdict": "Verdict",
}
"""Measure -> heading of its column."""


class RunColumn(NamedTuple):
    """One column: its stage ("Before attack", or an attack's title), and a measure."""

    group: str
    measure: str


class RunCell(NamedTuple):
    """One cell: its text, whether it is the best of its column, and whether it is a verdict that shows ownership."""

    text: str
    best: bool = False
    owned: bool = False


class RunRow(NamedTuple):
    """One model, or the mean over the seeds of a method: a cell for each column."""

    label: str
    cells: tuple[RunCell, ...]


class RunTable(NamedTuple):
    """Columns and rows."""

    columns: tuple[RunColumn, ...]
    rows: tuple[RunRow, ...]

    @property
    def groups(self) -> dict[str, int]:
        """The stages in order, with the number of columns of each."""
        return Counter(column.group for column in self.columns)

    def stages(self, row: RunRow) -> dict[str, dict[str, RunCell]]:
        """Return the cells of a row by stage and measure."""
        found: dict[str, dict[str, RunCell]] = {}
        for column, cell in zip(self.columns, row.cells, strict=True):
            found.setdefault(column.group, {})[column.measure] = cell
        return found


def before_after(models: Sequence[ModelStages]) -> RunTable:
    """Return the table of ``models``: a row for each, a group of columns for each stage."""
    known = [model.before for model in models if model.before is not None]
    measures = ["ba", "wsr"]
    if any(stage.wsr_embedded is not None for stage in known):  # a codebook is stamped anew in every pass
        measures.append("wsr_embedded")
    # A WSR never stands without its verdict, and be it that there is none.
    if any(stage.verdict is not None or stage.wsr is not None for stage in known):
        measures += ["p_value", "verdict"]
    columns = [RunColumn(BEFORE, measure) for measure in measures]
    for title in dict.fromkeys(str(stage.column) for model in models for stage in model.after):
        columns += [RunColumn(title, measure) for measure in ("ba", "wsr", "p_value", "verdict")]
    best: dict[str, float] = {}
    for model in models:
        for stage in model.after:
            if model.marked and stage.wsr is not None:
                best[str(stage.column)] = max(best.get(str(stage.column), 0.0), stage.wsr)
    rows = [RunRow(label, tuple(_cell(some, column, best) for column in columns)) for label, some in _rows(models)]
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


def _cell(models: Sequence[ModelStages], column: RunColumn, best: Mapping[str, float]) -> RunCell:
    """Write what was measured; ``best`` is the highest WSR after each attack. What looks equal counts as equal."""
    stages = [
        stage
        for model in models
        for stage in model.stages
        if (BEFORE if stage is model.before else stage.column) == column.group
    ]
    if column.measure == "verdict":
        known = [stage.owned for stage in stages if stage.owned is not None]
        if not known:
            return RunCell("no verdict" if any(stage.wsr is not None for stage in stages) else ABSENT)
        text = verdict_word(known[0]) if len(known) == 1 else f"{sum(known)} of {len(known)} owned"
        return RunCell(text, owned=all(known))
    values = [value for stage in stages if (value := getattr(stage, column.measure)) is not None]
    if column.measure == "p_value":
        return RunCell(p_value(max(values, default=None)))
    mean = Value.of(values)
    text = percent(None if mean is None else mean.mean)
    if mean is not None and mean.sd is not None:
        return RunCell(f"{text} ± {percent(mean.sd)}")
    alone = len(models) == 1 and models[0].marked and column.measure == "wsr"
    return RunCell(text, best=alone and column.group in best and percent(best[column.group]) == text)


def markdown_table(runs: Sequence[str | Path]) -> str:
    """Return the before/after table of run folders, or folders that contain runs, as Markdown."""
    table = before_after(collect(runs))
    return text_environment().get_template("results.md.j2").render(table=table, titles=TITLES)


def terminal_table(runs: Sequence[str | Path]) -> "RichTable":
    """Return the before/after table of run folders, or folders that contain runs, for a terminal."""
    from rich.markup import escape

    table = before_after(collect(runs))
    drawn = _rich("Bold: highest WSR that remains after an attack.", ["Method", ""])
    measures = list(dict.fromkeys(column.measure for column in table.columns))
    titles = TITLES | {"wsr_embedded": "embedded %"}  # columns of a terminal are dear
    for measure in measures:
        drawn.add_column(titles[measure], justify="left" if measure == "verdict" else "right")
    for row in table.rows:
        for number, (group, cells) in enumerate(table.stages(row).items()):
            # A terminal has room for one stage a line, however many attacks there are.
            if number == 0 or any(cell.text != ABSENT for cell in cells.values()):
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
        signed = [
            ABSENT if stage is None or stage.wsr is None else percent(stage.wsr) + verdict_sign([stage.owned])
            for stage in stages
        ]
        drawn.add_row(escape(kind), escape(model.label), "BA", *accuracies, "")
        drawn.add_row("", "", "WSR", *signed, percent(model.avg_drop))
    return drawn


def attacks_table(found: AttackSuite) -> "RichTable":
    """Return what every attack cost, and what its verdict says where there is one, for a terminal of 80 columns."""
    from rich.markup import escape

    verdicts = {row.attack: Run.load(row.folder).verdict for row in found.rows if row.folder is not None}
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
