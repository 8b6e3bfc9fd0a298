"""The outcome in one plain sentence: which verdicts hold after which attack, and what the unmarked model shows."""

from collections.abc import Sequence

from indelible.report.collect import Entry, Stage
from indelible.report.format import equation, join_words
from indelible.report.names import attack_title

__all__ = ["outcome"]

Named = tuple[str, Stage]
_LISTED = 6
"""More attacked models than these are counted, not listed."""


def outcome(entries: Sequence[Entry]) -> str:
    """Return the sentence that stands at the top of a report."""
    marked = [entry for entry in entries if entry.marked]
    attacked = [(entry, stage) for entry in marked for stage in entry.after if stage.owned is not None]
    if len(attacked) > _LISTED:
        parts = [_counted(attacked)]
    elif attacked:
        titles = dict.fromkeys(stage.title for _, stage in attacked)
        parts = [_part(*_after(title, attacked)) for title in titles]
    else:
        parts = [_part("before any attack", [(entry.label, entry.before) for entry in marked if entry.before])]
    unmarked = [entry for entry in entries if not entry.marked]
    free = [(entry.label, stage) for entry in unmarked for stage in entry.stages if stage.owned is not None]
    said = "; ".join(part for part in [*parts, _unmarked(free)] if part)
    if not said:
        return "No model has been verified yet: run `indelible verify` on each run, then write the report again."
    return f"{said[0].upper()}{said[1:]}."


def _counted(attacked: Sequence[tuple[Entry, Stage]]) -> str:
    """Count by method where a list would be too long to read."""
    methods = dict.fromkeys(entry.method for entry, _ in attacked)
    counts = []
    for method in methods:
        stages = [stage for entry, stage in attacked if entry.method == method]
        held = sum(bool(stage.owned) for stage in stages)
        largest = max((stage.p_value for stage in stages if stage.p_value is not None), default=None)
        note = f"largest {equation(largest)}" if held == len(stages) else ""
        counts.append(f"{held} of {len(stages)} with {_labelled(method, note) if note else method}")
    same = {stage.title for _, stage in attacked}
    when = _after(same.pop(), attacked)[0] if len(same) == 1 else "after attack"
    return f"{when}, the verdict holds for {join_words(counts)}"


def _after(title: str, attacked: Sequence[tuple[Entry, Stage]]) -> tuple[str, list[Named]]:
    """Return an attack in words and the models it was made on."""
    named = [(entry.label, stage) for entry, stage in attacked if stage.title == title]
    method = named[0][1].run.record.method
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
