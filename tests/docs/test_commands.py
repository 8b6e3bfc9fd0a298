"""The commands of the pages run, as typed, on a tiny run with every training capped at two steps.

Every line of every console block is one of three:

- it is run here, after the commands in ``FIRST``, with ``SMALLER`` words added and ``REPLACED`` ones changed;
- it is run as typed by the test that ``RUN_BY`` names;
- it is in ``NOT_RUN`` with the reason.

A line that is in none of them is run. A line that a list names and no page has fails a test. All lines are parsed in
``test_docs.py``. Output that a page shows below a command is compared, where ``...`` stands for any text.
"""

import contextlib
import csv
import doctest
import http.server
import json
import re
import shlex
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import indelible
from indelible.attacks import ATTACKS
from indelible.cli import main
from indelible.data.sources import SOURCES
from indelible.data.sources.source import Rows, Source
from tests.conftest import stripes
from tests.docs.test_docs import ADDRESS, PAGES, ROOT, blocks, short
from tests.evidence.authority import OPENSSL, Authority
from tests.verification.suspects.servers import serving_run

__all__ = ["short"]  # the fixture that caps every training run
TINY = ["--data", "fashion-mini?train=400&test=60", "--train", "epochs=1", "--device", "cpu"]
NETWORK, HOURS, MACHINES = "needs a network", "takes hours", "needs several devices or machines"
TORCHRUN = "two processes: tests/train/test_torchrun.py"
ENVIRONMENT = "makes or needs an environment of its own; CI runs it"
FRONTIER = "on made records: tests/experiments/test_frontier.py"
NOT_RUN = {
    "python -m pip install .": NETWORK,
    "python -m pip install '.[plots,evidence]'": NETWORK,
    "pip install 'indelible[ray]'": NETWORK,
    "pip install indelible-companions": NETWORK,
    "pip install 'indelible-companions[analysis]'": NETWORK,
    "indelible data fetch cifar10": NETWORK,
    "indelible data fetch cifar10 --from binary": NETWORK,
    "indelible data fetch cifar100 --from '~/downloads/cifar-100-binary.tar.gz'": "needs the archive of CIFAR-100",
    "indelible bench run cifar10-cpu": HOURS,
    "indelible bench run app-fast-cpu --workers 2": HOURS,
    "indelible bench run price-cpu --from results/price-cpu.json --out results/price-cpu.json": HOURS,
    "indelible bench run cifar10-paper --engine ray --address auto --gpus 0.5 --store /shared/bench": MACHINES,
    "indelible bench run cifar10-paper --engine ray --address auto --gpus 0.5 --store s3://bucket/bench": MACHINES,
    "indelible report bench": "needs a store of several cells; tests/cli/test_report.py makes one",
    "torchrun --nproc-per-node 4 -m indelible embed --out runs/four": f"{MACHINES}; {TORCHRUN}",
    "torchrun --nproc-per-node 4 -m indelible attack runs/four": f"{MACHINES}; {TORCHRUN}",
    "torchrun --nproc-per-node 4 own.py": f"{MACHINES}; {TORCHRUN}",
    "torchrun --nnodes 2 --nproc-per-node 4 --rdzv-backend c10d --rdzv-endpoint first:29500 -m indelible embed --out "
    "/shared/runs/eight": MACHINES,
    "python experiments/serve.py runs/app-ft --port 8080": "serves until it is stopped; asked as a server below",
    "python experiments/serve.py runs/app-ft --port 8080 --answer label": "the same",
    "python experiments/speed.py --parts app,memory --networks resnet-18 --rounds 3": HOURS,
    "python experiments/speed.py --out results/speed.json --table speed.md": HOURS,
    "python experiments/speed.py --check --parts app --networks resnet-mini --again": HOURS,
    "python experiments/frontier.py results/app-fast-cpu.json --attack ft --kind content,unrelated": FRONTIER,
    "make bench": HOURS,
    "make bench-check": HOURS,
    **{f"make {target}": ENVIRONMENT for target in ("test", "test-all", "lint", "format", "docs", "demo", "help")},
}
PLUGINS = "tests/base/test_plugins.py"
RUN_BY = {
    "indelible embed --method vanilla --data 'fashion-mini?train=1000&test=200' --train epochs=1 --out runs/mine":
        PLUGINS,
    "indelible attack runs/mine --method my_attacks:Shake --set noise=0.2": PLUGINS,
    "indelible attack runs/mine --method shake": PLUGINS,
    "indelible bench run shake.toml --workers 1": PLUGINS,
}  # fmt: skip
COMMIT = "indelible evidence commit runs/app --out commitment --owner 'Example Ltd'"
STAMP = "indelible evidence timestamp commitment --url https://tsa.example.org --roots authority.pem"
CLAIM = (
    "indelible evidence claim commitment runs/app --suspect http://127.0.0.1:8080/v2/models/model --input dtype=uint8 "
    "--challenge 'auditor 7319' --out bundle"
)
PLAIN = "indelible embed --start trained --weights runs/plain --out runs/protected"
FIRST = {
    STAMP: [COMMIT],
    CLAIM: [COMMIT],
    "indelible analyze draw analysis/landscape": [
        "indelible analyze landscape runs/vanilla runs/app --out analysis/landscape"
    ],
    "indelible analyze curves runs/app-bnp --over u": ["indelible attack runs/app --method bnp"],
    "indelible analyze curves runs/app-clp --over u": ["indelible attack runs/app --method clp"],
    "indelible analyze curves runs/app-magnitude --over share": ["indelible attack runs/app --method magnitude"],
    "indelible analyze curves runs/app-quantise --over weight_bits": ["indelible attack runs/app --method quantise"],
    "indelible analyze curves runs/app-weight-noise --over sigma": ["indelible attack runs/app --method weight-noise"],
    "indelible report runs --analysis analysis": ["indelible analyze samples runs/app"],
    "indelible evidence check bundle --roots authority.pem --challenge 'auditor 7319'": [COMMIT, STAMP, CLAIM],
    "indelible evidence verify-model runs/app --public-key ec-pub.pem": [
        "indelible evidence sign runs/app --key ec.pem"
    ],
    "indelible verify runs/keyed": ["indelible embed --labels keyed --count 100 --out runs/keyed"],
    "indelible verify runs/rose": ["indelible embed --method rose --out runs/rose"],
    "indelible verify runs/printed": [
        "indelible embed --method cae --start trained --weights runs/plain --out runs/printed"
    ],
}
FIRST["indelible evidence show bundle --html page.html --roots authority.pem --challenge 'auditor 7319'"] = FIRST[
    "indelible evidence check bundle --roots authority.pem --challenge 'auditor 7319'"
]
SMALLER = {
    r"embed (?!.*--data)(?!.*--start)": "--data 'fashion-mini?train=400&test=60'",
    r"--data cifar10": "--train batch_size=40",
    r"--method cae": "--set threshold=0 --set eps=0.9 --set steps=2 --set candidates=60",
    r"analyze landscape": "--set steps=5 --set images=40 --set marked=20 --set statistics=40",
    r"analyze tsne": "--set images=40 --set marked=40",
}
REPLACED = {"carriers 200": "carriers 40", "--rate 50": "--rate 5000", "--model resnet-18": "--model resnet-mini"}
LEFT_OVER = {
    r"attack runs/app$": "runs/app-ft", r"attack runs/app --(all|scale|protocol)": "runs/app-ft",
    r"embed --out runs/app$": "runs/app",
}  # fmt: skip
ONE_CLASS = r"analyze tsne|--procedure decoys"  # no questions for a codebook: they need a key with one class
# A tiny model is NOT SHOWN, and a claim of it does not hold: the exit code is 1; of all other commands 0.
NEGATIVE = r"^indelible (verify (?!--plan)(?!.*--export)|evidence (claim|check|show))"


