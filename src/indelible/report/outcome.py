"""Summarise a report in a sentence or two, for its top; two templates hold the words.

Of runs: which verdicts hold after which attack, and what the unmarked model shows. Of tables: in how many cells the
verdict shows ownership, how often APP keeps the most, and in how many groups it drops the least.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from indelible.report.model_stages import ModelStages, attack_title
from indelible.report.page_look import text_environment
from indelible.report.table_grid import Grid

Count = tuple[int, int]


def outcome_of_runs(models: Sequence[ModelStages]) -> str:
    """Return the sentence for the top of a report."""
    judged = [(model, stage) for model in models for stage in model.stages if stage.owned is not None]
    parts = _lines(
        "outcome_of_runs.txt.j2", attack_title=attack_title,
        attacked=[(model, stage) for model, stage in judged if model.marked and stage is not model.before],
        unattacked=[(model, stage) for model, stage in judged if model.marked and stage is model.before],
        unmarked=[(model, stage) for model, stage in judged if not model.marked],
    )  # fmt: skip
    if not parts:
        return "No model has been verified yet: run `indelible verify` on each run, then write the report again."
    said = "; ".join(parts)
    return f"{said[0].upper()}{said[1:]}."


def _lines(template: str, **values: Any) -> list[str]:
    """Return the lines of a filled template that are not empty."""
    return [line for line in text_environment().get_template(template).render(values).split("\n") if line]


def wins(grid: Grid, *, measured: bool) -> tuple[Count, Count]:
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
    return " ".join(_lines("outcome_of_tables.txt.j2", tables=tables, measured=measured))


def _counts(grid: Grid) -> Mapping[str, Any]:
    """Count attack cells, and those, before attack too, whose verdict shows ownership for every seed; APP apart."""
    after = [
        (row, entry)
        for row in grid.rows
        for column, entry in zip(grid.columns, row.entries, strict=True)
        if column.group == "After"
    ]
    judged = [(row.key[-1], entry.owned) for row in grid.rows for entry in row.entries if entry.verdicts]
    return {
        "title": grid.title, "by_kind": grid.layout.axes[0].field == "kind",
        "done": sum(entry.measured is not None for _, entry in after),
        "total": sum(not row.quoted for row, _ in after),
        "judged": [owned for _, owned in judged], "app": [owned for method, owned in judged if method == "app"],
        "ours": wins(grid, measured=True), "theirs": wins(grid, measured=False),
    }  # fmt: skip
