"""The before/after table: the same cells in three forms."""

from pathlib import Path

from rich.console import Console

from indelible.report.collect import collect
from indelible.report.outcome import outcome
from indelible.report.table import before_after, markdown_table, terminal_table
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
    assert outcome(collect([make_demo(tmp_path)])) == (
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
    assert outcome(collect([tmp_path])) == (
        "After attack, the verdict holds for 2 of 6 with Vanilla and 6 of 6 with APP with c-BN (largest p = 1e-9)."
    )


def test_the_outcome_without_attacks_without_verdicts_and_with_a_false_alarm(tmp_path: Path) -> None:
    bare = make_run(tmp_path / "bare")
    assert "No model has been verified yet" in outcome(collect([bare]))
    held = make_run(tmp_path / "held", verdict=make_verdict(owned=True, wsr=1.0, p_value=1e-9))
    assert outcome(collect([held])) == "Before any attack, the verdict holds for Vanilla (p = 1e-9)."
    alarm = make_verdict(owned=True, wsr=1.0, p_value=1e-8)
    free = make_run(tmp_path / "free", "none", verb="train", verdict=alarm)
    assert outcome(collect([held, free])).endswith(
        "a false alarm: the verdict also claims what carries no mark, Unmarked model (p = 1e-8)."
    )
