"""Write the tables of README and docs from the committed records, so that no figure is typed by hand.

A page has a pair of comments around each table: <!-- proof --> ... <!-- /proof -->. This command replaces what stands
between them; a test fails when a page does not say what the records say.

Run it: python experiments/write_tables.py            (--check: change nothing, exit 1 when a page is out of date)
"""

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from scipy.special import stdtrit

ROOT = Path(__file__).parents[1]
NAMES = {
    "app": "APP", "control": "control (eps 0)", "vanilla": "Vanilla", "unmarked": "no mark",
    "rehearsed": "rehearsed", "light": "light (eps 0: the control)",
}  # fmt: skip
METHODS = ("unmarked", "vanilla", "control", "light", "app")
ATTACKS = {"ft": "FT", "fp": "FP", "anp": "ANP", "nad": "NAD", "mcr": "MCR", "nnl": "NNL"}
ONE_CLASS = {
    "vanilla": "Vanilla", "ew": "EW", "cw": "CW", "control": "control (c-BN only)", "app": "APP with c-BN",
    "pgd-at": "PGD-AT", "trades": "TRADES", "rose": "ROSE", "ntl": "NTL", "cae": "CAE",
}  # fmt: skip
RATES = {"ft-1e-5": "1e-5", "ft-1e-3": "1e-3", "ft-1e-2": "1e-2", "ft-2e-2": "2e-2"}
# The cheaper variants of docs/speed.md: title, and passes per step with 128 ordinary rows.
VARIANTS = {
    "vanilla": ("Vanilla", "1.00"), "exact": ("exact", "2.00"), "exact-control": ("eps 0, exposure of exact", "1.50"),
    "light": ("light", "1.25"), "light-control": ("eps 0, exposure of light", "1.13"), "fast": ("fast", "1.25"),
    "late": ("late", "1.25"), "late-more": ("late-more", "1.25"),
}  # fmt: skip
# Cards of attacks that were run against codebooks.
CARDS = (
    "anp", "bnp", "clp", "distill", "fp", "fst", "ft", "ft-sam", "i-bau", "invert", "magnitude", "mcr", "nad", "nnl",
    "overwrite", "quantise", "rehearse", "rnp", "sau", "super-ft", "weight-noise",
)  # fmt: skip
Cell = Mapping[str, Any]


def cells_of(name: str) -> list[Cell]:
    """Return the measured cells of a results file."""
    found: list[Cell] = json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))["cells"]
    return [cell for cell in found if cell["measured"]]


def mean(values: Sequence[float]) -> str:
    """Return a mean in per cent, with the standard deviation over seeds where there are several."""
    spread = f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * statistics.mean(values):.1f}{spread}"


def stage(cells: Sequence[Cell]) -> str:
    """Return WSR, how many seeds are owned, and the largest p-value of one cell of a table; a dash if none was run."""
    if not cells:
        return "-"
    owned = sum(bool(cell["measured"]["owned"]) for cell in cells)
    worst = max(cell["measured"]["p_value"] for cell in cells)
    return f"{mean([cell['measured']['wsr'] for cell in cells])} ({owned}/{len(cells)}, p ≤ {worst:.0e})"


def proof_table(cells: Sequence[Cell]) -> str:
    """Return the table of ``proof-cpu``: a row for each kind and method, means over seeds, verdicts beside each WSR."""
    lines = [
        f"| kind | method | seeds | BA | before | {' | '.join(ATTACKS.values())} |",
        f"|---|---|---|---|---|{'---|' * len(ATTACKS)}",
    ]
    for kind in ("content", "noise", "unrelated"):
        for method in METHODS:
            group = [cell for cell in cells if (cell["kind"], cell["method"]) == (kind, method)]
            before = [cell for cell in group if cell["attack"] is None]
            if not before:
                continue
            columns = [stage([cell for cell in group if cell["attack"] == attack]) for attack in ATTACKS]
            ba = mean([cell["measured"]["ba"] for cell in before])
            lines.append(
                f"| {kind} | {NAMES[method]} | {len(before)} | {ba} | {stage(before)} | {' | '.join(columns)} |"
            )
    return "\n".join([*lines, "", *proof_sentences(cells)])


