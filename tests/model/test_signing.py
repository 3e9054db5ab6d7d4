import base64
import json
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from typer.testing import CliRunner

from model.bundle import open_bundle
from model.errors import BundleError
from model.export import export_bundle
from model.signing import check_public_key, public_key, read_private_key, sign, sign_bundle
from service.cli import app
from tests.toys import make_toy_bundles, make_toy_zoo


def write_key(path: Path, key=None):
    key = key or ed25519.Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(pem)
    return path


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make_toy_bundles(tmp_path / "bundles", "toy-nodes", with_onnx=False)["toy-nodes"]


@pytest.fixture
def key(tmp_path: Path):
    return read_private_key(write_key(tmp_path / "key.pem"))


def test_a_bundle_signed_by_a_trusted_key_opens(bundle, key):
    sign_bundle(bundle, key)
    assert open_bundle(bundle, [public_key(key)]).manifest.name == "toy-nodes"
    assert open_bundle(bundle).manifest.name == "toy-nodes"  # where nobody asks, nobody checks


def test_an_unsigned_bundle_is_refused_when_keys_are_trusted(bundle, key):
    with pytest.raises(BundleError, match="is not signed, and only signed bundles are served"):
        open_bundle(bundle, [public_key(key)])


def test_a_bundle_signed_by_another_key_is_refused(bundle, key):
    sign_bundle(bundle, ed25519.Ed25519PrivateKey.generate())
    with pytest.raises(BundleError, match="which is not a trusted key"):
        open_bundle(bundle, [public_key(key)])


def test_a_signature_does_not_cover_a_changed_manifest(bundle, key):
    sign_bundle(bundle, key)
    path = bundle / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"description": "better"}))
    with pytest.raises(BundleError, match="does not match the manifest"):
        open_bundle(bundle, [public_key(key)])


def test_a_changed_file_is_refused_though_the_manifest_is_signed(bundle, key):
    sign_bundle(bundle, key)
    (bundle / "sample.json").write_text("{}")
    with pytest.raises(BundleError, match=r"sample.json was altered"):
        open_bundle(bundle, [public_key(key)])


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "is not a signature"),
        (b"\xff\xfe", "is not a signature"),
        (b"ed25519 KEY", "want 'ed25519 <public key> <signature>'"),
        (b"rsa KEY c2ln", "want 'ed25519 <public key> <signature>'"),
        (b"ed25519 KEY !!!", "does not match the manifest"),
        (b"ed25519 KEY c2ln", "does not match the manifest"),
    ],
)
def test_what_is_no_signature_is_refused(bundle, key, content, message):
    content = content.replace(b"KEY", public_key(key).encode())
    (bundle / "manifest.sig").write_bytes(content)
    with pytest.raises(BundleError, match=message):
        open_bundle(bundle, [public_key(key)])


def test_a_signature_made_for_another_purpose_does_not_fit(bundle, key):
    manifest = (bundle / "manifest.json").read_bytes()
    bare = base64.b64encode(key.sign(manifest)).decode()
    (bundle / "manifest.sig").write_text(f"ed25519 {public_key(key)} {bare}\n")
    with pytest.raises(BundleError, match="does not match the manifest"):
        open_bundle(bundle, [public_key(key)])
    assert sign(manifest, key).startswith(b"ed25519 ")


def test_a_bad_bundle_is_not_signed(bundle, key):
    (bundle / "model.ts").write_bytes(b"else")
    with pytest.raises(BundleError, match="was altered"):
        sign_bundle(bundle, key)
    assert not (bundle / "manifest.sig").exists()


@pytest.mark.parametrize("text", ["", "abc", "AAAA", "not base64 at all", "é" * 44])
def test_a_trusted_key_must_be_one(text):
    with pytest.raises(BundleError, match="32 bytes in base64"):
        check_public_key(text)


def test_keys_that_cannot_sign_are_named_without_their_content(tmp_path):
    with pytest.raises(BundleError, match="openssl genpkey -algorithm ed25519"):
        read_private_key(tmp_path / "none.pem")
    (tmp_path / "text.pem").write_text("my secret words")
    with pytest.raises(BundleError, match="is not a private key") as caught:
        read_private_key(tmp_path / "text.pem")
    assert "secret" not in str(caught.value)
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    with pytest.raises(BundleError, match="must be an Ed25519 key"):
        read_private_key(write_key(tmp_path / "rsa.pem", other))


def test_the_commands_sign_on_export_and_afterwards(tmp_path):
    path = tmp_path / "key.pem"
    made = subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", path])
    assert made.returncode == 0
    zoo = make_toy_zoo(tmp_path / "zoo", "toy-nodes")
    plain = export_bundle(zoo / "toy-nodes", tmp_path / "plain", with_onnx=False)
    done = CliRunner().invoke(app, ["sign", str(plain), "--key", str(path)])
    assert done.exit_code == 0, done.output
    trusted = public_key(read_private_key(path))
    assert trusted in done.output
    open_bundle(plain, [trusted])
    arguments = [str(zoo / "toy-nodes"), "--out", str(tmp_path / "out"), "--sign", str(path)]
    done = CliRunner().invoke(app, ["export", *arguments])
    assert done.exit_code == 0, done.output
    open_bundle(tmp_path / "out" / "toy-nodes" / "1", [trusted])
