"""One self-contained page of an evidence bundle: the outcome of its check, every step, the opened samples.

It is drawn from the check alone; what the check did not reach is not shown. Nothing on the page is proof by itself: it
says how to check the bundle again.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from safetensors.torch import load as parse_tensors

from indelible.base.files import write_text
from indelible.data.digests import image_digests
from indelible.evidence.bundle import IMAGES, LOG, read_files
from indelible.evidence.check import Checked
from indelible.evidence.codebook import check_images
from indelible.evidence.commitment import SIGNATURE, STATEMENT, Commitment
from indelible.report.mark_galleries import png_uri
from indelible.report.page_look import environment
from indelible.verification.suspects.log import parse_log

_PICTURES = 12
_SUSPECT = ("kind", "url", "file", "network", "digest")


def write_page(bundle: str | Path, checked: Checked, out: str | Path) -> Path:
    """Write the page of a bundle that was checked; whole or not at all."""
    write_text(out, render_bundle(bundle, checked))
    return Path(out)


def render_bundle(bundle: str | Path, checked: Checked) -> str:
    """Return the page as HTML."""
    claim: Mapping[str, Any] = checked.claim or {}
    suspect = claim.get("suspect") or {}
    whole = checked.holds and checked.claim is not None
    return environment().get_template("bundle.html.j2").render(
        title="Evidence of a watermark", outcome=_outcome(checked), checked=checked, claim=claim,
        verdict=claim.get("verdict") if whole else None, opened=_opened(bundle, claim) if whole else [],
        statement=checked.commitment or {}, suspect=[suspect[name] for name in _SUSPECT if name in suspect],
    )  # fmt: skip


def _outcome(checked: Checked) -> str:
    if not checked.holds:
        return " ".join(checked.summary)
    verdict = (checked.claim or {})["verdict"]
    if checked.dated and checked.stamp is not None:
        found = datetime.strptime(checked.stamp.time, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        date = f"The commitment existed on {found.day} {found:%B %Y, %H:%M:%S} UTC."
    else:
        date = "The date of the commitment is not established."
    return " ".join([*checked.summary, date, verdict["sentence"]])


def _opened(bundle: str | Path, claim: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the opened samples as the page shows them; the carrier is None for an image that was drawn on none."""
    files = read_files(bundle)
    if claim.get("codebook") is not None:
        return _marks(files, claim)
    tensors, answers = parse_tensors(files[IMAGES]), parse_log(files[LOG]).answers
    return [
        {
            "index": entry["index"], "label": entry["label"], "answer": answers[entry["image"]],
            "carrier": png_uri(tensors["carriers"][row]), "marked": png_uri(tensors["samples"][row]),
        }
        for row, entry in enumerate(claim["opened"][:_PICTURES])
    ]  # fmt: skip


def _marks(files: Mapping[str, bytes], claim: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one sample for each opened mark of a codebook, each on another carrier, as far as there are."""
    stated, answers = Commitment.of(files[STATEMENT], files[SIGNATURE]), parse_log(files[LOG]).answers
    tensors = parse_tensors(files[IMAGES])
    asked, images = check_images(stated, claim, tensors), tensors.get("images")
    samples, classes = asked.samples, asked.labels.tolist()
    each = len(samples) // len(classes)
    found = []
    for place, entry in enumerate(claim["opened"][:_PICTURES]):
        row = place * each + place % each
        found.append(
            {
                "index": entry["index"], "label": classes[place],
                "answer": answers[image_digests(samples[row : row + 1])[0]],
                "carrier": None if asked.true is None or images is None else png_uri(images[place % each]),
                "marked": png_uri(samples[row]),
            }
        )  # fmt: skip
    return found
