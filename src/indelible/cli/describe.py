"""Results in a few lines for a terminal."""

from collections.abc import Mapping
from typing import Any

from indelible.embedding.base import advice
from indelible.evidence.check import Checked
from indelible.report.format import equation, percent, verdict_note
from indelible.train.run_folder import Run
from indelible.verification import Verdict


def describe_run(run: Run) -> str:
    """Describe a finished run: what it gave, what it cost, where it is."""
    record, metrics, verdict = run.record, run.record.metrics, run.verdict()
    rates = [
        f"{title} {percent(metrics[name])} %"
        for name, title in (
            ("ba_before", "BA before"),
            ("ba", "BA"),
            ("wsr", "WSR"),
            ("wsr_embedded", "WSR on embedded samples"),
        )
        if metrics.get(name) is not None
    ]
    if metrics.get("wsr") is not None:
        # A WSR by itself shows nothing: its verdict stands beside it.
        known = {} if verdict is None else verdict
        rates.append(verdict_note(known.get("owned"), known.get("p_value")))
    cost = f"{record.images} image passes in {record.seconds:.0f} s"
    lines = [f"{record.verb} {record.method}: {', '.join([*rates, cost])}", f"kept in {run.folder}"]
    if verdict is not None:
        lines.insert(1, describe_verdict(verdict))
        if record.verb == "embed" and not verdict["owned"]:
            lines.insert(2, advice(Verdict.from_json(verdict)))
    return "\n".join(lines)


def describe_verdict(verdict: Mapping[str, Any]) -> str:
    """Describe a verdict: the figures, then the sentence."""
    ba = "" if verdict.get("ba") is None else f"BA {percent(verdict['ba'])} %, "
    word = "OWNED" if verdict["owned"] else "NOT SHOWN"
    return (
        f"{word} at alpha {verdict['alpha']:g}: {ba}WSR {percent(verdict['wsr'])} %, "
        f"{equation(verdict['p_value'])}, {verdict['queries']} queries\n{verdict['sentence']}"
    )


def describe_certificate(certificate: Mapping[str, Any]) -> str:
    """Describe a certificate: the smoothed WSR, and how far the weights may be moved."""
    return (
        f"CERTIFICATE at sigma {certificate['sigma']:g}, {certificate['draws']} draws, confidence "
        f"{certificate['confidence']:g}: smoothed WSR {percent(certificate['smoothed_wsr'])} %; it stays at least "
        f"{percent(certificate['threshold'])} % for any change of the parameters within {certificate['radius']:.3g} "
        "in the l2 norm"
    )


def describe_check(checked: Checked) -> str:
    """Describe the check of a bundle: two sentences, what was established, every step, what it cannot show."""
    steps = [f"  {'holds ' if step.holds else 'FAILS '} {step.name}: {step.says}" for step in checked.steps]
    if not checked.holds or checked.claim is None:
        return "\n".join([*checked.summary, *steps])
    book = checked.carriers is not None
    drawn = f"their {'classes' if book else 'labels'} were drawn, not chosen"
    origin = drawn if checked.drawn else "not shown to be derived from a secret (--key)"
    if checked.carriers == "open":
        origin = f"{origin}; the carriers are not shown to be the auditor's (--data)"
    lines = [
        *checked.summary, checked.claim["verdict"]["sentence"], f"Date of the commitment: {_date(checked)}.",
        f"{'Marks' if book else 'Samples'}: {'derived from the key' if checked.derived else origin}.", *steps,
        "Files that are evidence:", *_files(checked, evidence=True), "Files that are not:",
        *_files(checked, evidence=False), checked.meaning,
    ]  # fmt: skip
    if checked.caveats:
        lines += ["What the bundle cannot show:", *(f"  - {caveat}" for caveat in checked.caveats)]
    return "\n".join(lines)


def _date(checked: Checked) -> str:
    if checked.stamp is None:
        return "not established, since there is no timestamp"
    if checked.dated:
        return f"at the latest {checked.stamp.time}, by {checked.stamp.authority}"
    return f"not established; the timestamp says {checked.stamp.time}, but you gave no roots to check it with (--roots)"


def _files(checked: Checked, *, evidence: bool) -> list[str]:
    return [f"  {one.name}: {one.says}" for one in checked.files if one.evidence == evidence]
