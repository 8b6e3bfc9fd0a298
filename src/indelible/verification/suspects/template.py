"""Any JSON over HTTP: a template of the request, and where in the reply the answers are.

docs/suspects.md has an example, and what each field and each ``$`` word in the body means.
"""

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from indelible.base.checks import check_settings
from indelible.base.errors import InputError
from indelible.base.files import read_json
from indelible.verification.suspects.answer_labels import BadAnswerError, as_array, labels_of
from indelible.verification.suspects.preprocessing import Preprocessing

_SINGLE = {"$image", "$png"}
_MANY = {"$images", "$pngs"}


@dataclass(frozen=True, kw_only=True)
class JsonTemplate:
    """A server that speaks JSON of its own; docs/suspects.md explains each field."""

    url: str
    preprocessing: Preprocessing
    body: Any
    reply: str = ""
    item: str = ""
    classes: tuple[str, ...] | None = None
    batch: int = 16

    def __post_init__(self) -> None:
        used = _texts(self.body)
        if not used & (_SINGLE | _MANY):
            raise InputError("a template's body must contain $images, $image, $pngs or $png: else nothing is asked.")
        if used & _SINGLE and used & _MANY:
            raise InputError("a template's body holds either one image ($image, $png) or many ($images, $pngs).")
        if self.batch < 1:
            raise InputError(f"batch must be at least 1 image per request, got {self.batch}.")
        if used & _SINGLE:
            object.__setattr__(self, "batch", 1)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a template file."""
        return cls.of(read_json(path), str(path))

    @classmethod
    def of(cls, found: Any, name: str = "the template") -> Self:
        """Build from JSON values; unknown fields and wrong types are refused."""
        if not isinstance(found, dict) or not isinstance(found.get("input"), dict):
            raise InputError(f"{name} must be a JSON object with url, input, body and reply.")
        rest = {key: value for key, value in found.items() if key != "input"}
        check_settings(cls, rest, "field of a template")
        missing = {"url", "body"} - rest.keys()
        if missing:
            raise InputError(f"{name} lacks {', '.join(sorted(missing))}.")
        names = rest.pop("classes", None)
        try:
            return cls(
                **rest, classes=None if names is None else tuple(map(str, names)),
                preprocessing=Preprocessing.of(found["input"]),
            )  # fmt: skip
        except RecursionError as error:
            raise InputError(f"{name} is nested too deeply.") from error

    @property
    def address(self) -> str:
        """Where requests are posted to."""
        return self.url

    def describe(self) -> Mapping[str, Any]:
        """Return what was asked, for logs and evidence."""
        return {
            "protocol": "json-template", "url": self.url, "body": self.body, "reply": self.reply, "item": self.item,
            "classes": None if self.classes is None else list(self.classes),
            "preprocessing": self.preprocessing.to_json(),
        }  # fmt: skip

    def encode(self, images: Tensor) -> Any:
        """Return the request."""
        values: dict[str, Any] = {"$count": len(images)}
        used = _texts(self.body)
        if used & {"$images", "$image"}:
            values["$images"] = self.preprocessing.apply(images).tolist()
            values["$image"] = values["$images"][0]
        if used & {"$pngs", "$png"}:
            values["$pngs"] = _pngs(images, self.preprocessing)
            values["$png"] = values["$pngs"][0]
        return _filled(self.body, values)

    def decode(self, reply: Any, *, count: int, classes: int, first: int) -> Tensor:
        """Return the labels in a reply."""
        found = pointed(reply, self.reply, first)
        if _texts(self.body) & _SINGLE:
            found = [found]
        if not isinstance(found, list) or len(found) != count:
            came = f"{len(found)} answers" if isinstance(found, list) else type(found).__name__
            raise BadAnswerError(f"{count} images were asked from query {first} on, got {came} at {self.reply!r}.")
        rows = [pointed(row, self.item, first + number) for number, row in enumerate(found)]
        if self.classes is not None:
            rows = [self._number(row, first + number) for number, row in enumerate(rows)]
        return labels_of(as_array(rows, first=first), count=count, classes=classes, first=first)

    def _number(self, name: Any, query: int) -> int:
        if not isinstance(name, str) or self.classes is None or name not in self.classes:
            raise BadAnswerError(f"the answer to query {query} is {name!r:.80}, which is not a class of the template.")
        return self.classes.index(name)


def pointed(value: Any, pointer: str, query: int) -> Any:
    """Follow a JSON pointer (RFC 6901) into the answer to a query."""
    if pointer and not pointer.startswith("/"):
        raise InputError(f"a JSON pointer is empty or starts with '/', got {pointer!r}.")
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isascii() and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            raise BadAnswerError(f"the answer to query {query} has no {part!r} of the pointer {pointer!r}.")
    return value


def _texts(value: Any) -> set[str]:
    if isinstance(value, str):
        return {value}
    if isinstance(value, dict):
        value = list(value.values())
    return set().union(*map(_texts, value)) if isinstance(value, list) and value else set()


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, str):
        return values.get(value, value)
    if isinstance(value, dict):
        return {key: _filled(item, values) for key, item in value.items()}
    return [_filled(item, values) for item in value] if isinstance(value, list) else value


def _pngs(images: Tensor, preprocessing: Preprocessing) -> list[str]:
    from PIL import Image

    pixels = Preprocessing(dtype="uint8", layout="NHWC", size=preprocessing.size, channels=preprocessing.channels)
    found = []
    for image in pixels.apply(images):
        buffer = io.BytesIO()
        Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image).save(buffer, format="PNG")
        found.append(base64.b64encode(buffer.getvalue()).decode())
    return found
