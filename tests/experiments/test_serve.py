"""The command's server in another process: the protocol's addresses, and a whole verification and claim over it."""

import json
import math
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from indelible.base.errors import InputError
from indelible.base.records import Record
from indelible.cli import main
from indelible.data.splits import Split
from indelible.keys.key import Key
from indelible.train.run_folder import Architecture, Run
from indelible.verification.suspects import read_log
from serve import ModelServer, Served
from tests.conftest import SECRET, SHAPE, TinyNet, stripes
from tests.evidence.cases import reader
from tests.verification.suspects.servers import serving_run
from tests.waiting import PATIENCE


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose model reads the key's mark."""
    root = tmp_path_factory.mktemp("served")
    data = root / "bars.npz"
    train, test = stripes(40), stripes(96, seed=1)
    np.savez(
        data, x_train=train.images.numpy(), y_train=train.labels.numpy(), x_test=test.images.numpy(),
        y_test=test.labels.numpy(),
    )  # fmt: skip
    key = Key.create(kind="content", classes=4, shape=SHAPE, target=0, secret=SECRET)
    model: Any = reader(key).model
    Run.save(
        root / "run", model=model, record=Record(verb="embed", method="app", settings={}, seed=0), data=str(data),
        split=Split.draw(40, seed=0), key=key,
        architecture=Architecture(name="tests.conftest:MarkReader", classes=4, shape=SHAPE),
    )  # fmt: skip
    return root / "run"


