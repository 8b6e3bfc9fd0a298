"""Tiny files in every official format, written without the code that reads them."""

import gzip
import io
import json
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[np.uint8]


def pixels(count: int, shape: tuple[int, ...] = (3, 32, 32), seed: int = 0) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def labels(count: int, classes: int = 10) -> list[int]:
    return [(7 * index + 3) % classes for index in range(count)]


def idx(values: Pixels) -> bytes:
    return b"\x00\x00\x08" + bytes([values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def write_mnist(folder: Path, train: int, test: int, *, packed: bool) -> None:
    for prefix, count, seed in (("train", train, 1), ("t10k", test, 2)):
        for name, values in (
            (f"{prefix}-images-idx3-ubyte", pixels(count, (28, 28), seed)),
            (f"{prefix}-labels-idx1-ubyte", np.array(labels(count), np.uint8)),
        ):
            content = idx(values)
            path = folder / (f"{name}.gz" if packed else name)
            path.write_bytes(gzip.compress(content) if packed else content)


def cifar_binary(images: Pixels, numbers: list[int], coarse: int | None = None) -> bytes:
    head = b"" if coarse is None else bytes([coarse])
    return b"".join(head + bytes([label]) + image.tobytes() for image, label in zip(images, numbers, strict=True))


def cifar_sheet(images: Pixels) -> bytes:
    rows = images.reshape(len(images), 3, 1024).transpose(0, 2, 1)
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(rows)).save(buffer, "PNG")
    return buffer.getvalue()


def cifar10_files(kind: str, per_batch: int) -> dict[str, bytes]:
    """Return the six batches of a tiny CIFAR-10 in one of its two formats, by file name."""
    files: dict[str, bytes] = {}
    numbers = labels(per_batch)
    for number, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]):
        images = pixels(per_batch, seed=number)
        if kind == "binary":
            files[f"{name}.bin"] = cifar_binary(images, numbers)
        else:
            files[f"{name}.png"] = cifar_sheet(images)
    if kind == "png":
        files["train_lables.json"] = json.dumps(numbers * 5).encode()
        files["test_lables.json"] = json.dumps(numbers).encode()
    return files


def tar(files: dict[str, bytes], folder: str = "package") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def write_files(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def write_picture(path: Path, values: Any, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path, **options)
