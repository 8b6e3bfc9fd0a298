"""The same cells as Markdown, LaTeX and CSV."""

import csv
import io
import re
from pathlib import Path

import pytest

from indelible.base.errors import InputError, UnknownNameError
from indelible.report.paper import FORMATS, measured_tables, reported_tables, words, write_tables
from indelible.report.paper.grid import Entry, Grid, Value
from indelible.report.paper.latex import as_latex, latex_text
from indelible.report.paper.markdown import as_markdown
from indelible.report.paper.observations import results_of
from indelible.report.paper.sheets import as_csv
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
    assert words.difference(entry) == text
    assert words.step(entry) == step


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
    assert "| **90.50 ± 0.71** ✓ (**96.63**, −6.13) |" in text
    assert words.BESIDE in text
    assert "✓ the verdict shows ownership, ✗ it does not" in text
    assert "1/2 ✓: for 1 of 2 seeds. The paper prints no verdicts." in text


def test_markdown_shows_what_is_not_measured_yet_as_such() -> None:
    text = as_markdown(_measured(attacks=["ft"], kinds=["content"]))
    row = next(line for line in text.splitlines() if line.startswith("|  | APP |"))
    assert "| **90.00** ✓ (**96.63**, −6.63) | – (**98.44**) |" in row
    assert "| 10.00… (**10.10**) |" in row


def test_latex_has_as_many_cells_in_every_line() -> None:
    for grids in (reported_tables(["all"]), _measured(seeds=(0, 1))):
        for table in as_latex(grids).split(r"\begin{table*}")[1:]:
            width = len(re.search(r"\\begin\{tabular\}\{([lr]+)\}", table)[1])  # type: ignore[index]
            for line in re.findall(r"^(.*) \\\\$", table, re.MULTILINE):
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


def test_latex_of_measured_numbers_has_three_lines_a_row() -> None:
    lines = as_latex(_measured(seeds=(0, 1))).splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(" & APP & "))
    assert r"\textbf{90.50}{\scriptsize$\,\pm\,$0.71}\,{\scriptsize $\checkmark$}" in lines[at]
    assert lines[at + 1].startswith(r" & \quad reported & 93.42 & \textbf{99.87} & \textbf{96.63}")
    assert r"\textcolor[HTML]{9A5200}{$-$6.13}" in lines[at + 2]
    assert lines[0] == "% Needs: booktabs, amssymb, xcolor."


def test_latex_escapes_names() -> None:
    assert latex_text(r"a_b & 50 % {x} \y #1 ~ ^") == (
        r"a\_b \& 50 \% \{x\} \textbackslash{}y \#1 \textasciitilde{} \textasciicircum{}"
    )


def test_csv_of_reported_numbers() -> None:
    rows = list(csv.reader(io.StringIO(as_csv(reported_tables(["cifar10"])[0]))))
    assert rows[0][:5] == ["Type", "Method", "Before BA %", "Before WSR %", "After FT WSR %"]
    assert rows[1] == [
        "Content",
        "Vanilla",
        "93.86",
        "99.56",
        "56.78",
        "74.58",
        "25.34",
        "48.14",
        "16.56",
        "21.02",
        "59.15",
    ]
    assert len(rows) == 13
    rates = list(csv.reader(io.StringIO(as_csv(reported_tables(["ft-learning-rates"])[0]))))
    assert rates[1] == ["ROSE*", "92.5", "92.5", "", "", ""]


def test_csv_of_measured_numbers_has_every_part() -> None:
    grid = _measured(seeds=(0, 1), attacks=["ft"])[0]
    rows = list(csv.DictReader(io.StringIO(as_csv(grid))))
    app = next(row for row in rows if (row["Type"], row["Method"]) == ("Content", "APP"))
    assert app["After FT WSR % measured"] == "90.5"
    assert float(app["After FT WSR % sd"]) == pytest.approx(0.707107)
    assert app["After FT WSR % seeds"] == "2"
    assert app["After FT WSR % reported"] == "96.63"
    assert app["After FT WSR % difference"] == "-6.13"
    assert app["After NNL WSR % measured"] == ""
    assert (app["AvgDrop % measured"], app["AvgDrop % attacks if not all"]) == ("9.5", "1")


def test_files(tmp_path: Path) -> None:
    grids = reported_tables(["cifar10"])
    assert write_tables(grids, tmp_path / "t.md", form="markdown") == [tmp_path / "t.md"]
    assert write_tables(grids, tmp_path / "t.csv", form="csv") == [
        tmp_path / "t-cifar10.csv",
        tmp_path / "t-cifar10-ba.csv",
    ]
    assert write_tables(grids[:1], tmp_path / "one.csv", form="csv") == [tmp_path / "one.csv"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.csv", "t-cifar10-ba.csv", "t-cifar10.csv", "t.md"]
    assert set(FORMATS) == {"html", "markdown", "latex", "csv"}
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
    ("owned", "sign", "said"),
    [
        ((True,), "✓", "owned, p = 0.01"),
        ((False,), "✗", "not shown, p = 0.01"),
        ((None,), "?", "no verdict"),
        ((True, False, True), "2/3 ✓", "owned for 2 of 3 seeds, largest p = 0.03"),
        ((False, False), "✗", "owned for 0 of 2 seeds, largest p = 0.02"),
    ],
)
def test_a_measured_wsr_never_stands_without_its_verdict(owned: tuple[bool | None, ...], sign: str, said: str) -> None:
    grids = _verdicts(*owned)
    (row,) = grids[0].rows
    for column, entry in zip(grids[0].columns, row.entries, strict=True):
        rated = column.title in {"WSR", "FT"}
        assert words.sign(column, entry) == (sign if rated else "")
        assert not rated or words.verdict(column, entry) == said
    line = next(line for line in as_markdown(grids).splitlines() if "| APP |" in line)
    assert line.count(f" {sign} (") == 2  # before, and after FT; the paper's numbers have none
    fields = dict(zip(*list(csv.reader(io.StringIO(as_csv(grids[0]))))[:2], strict=True))
    shown = [one for one in owned if one is not None]
    assert fields["After FT WSR % seeds owned"] == (str(sum(shown)) if shown else "")
    assert fields["After FT WSR % largest p-value"] == (f"{0.01 * len(owned):g}" if shown else "")
    assert "Before BA % seeds owned" not in fields
    assert (latex_text(sign) in as_latex(grids)) or sign == "?"
