"""Files as suspects: weights, ONNX, predictions; what a foreign model takes; numbers worked out by hand."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from indelible.base.errors import DamagedFileError, IndelibleError, InputError, UnknownNameError
from indelible.base.files import write_tensors
from indelible.base.imports import MissingExtraError, needed
from indelible.base.records import Record
from indelible.data import Split
from indelible.data.digests import image_digests
from indelible.train.evaluate import predict
from indelible.train.run_folder import Architecture, Run
from indelible.verification.suspects import BadAnswerError, Preprocessing, open_suspect
from indelible.verification.suspects.answer_labels import as_array, labels_of
from indelible.verification.suspects.template import JsonTemplate, pointed
from tests.conftest import TinyNet, stripes

IMAGES = stripes(12, seed=2).images


class TestPreprocessing:
    PIXEL = torch.tensor([0, 51, 255], dtype=torch.uint8).reshape(1, 3, 1, 1)

    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            ({"dtype": "uint8"}, [0, 51, 255]),
            ({"dtype": "uint8", "order": "BGR"}, [255, 51, 0]),
            ({"dtype": "float32"}, [0, 0.2, 1]),
            ({"dtype": "float64", "white": 255}, [0, 51, 255]),
            ({"dtype": "float32", "mean": [0.5], "std": [0.5]}, [-1, -0.6, 1]),
            ({"dtype": "float32", "white": 255, "mean": [0, 1, 5], "std": [1, 2, 10]}, [0, 25, 25]),
        ],
    )
    def test_by_hand(self, settings: dict[str, Any], expected: list[float]) -> None:
        found = Preprocessing.of(settings).apply(self.PIXEL)
        assert found.dtype == settings["dtype"]
        assert found.ravel() == pytest.approx(expected)

    def test_layout_size_channels(self) -> None:
        assert Preprocessing(dtype="uint8", layout="NHWC").apply(IMAGES).shape == (12, 32, 32, 3)
        assert Preprocessing(dtype="float32", size=(8, 16), channels=1).apply(IMAGES).shape == (12, 1, 8, 16)
        found = Preprocessing(dtype="uint8", layout="NHWC").apply(IMAGES)
        assert (found[3, 5, 7] == IMAGES[3, :, 5, 7].numpy()).all()

    @pytest.mark.parametrize(
        ("settings", "says"),
        [
            ({}, "is described, not assumed"),
            ({"dtype": "int4"}, "unknown input dtype 'int4'"),
            ({"dtype": "uint8", "mean": [0.5]}, "white, mean and std belong to floats"),
            ({"dtype": "uint8", "white": 1}, "white, mean and std belong to floats"),
            ({"dtype": "float32", "std": [0.0]}, r"std must be positive, got \(0\.0,\)"),
            ({"dtype": "float32", "size": [0, 4]}, r"size is \(height, width\) of 1\.\.4096 pixels, got \(0, 4\)"),
            ({"dtype": "float32", "layout": "CHW"}, "unknown input layout 'CHW': choose one of NCHW, NHWC"),
            ({"dtype": "float32", "scale": 1}, "unknown input setting 'scale'"),
            ({"dtype": "float32", "white": "big"}, "'white' must be a finite number or null, got 'big'"),
            ({"dtype": "float32", "channels": 2}, "channels must be 1 or 3, got 2"),
        ],
    )
    def test_refused(self, settings: dict[str, Any], says: str) -> None:
        with pytest.raises(InputError, match=says):
            Preprocessing.of(settings)

    def test_means_that_do_not_fit(self) -> None:
        with pytest.raises(InputError, match="2 means"):
            Preprocessing(dtype="float32", mean=(0.1, 0.2)).apply(IMAGES)


class TestOutputs:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [([1, 0, 3], [1, 0, 3]), ([[1], [0], [3]], [1, 0, 3]), (np.eye(4)[[2, 1, 1]].tolist(), [2, 1, 1]),
         ([[-5, -1, -9, -3]] * 3, [1, 1, 1]), ([1.0, 0.0, 3.0], [1, 0, 3]), ([[1.0], [0.0], [3.0]], [1, 0, 3])],
    )  # fmt: skip
    def test_labels_and_scores(self, value: Any, expected: list[int]) -> None:
        assert labels_of(as_array(value), count=3, classes=4).tolist() == expected

    @pytest.mark.parametrize(
        ("value", "says"),
        [
            ([1, 4, 0], "class 4 to query 11"), ([1, 0, -1], "class -1 to query 12"), ([1, 0], "3 images"),
            ([0.5, 0.5, 0.1], "query 10 is the single number"), ([[0.1] * 3] * 3, r"shape \(3,\)"),
            ([[0.1] * 4, [float("nan")] * 4, [0.1] * 4], "query 11 holds NaN"), ([["a"], [1], [2]], "numbers"),
            ([[1], [1, 2], [3]], "rows differ"), ([None, 1, 2], "query 10 holds NaN"), ([True, False, True], "numbers"),
            (7, "shape"), ([[[0.1] * 4]] * 3, "shape"), ([], "numbers|shape"), ([10**30] * 3, "numbers|rows"),
            ([[0.1] * 3 + [float("inf")]] * 3, "query 10 holds NaN or infinity"),
            ([[0.1] * 4, [0.1, None, 0.1, 0.1], [0.1] * 4], "query 11 holds NaN .*null"), ([1, 2, "a"], "got text"),
            ([1.0, 2.5, 0.0], "query 11 is the single number 2.5"), ([[1.0], [4.0], [0.0]], "class 4 to query 11"),
            ([[0.5], [1.0], [0.0]], "query 10 is the single number 0.5"), ([1.0, 2.0, None], "query 12 holds NaN"),
        ],
    )  # fmt: skip
    def test_everything_else_is_an_error(self, value: Any, says: str) -> None:
        with pytest.raises(BadAnswerError, match=says):
            labels_of(as_array(value, first=10), count=3, classes=4, first=10)


class TestWeights:
    @pytest.mark.parametrize("kind", ["safetensors", "pt", "pth", "nested"])
    def test_the_same_model_whatever_the_file(self, net: TinyNet, tmp_path: Path, kind: str) -> None:
        path = tmp_path / f"model.{'pt' if kind == 'nested' else kind}"
        if kind == "safetensors":
            write_tensors(path, net.state_dict())
        else:
            state = dict(net.state_dict())
            torch.save({"epoch": 3, "state_dict": state} if kind == "nested" else state, path)
        suspect = open_suspect(path, classes=4, model=TinyNet)
        assert torch.equal(suspect.predict(IMAGES), predict(net, IMAGES))

    def test_the_folder_of_a_run(self, tmp_path: Path) -> None:
        """With the architecture that the run names; a run behind a transform is more than its weights."""
        architecture = Architecture(name="tests.conftest:TinyNet", classes=4, shape=(3, 32, 32))
        net = architecture.build(seed=1)
        for method in ("ft", "preprocess"):
            record = Record(
                verb="attack",
                method=method,
                settings={"method": {}},
                seed=0,
                metrics={},
                inputs={},
                seconds=1.0,
                images=1,
                versions={},
                hardware={},
            )
            Run.save(
                tmp_path / method, model=net, record=record, data="stripes", architecture=architecture,
                split=Split.draw(10, seed=0),
            )  # fmt: skip
        assert torch.equal(open_suspect(tmp_path / "ft", classes=4).predict(IMAGES), predict(net.eval(), IMAGES))
        with pytest.raises(InputError, match="a model behind a transform of its input"):
            open_suspect(tmp_path / "preprocess", classes=4)

    def test_a_file_that_would_run_code_is_refused(self, tmp_path: Path) -> None:
        class Attack:
            def __reduce__(self) -> Any:
                return (Path.touch, (tmp_path / "ran",))

        torch.save({"weights": Attack()}, tmp_path / "evil.pt")
        with pytest.raises(DamagedFileError, match="without running code"):
            open_suspect(tmp_path / "evil.pt", classes=4, model=TinyNet)
        assert not (tmp_path / "ran").exists()

    def test_refused(self, net: TinyNet, tmp_path: Path) -> None:
        write_tensors(tmp_path / "m.safetensors", net.state_dict())
        with pytest.raises(InputError, match="Name their architecture, too: --model NAME"):
            open_suspect(tmp_path / "m.safetensors", classes=4)
        with pytest.raises(DamagedFileError, match="does not fit"):
            open_suspect(tmp_path / "m.safetensors", classes=4, model=lambda: TinyNet(width=4))
        with pytest.raises(InputError, match="does not exist"):
            open_suspect(tmp_path / "none.pt", classes=4, model=TinyNet)
        torch.save([1, 2], tmp_path / "list.pt")
        with pytest.raises(DamagedFileError, match="no named weights"):
            open_suspect(tmp_path / "list.pt", classes=4, model=TinyNet)
        with pytest.raises(InputError, match="cannot be asked as a suspect"):
            open_suspect(tmp_path / "model.tflite", classes=4)


def bars_onnx(
    path: Path, *, batch: int | None = None, label: bool = False, classes: int = 4, kind: str = "float"
) -> Path:
    """A graph that answers the brightest bar: pixels times a fixed matrix."""
    onnx = pytest.importorskip("onnx")
    classes = 4
    weight = np.zeros((3, 32, 32, classes), dtype=np.float32)
    for bar in range(classes):
        weight[:, bar * 8 : bar * 8 + 8, :, bar] = 1
    make, types = onnx.helper, onnx.TensorProto
    given = {"float": types.FLOAT, "uint8": types.UINT8}[kind]
    nodes = [
        make.make_node("Cast", ["x"], ["c"], to=types.FLOAT), make.make_node("Flatten", ["c"], ["f"]),
        make.make_node("MatMul", ["f", "w"], ["scores"]),
    ]  # fmt: skip
    ends = [make.make_tensor_value_info("scores", types.FLOAT, [batch or "n", classes])]
    if label:
        nodes.append(make.make_node("ArgMax", ["scores"], ["label"], axis=1, keepdims=0))
        ends.append(make.make_tensor_value_info("label", types.INT64, [batch or "n"]))
    graph = make.make_graph(
        nodes, "bars", [make.make_tensor_value_info("x", given, [batch or "n", 3, 32, 32])], ends,
        [onnx.numpy_helper.from_array(weight.reshape(-1, classes), "w")],
    )  # fmt: skip
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=9)
    path.write_bytes(model.SerializeToString())
    return path


class TestOnnx:
    BARS = (torch.arange(12) % 4).tolist()

    @pytest.fixture(autouse=True)
    def _runtime(self) -> None:
        pytest.importorskip("onnxruntime")

    @pytest.mark.parametrize("batch", [None, 1, 5])
    @pytest.mark.parametrize("kind", ["float", "uint8"])
    def test_answers(self, tmp_path: Path, batch: int | None, kind: str) -> None:
        path = bars_onnx(tmp_path / "m.onnx", batch=batch, kind=kind)
        dtype = {"float": "float32", "uint8": "uint8"}[kind]
        assert open_suspect(path, classes=4, input={"dtype": dtype}).predict(IMAGES).tolist() == self.BARS

    def test_outputs_by_name(self, tmp_path: Path) -> None:
        path = bars_onnx(tmp_path / "m.onnx", label=True)
        with pytest.raises(InputError, match="outputs scores, label"):
            open_suspect(path, classes=4, input={"dtype": "float32"})
        suspect = open_suspect(path, classes=4, input={"dtype": "float32"}, output="label")
        assert suspect.predict(IMAGES).tolist() == self.BARS

    def test_refused(self, tmp_path: Path) -> None:
        path = bars_onnx(tmp_path / "m.onnx")
        with pytest.raises(InputError, match="described, not assumed"):
            open_suspect(path, classes=4)
        with pytest.raises(InputError, match="described as uint8"):
            open_suspect(path, classes=4, input={"dtype": "uint8"})
        with pytest.raises(BadAnswerError, match="key knows 10 classes"):
            open_suspect(path, classes=10, input={"dtype": "float32"}).predict(IMAGES)
        with pytest.raises(BadAnswerError, match="fails at query 0"):
            open_suspect(path, classes=4, input={"dtype": "float32", "size": [16, 16]}).predict(IMAGES)
        with pytest.raises(InputError, match="no file"):
            open_suspect(tmp_path / "none.onnx", classes=4, input={"dtype": "float32"})


class TestPredictions:
    def table(self, path: Path, rows: list[list[Any]]) -> Path:
        with path.open("w", newline="", encoding="utf-8") as handle:
            csv.writer(handle).writerows(rows)
        return path

    def test_csv_and_lines(self, tmp_path: Path) -> None:
        names, labels = image_digests(IMAGES), [n % 4 for n in range(12)]
        rows = [[name, label] for name, label in zip(names, labels, strict=True)]
        scores = [[name, *np.eye(4)[label]] for name, label in zip(names, labels, strict=True)]
        lines = tmp_path / "p.jsonl"
        lines.write_text("".join(json.dumps({"digest": name, "label": label}) + "\n" for name, label in rows))
        for path in (
            self.table(tmp_path / "p.csv", [["digest", "label"], *rows[::-1]]),
            self.table(tmp_path / "s.csv", [["digest", "p0", "p1", "p2", "p3"], *scores]),
            lines,
        ):
            assert open_suspect(path, classes=4).predict(IMAGES).tolist() == labels

    def test_a_missing_answer_is_an_error(self, tmp_path: Path) -> None:
        rows = [[name, 0] for name in image_digests(IMAGES[:5])]
        suspect = open_suspect(self.table(tmp_path / "p.csv", [["digest", "label"], *rows]), classes=4)
        with pytest.raises(BadAnswerError, match="no prediction for 7 of 12 images, the first of them query 5"):
            suspect.predict(IMAGES)

    @pytest.mark.parametrize(
        ("rows", "says"),
        [
            ([], "must start with the line digest,label or digest,p0,p1"),
            ([["label"], [1]], "must start with the line digest,label or digest,p0,p1"),
            ([["digest", "label"]], "holds no predictions"),
            ([["digest", "label"], ["ab", 1]], "prediction 0 must name an image by its SHA-256"),
            ([["digest", "label"], ["ab" * 32, "one"]], "prediction 0 is not a number .* 'one'"),
            ([["digest", "label"], ["ab" * 32, 4]], r"class 4 to query 0, but the key knows 0\.\.3"),
            ([["digest", "label"], ["ab" * 32, 1.5]], r"query 0 is the single number 1\.5: neither a label"),
            ([["digest", "label"], ["ab" * 32, 1], ["ab" * 32, 1]], "prediction 1 is a second one for abab"),
            ([["digest", "label"], ["ab" * 32]], "prediction 0 has 1 columns"),
            ([["digest", "p0", "p1"], ["ab" * 32, 0.5, 0.5]], r"has the shape \(2,\), but the key knows 4 classes"),
            ([["digest", "p0", "p1", "p2", "p3"], ["ab" * 32, "nan", 0, 0, 0]], "query 0 holds NaN or infinity"),
        ],
    )
    def test_refused(self, tmp_path: Path, rows: list[list[Any]], says: str) -> None:
        with pytest.raises(IndelibleError, match=says):
            open_suspect(self.table(tmp_path / "p.csv", rows), classes=4)


class TestTemplate:
    def made(self, **more: Any) -> JsonTemplate:
        given = {"url": "http://h/x", "input": {"dtype": "uint8"}, "body": {"a": ["$images", "$count"]}, **more}
        return JsonTemplate.of(given)

    def test_requests(self) -> None:
        body = self.made().encode(IMAGES[:2])
        assert body["a"][1] == 2
        assert np.array_equal(np.array(body["a"][0]), IMAGES[:2].numpy())
        one = self.made(body={"img": "$png", "keep": "$"})
        assert one.batch == 1
        import base64
        import io

        from PIL import Image

        found = Image.open(io.BytesIO(base64.b64decode(one.encode(IMAGES[:1])["img"])))
        assert np.array_equal(np.asarray(found).transpose(2, 0, 1), IMAGES[0].numpy())

    def test_replies(self) -> None:
        named = self.made(reply="/out", item="/name", classes=["a", "b", "c", "d"])
        reply = {"out": [{"name": "d"}, {"name": "a"}]}
        assert named.decode(reply, count=2, classes=4, first=0).tolist() == [3, 0]
        short, unknown = {"out": [{"name": "d"}]}, {"out": [{"name": "x"}, {"name": "a"}]}
        wrong: list[Any] = [short, unknown, {"out": [{}, {}]}, {}, [], "no", None]
        for bad in wrong:
            with pytest.raises(BadAnswerError, match="query"):
                named.decode(bad, count=2, classes=4, first=0)
        single = self.made(body={"x": "$image"}, reply="/0/scores")
        assert single.decode([{"scores": [0, 9, 1, 2]}], count=1, classes=4, first=0).tolist() == [1]
        assert pointed({"a/b": {"~": [1, 2]}}, "/a~1b/~0/1", 0) == 2

    @pytest.mark.parametrize(
        ("more", "says"),
        [
            ({"body": {}}, r"must contain \$images, \$image, \$pngs or \$png"),
            ({"body": ["$image", "$images"]}, r"either one image \(\$image, \$png\) or many"),
            ({"input": {}}, "is described, not assumed"),
            ({"input": 1}, "must be a JSON object with url, input, body and reply"),
            ({"url": 5}, "'url' must be text, got 5"),
            ({"token": "x"}, "unknown field of a template 'token'"),
            ({"batch": 0}, "at least 1 image per request, got 0"),
            ({"batch": "many"}, "'batch' must be a whole number, got 'many'"),
            ({"classes": 3}, "'classes' must be a list of numbers or null, got 3"),
        ],
    )
    def test_refused(self, more: dict[str, Any], says: str) -> None:
        with pytest.raises(InputError, match=says):
            self.made(**more)


def test_a_missing_package_says_how_to_get_it() -> None:
    with pytest.raises(MissingExtraError, match=r"pip install 'indelible\[onnx\]'"):
        needed("no_such_package", extra="onnx", what="a suspect")


def test_unknown_words_list_the_choices() -> None:
    with pytest.raises(UnknownNameError, match="NCHW, NHWC"):
        Preprocessing.of({"dtype": "uint8", "layout": "HWC"})