def proof_sentences(cells: Sequence[Cell]) -> Iterable[str]:
    """Yield what the table says in words: verdicts of APP, and its accuracy beside that of the same seeds unmarked."""
    app = [cell for cell in cells if cell["method"] == "app"]
    owned = sum(bool(cell["measured"]["owned"]) for cell in app)
    worst = max(cell["measured"]["p_value"] for cell in app)
    yield f"APP is OWNED in {owned} of the {len(app)} cells that were run; the largest p-value is {worst:.1e}."
    plain = {
        cell["seed"]: cell["measured"]["ba"]  # the same training whatever the kind of the key that is asked
        for cell in cells
        if cell["method"] == "unmarked" and cell["attack"] is None
    }
    lost = [
        100 * (plain[cell["seed"]] - cell["measured"]["ba"])
        for cell in app
        if cell["attack"] is None and cell["seed"] in plain
    ]
    if lost:
        each = ", ".join(f"{value:.1f}" for value in lost)
        yield f"It loses {statistics.mean(lost):.1f} points of BA against the same training without a mark ({each})."


def verdicts(cells: Sequence[Cell]) -> str:
    """Return how many of these cells are OWNED."""
    return f"{sum(bool(cell['measured']['owned']) for cell in cells)} of {len(cells)}"


def worst_table(cells: Sequence[Cell]) -> str:
    """Return ``proof-cpu`` in short, for the README: how often each method is proven, before and after attacks."""
    lines = [
        "| marks | method | BA | OWNED before attacks | OWNED after | largest p after |",
        "|---|---|---|---|---|---|",
    ]
    for kind in ("content", "noise", "unrelated"):
        for method in METHODS:
            group = [cell for cell in cells if (cell["kind"], cell["method"]) == (kind, method)]
            before, after = ([cell for cell in group if (cell["attack"] is None) == first] for first in (True, False))
            # Training without a mark is the same whatever the kind of the key that is asked: one row is enough.
            if not before or (method == "unmarked" and kind != "content"):
                continue
            row = [kind, NAMES[method], mean([cell["measured"]["ba"] for cell in before]), verdicts(before)]
            # Two digits: 1.1e-06 is not 1e-06, and NOT SHOWN.
            row += (
                [verdicts(after), f"{max(cell['measured']['p_value'] for cell in after):.1e}"] if after else ["-"] * 2
            )
            lines.append(f"| {' | '.join(row)} |")
    return "\n".join([*lines, "", *proof_sentences(cells)])


def price_table(cells: Sequence[Cell]) -> str:
    """Return the table of ``price-cpu``: what each recipe costs and proves, over its seeds.

    The BA of ``balanced`` has the seeds of ``balanced-more`` too, whose models were not attacked.
    """
    lines = [
        "| recipe | seeds | BA | points of BA lost, 95 % confidence | OWNED after attacks | largest p after |",
        "|---|---|---|---|---|---|",
    ]
    plain = {cell["seed"]: cell["measured"]["ba"] for cell in cells if cell["method"] == "unmarked"}
    for method in ("unmarked", "balanced", "light", "strong"):
        group = [cell for cell in cells if cell["method"] in {method, f"{method}-more"}]
        before, after = ([cell for cell in group if (cell["attack"] is None) == first] for first in (True, False))
        lost = [100 * (plain[cell["seed"]] - cell["measured"]["ba"]) for cell in before if cell["seed"] in plain]
        if not before:
            continue
        owned = sum(bool(cell["measured"]["owned"]) for cell in after)
        worst = max((cell["measured"]["p_value"] for cell in after), default=1.0)
        lines.append(
            f"| {NAMES.get(method, method)} | {len(before)} | {mean([cell['measured']['ba'] for cell in before])} "
            f"| {'-' if method == 'unmarked' else interval(lost)} | {f'{owned} of {len(after)}' if after else '-'} "
            f"| {f'{worst:.0e}' if after else '-'} |"
        )
    return "\n".join(lines)


def interval(values: Sequence[float]) -> str:
    """Return a mean with its 95 % confidence interval, by Student's t; the mean alone of a single value."""
    middle = statistics.mean(values)
    if len(values) < 2:
        return f"{middle:.1f}"
    half = float(stdtrit(len(values) - 1, 0.975)) * statistics.stdev(values) / len(values) ** 0.5
    return f"{middle:.1f} ({middle - half:.1f} to {middle + half:.1f})"


