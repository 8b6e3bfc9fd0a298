"""The same cells as Markdown and LaTeX."""

import re
from pathlib import Path

import pytest

from indelible.base.errors import InputError, UnknownNameError
from indelible.bench.measurement import results_of
from indelible.report import FORMATS, measured_tables, reported_tables, write_tables
from indelible.report.documents import BESIDE, as_html, as_latex, as_markdown
from indelible.report.format import latex_text
from indelible.report.table_grid import Entry, Grid, Value
from tests.report.results import make_results


def _measured(**rest: object) -> list[Grid]:
    return measured_tables([results_of(make_results(**rest), "results")])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("measured", "reported", "text", "step"),
    [
        (0.512, 0.5, "+1.20", 1), (0.4953, 0.5, "−0.47", 0), (0.49, 0.5, "−1.00", -1), (0.55, 0.5, "+5.00", 2),
        (0.35, 0.5, "−15.00", -3), (0.50001, 0.5, "0.00", 0), (0.49999, 0.5, "0.00", 0),
    ],
)  # fmt: skip
def test_a_difference_has_a_sign_and_a_step(measured: float, reported: float, text: str, step: int) -> None:
    entry = Entry(measured=Value(mean=measured), reported=reported)
    assert entry.difference_text == text
    assert entry.step == step


def test_markdown_of_reported_numbers_is_the_papers_table() -> None:
    lines = as_markdown(reported_tables(["cifar10"])).splitlines()
    assert lines[0] == "### CIFAR-10"
    assert lines[4] == (
        "| Type | Method | Before BA | Before WSR "
        "| After FT | After FP | After ANP | After NAD | After MCR | After NNL | AvgDrop |"
    )
    assert lines[6] == (
        "| Content | Vanilla | **93.86** | 99.56 | 56.78 | 74.58 | 25.34 | 48.14 | 16.56 | 21.02 | 59.15 |"
    )
    assert lines[9].startswith("|  | APP | 93.42 | **99.87** | **96.63** |")
    assert "\n### CIFAR-10, benign accuracy (BA)\n" in "\n".join(lines)


def test_markdown_of_measured_numbers_has_the_papers_in_brackets() -> None:
    text = as_markdown(_measured(seeds=(0, 1)))
    # Seeds keep 90 and 91 %: mean 90.5, sample sd 0.7071; reported 96.63.
    assert "| **90.50 ± 0.71** 2/2 ✓, p ≤ 1e-12 (**96.63**, −6.13) |" in text
    assert BESIDE in text
    assert "✓ the verdict shows ownership, ✗ it does not" in text
    assert "1/2 ✓: for 1 of 2 seeds, with the largest p-value. The paper prints no verdicts." in text


def test_markdown_shows_what_is_not_measured_yet_as_such() -> None:
    text = as_markdown(_measured(attacks=["ft"], kinds=["content"]))
    row = next(line for line in text.splitlines() if line.startswith("|  | APP |"))
    assert "| **90.00** ✓ (**96.63**, −6.63) | – (**98.44**) |" in row
    assert "| 10.00… (**10.10**) |" in row


def test_latex_has_as_many_cells_in_every_line() -> None:
    for grids in (reported_tables(["all"]), _measured(seeds=(0, 1))):
        tables = as_latex(grids).split(r"\begin{table*}")[1:]
        assert tables
        for grid, table in zip(grids, tables, strict=True):
            width = len(re.search(r"\\begin\{tabular\}\{([lr]+)\}", table)[1])  # type: ignore[index]
            lines = re.findall(r"^(.*) \\\\$", table, re.MULTILINE)
            assert len(lines) > len(grid.rows) > 0, "titles of the columns, and a line or more for each row"
            for line in lines:
                spans = [int(found) for found in re.findall(r"\\multicolumn\{(\d+)\}", line)]
                assert len(re.findall(r"(?<!\\)&", line)) + 1 + sum(span - 1 for span in spans) == width, line
            assert table.count(r"\toprule") == table.count(r"\bottomrule") == 1
            opened, closed = (len(re.findall(rf"(?<!\\)\{brace}", table)) for brace in "{}")
            assert opened == closed


