"""Summarise a report in a sentence or two, for its top.

Of runs: which verdicts hold after which attack, and what the unmarked model shows. Of tables: in how many cells the
verdict shows ownership, how often APP keeps the most, and in how many groups it drops the least.
"""

from collections.abc import Sequence

from indelible.bench.measurement import Measurement
from indelible.report.format import equation, join_words
from indelible.report.model_stages import ModelStages, attack_title
from indelible.report.table_grid import Entry, Grid

Named = tuple[str, Measurement]
Count = tuple[int, int]
_LISTED = 6
"""More attacked models than these are counted, not listed."""


def outcome_of_runs(models: Sequence[ModelStages]) -> str:
    """Return the sentence for the top of a report."""
    marked = [model for model in models if model.marked]
    attacked = [(model, stage) for model in marked for stage in model.after if stage.owned is not None]
    if len(attacked) > _LISTED:
        parts = [_counted(attacked)]
    elif attacked:
        titles = dict.fromkeys(str(stage.column) for _, stage in attacked)
        parts = [_part(*_after(title, attacked)) for title in titles]
    else:
        parts = [_part("before any attack", [(model.label, model.before) for model in marked if model.before])]
    unmarked = [model for model in models if not model.marked]
    free = [(model.label, stage) for model in unmarked for stage in model.stages if stage.owned is not None]
    said = "; ".join(part for part in [*parts, _unmarked(free)] if part)
    if not said:
        return "No model has been verified yet: run `indelible verify` on each run, then write the report again."
    return f"{said[0].upper()}{said[1:]}."


def _counted(attacked: Sequence[tuple[ModelStages, Measurement]]) -> str:
    """Count by method where a list would be too long to read."""
    methods = dict.fromkeys(model.method for model, _ in attacked)
    counts = []
    for method in methods:
        stages = [stage for model, stage in attacked if model.method == method]
        held = sum(bool(stage.owned) for stage in stages)
        largest = max((stage.p_value for stage in stages if stage.p_value is not None), default=None)
        note = f"largest {equation(largest)}" if held == len(stages) else ""
        counts.append(f"{held} of {len(stages)} with {_labelled(method, note) if note else method}")
    same = {str(stage.column) for _, stage in attacked}
    when = _after(same.pop(), attacked)[0] if len(same) == 1 else "after attack"
    return f"{when}, the verdict holds for {join_words(counts)}"


def _after(title: str, attacked: Sequence[tuple[ModelStages, Measurement]]) -> tuple[str, list[Named]]:
    """Return an attack in words and the models it was made on."""
    named = [(model.label, stage) for model, stage in attacked if stage.column == title]
    method = str(named[0][1].attack)
    return f"after {attack_title(method) if title == method.upper() else title}", named


def _with_p(named: Sequence[Named]) -> str:
    return join_words([_labelled(label, equation(stage.p_value)) for label, stage in named])


def _labelled(label: str, note: str) -> str:
    """Put a note in brackets behind a label, or into those that it ends in."""
    return f"{label[:-1]}; {note})" if label.endswith(")") else f"{label} ({note})"


def _part(when: str, stages: Sequence[Named]) -> str:
    held = [named for named in stages if named[1].owned]
    lost = [named for named in stages if named[1].owned is False]
    if held and lost:
        return f"{when}, the verdict holds for {_with_p(held)}, but not for {_with_p(lost)}"
    if held:
        return f"{when}, the verdict holds for {_with_p(held)}"
    return f"{when}, the verdict does not hold for {_with_p(lost)}" if lost else ""


def _unmarked(stages: Sequence[Named]) -> str:
    alarms = [named for named in stages if named[1].owned]
    if alarms:
        return f"a false alarm: the verdict also claims what carries no mark, {_with_p(alarms)}"
    if not stages:
        return ""
    values = join_words([equation(stage.p_value) for _, stage in stages])
    who = "the unmarked model is" if len(stages) == 1 else "the unmarked models are"
    return f"{who} not claimed ({values})"


def wins(grid: Grid, *, measured: bool) -> tuple[Count, Count]:
    """Count where APP is best among at least two: ``((cells won, of), (groups with the least AvgDrop, of))``.

    Equal numbers, as printed, are a win for both.
    """
    cells, drops = [0, 0], [0, 0]
    for group in grid.groups:
        for number, column in enumerate(grid.columns):
            counted = cells if column.group == "After" else drops if column.title == "AvgDrop" else None
            known = [row for row in group if _known(row.entries[number], measured=measured)]
            app = next((row for row in known if row.key[-1] == "app"), None)
            if counted is None or app is None or len(known) < 2:
                continue
            entry = app.entries[number]
            counted[0] += entry.best_measured if measured else entry.best_reported
            counted[1] += 1
    return (cells[0], cells[1]), (drops[0], drops[1])


def _known(entry: Entry, *, measured: bool) -> bool:
    if not measured:
        return entry.reported is not None
    return entry.measured is not None and entry.measured.partial is None


def outcome_of_tables(grids: Sequence[Grid]) -> str:
    """Return the sentences for the top of a page of tables."""
    main = [grid for grid in grids if grid.measure == "wsr"]
    if not any(grid.measured for grid in grids):
        found = [(grid.title, *wins(grid, measured=False)[0]) for grid in main if grid.layout.axes[0].field == "kind"]
        counts = [
            f"{won} of {of}{'' if place else ' cases'} on {title}" for place, (title, won, of) in enumerate(found) if of
        ]
        said = "These are the numbers that the paper prints; nothing was run for this page."
        return said + (f" APP keeps the highest WSR after attack in {join_words(counts)}." if counts else "")
    return " ".join(_measured(grid) for grid in main) or "Nothing was measured yet."


def _measured(grid: Grid) -> str:
    done = sum(entry.measured is not None for row in grid.rows for entry in _after_attack(grid, row.entries))
    total = sum(len(_after_attack(grid, row.entries)) for row in grid.rows if not row.quoted)
    said = f"{grid.title}: {done} of {total} attack cells are measured."
    (won, of), (least, kinds) = wins(grid, measured=True)
    said += _shown(grid)
    if not of:
        return said
    (theirs, printed), _ = wins(grid, measured=False)
    paper = f" ({theirs} of {printed} in the paper)" if printed else ""
    said += f" APP keeps the highest WSR in {won} of {of} comparisons{paper}"
    return said + (f" and has the smallest AvgDrop in {least} of {kinds} groups." if kinds else ".")


def _shown(grid: Grid) -> str:
    """Count the measured cells, before attack too, whose verdict shows ownership for every seed; APP apart."""
    judged = [(row.key[-1], entry.owned) for row in grid.rows for entry in row.entries if entry.verdicts]
    app = [owned for method, owned in judged if method == "app"]
    own = f" ({sum(app)} of {len(app)} with APP)" if app else ""
    held = sum(owned for _, owned in judged)
    said = f" The verdict shows ownership in {held} of {len(judged)} cells, before attack included{own}."
    return said if judged else ""


def _after_attack(grid: Grid, entries: Sequence[Entry]) -> list[Entry]:
    return [entry for column, entry in zip(grid.columns, entries, strict=True) if column.group == "After"]
