"""What the checker gives is no evidence: what cannot be used is an error, never a bundle that does not hold.

And what of a bundle is evidence: what whoever holds the signing key can change, and that the check says so.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from indelible.base.errors import InputError
from indelible.cli import main
from indelible.cli.terminal import describe_check
from indelible.data.download import UnreachableError
from indelible.evidence import check_bundle, claim
from indelible.verification.suspects import ModuleSuspect
from tests.conftest import TinyNet, stripes
from tests.evidence.cases import Case


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """Return the one line of a command that ends with the exit code of bad input."""
    assert main([*map(str, words), "--quiet"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


class TestPlaces:
    def test_nothing_there(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(InputError, match=r"there is no bundle .*nowhere"):
            check_bundle(tmp_path / "nowhere")
        for action in ("check", "show"):
            said = refused(capsys, "evidence", action, tmp_path / "nowhere")
            assert "Give the folder that `indelible evidence claim` wrote" in said

    def test_an_archive_or_another_file(self, case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        shutil.make_archive(str(tmp_path / "b"), "zip", case.bundle)
        assert "is a zip archive. Unpack it" in refused(capsys, "evidence", "check", tmp_path / "b.zip")
        assert "is a file. Give the folder" in refused(capsys, "evidence", "check", case.bundle / "claim.json")

    def test_another_folder(self, case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert "holds a commitment, not a bundle" in refused(capsys, "evidence", "check", case.commitment)
        assert "is not a bundle" in refused(capsys, "evidence", "check", tmp_path)
        case.copy(tmp_path / "unpacked" / "bundle")
        said = refused(capsys, "evidence", "check", tmp_path / "unpacked")
        assert f"give {tmp_path / 'unpacked' / 'bundle'}" in said

    def test_a_bundle_with_a_file_missing_is_a_finding(self, case: Case, tmp_path: Path) -> None:
        for name in ("claim.json", "manifest.json", "queries.jsonl"):
            bundle = case.copy(tmp_path / name)
            (bundle / name).unlink()
            assert check_bundle(bundle).failed == "files"


class TestOptions:
    @pytest.mark.parametrize(
        "content", [b"", b"hello", b"-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----\n"]
    )
    def test_roots(self, case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes) -> None:
        (tmp_path / "roots.pem").write_bytes(content)
        said = refused(capsys, "evidence", "check", case.bundle, "--roots", tmp_path / "roots.pem")
        assert "(--roots) are not certificates in PEM" in said
        assert "openssl x509 -inform der" in said
        assert "cannot read" in refused(capsys, "evidence", "check", case.bundle, "--roots", tmp_path)

    @pytest.mark.parametrize("given", ["", "ab", "zz" * 32, "00" * 33])
    def test_public_key(self, case: Case, given: str) -> None:
        with pytest.raises(InputError, match="64 hexadecimal digits, got"):
            check_bundle(case.bundle, public_key=given)

    def test_a_suspect_that_does_not_answer(self, case: Case) -> None:
        class Down:
            def predict(self, images: torch.Tensor) -> torch.Tensor:
                raise UnreachableError("no answer")

        class Odd:
            def predict(self, images: torch.Tensor) -> torch.Tensor:
                return torch.full((len(images),), 9)

        odd: list[tuple[Any, str]] = [(Down(), "no answer"), (Odd(), "answered class 9")]
        for suspect, says in odd:
            with pytest.raises((UnreachableError, InputError), match=says):
                check_bundle(case.bundle, suspect=suspect)

    def test_carriers_that_cannot_be(self, case: Case) -> None:
        few = stripes(8)
        with pytest.raises(InputError, match=r"'stripes' has 6 images .*too few for 64 watermark samples"):
            check_bundle(case.bundle, key=case.key, carriers=few)

    def test_a_damaged_commitment_is_a_finding_also_with_a_suspect(self, case: Case, tmp_path: Path) -> None:
        bundle = case.copy(tmp_path / "b")
        (bundle / "commitment.json").write_bytes(b"{}")
        words = ["evidence", "check", bundle, "--suspect", tmp_path / "answers.csv", "--quiet"]
        assert main([str(word) for word in words]) == 1

    def test_a_claim_takes_a_suspect(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["evidence", "claim", "commitment", "run", "--out", "bundle"]) == 2
        assert "required: --suspect" in capsys.readouterr().err
        assert main(["evidence", "claim", "--help"]) == 0
        words = " ".join(capsys.readouterr().out.split())
        assert "predictions .csv, .jsonl (required)" in words
        assert "the run's own model" not in words

    def test_show_takes_what_check_takes(self, case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        images, labels = case.data.images.numpy(), case.data.labels.numpy()
        np.savez(tmp_path / "bars.npz", x_train=images[:8], y_train=labels[:8], x_test=images, y_test=labels)
        case.key.save(tmp_path / "key")
        torch.save(case.suspect.model.state_dict(), tmp_path / "model.pt")
        given = ["--key", tmp_path / "key", "--data", tmp_path / "bars.npz", "--suspect", tmp_path / "model.pt",
                 "--model", "tests.conftest:MarkReader", "--challenge", "dice 4 1 6"]  # fmt: skip
        if case.authority is not None:
            given += ["--roots", case.authority.folder / "root.pem"]
        for words in (["check"], ["show", "--html", tmp_path / "page.html"]):
            command = ["evidence", words[0], case.bundle, *words[1:], *given, "--json"]
            assert main([str(word) for word in command]) == 0
            found = json.loads(capsys.readouterr().out)
            assert [step["name"] for step in found["steps"]][-2:] == ["key", "suspect"]
            assert (found["derived"], found["dated"]) == (True, case.authority is not None)
            assert not any("You set no challenge" in caveat for caveat in found["caveats"])
        page = (tmp_path / "page.html").read_text(encoding="utf-8")
        assert "samples derived" in page
        assert ("The commitment existed on" in page) == (case.authority is not None)


class TestSentences:
    def test_positive(self, case: Case) -> None:
        checked = check_bundle(case.bundle, roots=case.roots)
        first, second = describe_check(checked).splitlines()[:2]
        assert first == "The evidence is complete and unchanged since it was signed: all 13 checks passed."
        assert second == (
            "The verdict in it is OWNED: the suspect is derived from a model that carries the committed watermark (a "
            "model that never saw the key gets this verdict with probability at most 5e-07)."
        )
        assert checked.to_json()["summary"] == [first, second]

    def test_negative(self, case: Case, tmp_path: Path) -> None:
        own = tmp_path / "commitment"
        shutil.copytree(case.commitment, own)
        torch.manual_seed(0)
        claim(own, case.key, case.data, ModuleSuspect(TinyNet().eval()), tmp_path / "b")
        first, second = describe_check(check_bundle(tmp_path / "b")).splitlines()[:2]
        assert first.startswith("The evidence is complete and unchanged")
        assert second == (
            "The verdict in it is NOT SHOWN: the test does not show that the suspect is derived from the committed "
            "model, nor that it is not."
        )

    def test_broken(self, case: Case, tmp_path: Path) -> None:
        bundle = case.copy(tmp_path / "b")
        (bundle / "claim.json").write_bytes(b"{}")
        text = describe_check(check_bundle(bundle))
        assert text.startswith(
            "The evidence does not pass the check: the step “manifest” fails.\nNo verdict follows from it.\n"
        )
        assert "OWNED" not in text

    def test_date(self, case: Case) -> None:
        if case.authority is None:
            pytest.skip("needs openssl")
        dated = describe_check(check_bundle(case.bundle, roots=case.roots))
        assert "\nDate of the commitment: at the latest 2" in dated
        assert "\nDate of the commitment: not established; the timestamp says 2" in describe_check(
            check_bundle(case.bundle)
        )


class TestWhatIsEvidence:
    def test_every_file_is_named(self, case: Case) -> None:
        for roots in (None, case.roots):
            checked = check_bundle(case.bundle, roots=roots)
            assert {one.name for one in checked.files} == {path.name for path in case.bundle.iterdir()}
            none = {one.name for one in checked.files if not one.evidence} - {"timestamp.tsr"}
            assert none == {"README.txt", "authority.pem"} & {path.name for path in case.bundle.iterdir()}
            date = [one.evidence for one in checked.files if one.name == "timestamp.tsr"]
            assert date == ([] if case.authority is None else [roots is not None])
        text = describe_check(checked)
        evidence, other = text.index("Files that are evidence:"), text.index("Files that are not:")
        assert evidence < text.index("  claim.json: ") < other < text.index("  README.txt: words for people")

    def test_what_is_none_can_be_changed_by_whoever_signs(self, case: Case, tmp_path: Path) -> None:
        """The check holds after each of these changes, so it must not call them evidence."""
        bundle = case.copy(tmp_path / "b")
        (bundle / "README.txt").write_text("Pay at once.")
        if case.authority is not None:
            from tests.evidence.authority import Authority

            with (bundle / "authority.pem").open("ab") as handle:
                handle.write(Authority(tmp_path / "other").roots)
            reply = bytearray((bundle / "timestamp.tsr").read_bytes())
            # The version of the wrapper, in front of the set of digest algorithms: the authority does not sign it.
            at = bytes(reply).index(b"\x02\x01\x03\x31") + 2
            reply[at] = 1
            (bundle / "timestamp.tsr").write_bytes(reply)
        assert check_bundle(bundle, roots=case.roots).failed == "manifest", "without the key, every byte is covered"
        case.sign(bundle)
        changed, whole = (check_bundle(one, roots=case.roots) for one in (bundle, case.bundle))
        assert changed.holds
        assert changed.stamp == whole.stamp, "time, authority and number are the same"