def get(url: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as reply:  # noqa: S310 - our own server
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_another_process_is_verified_and_claimed(
    owner: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: object, code: int = 0) -> Any:
        found = main([*map(str, words), "--json"])
        out, err = capsys.readouterr()
        assert found == code, err
        return json.loads(out)

    with serving_run(owner, "--answer", "label", "--name", "bars") as url:
        root = url.removesuffix("/models/bars")
        assert get(root)[1]["name"] == "indelible"
        assert get(f"{root}/health/live")[0] == get(f"{root}/health/ready")[0] == get(f"{url}/ready")[0] == 200
        assert get(url)[1]["outputs"] == [{"name": "label", "datatype": "INT64", "shape": [-1, 1]}]
        assert get(f"{root}/models/other")[0] == 404
        asking = ["--suspect", url, "--input", "dtype=uint8"]
        planned = run("verify", owner, "--max-carriers", 40, "--export", tmp_path / "questions.npz")["queries"]
        asked = ["--max-carriers", 40, *asking, "--log", tmp_path / "q.jsonl", "--budget", planned]
        verdict = run("verify", owner, *asked)
        assert verdict["owned"]
        assert verdict["queries"] <= planned
        # Of a key with one mark, all samples and decoys are asked unless the user says how many.
        few = ["--max-samples", "40", "--decoy-samples", "28", "--budget", "700"]
        document = run("verify", owner, *asking, "--log", tmp_path / "p.jsonl", *few)
        assert document["owned"]
        assert "plan" not in document
        assert document["queries"] == 40 + 20 * 28 <= 700
        assert len(read_log(tmp_path / "p.jsonl").answers) <= 700
        again = run("verify", owner, "--suspect", tmp_path / "p.jsonl", *few[:4])
        assert again["p_value"] == document["p_value"]
        assert main(["verify", str(owner), *asking, "--log", str(tmp_path / "n.jsonl"), "--budget", "100"]) == 2
        assert "the budget is 100 queries, 0 were sent" in capsys.readouterr().err
        # The questions go to somebody else, and the answers come back as a table.
        with np.load(tmp_path / "questions.npz") as questions:
            labels = MarkReaderOf(owner)(torch.from_numpy(questions["images"]))
            lines = [f"{name},{label}" for name, label in zip(questions["digests"], labels, strict=True)]
        (tmp_path / "answers.csv").write_text("digest,label\n" + "\n".join(lines) + "\n")
        for again in (tmp_path / "q.jsonl", tmp_path / "answers.csv"):
            assert run("verify", owner, "--max-carriers", 40, "--suspect", again)["p_value"] == verdict["p_value"]
        run("evidence", "commit", owner, "--out", tmp_path / "c", "--owner", "Tester", "--open", 30)
        claimed = run("evidence", "claim", tmp_path / "c", owner, *asking, "--out", tmp_path / "b")
        assert claimed["verdict"]["owned"]
    assert run("evidence", "check", tmp_path / "b")["holds"]
    sealed = run("evidence", "check", tmp_path / "b", "--key", owner / "key", "--data", Run.load(owner).data)
    assert sealed["steps"][-1]["name"] == "key"
    assert run("evidence", "check", tmp_path / "b", "--run", owner)["derived"]
    (tmp_path / "b" / "README.txt").write_text("other words")
    assert run("evidence", "check", tmp_path / "b", code=1)["failed"] == "manifest"


class MarkReaderOf:
    """The run's model, in this process."""

    def __init__(self, run: Path) -> None:
        self.model = Run.load(run).model()

    def __call__(self, images: torch.Tensor) -> list[int]:
        from indelible.train.evaluate import predict

        return predict(self.model, images).tolist()


class TestServed:
    def served(self, **more: Any) -> Served:
        return Served(**{"model": TinyNet(), "name": "m", "shape": SHAPE, "classes": 4, **more})

    def request(self, **more: Any) -> dict[str, Any]:
        return {"inputs": [{"name": "x", "shape": [1, *SHAPE], "datatype": "UINT8", "data": [7] * 3072, **more}]}

    @pytest.mark.parametrize("answer", ["logits", "probabilities", "label"])
    def test_answers(self, answer: Any) -> None:
        served = self.served(answer=answer)
        reply = served.infer({**self.request(), "id": "7"})
        assert reply["id"] == "7"
        output = reply["outputs"][0]
        assert (output["name"], output["shape"]) == (answer, [1, 1 if answer == "label" else 4])
        with torch.no_grad():
            logits = served.model.eval()(torch.full((1, *SHAPE), 7 / 255))[0]
        powers = [math.exp(value) for value in logits.tolist()]
        expected = {
            "logits": logits.tolist(),
            "probabilities": [power / sum(powers) for power in powers],
            "label": [powers.index(max(powers))],
        }
        assert output["data"] == pytest.approx(expected[answer], rel=1e-5)

    @pytest.mark.parametrize(
        "request_",
        [{}, [], None, {"inputs": []}, {"inputs": [1]}, {"inputs": [{"shape": 3, "datatype": "UINT8", "data": []}]}],
    )
    def test_bad_requests(self, request_: Any) -> None:
        with pytest.raises(InputError, match="a request has one input with name, shape, datatype and data"):
            self.served().infer(request_)

    @pytest.mark.parametrize(
        ("more", "says"),
        [
            ({"datatype": "FP32"}, r"expected UINT8 of shape \[N, 3, 32, 32\], came FP32 \[1, 3, 32, 32\]"),
            ({"shape": [1, 3, 32]}, r"expected UINT8 of shape \[N, 3, 32, 32\], came UINT8 \[1, 3, 32\]"),
            ({"shape": [2, *SHAPE]}, r"do not fit the shape \[2, 3, 32, 32\]: cannot reshape array of size 3072"),
            ({"data": ["a"] * 3072}, r"do not fit the shape \[1, 3, 32, 32\]: invalid literal .* 'a'"),
            ({"data": None}, r"do not fit the shape \[1, 3, 32, 32\]: .* not 'NoneType'"),
            ({"data": [256] * 3072}, r"pixels lie in 0\.\.255"),
        ],
    )
    def test_bad_inputs(self, more: dict[str, Any], says: str) -> None:
        with pytest.raises(InputError, match=says):
            self.served().infer(self.request(**more))

    def test_refused(self) -> None:
        with pytest.raises(InputError, match="logits"):
            self.served(answer="features")
        with pytest.raises(InputError, match="slash"):
            self.served(name="a/b")


@pytest.mark.parametrize("port", [99999, -1])
def test_a_port_that_does_not_exist_is_refused(port: int) -> None:
    served = Served(model=TinyNet(), name="m", shape=SHAPE, classes=4)
    with pytest.raises(InputError, match=f"a port is a number from 0 .* to 65535, got {port}"):
        ModelServer(served, port=port)
