"""One self-contained page of an evidence bundle: the outcome of its check, every step, the opened samples.

It is drawn from the check alone; what the check did not reach is not shown. Nothing on the page is proof by itself: it
says how to check the bundle again.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from safetensors.torch import load as parse_tensors
from torch import Tensor

from indelible.base.files import write_text
from indelible.data.digests import image_digests
from indelible.evidence.bundle import IMAGES, LOG, read_files
from indelible.evidence.check import Checked
from indelible.evidence.codebook_entries import check_images
from indelible.evidence.commitment import SIGNATURE, STATEMENT, Commitment
from indelible.report.mark_galleries import png_uri
from indelible.report.page_look import environment
from indelible.verification.suspects.log import parse_log

_PICTURES = 12


def write_page(bundle: str | Path, checked: Checked, out: str | Path) -> Path:
    """Write the page of a bundle that was checked; whole or not at all."""
    write_text(out, render_bundle(bundle, checked))
    return Path(out)


def render_bundle(bundle: str | Path, checked: Checked) -> str:
    """Return the page as HTML."""
    claim: Mapping[str, Any] = checked.claim or {}
    whole = checked.holds and checked.claim is not None
    dated = checked.stamp.time if checked.dated and checked.stamp is not None else None
    return environment().get_template("bundle.html.j2").render(
        title="Evidence of a watermark", checked=checked, claim=claim, statement=checked.commitment or {},
        verdict=claim["verdict"] if whole else None, opened=_opened(bundle, claim) if whole else [],
        date=None if dated is None else datetime.strptime(dated, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC),
    )  # fmt: skip


def _opened(bundle: str | Path, claim: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return opened samples; the carrier is None where an image was drawn on none. Of a codebook one of each mark."""
    files = read_files(bundle)
    tensors, answers = parse_tensors(files[IMAGES]), parse_log(files[LOG]).answers
    if claim.get("codebook") is None:
        return [
            _sample(entry, entry["label"], tensors["samples"][row], tensors["carriers"][row], answers)
            for row, entry in enumerate(claim["opened"][:_PICTURES])
        ]
    stated = Commitment.of(files[STATEMENT], files[SIGNATURE])
    asked, images = check_images(stated, claim, tensors), tensors.get("images")
    classes = asked.labels.tolist()
    each = len(asked.samples) // len(classes)
    found = []
    for place, entry in enumerate(claim["opened"][:_PICTURES]):
        row = place % each  # each mark on another carrier, as far as there are
        carrier = None if asked.true is None or images is None else images[row]
        found.append(_sample(entry, classes[place], asked.samples[place * each + row], carrier, answers))
    return found


def _sample(
    entry: Mapping[str, Any], label: int, marked: Tensor, carrier: Tensor | None, answers: Mapping[str, int]
) -> dict[str, Any]:
    return {
        "index": entry["index"], "label": label, "answer": answers[image_digests(marked[None])[0]],
        "carrier": None if carrier is None else png_uri(carrier), "marked": png_uri(marked),
    }  # fmt: skip
