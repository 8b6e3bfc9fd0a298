"""Every named set read from tiny files in its official formats."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from indelible.base.errors import DamagedFileError
from indelible.data.sources import SOURCES
from tests.data.makers import (
    cifar10_files,
    cifar_binary,
    labels,
    pixels,
    write_files,
    write_mnist,
)


@pytest.mark.parametrize("kind", ["binary", "png"])
def test_cifar10_formats_hold_the_same(tmp_path: Path, kind: str) -> None:
    write_files(tmp_path, cifar10_files(kind, 4))
    train, test = SOURCES["cifar10"].read(tmp_path)
    expected = np.concatenate([pixels(4, seed=number) for number in range(5)])
    assert torch.equal(train.images, torch.from_numpy(expected))
    assert torch.equal(test.images, torch.from_numpy(pixels(4, seed=5)))
    assert train.labels.tolist() == labels(4) * 5
    assert test.labels.tolist() == labels(4)
    assert train.classes[6] == "frog"


@pytest.mark.parametrize("kind", ["binary", "png"])
def test_cifar10_without_a_batch_is_refused(tmp_path: Path, kind: str) -> None:
    files = cifar10_files(kind, 2)
    files.pop(next(name for name in files if name.startswith("data_batch_3")))
    write_files(tmp_path, files)
    with pytest.raises(DamagedFileError, match="data_batch_3"):
        SOURCES["cifar10"].read(tmp_path)


def test_cifar10_labels_must_fit(tmp_path: Path) -> None:
    files = cifar10_files("png", 2)
    write_files(tmp_path, files | {"test_lables.json": json.dumps([1, 10]).encode()})
    with pytest.raises(DamagedFileError, match=r"test set of cifar10 is damaged: .* must lie in 0\.\.9 .*, got 10"):
        SOURCES["cifar10"].read(tmp_path)
    write_files(tmp_path, files | {"test_lables.json": json.dumps([1, 2, 3]).encode()})
    with pytest.raises(DamagedFileError, match=r"shape \(2,\), one for each image, got int64 of shape \(3,\)"):
        SOURCES["cifar10"].read(tmp_path)
    write_files(tmp_path, files | {"test_lables.json": b"[0.5, 1]"})
    with pytest.raises(
        DamagedFileError, match=r"test set of cifar10 is damaged: Cannot cast array data from dtype.'float64'"
    ):
        SOURCES["cifar10"].read(tmp_path)
    write_files(tmp_path, files | {"test_lables.json": b'["cat", "dog"]'})
    with pytest.raises(DamagedFileError, match=r"test set of cifar10 is damaged"):
        SOURCES["cifar10"].read(tmp_path)
    with pytest.raises(DamagedFileError, match=r"data_batch_1\.bin cannot be read"):
        SOURCES["cifar10"].read(tmp_path / "elsewhere")


def test_cifar100_takes_the_fine_labels(tmp_path: Path) -> None:
    fine = labels(6, 100)
    for name in ("train", "test"):
        (tmp_path / f"{name}.bin").write_bytes(cifar_binary(pixels(6), fine, coarse=19))
    train, test = SOURCES["cifar100"].read(tmp_path)
    assert train.labels.tolist() == fine
    assert torch.equal(test.images, torch.from_numpy(pixels(6)))
    assert len(train.classes) == 100
    assert (train.classes[0], train.classes[99]) == ("apple", "worm")
    with pytest.raises(DamagedFileError, match=r"train\.bin cannot be read"):
        SOURCES["cifar100"].read(tmp_path / "elsewhere")


def test_svhn_label_10_is_the_digit_0(tmp_path: Path) -> None:
    from scipy.io import savemat

    images = pixels(3, (32, 32, 3))
    for name in ("train", "test"):
        content = {"X": images.transpose(1, 2, 3, 0), "y": np.array([[10], [1], [9]], np.uint8)}
        savemat(tmp_path / f"{name}_32x32.mat", content, do_compression=True)
    train, test = SOURCES["svhn"].read(tmp_path)
    assert train.labels.tolist() == [0, 1, 9]
    assert torch.equal(test.images, torch.from_numpy(images.transpose(0, 3, 1, 2)))


def test_svhn_refuses_what_is_not_whole(tmp_path: Path) -> None:
    from scipy.io import savemat

    path = tmp_path / "train_32x32.mat"
    with pytest.raises(DamagedFileError, match=r"train_32x32\.mat cannot be read"):
        SOURCES["svhn"].read(tmp_path)
    savemat(path, {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.ones((2, 1))}, do_compression=True)
    path.write_bytes(path.read_bytes()[:150])
    with pytest.raises(DamagedFileError, match=r"train_32x32\.mat cannot be read"):
        SOURCES["svhn"].read(tmp_path)
    savemat(path, {"y": np.ones((2, 1))})
    with pytest.raises(DamagedFileError, match=r"train_32x32\.mat cannot be read \(KeyError\('X'\)\)"):
        SOURCES["svhn"].read(tmp_path)
    for name in ("train", "test"):
        savemat(tmp_path / f"{name}_32x32.mat", {"X": np.zeros((32, 32, 3, 2)), "y": np.ones((2, 1), np.uint8)})
    with pytest.raises(DamagedFileError, match=r"training set of svhn is damaged: images .* must be uint8"):
        SOURCES["svhn"].read(tmp_path)


@pytest.mark.parametrize("packed", [False, True])
def test_mnist_and_fashion_mnist(tmp_path: Path, packed: bool) -> None:
    write_mnist(tmp_path, 5, 3, packed=packed)
    train, test = SOURCES["mnist"].read(tmp_path)
    assert train.images.shape == (5, 1, 28, 28)
    assert torch.equal(test.images[:, 0], torch.from_numpy(pixels(3, (28, 28), 2)))
    assert train.labels.tolist() == labels(5)
    assert SOURCES["fashion-mnist"].read(tmp_path)[0].classes[9] == "Ankle boot"


def test_embedded_set_is_whole_balanced_and_mixed() -> None:
    source = SOURCES["fashion-mini"]
    assert source.embedded is not None
    train, test = source.read(source.embedded)
    assert train.labels.bincount().tolist() == [750] * 10
    assert test.labels.bincount().tolist() == [200] * 10
    assert len(train.labels[:100].unique(sorted=True)) == 10
    assert train.digest() == "584f4ae44882c750b550078b3979d979ec91f16451754f96db90440821d30b99"
    assert test.digest() == "0feed10b1cbfb31b03462ad644248666611010b80af5dd1720ad65de2c4a64d9"
    assert (source.embedded / "LICENSE.fashion-mnist.txt").read_text(encoding="utf-8").count("Zalando") == 1


def test_embedded_set_that_was_altered_is_refused(tmp_path: Path) -> None:
    source = SOURCES["fashion-mini"]
    assert source.embedded is not None
    with pytest.raises(DamagedFileError, match="Install indelible again"):
        source.read(tmp_path)
    packed = bytearray((source.embedded / "fashion-mini.xz").read_bytes())
    packed[1000] ^= 1
    (tmp_path / "fashion-mini.xz").write_bytes(packed)
    with pytest.raises(DamagedFileError, match=r"expected SHA-256 22943b.*Install indelible again"):
        source.read(tmp_path)


@pytest.mark.slow
def test_embedded_set_is_rebuilt_byte_for_byte() -> None:
    import importlib.util

    original = Path("/usr/share/datasets/fashion-mnist")
    if not original.is_dir():
        pytest.skip("needs the Debian package dataset-fashion-mnist")
    script = Path(__file__).parents[3] / "tools" / "pack_fashion.py"
    spec = importlib.util.spec_from_file_location("pack_fashion", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.pack(original) == module.ASSET.read_bytes()


@pytest.mark.parametrize("name", list(SOURCES))
def test_records_are_complete(name: str) -> None:
    source = SOURCES[name]
    assert source.licence
    assert source.citation
    assert source.embedded is not None or source.places
    assert len({place.name for place in source.places}) == len(source.places)
    for place in source.places:
        assert bool(place.folder) != place.host.startswith(("https://", "http://", "npm:"))
        for digests in place.files.values():
            assert place.folder or any(text.startswith("sha256:") for text in digests)
            sizes = {"md5": 32, "sha256": 64}
            assert all(len(text.split(":")[1]) == sizes[text.split(":")[0]] for text in digests)
