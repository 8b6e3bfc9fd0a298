"""The command line as a person meets it: exit codes, one-line errors, JSON, help with examples, Ctrl-C."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from indelible.attacks.preprocess import preprocess
from indelible.bench.locks import working_on
from indelible.cli import COMMANDS, main, parser
from indelible.cli.command_line import command_table
from indelible.keys.key import Key
from indelible.train.loop import CHECKPOINT
from indelible.train.run_folder import Architecture, Run
from tests.conftest import SECRET, SHAPE, MarkReader, stripes
from tests.waiting import PATIENCE, until


def run(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> str:
    """Run the command line; return standard output, or the error line for exit code 2."""
    found = main([str(word) for word in words])
    out, err = capsys.readouterr()
    assert found == code, err
    if code == 2:
        assert out == ""
        assert err.startswith("indelible: error: ")
        assert err.count("\n") == 1
        return err
    return out


def document(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> Any:
    return json.loads(run(capsys, *words, "--json", code=code))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small data set as a user would bring it."""
    path = tmp_path_factory.mktemp("data") / "bars.npz"
    train, test = stripes(320), stripes(160, seed=1)
    np.savez(
        path, x_train=train.images.numpy(), y_train=train.labels.numpy(), x_test=test.images.numpy(),
        y_test=test.labels.numpy(),
    )  # fmt: skip
    return path


QUICK = ["--train", "epochs=8", "--train", "batch_size=32", "--train", "lr=0.1", "--device", "cpu", "--threads", "1"]


