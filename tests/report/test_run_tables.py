"""Tables of runs: the same cells before and after attack in three forms, seeds together, the paper's row, attacks."""

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from indelible.attacks import ATTACKS
from indelible.bench.attack_suite import AttackRow, AttackSuite
from indelible.bench.measurement import PAPER_ATTACKS, Measurement
from indelible.report.documents import outcome_of_runs
from indelible.report.format import ABSENT
from indelible.report.model_stages import ModelStages, average_drop, collect
from indelible.report.run_tables import attacks_table, before_after, markdown_table, suite_table, terminal_table
from tests.report.runs import make_demo, make_run, make_verdict

CELLS = {
    "Vanilla": ["82.3", "98.8", "99.5", "< 1e-300", "owned", "81.5", "12.3", "0.42", "not shown"],
    "c-BN only (eps 0)": ["82.0", "100.0", "99.5", "< 1e-300", "owned", "81.0", "70.0", "3e-12", "owned"],
    "APP with c-BN": ["81.5", "100.0", "99.5", "< 1e-300", "owned", "80.5", "92.0", "< 1e-300", "owned"],
    "Unmarked model": ["83.0", "3.1", "–", "0.61", "not shown", "–", "–", "–", "–"],
}


def test_cells_are_the_records_numbers(tmp_path: Path) -> None:
    table = before_after(collect([make_demo(tmp_path)]))
    assert {row.label: [cell.text for cell in row.cells] for row in table.rows} == CELLS
    assert table.groups == {"Before attack": 5, "FT": 4}


def test_only_the_best_remaining_wsr_is_bold(tmp_path: Path) -> None:
    table = before_after(collect([make_demo(tmp_path)]))
    best = [(row.label, number) for row in table.rows for number, cell in enumerate(row.cells) if cell.best]
    assert best == [("APP with c-BN", 6)]


def test_what_prints_the_same_is_equally_good(tmp_path: Path) -> None:
    for name, wsr in (("a", 0.91961), ("b", 0.91962)):
        model = make_run(tmp_path / name)
        verdict = make_verdict(owned=True, wsr=wsr, p_value=0.0)
        make_run(tmp_path / f"{name}-ft", "ft", verb="attack", parent=model, verdict=verdict)
    table = before_after(collect([tmp_path]))
    assert [cell.text for row in table.rows for cell in row.cells if cell.best] == ["92.0", "92.0"]


def test_without_verdicts_before_the_attack_there_are_no_empty_columns(tmp_path: Path) -> None:
    table = before_after(collect([make_run(tmp_path / "v", metrics={"ba": 0.5})]))
    assert [column.measure for column in table.columns] == ["ba", "wsr"]


def test_a_rate_without_a_verdict_says_so(tmp_path: Path) -> None:
    table = before_after(collect([make_run(tmp_path / "v", metrics={"ba": 0.5, "wsr": 0.9, "wsr_embedded": 1.0})]))
    assert [cell.text for cell in table.rows[0].cells] == ["50.0", "90.0", "100.0", "–", "no verdict"]


def test_markdown_has_the_same_cells_and_escapes_markup(tmp_path: Path) -> None:
    lines = markdown_table([make_demo(tmp_path / "demo")]).splitlines()
    assert lines[4] == (
        "| APP with c-BN | 81.5 | 100.0 | 99.5 | \\< 1e-300 | owned | 80.5 | **92.0** | \\< 1e-300 | owned |"
    )
    assert len({line.replace("\\|", "").count("|") for line in lines}) == 1
    odd = markdown_table([make_run(tmp_path / "odd", "a|b<script>*")])
    assert "a\\|b\\<script\\>\\*" in odd


def test_the_terminal_shows_the_same_cells_within_80_columns(tmp_path: Path) -> None:
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    console.print(terminal_table([make_demo(tmp_path)]))
    text = console.export_text(clear=False)
    console.file.close()
    shown = [line.split() for line in text.splitlines()]
    assert ["after", "FT", "81.5", "12.3", "0.42", "not", "shown"] in shown
    assert ["Unmarked", "model", "before", "83.0", "3.1", "–", "0.61", "not", "shown"] in shown
    assert "\x1b[1m92.0\x1b[0m" in console.export_text(styles=True)


