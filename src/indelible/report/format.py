"""Write numbers for people, the same on the terminal, in Markdown, LaTeX and HTML."""

import math
import re
from collections.abc import Sequence

ABSENT = "–"
"""Shown for a value that was not measured."""
OWNED, NOT_SHOWN, UNVERIFIED = "✓", "✗", "?"
"""Shown after a WSR: the verdict shows ownership, does not, or there is no verdict."""
SIGNS = f"After a WSR: {OWNED} the verdict shows ownership, {NOT_SHOWN} it does not, {UNVERIFIED} no verdict was made."
BEFORE = "Before attack"
_SMALLEST = 1e-300
_WRITTEN_OUT = 1e-3
_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "✓": r"$\checkmark$", "✗": r"$\times$", "–": "--",
    "…": r"\ldots{}",
    "−": "$-$", "≤": r"$\le$", "±": r"$\pm$", "ε": r"$\varepsilon$", "×": r"$\times$", "<": "$<$", ">": "$>$",
})  # fmt: skip


def percent(rate: float | None) -> str:
    """Write a rate in [0, 1] in per cent with one decimal, without the sign: 0.9876 is ``98.8``."""
    return ABSENT if rate is None else f"{100.0 * rate:.1f}"


def rate(value: float | None) -> str:
    """Write a rate in [0, 1] as the paper does: per cent, two decimals, without the sign."""
    return ABSENT if value is None else f"{100 * value:.2f}"


def p_value(value: float | None) -> str:
    """Write a p-value: ``0.61``, ``3e-12``, and ``< 1e-300`` for what a double cannot hold."""
    if value is None:
        return ABSENT
    if value < _SMALLEST:
        return "< 1e-300"
    if value >= _WRITTEN_OUT:
        return f"{value:.2g}"
    digits, exponent = f"{value:.0e}".split("e")
    return f"{digits}e{int(exponent)}"


def equation(value: float | None) -> str:
    """Write ``p = 3e-12``, or ``p < 1e-300``."""
    text = p_value(value)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def verdict_note(owned: bool | None, value: float | None) -> str:
    """Write a verdict to follow a WSR: ``owned, p = 3e-12``, ``not shown, p = 0.42`` or ``no verdict``."""
    if owned is None:
        return "no verdict"
    return f"{verdict_word(owned)}, {equation(value)}"


def verdict_sign(owned: Sequence[bool | None]) -> str:
    """Write the verdicts of one or more seeds as a sign: ``✓``, ``✗``; ``2/3 ✓`` and ``0/3 ✗`` of several."""
    known = [one for one in owned if one is not None]
    if not known:
        return UNVERIFIED
    count = f"{sum(known)}/{len(known)} " if len(known) > 1 else ""
    return count + (OWNED if any(known) else NOT_SHOWN)


def verdict_word(owned: bool | None) -> str:
    """Return a verdict in one or two words."""
    return ABSENT if owned is None else "owned" if owned else "not shown"


def stage_title(group: str) -> str:
    """Name a stage: "Before attack", "After FT"."""
    return group if group == BEFORE else f"After {group}"


def markdown_text(text: str) -> str:
    """Escape what Markdown would take for markup, tables and HTML."""
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", " ".join(text.split()))


def latex_text(text: str) -> str:
    """Escape what LaTeX would take for a command, and write symbols as commands."""
    return " ".join(text.split()).translate(_LATEX)


def plain_number(value: float | None) -> str:
    """Write a count or a rate per second with thousands apart: ``12,345``; below 100 with up to three digits."""
    if value is None:
        return ABSENT
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def duration(seconds: float) -> str:
    """Write a duration: ``4.2 s``, ``3 min 05 s``, ``2 h 10 min``."""
    if seconds < 60 and f"{seconds:.1f}" != "60.0":
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = math.floor(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def join_words(words: Sequence[str]) -> str:
    """Join with commas and a final "and"."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"
