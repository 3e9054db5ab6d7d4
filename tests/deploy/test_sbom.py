"""The list of parts: Python's, Debian's and the page's, valid CycloneDX."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from deploy_files import DOCKER, ROOT

STATUS = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u10
Description: GNU C Library: Shared libraries
 Contains the standard libraries.

Package: adduser
Status: deinstall ok config-files
Architecture: all
Version: 3.134

Package: libstdc++6
Status: install ok installed
Architecture: amd64
Version: 12.2.0-14+deb12u1
"""
PYTHON = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.6",
    "components": [{"type": "library", "name": "torch", "version": "2.13.0"}],
}


def list_parts(root: Path) -> Any:
    (root / "etc").mkdir()
    (root / "etc/os-release").write_text("ID=debian\nVERSION_CODENAME=bookworm\n")
    (root / "var/lib/dpkg").mkdir(parents=True)
    (root / "var/lib/dpkg/status").write_text(STATUS)
    package = ROOT / "service" / "viewer" / "package.json"
    done = subprocess.run(
        [sys.executable, str(DOCKER / "sbom.py"), str(root), str(package)],
        input=json.dumps(PYTHON),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_every_kind_of_part_is_listed_and_only_what_is_shipped(tmp_path: Path) -> None:
    parts = {part["name"]: part for part in list_parts(tmp_path)["components"]}
    assert {"torch", "libc6", "libstdc++6", "three"} <= parts.keys()
    assert not {"adduser", "esbuild"} & parts.keys()
    purl = "pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64&distro=bookworm"
    assert parts["libc6"]["purl"] == purl
    assert parts["libstdc++6"]["purl"].startswith("pkg:deb/debian/libstdc%2B%2B6@12.2.0")
    assert parts["three"]["purl"] == f"pkg:npm/three@{parts['three']['version']}"


def test_the_list_is_valid(tmp_path: Path) -> None:
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(json.dumps(list_parts(tmp_path))) is None