def test_rich_markup_in_names_is_not_obeyed(tmp_path: Path) -> None:
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    console.print(terminal_table([make_run(tmp_path / "v", "[red]x")]))
    console.file.close()
    assert "[red]x" in console.export_text()


def test_the_outcome_says_what_holds_after_what(tmp_path: Path) -> None:
    assert outcome_of_runs(collect([make_demo(tmp_path)])) == (
        "After fine-tuning (FT), the verdict holds for c-BN only (eps 0; p = 3e-12) and APP with c-BN (p < 1e-300), "
        "but not for Vanilla (p = 0.42); the unmarked model is not claimed (p = 0.61)."
    )


def test_the_outcome_of_many_attacks_is_counted(tmp_path: Path) -> None:
    for seed in (0, 1, 2):
        for method, settings, owned in (("vanilla", {}, seed == 0), ("app", {"eps": 0.02}, True)):
            model = make_run(tmp_path / f"{method}-{seed}", method, settings=settings, seed=seed)
            for attack in ("ft", "xy"):
                verdict = make_verdict(owned=owned, wsr=0.5, p_value=1e-9 if owned else 0.2)
                make_run(tmp_path / f"{method}-{seed}-{attack}", attack, verb="attack", parent=model, verdict=verdict)
    assert outcome_of_runs(collect([tmp_path])) == (
        "After attack, the verdict holds for 2 of 6 with Vanilla and 6 of 6 with APP with c-BN (largest p = 1e-9)."
    )


def test_the_outcome_without_attacks_without_verdicts_and_with_a_false_alarm(tmp_path: Path) -> None:
    bare = make_run(tmp_path / "bare")
    assert "No model has been verified yet" in outcome_of_runs(collect([bare]))
    held = make_run(tmp_path / "held", verdict=make_verdict(owned=True, wsr=1.0, p_value=1e-9))
    assert outcome_of_runs(collect([held])) == "Before any attack, the verdict holds for Vanilla (p = 1e-9)."
    alarm = make_verdict(owned=True, wsr=1.0, p_value=1e-8)
    free = make_run(tmp_path / "free", "none", verb="train", verdict=alarm)
    assert outcome_of_runs(collect([held, free])).endswith(
        "a false alarm: the verdict also claims what carries no mark, Unmarked model (p = 1e-8)."
    )


def test_seeds_of_a_method_have_a_row_with_mean_deviation_and_verdicts(tmp_path: Path) -> None:
    for seed, (ba, wsr, p) in enumerate(((0.8, 0.9, 1e-9), (0.82, 0.8, 1e-8), (0.84, 0.1, 0.4))):
        verdict = make_verdict(owned=p < 1e-6, ba=ba, wsr=1.0, p_value=p)
        model = make_run(tmp_path / f"v{seed}", seed=seed, verdict=verdict)
        after = make_verdict(owned=p < 1e-6, ba=ba, wsr=wsr, p_value=p)
        make_run(tmp_path / f"v{seed}-ft", "ft", verb="attack", parent=model, verdict=after, seed=seed)
    rows = {row.label: row.cells for row in before_after(collect([tmp_path])).rows}
    assert list(rows) == [*(f"Vanilla, seed {seed}" for seed in range(3)), "Vanilla, mean of 3 seeds"]
    # BA 80, 82, 84: squares 4 + 0 + 4, over n - 1 = 2. WSR 90, 80, 10: mean 60, squares 900 + 400 + 2500, over 2.
    assert [cell.text for cell in rows["Vanilla, mean of 3 seeds"]] == [
        "82.0 ± 2.0", "100.0 ± 0.0", "0.4", "2 of 3 owned", "82.0 ± 2.0", "60.0 ± 43.6", "0.4", "2 of 3 owned",
    ]  # fmt: skip
    assert not any(cell.best or cell.owned for cell in rows["Vanilla, mean of 3 seeds"])
    assert [cell.text for cell in rows["Vanilla, seed 2"]][-2:] == ["0.4", "not shown"]


