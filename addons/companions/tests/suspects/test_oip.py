"""Open Inference servers: recorded replies of a real MLServer, and every shape that a server may declare."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indelible.base.errors import InputError
from indelible.cli import parser
from indelible.cli.options import asked_suspect
from indelible.data.download import UnreachableError
from indelible.verification.careful_queries import LoggedSuspect
from indelible.verification.suspects import BadAnswerError, HttpSuspect, Persistence, Preprocessing, open_suspect
from indelible.verification.suspects.log import query_log
from indelible_companions.suspects.oip import OpenInference, declared_layout
from tests.conftest import SHAPE, stripes
from tests.verification.suspects.servers import Recorded, playing
from tests.waiting import PATIENCE

MLSERVER = json.loads((Path(__file__).parent / "replies" / "mlserver.json").read_text())
IMAGES = stripes(2, seed=1).images
QUICK = Persistence(timeout=PATIENCE, tries=2, pause=0.001)


def recorded(metadata: str, *replies: str) -> Recorded:
    found = [MLSERVER["replies"][name] for name in replies]
    return Recorded(MLSERVER["metadata"][metadata], [(one["state"], one["body"]) for one in found])


def opened(site: Recorded, **more: Any) -> HttpSuspect:
    settings = {"classes": 4, "input": {"dtype": "uint8"}, "persistence": QUICK, "shape": SHAPE, **more}
    suspect = open_suspect(site.url, **settings)
    assert isinstance(suspect, HttpSuspect)
    return suspect


class TestMLServer:
    @pytest.mark.parametrize("reply", ["scores", "labels", "labels as floats"])
    def test_a_server_that_declares_nothing(self, reply: str) -> None:
        with playing(recorded("none declared", reply)) as site:
            assert opened(site).predict(IMAGES).tolist() == [0, 1]
            (tensor,) = site.asked[0]["inputs"]
            assert (tensor["name"], tensor["shape"], tensor["datatype"]) == ("input-0", [2, *SHAPE], "UINT8")
            assert "outputs" not in site.asked[0]

    def test_the_name_of_its_input_is_an_option(self) -> None:
        with playing(recorded("none declared", "scores", "wrong input name")) as site:
            suspect = opened(site, input_name="images")
            suspect.predict(IMAGES)
            assert site.asked[0]["inputs"][0]["name"] == "images"
            assert suspect.describe()["input"] == "images"
            with pytest.raises(InputError, match=r"state 400 \(\"no input 'images'.*--input-name"):
                suspect.predict(IMAGES)

    def test_it_is_an_option_of_the_commands(self) -> None:
        words = ["--suspect", "PLACE", "--input", "dtype=uint8", "--input-name", "images"]
        for command in (["verify", "run"], ["evidence", "claim", "c", "run", "--out", "b"], ["evidence", "check", "b"]):
            arguments = parser().parse_args([*command, *words])
            with playing(recorded("none declared", "scores")) as site:
                arguments.suspect = site.url
                assert asked_suspect(arguments, 4, SHAPE, None).predict(IMAGES).tolist() == [0, 1]
                assert site.asked[0]["inputs"][0]["name"] == "images"

    def test_several_outputs_are_named_in_the_first_reply(self) -> None:
        with playing(recorded("none declared", "labels and scores")) as site:
            with pytest.raises(BadAnswerError, match=r"outputs predict, predict_proba: name the one .*--output"):
                opened(site).predict(IMAGES)
            for name in ("predict", "predict_proba"):
                assert opened(site, output=name).predict(IMAGES).tolist() == [0, 1]
                assert site.asked[-1]["outputs"] == [{"name": name}]

    def test_an_unknown_output_is_found_before_any_query(self) -> None:
        with playing(recorded("channels first", "unknown output")) as site:
            with pytest.raises(InputError, match=r"no output 'nope', it declares: predict, predict_proba"):
                opened(site, output="nope")
            assert not site.asked
        says = "has the outputs none, not 'nope'"
        with playing(recorded("none declared", "unknown output")) as site, pytest.raises(BadAnswerError, match=says):
            opened(site, output="nope").predict(IMAGES)

    def test_channels_last_is_sent_where_it_is_declared(self) -> None:
        with playing(recorded("channels last", "labels and scores")) as site:
            suspect = opened(site, output="predict")
            assert suspect.predict(IMAGES).tolist() == [0, 1]
            (tensor,) = site.asked[0]["inputs"]
            sent = np.array(tensor["data"]).reshape(tensor["shape"])
            assert np.array_equal(sent, IMAGES.permute(0, 2, 3, 1).numpy())
            assert suspect.describe()["preprocessing"]["layout"] == "NHWC"
            with pytest.raises(InputError, match=r"\[-1, 32, 32, 3\], which is NHWC, .* layout=NCHW"):
                opened(site, output="predict", input={"dtype": "uint8", "layout": "NCHW"})

    def test_another_shape_is_refused_before_any_query(self) -> None:
        with playing(recorded("channels first", "labels")) as site:
            with pytest.raises(InputError, match=r"input of \[3, 32, 32\] per image, but \[3, 64, 64\] would be sent"):
                opened(site, output="predict", shape=(3, 64, 64))
            with pytest.raises(InputError, match=r"but \[3, 16, 32\] would be sent .*size=\[HEIGHT,WIDTH\]"):
                opened(site, output="predict", input={"dtype": "uint8", "size": [16, 32]})
            suspect = opened(site, output="predict", shape=None, input={"dtype": "uint8", "size": [16, 32]})
            with pytest.raises(InputError, match="would be sent"):
                suspect.predict(IMAGES)
            assert not site.asked

    def test_the_cause_in_a_state_500_is_shown_and_in_no_log(self, tmp_path: Path) -> None:
        says = r"2 attempts; the last: state 500 \('builtins.RuntimeError: cuDNN error: .* in layer conv1'\)"
        opening = query_log(tmp_path / "q.jsonl", classes=4, suspect={}, about={})
        with playing(recorded("none declared", "exception")) as site, opening as log:
            with pytest.raises(UnreachableError, match=says):
                LoggedSuspect(opened(site), log).predict(IMAGES)
            assert len(site.asked) == 2
        assert b"cuDNN" not in (tmp_path / "q.jsonl").read_bytes()
        assert b'"cause":"state 500"' in (tmp_path / "q.jsonl").read_bytes()

    def test_nan_that_arrives_as_null(self) -> None:
        says = r"query 0 holds NaN or infinity \(0.684, nan, .*null"
        with playing(recorded("none declared", "NaN as null")) as site, pytest.raises(BadAnswerError, match=says):
            opened(site).predict(IMAGES)

    @pytest.mark.parametrize(("reply", "says"), [
        ("no such model", r"state 404 \('Model none not found'\). Check address and model name"),
        ("wrong shape", r"state 400 \('expected \(N, 32, 32, 3\), got"),
    ])  # fmt: skip
    def test_refusals_say_what_the_server_said(self, reply: str, says: str) -> None:
        with playing(recorded("none declared", reply)) as site, pytest.raises(InputError, match=says):
            opened(site).predict(IMAGES)


@pytest.mark.parametrize(("body", "says"), [
    ("", r"state 400 \(no text\)"), ("x" * 5000, r"\('x{200}\.\.\.'\)"), ("\x1b[2J", r"\\x1b\[2J"),
    ('{"detail": [{"loc": "a"}]}', r"\[\{'loc': 'a'\}\]"), ("[1]", r"\('\[1\]'\)"), ("[" * 9999, r"\.\.\."),
])  # fmt: skip
def test_a_servers_words_are_shortened_and_quoted(body: str, says: str) -> None:
    with playing(Recorded({"name": "m"}, [(400, body)])) as site, pytest.raises(InputError, match=says):
        opened(site).predict(IMAGES)


class TestDeclared:
    MODEL = OpenInference(url="http://h/v2/models/m", preprocessing=Preprocessing(dtype="uint8"))

    def metadata(self, shape: Any, **more: Any) -> dict[str, Any]:
        return {"name": "m", "inputs": [{"name": "x", "datatype": "UINT8", "shape": shape}], "outputs": [], **more}

    @pytest.mark.parametrize(("sides", "layout"), [
        ((3, 32, 32), "NCHW"), ((1, 28, 28), "NCHW"), ((32, 32, 3), "NHWC"), ((28, 28, 1), "NHWC"),
        ((-1, -1, 3), "NHWC"), ((3, -1, -1), "NCHW"), ((-1, -1, -1), None), ((3, 32, 3), None), ((8, 32, 32), None),
    ])  # fmt: skip
    def test_layout(self, sides: tuple[int, int, int], layout: str | None) -> None:
        assert declared_layout(sides) == layout

    @pytest.mark.parametrize(("shape", "layout", "batch"), [
        ([-1, 3, 32, 32], "NCHW", 32), ([-1, 32, 32, 3], "NHWC", 32), ([1, 32, 32, 3], "NHWC", 1),
        ([3, 32, 32], "NCHW", 32), ([32, 32, 3], "NHWC", 32), ([-1, -1, -1, -1], "NCHW", 32), ([], "NCHW", 32),
        (None, "NCHW", 32), (["-1", "3", "32", "32"], "NCHW", 32),
    ])  # fmt: skip
    def test_taken(self, shape: Any, layout: str, batch: int) -> None:
        made = self.MODEL.completed(self.metadata(shape), shape=SHAPE)
        assert (made.input, made.preprocessing.layout, made.batch) == ("x", layout, batch)
        assert made.encode(IMAGES[:1])["inputs"][0]["shape"] == ([1, *SHAPE] if layout == "NCHW" else [1, 32, 32, 3])

    @pytest.mark.parametrize(("shape", "says"), [
        ([-1, 3072], "4 axes"), ([-1], "4 axes"), ([-1, 32, 32], "4 axes"), ([8, 3, 32, 32], "exactly 8 images"),
        ([-1, 1, 32, 32], r"declares an input of \[1, 32, 32\]"), ([-1, 4, 32, 32], "would be sent"),
        ("many", "not a list of numbers"), ([None], "not a list of numbers"), (7, "not a list of numbers"),
    ])  # fmt: skip
    def test_refused(self, shape: Any, says: str) -> None:
        with pytest.raises(InputError, match=says):
            self.MODEL.completed(self.metadata(shape), shape=SHAPE)

    @pytest.mark.parametrize("metadata", [
        None, [], 7, {}, {"inputs": []}, {"name": "m", "inputs": 1}, {"name": "m", "inputs": [1]},
        {"name": "m", "inputs": [{}]}, {"name": "m", "inputs": [], "outputs": "y"},
    ])  # fmt: skip
    def test_what_is_no_metadata(self, metadata: Any) -> None:
        with pytest.raises(InputError, match="no metadata of an Open Inference model"):
            self.MODEL.completed(metadata)

    def test_names(self) -> None:
        two = {"name": "m", "inputs": [{"name": name, "datatype": "UINT8"} for name in "ab"]}
        with pytest.raises(InputError, match=r"inputs a, b: name the one .*--input-name"):
            self.MODEL.completed(two)
        wanted = OpenInference(url="http://h/v2/models/m", preprocessing=Preprocessing(dtype="uint8"), input="b")
        assert wanted.completed(two).input == "b"
        with pytest.raises(InputError, match="no input 'b', it declares: x"):
            wanted.completed(self.metadata([-1, *SHAPE]))