@pytest.fixture(scope="module")
def embedded(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    out = tmp_path_factory.mktemp("runs") / "app"
    key = Key.create(kind="content", classes=4, shape=SHAPE, target=0, secret=SECRET).save(out.with_name("my-key"))
    words = ["embed", "--data", data, "--model", "tests.conftest:TinyNet", "--out", out, "--key", key, "--quiet"]
    settings = ["--set", "rows=16", "--set", "clean_rows=16", "--set", "alpha=0.5", "--set", "fraction=0.3"]
    assert main([*map(str, words), *settings, *QUICK]) == 0
    return out


def test_the_whole_path(capsys: pytest.CaptureFixture[str], data: Path, embedded: Path, tmp_path: Path) -> None:
    saved = Run.load(embedded)
    assert saved.record.metrics["wsr"] > 0.8
    assert saved.record.metrics["ba"] > 0.8
    assert not (embedded / CHECKPOINT).exists()
    out = tmp_path / "washed"
    attacked = document(
        capsys, "attack", embedded, "--out", out, "--set", "epochs=2", "--set", "batch_size=32", "--device", "cpu"
    )
    assert attacked["record"]["method"] == "ft"
    samples = saved.key().samples(saved.images()[2], purpose="verify")
    with torch.no_grad():
        answers = Run.load(out).model().eval()(samples.images.float() / 255).argmax(1)
    assert (attacked["verdict"]["hits"], attacked["verdict"]["trials"]) == (int((answers == 0).sum()), 120)
    assert attacked["verdict"]["wsr"] == attacked["verdict"]["hits"] / 120
    assert not (out / "key").exists()
    assert Run.load(out).key() == saved.key()
    other = tmp_path / "other-key"
    run(capsys, "key", "create", other, "--data", data, "--target", "1")
    refused = document(capsys, "verify", out, "--key", other, code=1)
    assert not refused["owned"]
    twice = document(capsys, "attack", out, "--out", tmp_path / "twice", "--set", "epochs=1", "--set", "protocol=paper")
    assert twice["record"]["settings"]["method"]["protocol"] == "paper"
    page = tmp_path / "report.html"
    assert document(capsys, "report", embedded, out, "--out", page)["report"] == str(page)
    secret = (embedded / "key" / "secret.key").read_text().strip()
    for path in [page, *embedded.glob("*.json*"), *out.glob("*.json*")]:
        assert secret not in path.read_text(), path


def test_verdicts_and_exit_codes(
    capsys: pytest.CaptureFixture[str], data: Path, embedded: Path, tmp_path: Path
) -> None:
    """A network that reads the key's mark itself is owned; the same network under another key is not."""
    saved = Run.load(embedded)
    reader = MarkReader()
    mark: Any = saved.key().mark()
    reader.mask.copy_(mark.mask())
    reader.colour.copy_(torch.tensor(mark.colour)[:, None])
    out = tmp_path / "reader"
    Run.save(
        out, model=reader, record=saved.record, data=str(data), split=saved.split(), key=saved.key(),
        architecture=Architecture(name="tests.conftest:MarkReader", classes=4, shape=SHAPE),
    )  # fmt: skip
    assert document(capsys, "verify", out)["p_value"] <= 1e-6
    text = run(capsys, "verify", out, "--max-samples", "60")
    assert text.startswith("OWNED at alpha 1e-06")
    run(capsys, "key", "create", tmp_path / "other", "--data", data, "--target", "1")
    assert run(capsys, "verify", out, "--key", tmp_path / "other", code=1).startswith("NOT SHOWN")


@pytest.mark.parametrize("of", ["run", "model.safetensors", "net.pt", "net.PTH"])
def test_protecting_a_trained_model_and_its_certificate(
    capsys: pytest.CaptureFixture[str], data: Path, embedded: Path, tmp_path: Path, of: str
) -> None:
    weights = embedded if of == "run" else embedded / of
    if of.startswith("net"):
        weights = tmp_path / of
        torch.save(Run.load(embedded).model().state_dict(), weights)
    words = [] if of == "run" else ["--model", "tests.conftest:TinyNet"]
    found = document(
        capsys, "embed", "--data", data, "--start", "trained", "--weights", weights, *words, "--out", tmp_path / "own",
        "--method", "vanilla", "--device", "cpu", "--train", "epochs=1", "--threads", "1",
    )  # fmt: skip
    assert found["settings"]["start"] == "trained"
    assert found["inputs"]["model_digest"] == Run.load(embedded).record.metrics["model_digest"]
    assert found["metrics"]["ba_before"] == Run.load(embedded).record.metrics["ba"]
    main(["verify", str(embedded), "--certificate", "--sigma", "0.05", "--draws", "5", "--quiet"])
    assert "CERTIFICATE at sigma 0.05, 5 draws" in capsys.readouterr().out


def test_an_attack_uses_only_the_attackers_images(embedded: Path) -> None:
    saved = Run.load(embedded)
    owner, attacker, test = saved.images()
    assert (len(owner), len(attacker), len(test)) == (256, 64, 160)
    pixels = {image.numpy().tobytes() for image in owner.gather(owner.labels.new_tensor(range(256))).images}
    assert not any(
        image.numpy().tobytes() in pixels for image in attacker.gather(attacker.labels.new_tensor(range(64))).images
    )


def test_a_copy_of_another_architecture_is_saved_as_one(
    capsys: pytest.CaptureFixture[str], embedded: Path, tmp_path: Path
) -> None:
    out = tmp_path / "copied"
    words = ["--method", "distill", "--set", "architecture=resnet-w8", "--set", "epochs=1", "--set", "batch_size=32"]
    document(capsys, "attack", embedded, "--out", out, *words, "--device", "cpu")
    copied = Run.load(out)
    assert copied.architecture.name == "resnet-w8"
    assert copied.model().state_dict().keys() == copied.architecture.build().state_dict().keys()
    document(capsys, "verify", out, code=1)


def test_preprocessing_belongs_to_the_suspect(
    capsys: pytest.CaptureFixture[str], embedded: Path, tmp_path: Path
) -> None:
    """The weights are the stolen ones; verify asks through what the record names, also later."""
    out = tmp_path / "disturbed"
    words = ["--method", "preprocess", "--set", "transform=noise", "--set", "strength=1"]
    found = document(capsys, "attack", embedded, "--out", out, *words, "--device", "cpu")
    saved, stolen = Run.load(out), Run.load(embedded)
    assert all(
        torch.equal(value, stolen.model().state_dict()[name]) for name, value in saved.model().state_dict().items()
    )
    assert saved.record.metrics["preprocessing"] == {"transform": "noise", "strength": 1}
    assert [row["transform"] for row in found["transforms"]] == ["jpeg", "blur", "noise", "bits", "flip"]
    test = stolen.images()[2]
    marked = stolen.key().samples(test, purpose="verify")
    whole = test.gather(torch.arange(len(test)))
    for row in found["transforms"]:
        for rate, images, labels in (("ba", whole.images, whole.labels), ("wsr", marked.images, marked.labels)):
            changed = preprocess(images, row["transform"], row["strength"])
            with torch.no_grad():
                right = stolen.model().eval()(changed.float() / 255).argmax(1) == labels
            assert row[rate] == pytest.approx(float(right.double().mean())), (row["transform"], rate)
    assert found["verdict"]["wsr"] != stolen.record.metrics["wsr"]
    again = document(capsys, "verify", out, code=1)  # one target class for all: decoys are answered with it, too
    assert again["wsr"] == found["verdict"]["wsr"]
    assert "under flip 1: BA" in run(capsys, "attack", embedded, "--out", tmp_path / "text", *words, "--device", "cpu")


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    methods = {entry["name"]: entry for entry in document(capsys, "embed", "--list")}
    assert {"vanilla", "ew", "cw", "app"} <= methods.keys()
    assert methods["app"]["defaults"]["eps"] == 0.02
    assert methods["app"]["scale_cpu"]["alpha"] == 0.05
    shown = run(capsys, "embed", "--list")
    for entry in methods.values():
        assert all(entry[part] and entry[part] in shown for part in ("title", "paper", "cost"))
        assert all(f"{name}=" in shown for name in entry["defaults"])
    assert "ft" in {entry["name"] for entry in document(capsys, "attack", "--list")}
    assert "smoke" in document(capsys, "bench", "list")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_ends_in_examples(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert main([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert f"indelible {command}" in text.split("examples:")[1]


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_parse(command: str) -> None:
    examples = command_table()["commands"][command]["examples"]
    assert len(examples) > 1
    for line in examples:
        for typed in line.split("&&"):
            words = shlex.split(typed, comments=True)
            words = words[words.index("indelible") + 1 :]
            assert words[0] in {command, "verify"}
            assert parser().parse_args(words).command == words[0]


def test_without_arguments_there_is_a_guide(capsys: pytest.CaptureFixture[str]) -> None:
    """Five commands in order; each is one that the parser accepts."""
    text = run(capsys)
    shown = [line.split("  ")[1] for line in text.splitlines() if line.startswith("  indelible ")]
    assert [line.split()[1] for line in shown] == ["demo", "embed", "attack", "verify", "report"]
    for line in shown:
        assert parser().parse_args(line.split()[1:]).command == line.split()[1]
    assert "docs/" in text


class TestBadInput:
    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (["embed"], "--out"),
            (["embed", "--out", "x", "--method", "ap"], "Did you mean 'app'?"),
            (["embed", "--out", "x", "--model", "resnet-19"], "resnet-18"),
            (["embed", "--out", "x", "--data", "cifra10"], "cifar10"),
            (["embed", "--out", "x", "--scale", "gpu"], "cpu, paper"),
            (["embed", "--out", "x", "--set", "eps"], "name=value"),
            (["embed", "--out", "x", "--set", "epsilon=1"], "eps"),
            (["embed", "--out", "x", "--train", "epoch=1"], "epochs"),
            (
                ["embed", "--out", "x", "--set", "epochs=1"],
                "'epochs' is a setting of the training. Give it as --train epochs=1",
            ),
            (["embed", "--out", "x", "--train", "alpha=0.1"], "the method app. Give it as --set alpha=0.1"),
            (["embed", "--out", "x", "--set", "eps=abc"], "'eps' must be a finite number, got 'abc'"),
            (["embed", "--out", "x", "--set", "rows=2.5"], "must be a whole number"),
            (["embed", "--out", "x", "--set", "clean_bn=1"], "must be true or false"),
            (["embed", "--out", "x", "--set", "cpu_settings=1"], "unknown setting"),
            (["embed", "--out", "x", "--train", "epochs=abc"], "must be a whole number"),
            (["embed", "--out", "x", "--train", "epochs=1.5"], "must be a whole number"),
            (["embed", "--out", "x", "--train", "schedule=zigzag"], "one-cycle"),
            (["embed", "--out", "x", "--kind", "smell"], "content, noise, plain, unrelated"),
            (["embed", "--out", "x", "--target", "10"], "0..9"),
            (["embed", "--out", "x", "--device", "tpu"], "cuda"),
            (["embed", "--out", "x", "--threads", "0"], "positive"),
            (["embed", "--out", "x", "--attacker", "1.5"], "0.2"),
            (["embed", "--out", "x", "--start", "trained"], "belong together"),
            (["embed", "--out", "x", "--start", "half"], "scratch, trained"),
            (["embed", "--out", "x", "--start", "trained", "--weights", "nowhere.safetensors"], "does not exist"),
            (["attack"], "Name the run"),
            (["attack", "nowhere"], "there is no run nowhere"),
            (["verify", "nowhere"], "there is no run nowhere"),
            (["verify"], "name a run"),
            (["verify", "--suspect", "m.onnx", "--key", "k"], "name a run"),
            (["demo", "--workers", "-1"], "--workers must be at least 1, got -1"),
            (["demo", "--workers", "0"], "--workers must be at least 1, got 0"),
            (["evidence", "commit", "nowhere", "--out", "c"], "there is no run nowhere"),
            (["evidence", "timestamp", "nowhere"], "holds no commitment"),
            (["evidence", "check", "b", "--roots", "none.pem"], "cannot read none.pem"),
            (["evidence", "check", "b", "--key", "k"], "--key needs --data"),
            (["evidence", "sign", "nowhere", "--key", "ec.pem"], "there is no"),
            (["key", "show", "nowhere"], "not a key"),
            (["key", "create", "k"], "--shape"),
            (["bench", "run", "everything"], "smoke"),
            (["demo", "--seeds", "0"], "at least 1"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else None,
    )
    def test_one_line_and_exit_code_two(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str],
        says: str,
    ) -> None:  # fmt: skip
        monkeypatch.chdir(tmp_path)
        assert says in run(capsys, *words, code=2)

    @pytest.mark.parametrize("words", [["wash"], ["embed", "--frobnicate"], ["evidence"], ["embed", "--seed", "x"]])
    def test_usage(self, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
        assert main(words) == 2
        assert capsys.readouterr().err.count("\n") == 1

    def test_a_finished_run_is_not_overwritten(self, capsys: pytest.CaptureFixture[str], embedded: Path) -> None:
        before = {path: path.read_bytes() for path in embedded.iterdir() if path.is_file()}
        assert "finished run already" in run(capsys, "embed", "--out", embedded, code=2)
        assert {path: path.read_bytes() for path in embedded.iterdir() if path.is_file()} == before

    def test_two_commands_do_not_work_on_one_folder(
        self, capsys: pytest.CaptureFixture[str], embedded: Path, data: Path, tmp_path: Path
    ) -> None:
        out = tmp_path / "out"
        embed = ["embed", "--data", data, "--model", "tests.conftest:TinyNet", "--out", out]
        with working_on(out):
            assert f"another command works on {out}" in run(capsys, *embed, code=2)
            assert f"another command works on {out}" in run(capsys, "attack", embedded, "--out", out, code=2)
            assert [path.name for path in out.iterdir()] == [".lock"]
        assert not out.exists()

    @pytest.mark.parametrize("recipe", ["light", "strong"])
    def test_a_recipe_that_a_method_does_not_have_is_refused(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path, recipe: str
    ) -> None:
        words = ["embed", "--method", "vanilla", "--recipe", recipe, "--out", tmp_path / "out"]
        assert (
            f"the method 'vanilla' has no recipe '{recipe}'. Leave the recipe out, or use a method that has it: app."
        ) in run(capsys, *words, code=2)
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize("name", ["run.json", "model.safetensors", "split.safetensors", "key/key.json"])
    @pytest.mark.parametrize("how", ["truncated", "empty", "noise", "missing"])
    def test_damaged_runs(
        self, capsys: pytest.CaptureFixture[str], embedded: Path, tmp_path: Path, name: str, how: str
    ) -> None:
        import shutil

        copy = tmp_path / "copy"
        shutil.copytree(embedded, copy)
        content = (copy / name).read_bytes()
        if how == "missing":
            (copy / name).unlink()
        else:
            (copy / name).write_bytes(
                {"truncated": content[: len(content) // 2], "empty": b"", "noise": b"\x93" * 64}[how]
            )
        said = run(capsys, "attack", copy, "--out", tmp_path / "out", "--set", "epochs=1", code=2)
        if how == "missing":
            gone = {
                "run.json": "copy holds no finished run",
                "key/key.json": "copy/key is not a key: it has no key.json",
            }
            assert gone.get(name, f"copy/{name} does not exist") in said
        else:
            what = "readable JSON" if name.endswith("json") else "a whole safetensors file"
            assert f"copy/{name} is not {what}" in said
        assert not (tmp_path / "out" / "run.json").exists()

    def test_nan_weights(self, capsys: pytest.CaptureFixture[str], embedded: Path, tmp_path: Path) -> None:
        import shutil

        from indelible.base.files import read_tensors, write_tensors

        copy = tmp_path / "copy"
        shutil.copytree(embedded, copy)
        tensors, _ = read_tensors(copy / "model.safetensors")
        tensors["head.bias"][0] = float("nan")
        write_tensors(copy / "model.safetensors", tensors)
        assert "head.bias" in run(capsys, "verify", copy, code=2)

    def test_a_key_of_another_shape(self, capsys: pytest.CaptureFixture[str], embedded: Path, tmp_path: Path) -> None:
        Key.create(kind="noise", classes=10, shape=(1, 28, 28)).save(tmp_path / "key")
        assert "made for 10 classes" in run(capsys, "verify", embedded, "--key", tmp_path / "key", code=2)

    def test_labels_out_of_range_and_empty_sets(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        train = stripes(40)
        for name, labels, images, says in (
            ("negative", -1, 40, "got -1. Check the class list, or number the labels from 0"),
            ("empty", 0, 0, "the data set 'empty' is empty"),
        ):
            path = tmp_path / f"{name}.npz"
            np.savez(path, images=train.images[:images].numpy(), labels=np.full(images, labels))
            assert says in run(capsys, "embed", "--data", path, "--out", tmp_path / "out", code=2)


def test_keys(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    made = document(capsys, "key", "create", tmp_path / "k", "--classes", "10", "--shape", "1", "28", "28")
    shown = document(capsys, "key", "show", tmp_path / "k")
    assert shown["digest"] == made["digest"]
    assert shown["scheme"] == "derived"
    secret = (tmp_path / "k" / "secret.key").read_text().strip()
    assert secret not in run(capsys, "key", "show", tmp_path / "k")
    run(capsys, "key", "picture", tmp_path / "k", "--data", "fashion-mini", "--out", tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    literal = document(
        capsys, "key", "create", tmp_path / "l", "--classes", "10", "--shape", "3", "32", "32", "--scheme", "paper"
    )
    assert literal["target"] == 0


def rows_of(run: Path) -> int:
    """Return how many epochs the history of a run has."""
    path = run / "history.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.mark.slow
def test_ctrl_c_ends_with_130_and_the_same_command_goes_on(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = [
        sys.executable, "-m", "indelible", "embed", "--data", str(data), "--model", "tests.conftest:TinyNet", "--out",
        str(out), *QUICK, "--train", "epochs=400",
    ]  # fmt: skip
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert until(lambda: rows_of(out) > 1 or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert err.strip().splitlines()[-1].startswith("indelible: interrupted")
    assert (out / CHECKPOINT).exists()
    assert not (out / "run.json").exists()
    assert (out / "key" / "key.json").exists()
    assert not list(out.glob(".*.part"))
    rows = rows_of(out)
    again = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert until(lambda: rows_of(out) > rows or again.poll() is not None)
    again.send_signal(signal.SIGINT)
    assert again.wait(PATIENCE) == 130
    epochs = [json.loads(line)["epoch"] for line in (out / "history.jsonl").read_text().splitlines()]
    assert epochs == list(range(1, len(epochs) + 1))
    assert len(epochs) > rows


def test_broken_pipe(data: Path) -> None:
    script = f"{sys.executable} -m indelible embed --list | head -n 1"
    found = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=os.environ, check=False)
    assert found.returncode == 0
    assert "Traceback" not in found.stderr


def test_a_closed_pipe_is_no_positive_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(_: object) -> int:
        raise BrokenPipeError

    monkeypatch.setattr("indelible.cli.doctor.run", closed)
    monkeypatch.setattr("os.dup2", lambda *_: None)
    assert main(["doctor"]) == 141


def test_a_key_that_a_refused_command_left_is_not_used_for_other_options(
    capsys: pytest.CaptureFixture[str], data: Path, tmp_path: Path
) -> None:
    words = ["embed", "--data", data, "--model", "tests.conftest:TinyNet", "--out", tmp_path / "run", "--quiet"]
    assert "one-cycle" in run(capsys, *words, "--train", "schedule=zigzag", code=2)  # refused after the key is made
    said = run(capsys, *words, "--target", "3", *QUICK, code=2)
    assert "holds a key with other settings than these options" in said
    assert f"delete {tmp_path / 'run'}" in said