def test_the_mean_drop_of_the_papers_first_row() -> None:
    """Table 1, content, Vanilla: 99.56 before; 56.78, 74.58, 25.34, 48.14, 16.56, 21.02 after; AvgDrop 59.15 there."""
    after = [0.5678, 0.7458, 0.2534, 0.4814, 0.1656, 0.2102]
    assert average_drop(0.9956, after) == pytest.approx(0.5915, abs=1e-4)
    assert average_drop(0.9, [0.5, None]) == pytest.approx(0.4)
    assert average_drop(None, after) is None
    assert average_drop(0.9, []) is None


def test_rows_from_runs(tmp_path: Path) -> None:
    parent = make_run(tmp_path / "v", "vanilla", metrics={"ba": 0.8, "wsr": 1.0})
    for name, wsr in (("distill", 0.0), ("nad", 0.5), ("ft", 0.7)):
        make_run(
            tmp_path / f"v-{name}", name, verb="attack", parent=parent,
            verdict=make_verdict(owned=True, ba=0.79, wsr=wsr, p_value=0.0),
        )  # fmt: skip
    (row,) = collect([tmp_path])
    assert list(row.by_attack) == ["ft", "nad", "distill"]
    assert row.avg_drop == pytest.approx(0.4)  # (0.3 + 0.5) / 2: distillation is not among the paper's six
    assert row.to_json()["after"]["nad"] == {"ba": 0.79, "wsr": 0.5, "owned": True, "p_value": 0.0}
    assert (row.to_json()["owned"], row.to_json()["p_value"]) == (None, None)
    table = suite_table([row])
    assert [str(column.header) for column in table.columns] == [
        "Type", "Method", "%", "Before", "FT", "NAD", "AvgDrop"
    ]  # fmt: skip
    assert [list(column.cells)[1] for column in table.columns][3:] == ["100.0?", "70.0✓", "50.0✓", "40.0"]


def test_the_papers_row_fits_a_terminal_of_80_columns() -> None:
    model = Measurement(dataset="d", architecture="net", mark="unrelated", method="cw", ba=0.777, wsr=1.0)
    names = (*PAPER_ATTACKS, "distill", "preprocess")
    after = tuple(replace(model, attack=name, column=name, ba=0.781, owned=True) for name in names)
    label = "CW (certified watermark), trained"
    row = ModelStages(label=label, method=label, marked=True, before=model, after=after)
    console = Console(width=80, record=True, file=StringIO())
    console.print(suite_table([row]))
    text = console.export_text()
    assert "…" not in text
    assert text.count("78.1") == 6
    assert text.count("100.0") == 7


def test_a_row_for_every_attack_fits_a_terminal_of_80_columns(tmp_path: Path) -> None:
    made = []
    for name in ATTACKS:
        verdict = make_verdict(owned=name == "ft", ba=0.79, wsr=1.0, p_value=0.0) if name != "fp" else None
        make_run(tmp_path / name, name, verb="attack", parent=tmp_path, verdict=verdict)
        within = name != "anp"
        made.append(
            AttackRow(
                attack=name, folder=str(tmp_path / name), accuracy=0.456, within=within, images=1_000_000, seconds=2
            )
        )
    rows = (*made, AttackRow(attack="new", refused="no BatchNorm"))
    found = AttackSuite(before=0.781, held_out=1000, ba_drop=0.02, rows=rows)
    console = Console(width=80, record=True, file=StringIO())
    console.print(attacks_table(found))
    lines = {line.split()[0]: line.split()[1:] for line in console.export_text().splitlines() if line.strip()}
    assert lines["ft"] == ["45.6", "1,000,000", "2", "79.0", "100.0", "yes"]
    assert lines["anp"] == ["45.6*", "1,000,000", "2", "79.0", "100.0", "no"]
    assert lines["fp"] == ["45.6", "1,000,000", "2", ABSENT, ABSENT, ABSENT]
    assert lines["new"] == [ABSENT] * 6
    bare = attacks_table(AttackSuite(before=0.781, held_out=1000, ba_drop=0.02, rows=(rows[1], rows[-1])))
    assert [str(column.header) for column in bare.columns] == ["Attack", "Held-out BA", "Passes", "Seconds"]