def lines() -> Iterator[tuple[str, str]]:
    """Yield each command of the pages without its comment, and the output that is shown below it."""
    for page in PAGES:
        for code in blocks(page, "console"):
            for part in re.split(r"^\$ ", code.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
                typed, _, output = part.partition("\n")
                yield shlex.join(shlex.split(typed, comments=True)), output


COMMANDS = dict(sorted(lines(), key=lambda line: (line[0], len(line[1]))))  # output wins over none
RUN = [command for command in COMMANDS if command not in NOT_RUN and command not in RUN_BY]
QUICK = r"^indelible( --\S+)?$|--list$|(bench|data) list|data info|--plan(?! --table)|--reported(?! all)"


def params() -> list[Any]:
    return [pytest.param(line, marks=() if re.search(QUICK, line) else pytest.mark.slow, id=line) for line in RUN]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the pages take for granted: runs, weights, keys, records, certificates."""
    folder = tmp_path_factory.mktemp("home")
    runs = folder / "runs"
    for name, words in (("app", []), ("single", ["--target", "0"])):
        assert main(["embed", "--method", "vanilla", *TINY, *words, "--out", str(runs / name)]) == 0
        assert main(["attack", str(runs / name), "--set", "epochs=1", "--device", "cpu"]) == 0
    for name in ("vanilla", "plain"):
        shutil.copytree(runs / "app", runs / name)
    shutil.copytree(runs / "app" / "key", folder / "my-key")
    shutil.copyfile(runs / "app-ft" / "model.safetensors", folder / "stolen.safetensors")
    torch.save(load_file(folder / "stolen.safetensors"), folder / "stolen.pt")
    (folder / "results").mkdir()
    for name in ("app-fast-cpu", "cifar10-cpu"):
        shutil.copyfile(ROOT / "results" / f"{name}.json", folder / "results" / f"{name}.json")
    network = indelible.build_model("resnet-mini", classes=10, shape=(3, 32, 32), seed=0)
    save_file(network.state_dict(), folder / "net.safetensors")
    return folder


@pytest.fixture
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few stripes for the sets that are fetched; attacks that an example registers are forgotten afterwards."""
    monkeypatch.setattr(ATTACKS, "_entries", dict(ATTACKS._entries))  # an example may register its own

    def rows(name: str, count: int, seed: int) -> Rows:
        channels, size, _ = SOURCES[name].shape
        data = stripes(count, 10, seed=seed)
        return data.images[:, :channels, :size, :size].numpy(), data.labels.numpy()

    def fetched(name: str) -> Source:
        pair = rows(name, 200, 0), rows(name, 60, 1)
        return replace(SOURCES[name], embedded=Path(), rows=lambda _: pair)

    made = {name: fetched(name) for name in ("cifar10", "mnist")}
    monkeypatch.setattr(SOURCES, "_entries", {**SOURCES._entries, **made})


@contextlib.contextmanager
def listening(answer: Callable[[bytes], bytes]) -> Iterator[str]:
    """Answer every POST; yield the address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = answer(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Type", "application/timestamp-reply")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()


def scores(request: bytes) -> bytes:
    """Answer as the service of the page of suspects: scores of the first class for every image."""
    images = json.loads(request)["instances"]
    return json.dumps({"predictions": [{"scores": [1.0] + [0.0] * 9} for _ in images]}).encode()


@contextlib.contextmanager
def places(folder: Path, command: str) -> Iterator[str]:
    """Yield a command whose addresses are served and whose files are there."""
    with contextlib.ExitStack() as stack:
        if ADDRESS.search(command):
            command = ADDRESS.sub(stack.enter_context(serving_run(folder / "runs" / "app")), command)
        if "https://tsa.example.org" in command:
            if OPENSSL is None:
                pytest.skip("openssl is not installed")
            authority = Authority(folder / "authority")
            (folder / "authority.pem").write_bytes(authority.roots)
            command = command.replace("https://tsa.example.org", stack.enter_context(listening(authority.answer)))
        if "service.json" in command:
            template = json.loads(blocks(ROOT / "docs" / "suspects.md", "json")[0])
            template["url"] = stack.enter_context(listening(scores))
            (folder / "service.json").write_text(json.dumps(template))
        yield command


def answers(folder: Path, words: list[str]) -> None:
    """Do what the page says: let somebody else answer the exported questions, in a table."""
    assert main(["verify", "runs/app", *words, "--export", "asked.npz"]) == 0
    with np.load(folder / "asked.npz") as asked:
        digests = asked["digests"]
    with (folder / "answers.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("digest", "label"), *((str(digest), 0) for digest in digests)])


def zeros_onnx(path: Path) -> None:
    """Write a graph that answers the first class to every image of the tiny run."""
    onnx = pytest.importorskip("onnx")
    make, types = onnx.helper, onnx.TensorProto
    nodes = [make.make_node("Flatten", ["x"], ["f"]), make.make_node("MatMul", ["f", "w"], ["scores"])]
    weights = onnx.numpy_helper.from_array(np.zeros((28 * 28, 10), dtype=np.float32), "w")
    graph = make.make_graph(
        nodes, "zeros", [make.make_tensor_value_info("x", types.FLOAT, ["n", 1, 28, 28])],
        [make.make_tensor_value_info("scores", types.FLOAT, ["n", 10])], [weights],
    )  # fmt: skip
    made = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=9)
    path.write_bytes(made.SerializeToString())


def signing_keys(folder: Path) -> None:
    """Write the owner's pair of keys for model signing."""
    pytest.importorskip("model_signing")
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec

    private = ec.generate_private_key(ec.SECP256R1())
    (folder / "ec.pem").write_bytes(
        private.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    )
    public = private.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
    (folder / "ec-pub.pem").write_bytes(public)


def prepare(folder: Path, command: str) -> None:
    """Make the files of the reader that a command names."""
    if "answers.csv" in command:
        answers(folder, re.findall(r"--max-carriers|\d+", command))
    if "model.onnx" in command:
        zeros_onnx(folder / "model.onnx")
    if "ec.pem" in command:
        signing_keys(folder)
    if "noisy-ft" in command:
        code = blocks(ROOT / "CONTRIBUTING.md", "python")[0]
        exec(compile(code, "noisy_ft.py", "exec"), vars(ModuleType("noisy_ft")))  # noqa: S102 - our own page
    for pattern, name in LEFT_OVER.items():
        if re.search(pattern, command):
            shutil.rmtree(folder / name)
    if re.search(ONE_CLASS, command):
        for name in ("app", "app-ft"):
            shutil.rmtree(folder / "runs" / name)
            shutil.copytree(folder / "runs" / name.replace("app", "single"), folder / "runs" / name)
        shutil.rmtree(folder / "runs" / "vanilla")
        shutil.copytree(folder / "runs" / "single", folder / "runs" / "vanilla")


def typed(folder: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run one command of the pages in a folder; return its exit code."""
    for large, small in REPLACED.items():
        command = command.replace(large, small)
    prepare(folder, command)
    if "--all" in command:
        few = {name: ATTACKS[name] for name in ("ft", "clp", "quantise")}
        monkeypatch.setattr(ATTACKS, "_entries", few)
    more = [words for pattern, words in SMALLER.items() if re.search(pattern, command)]
    with places(folder, command) as here:
        return main(shlex.split(" ".join([here.removeprefix("indelible").strip(), *more])))


@pytest.mark.usefixtures("short", "_tiny")
@pytest.mark.parametrize("command", params())
def test_command_runs(
    command: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if not re.search(QUICK, command):
        shutil.copytree(request.getfixturevalue("home"), tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    for line in [*FIRST.get(command, ()), command]:
        capsys.readouterr()
        code = typed(tmp_path, line, monkeypatch)
        said = capsys.readouterr()
        assert code == (1 if re.search(NEGATIVE, line) else 0), said.err
    shown = COMMANDS[command]
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert not shown or doctest.OutputChecker().check_output(shown, said.out, flags), f"prints:\n{said.out}"


def test_every_line_is_run_or_has_a_reason() -> None:
    listed = [*NOT_RUN, *RUN_BY, *FIRST, *(line for before in FIRST.values() for line in before)]
    missing = {line for line in listed if line not in COMMANDS}
    assert not missing, f"listed, but on no page: {sorted(missing)}"
    assert not {*NOT_RUN} & {*RUN_BY}
    unknown = [line for line in RUN if not line.startswith("indelible")]
    assert not unknown, f"neither run nor in NOT_RUN: {unknown}"
    for test in set(RUN_BY.values()):
        assert (ROOT / test).is_file()


def test_additions_are_still_needed() -> None:
    for pattern in (*SMALLER, *REPLACED, *LEFT_OVER, ONE_CLASS):
        assert any(re.search(pattern, command) for command in RUN), f"no command needs {pattern}"