def demo_table(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of the demo: a row for each model, means over seeds, verdicts beside each WSR."""
    cells = [
        {
            "method": str(run["model"]).removesuffix("-ft"), "attack": "ft" if run["model"].endswith("-ft") else None,
            "seed": run["seed"], "measured": run["verdict"],
        }
        for run in runs
    ]  # fmt: skip
    lines = ["| model | seeds | BA | before | after FT | BA after FT |", "|---|---|---|---|---|---|"]
    rates: dict[str, dict[int, float]] = {}
    for method in METHODS:
        before, after = (
            [cell for cell in cells if (cell["method"], cell["attack"]) == (method, stage)] for stage in (None, "ft")
        )
        if not before:
            continue
        rates[method] = {cell["seed"]: cell["measured"]["wsr"] for cell in after}
        ba = [mean([cell["measured"]["ba"] for cell in group]) if group else "-" for group in (before, after)]
        lines.append(f"| {NAMES[method]} | {len(before)} | {ba[0]} | {stage(before)} | {stage(after)} | {ba[1]} |")
    app, control = rates.get("app", {}), rates.get("control", {})
    above = sum(app[seed] > control[seed] for seed in app if seed in control)
    lines += ["", f"After fine-tuning APP's WSR is above its control's on {above} of {len(app)} seeds."]
    return "\n".join(lines)


def demo_runs() -> list[Mapping[str, Any]]:
    """Return the runs of ``results/demo.json``."""
    found: list[Mapping[str, Any]] = json.loads((ROOT / "results" / "demo.json").read_text(encoding="utf-8"))["runs"]
    return found


def strangers_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of a stranger's tasks: a row for each task and way, over its seeds."""
    lines = [
        "| task | way | seeds | BA unmarked | BA | difference | owned before, p at most | owned after FT, p at most |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, way in dict.fromkeys((row["task"], row["way"]) for row in rows):
        own = [row for row in rows if (row["task"], row["way"]) == (name, way)]
        plain, marked = (100 * sum(row[which] for row in own) / len(own) for which in ("ba_unmarked", "ba"))
        verdicts = [
            f"{sum(row[owned] for row in own)} of {len(own)}, {max(row[p] for row in own):.0e}"
            for owned, p in (("owned", "p_value"), ("owned_after", "p_value_after"))
        ]
        lines.append(
            f"| {name} | {way} | {len(own)} | {plain:.1f} | {marked:.1f} | {marked - plain:+.1f} "
            f"| {verdicts[0]} | {verdicts[1]} |"
        )
    return "\n".join(lines)


def points(values: Sequence[float]) -> str:
    """Return a mean to one place; a tiny loss is 0.0, not -0.0."""
    return f"{round(statistics.mean(values), 1) + 0.0:.1f}"


def trained_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of models that were trained already: a row for each seed of each trial, and their mean."""
    lines = [
        "| settings | seed | share of time | BA before | BA | BA lost | WSR | OWNED after attacks | largest p after |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for trial in dict.fromkeys(row["trial"] for row in rows):
        own = [row for row in rows if row["trial"] == trial]
        firsts, after = ([row for row in own if (row["attack"] is None) == first] for first in (True, False))
        for first in sorted(firsts, key=lambda row: int(row["seed"])):
            attacked = [row for row in after if row["seed"] == first["seed"]]
            worst = max(attacked, key=lambda row: float(row["p_value"]))
            lines.append(
                f"| {trial} | {first['seed']} | {100 * first['share_of_seconds']:.1f} % "
                f"| {100 * first['ba_before']:.1f} | {100 * first['ba']:.1f} | {_lost(first):.2f} "
                f"| {_with_verdict(first)} | {_owned(attacked)} | {worst['p_value']:.0e} ({worst['attack'].upper()}) |"
            )
        share = 100 * statistics.mean(first["share_of_seconds"] for first in firsts)
        before, ba = (points([100 * first[name] for first in firsts]) for name in ("ba_before", "ba"))
        lines.append(
            f"| {trial} | mean | {share:.1f} % | {before} | {ba} | {statistics.mean(map(_lost, firsts)):.2f} | "
            f"| {_owned(after)} | {max(row['p_value'] for row in after):.0e} |"
        )
    return "\n".join(lines)


def _owned(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return how many of these rows are OWNED."""
    return f"{sum(bool(row['owned']) for row in rows)} of {len(rows)}"


def _lost(first: Mapping[str, Any]) -> float:
    """Return the points of BA that the mark cost."""
    return 100 * float(first["ba_before"] - first["ba"])


def _with_verdict(row: Mapping[str, Any]) -> str:
    """Return a WSR in per cent with its verdict."""
    return f"{100 * row['wsr']:.1f} ({'OWNED' if row['owned'] else 'NOT SHOWN'}, p = {row['p_value']:.0e})"


def removal_table(cells: Sequence[Cell]) -> str:
    """Return the table of ``removal-2026-cpu``: a row for each attack on APP, beside the other methods."""
    methods = ("app", "rehearsed", "control", "vanilla")
    before = {(cell["method"], cell["seed"]): cell["measured"]["ba"] for cell in cells if cell["attack"] is None}
    done = [cell for cell in cells if cell["attack"] is not None and (cell["method"], cell["seed"]) in before]
    shown = [method for method in methods if any(cell["method"] == method for cell in done)]
    lines = [
        f"| attack | {' | '.join(f'{NAMES.get(method, method)}: BA lost by the thief, WSR, p' for method in shown)} |",
        f"|---|{'---|' * len(shown)}",
    ]
    for attack in dict.fromkeys(cell["attack"] for cell in done if cell["method"] == "app"):
        columns = []
        for method in shown:
            own = [cell for cell in done if (cell["attack"], cell["method"]) == (attack, method)]
            lost = [100 * (before[method, cell["seed"]] - cell["measured"]["ba"]) for cell in own]
            columns.append(f"{points(lost)}; {stage(own)}" if own else "-")
        lines.append(f"| {attack} | {' | '.join(columns)} |")
    return "\n".join(lines)


def carriers_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the verdicts on attacked models that were asked on more carriers: a row for each model."""
    counts = sorted({row["carriers"] for row in rows})
    lines = [
        f"| watermark | attack | seed | BA | {' | '.join(f'{count:,} carriers per mark' for count in counts)} |",
        f"|---|---|---|---|{'---|' * len(counts)}",
    ]
    for name in dict.fromkeys((row["method"], row["attack"], row["seed"]) for row in rows):
        own = [row for row in rows if (row["method"], row["attack"], row["seed"]) == name]
        asked = {row["carriers"]: row for row in own}
        shown = [_with_verdict(asked[count]) if count in asked else "-" for count in counts]
        method, attack, seed = name
        lines.append(f"| {NAMES[method]} | {attack} | {seed} | {100 * own[0]['ba']:.1f} | {' | '.join(shown)} |")
    return "\n".join(lines)


def relearning_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return what answers alone and relearning show on each model, and the p-values of foreign keys."""
    lines = [
        "| attack | seed | BA | p by answers alone | p by relearning | marks back | foreign keys, p by relearning |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        name = row["method"] if row["verb"] == "attack" else "none, an unmarked model"
        verdicts = [
            f"{row[p]:.0e}, {'OWNED' if row[owned] else 'NOT SHOWN'}"
            for p, owned in (("p_value", "owned"), ("p_value_relearnt", "owned_relearnt"))
        ]
        foreign = ", ".join(f"{value:.1g}" for value in row["p_values_foreign"])
        lines.append(
            f"| {name} | {row['seed']} | {100 * row['ba']:.1f} | {verdicts[0]} | {verdicts[1]} "
            f"| {row['marks_relearnt']} of {row['marks_asked']} | {foreign or '-'} |"
        )
    return "\n".join(lines)


def signed(cell: Cell, reported: bool = False) -> str:
    """Return WSR in per cent with the sign of its verdict, and in brackets what the paper reports."""
    told = cell["reported"]["wsr"] if reported and cell["reported"] else None
    sign = "✓" if cell["measured"]["owned"] else "✗"
    return f"{100 * cell['measured']['wsr']:.1f} {sign}" + ("" if told is None else f" ({100 * told:.1f})")


def one_seed(cells: Sequence[Cell], kind: str, method: str, attack: str | None) -> Cell:
    """Return the only cell of these coordinates."""
    (found,) = (cell for cell in cells if (cell["kind"], cell["method"], cell["attack"]) == (kind, method, attack))
    return found


def average_drop(before: float, after: Sequence[float]) -> str:
    """Return by how many points the WSR falls on average."""
    return f"{100 * (before - statistics.mean(after)):.1f}"


def six_attacks_table(cells: Sequence[Cell], reported: bool = False) -> str:
    """Return a table of one seed: WSR with its verdict after each attack, the highest of each kind in bold."""
    several = len({cell["kind"] for cell in cells}) > 1
    heads = [*(["kind"] if several else []), "method", "WSR", *ATTACKS.values(), "AvgDrop"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for kind in dict.fromkeys(cell["kind"] for cell in cells):
        methods = list(dict.fromkeys(cell["method"] for cell in cells if cell["kind"] == kind))
        highest = {
            attack: max(one_seed(cells, kind, method, attack)["measured"]["wsr"] for method in methods)
            for attack in ATTACKS
        }
        for method in methods:
            before = one_seed(cells, kind, method, None)
            after = [one_seed(cells, kind, method, attack) for attack in ATTACKS]
            row = [*([kind] if several else []), ONE_CLASS.get(method, method), signed(before, reported)]
            for cell in after:
                best = cell["measured"]["wsr"] == highest[cell["attack"]]
                row.append(f"**{signed(cell, reported)}**" if best else signed(cell, reported))
            drop = average_drop(before["measured"]["wsr"], [cell["measured"]["wsr"] for cell in after])
            if reported:
                told = [cell["reported"]["wsr"] for cell in (before, *after)]
                drop += f" ({average_drop(told[0], told[1:])})"
            lines.append(f"| {' | '.join([*row, drop])} |")
    return "\n".join(lines)


def accuracy_table(cells: Sequence[Cell], names: Mapping[str, str]) -> str:
    """Return BA before and after each attack, one seed."""
    several = len({cell["kind"] for cell in cells}) > 1
    heads = [*(["kind"] if several else []), "method", "before", *names.values()]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for kind, method in dict.fromkeys((cell["kind"], cell["method"]) for cell in cells):
        rates = [one_seed(cells, kind, method, attack)["measured"]["ba"] for attack in (None, *names)]
        row = [*([kind] if several else []), ONE_CLASS.get(method, method), *(f"{100 * rate:.1f}" for rate in rates)]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def rates_table(cells: Sequence[Cell]) -> str:
    """Return WSR and verdict after fine-tuning at four rates, beside the paper's, and the p-values before and after."""
    lines = [
        f"| method | BA | WSR | {' | '.join(RATES.values())} | p before | p after 2e-2 |",
        "|---" * (len(RATES) + 5) + "|",
    ]
    for method in dict.fromkeys(cell["method"] for cell in cells):
        before, *after = (one_seed(cells, "content", method, attack) for attack in (None, *RATES))
        row = [ONE_CLASS.get(method, method), f"{100 * before['measured']['ba']:.1f}"]
        row += [signed(cell, reported=True) for cell in (before, *after)]
        row += [f"{cell['measured']['p_value']:.1g}" for cell in (before, after[-1])]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def variants_table(cells: Sequence[Cell]) -> str:
    """Return the cheaper variants of APP: what each costs, and what three attacks leave of it."""
    lines = [
        "| kind | seed | variant | passes | BA | WSR | FT | NAD | ANP |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    done = {(cell["kind"], cell["seed"], cell["method"], cell["attack"]): cell for cell in cells}
    for kind in ("content", "unrelated", "noise"):
        for seed in sorted({cell["seed"] for cell in cells}):
            for method, (title, passes) in VARIANTS.items():
                before = done.get((kind, seed, method, None))
                if before is None:
                    continue
                after = [done.get((kind, seed, method, attack)) for attack in ("ft", "nad", "anp")]
                row = [kind, str(seed), title, passes, f"{100 * before['measured']['ba']:.1f}", signed(before)]
                lines.append(f"| {' | '.join([*row, *('' if cell is None else signed(cell) for cell in after)])} |")
    return "\n".join(lines)


def card_lines(attack: str, cells: Sequence[Cell]) -> str:
    """Return what an attack did to the models of ``removal-2026-cpu``: one line for each method that it was run on."""
    lines = ["| watermark | seeds | BA lost by the thief | WSR, verdict |", "|---|---|---|---|"]
    for method in ("app", "rehearsed", "control", "vanilla"):
        own = [cell for cell in cells if (cell["attack"], cell["method"]) == (attack, method)]
        before = {cell["seed"]: cell for cell in cells if cell["attack"] is None and cell["method"] == method}
        if own:
            lost = [100 * (before[cell["seed"]]["measured"]["ba"] - cell["measured"]["ba"]) for cell in own]
            lines.append(f"| {NAMES[method]} | {len(own)} | {points(lost)} points | {stage(own)} |")
    return "\n".join(lines)


TABLES: dict[str, Callable[[], str]] = {
    "demo": lambda: demo_table(demo_runs()),
    "price": lambda: price_table(cells_of("price-cpu")),
    "proof": lambda: proof_table(cells_of("proof-cpu")),
    "relearning": lambda: relearning_table(json.loads((ROOT / "results/relearning.json").read_text())),
    "removal": lambda: removal_table(cells_of("removal-2026-cpu")),
    "carriers": lambda: carriers_table(json.loads((ROOT / "results/more-carriers.json").read_text())),
    "worst": lambda: worst_table(cells_of("proof-cpu")),
    "six-attacks": lambda: six_attacks_table(cells_of("cifar10-cpu")),
    "six-attacks-ba": lambda: accuracy_table(cells_of("cifar10-cpu"), ATTACKS),
    "adversarial": lambda: six_attacks_table(cells_of("adversarial-training-cpu"), reported=True),
    "adversarial-ba": lambda: accuracy_table(cells_of("adversarial-training-cpu"), ATTACKS),
    "rates": lambda: rates_table(cells_of("ft-learning-rates-cpu")),
    "rates-ba": lambda: accuracy_table(cells_of("ft-learning-rates-cpu"), RATES),
    "variants": lambda: variants_table(cells_of("app-fast-cpu")),
    **{f"card-{attack}": partial(card_lines, attack, cells_of("removal-2026-cpu")) for attack in CARDS},
    "trained": lambda: trained_table(json.loads((ROOT / "results/trained-start.json").read_text())),
    "strangers": lambda: strangers_table(json.loads((ROOT / "results/strangers-tasks.json").read_text())),
}
PAGES = {
    "README.md": ("worst",),
    "docs/results.md": (
        "proof", "six-attacks", "six-attacks-ba", "adversarial", "adversarial-ba", "rates", "rates-ba",
    ),
    "docs/demo.md": ("demo",),
    "docs/experiments.md": ("strangers",),
    "docs/protect-trained.md": ("trained",),
    "docs/speed.md": ("price", "variants"),
    "docs/threat-model.md": ("relearning", "removal", "carriers"),
    **{f"docs/attacks/{attack}.md": (f"card-{attack}",) for attack in CARDS},
}  # fmt: skip


def written(text: str, names: Iterable[str]) -> str:
    """Return a page with its tables made anew."""
    for name in names:
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        if begin not in text or end not in text:
            raise SystemExit(f"the page lacks {begin} or {end}")
        text = re.sub(f"{begin}.*?{end}", f"{begin}\n{TABLES[name]()}\n{end}", text, flags=re.DOTALL)
    return text


def main(argv: Sequence[str] | None = None) -> int:
    """Write all pages, or check them."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--check", action="store_true", help="change nothing; exit 1 when a page is out of date")
    check = options.parse_args(argv).check
    stale = []
    for page, names in PAGES.items():
        path = ROOT / page
        old = path.read_text(encoding="utf-8")
        new = written(old, names)
        if new != old:
            stale.append(page)
            if not check:
                path.write_text(new, encoding="utf-8")
    for page in stale:
        print(f"{page}: {'out of date; run python experiments/write_tables.py' if check else 'written'}")
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main())
