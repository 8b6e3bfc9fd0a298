"""A curve as a small inline SVG: the rates at each strength of an attack, or over the epochs of a training.

Drawn by hand, since a page may hold hundreds of them. Colours are the page's variables, dashes tell the lines apart in
grey, and the chosen strength is a vertical line.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from indelible.report.format import join_words
from indelible.report.palette import slot_of

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["spark"]

_RATES = {"wsr": "WSR", "ba": "BA", "accuracy": "held-out accuracy"}
_LOOKS = {"wsr": 2, "ba": 0, "accuracy": 3}
_LEFT, _TOP, _WIDTH, _HEIGHT = 30.0, 8.0, 282.0, 104.0
Point = tuple[float, float]


def spark(curve: Any) -> "Markup | None":
    """Return the curve (``name``, ``chosen``, ``rows``) as ``<svg>``; None if there is nothing to draw."""
    from markupsafe import Markup, escape

    lines = _lines(curve)
    if not lines:
        return None
    xs = [x for points in lines.values() for x, _ in points]
    low, high = min(xs), max(xs)
    name, chosen = str(curve.get("name", "")), curve.get("chosen")
    ends = [f"{_RATES[rate]} from {points[0][1]:.1f} to {points[-1][1]:.1f} %" for rate, points in lines.items()]
    alt = f"{join_words(ends)} over {name} {low:g} to {high:g}"

    def place(point: Point) -> str:
        across = (point[0] - low) / (high - low) if high > low else 0.5
        return f"{_LEFT + across * _WIDTH:.1f} {_TOP + (1 - point[1] / 100) * _HEIGHT:.1f}"

    parts = [f'<svg class="spark" role="img" aria-label="{escape(alt)}" viewBox="0 0 320 156">']
    for level in (0, 50, 100):
        y = _TOP + (1 - level / 100) * _HEIGHT
        parts.append(f'<path d="M{_LEFT} {y:.1f}h{_WIDTH}" stroke="var(--line)"/>')
        parts.append(f'<text x="{_LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">{level}</text>')
    if isinstance(chosen, int | float) and low <= chosen <= high and high > low:
        top = place((float(chosen), 100.0))
        parts.append(f'<path d="M{top}v{_HEIGHT}" stroke="var(--muted)" stroke-dasharray="2 2"/>')
    for rate, points in lines.items():
        look = slot_of(_LOOKS[rate])
        dash = f' stroke-dasharray="{" ".join(f"{part:g}" for part in look.dash)}"' if look.dash else ""
        path = "M" + "L".join(place(point) for point in points)
        parts.append(f'<path d="{path}" fill="none" stroke="var(--{look.name})" stroke-width="2"{dash}/>')
        dots = "".join(f'<path transform="translate({place(point)})" d="{look.path}"/>' for point in points[:24])
        parts.append(f'<g fill="var(--{look.name})">{dots}</g>')
    for x, anchor, text in ((_LEFT, "start", f"{low:g}"), (171, "middle", escape(name)), (312, "end", f"{high:g}")):
        parts.append(f'<text x="{x}" y="128" text-anchor="{anchor}">{text}</text>')
    for number, rate in enumerate(lines):
        look, x = slot_of(_LOOKS[rate]), _LEFT + 5 + 66 * number
        parts.append(f'<path transform="translate({x} 146)" d="{look.path}" fill="var(--{look.name})"/>')
        parts.append(f'<text x="{x + 8}" y="150">{_RATES[rate]} %</text>')
    return Markup("".join([*parts, "</svg>"]))  # noqa: S704 - numbers, and texts that were escaped above


def _lines(curve: Any) -> dict[str, list[Point]]:
    rows = curve.get("rows") if isinstance(curve, Mapping) else None
    if not isinstance(rows, Sequence):
        return {}
    found = {rate: [point for row in rows if (point := _point(row, rate)) is not None] for rate in _RATES}
    return {rate: points for rate, points in found.items() if points}


def _point(row: Any, rate: str) -> Point | None:
    if not isinstance(row, Mapping):
        return None
    x, y = row.get("value"), row.get(rate)
    if not isinstance(x, int | float) or not isinstance(y, int | float):
        return None
    return float(x), 100.0 * min(max(float(y), 0.0), 1.0)