def test_latex_of_reported_numbers() -> None:
    text = as_latex(reported_tables(["cifar10", "ablation-components"]))
    assert text.startswith("% Needs: booktabs.\n")
    assert "% Needs: booktabs, amssymb.\n" in text
    assert r"\cmidrule(lr){3-4} \cmidrule(lr){5-10}" in text
    assert r" & APP & 93.42 & \textbf{99.87} & \textbf{96.63} &" in text
    assert r"$\checkmark$ & -- & 93.31" in text


def test_latex_of_measured_numbers_has_four_lines_per_row() -> None:
    lines = as_latex(_measured(seeds=(0, 1))).splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(" & APP & "))
    assert r"\textbf{90.50}{\scriptsize$\,\pm\,$0.71}\,{\scriptsize 2/2 $\checkmark$}" in lines[at]
    assert lines[at + 1].startswith(r" & \quad largest $p$ &  & $\le$ 1e-12 & $\le$ 1e-12")
    assert lines[at + 2].startswith(r" & \quad reported & 93.42 & \textbf{99.87} & \textbf{96.63}")
    assert r"\textcolor[HTML]{9A5200}{$-$6.13}" in lines[at + 3]
    assert lines[0] == "% Needs: booktabs, amssymb, xcolor."


def test_latex_escapes_names() -> None:
    assert latex_text(r"a_b & 50 % {x} \y #1 ~ ^") == (
        r"a\_b \& 50 \% \{x\} \textbackslash{}y \#1 \textasciitilde{} \textasciicircum{}"
    )


def test_files(tmp_path: Path) -> None:
    grids = reported_tables(["cifar10"])
    assert write_tables(grids, tmp_path / "t.md", form="markdown") == tmp_path / "t.md"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.md"]
    assert set(FORMATS) == {"html", "markdown", "latex"}
    with pytest.raises(UnknownNameError, match="format"):
        write_tables(grids, tmp_path / "t", form="word")
    with pytest.raises(InputError, match="no table"):
        write_tables([], tmp_path / "t")


def _verdicts(*owned: bool | None) -> list[Grid]:
    """Return a table of one row whose WSR after FT has these verdicts, seed by seed, with p = 0.01, 0.02, ..."""
    document = make_results(kinds=["content"], methods=["app"], attacks=["ft"], seeds=range(len(owned)), preset="own")
    for cell in document["cells"]:
        cell["measured"] |= {"owned": owned[cell["seed"]], "p_value": 0.01 * (1 + cell["seed"])}
    return measured_tables([results_of(document, "results")])


@pytest.mark.parametrize(
    ("owned", "sign", "worst", "said"),
    [
        ((True,), "✓", "", "owned, p = 0.01"),
        ((False,), "✗", "", "not shown, p = 0.01"),
        ((None,), "?", "", "no verdict"),
        ((True, False, True), "2/3 ✓", "p ≤ 0.03", "owned for 2 of 3 seeds, largest p = 0.03"),
        ((False, False), "0/2 ✗", "p ≤ 0.02", "owned for 0 of 2 seeds, largest p = 0.02"),
        ((True, True), "2/2 ✓", "p ≤ 0.02", "owned for 2 of 2 seeds, largest p = 0.02"),
    ],
)
def test_a_measured_wsr_never_stands_without_its_verdict(
    owned: tuple[bool | None, ...], sign: str, worst: str, said: str
) -> None:
    grids = _verdicts(*owned)
    (row,) = grids[0].rows
    for column, entry in zip(grids[0].columns, row.entries, strict=True):
        rated = column.title in {"WSR", "FT"}
        assert (entry.sign, entry.worst_p) == ((sign, worst) if rated else ("", ""))
        assert not rated or entry.verdict == said
    line = next(line for line in as_markdown(grids).splitlines() if "| APP |" in line)
    beside = f"{sign}, {worst}" if worst else sign
    assert line.count(f" {beside} (") == 2  # before, and after FT; the paper's numbers have none
    text = as_latex(grids)
    measured = next(line for line in text.splitlines() if line.startswith((" & APP", "Content & APP")))
    assert measured.count(latex_text(sign)) == 2
    assert latex_text(worst.removeprefix("p ")) in text
    page = as_html(grids)
    assert page.count(f'title="{said}">{sign}</span>') == 2
    assert page.count('<span class="worst">') == (2 if worst else 0)
