"""Add Debian's packages and the page's to a CycloneDX list of Python's, on standard input.

usage: sbom.py ROOT PACKAGE_JSON < python.cdx.json > all.cdx.json
ROOT is the file system that is shipped.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote


def component(name: str, version: str, purl: str, more: str = "") -> dict[str, str]:
    purl = f"pkg:{purl}@{quote(version, safe='')}{more}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def debian(root: Path) -> list[dict[str, str]]:
    """What dpkg says is installed."""
    release = (root / "etc/os-release").read_text()
    (suite,) = re.findall(r"^VERSION_CODENAME=(\w+)$", release, flags=re.M)
    found = []
    for paragraph in (root / "var/lib/dpkg/status").read_text().split("\n\n"):
        fields = dict(re.findall(r"^([\w-]+): (.*)$", paragraph, flags=re.M))
        if fields.get("Status", "").endswith(" installed"):
            name, version = fields["Package"], fields["Version"]
            more = f"?arch={fields['Architecture']}&distro={suite}"
            found.append(component(name, version, f"deb/debian/{quote(name)}", more))
    return found


def page(package: dict[str, Any]) -> list[dict[str, str]]:
    """What is bundled into the viewer; its tools stay behind."""
    pinned = package["dependencies"].items()
    return [component(name, version, f"npm/{quote(name)}") for name, version in pinned]


def main(root: str, package: str) -> None:
    parts = json.load(sys.stdin)
    parts["components"] += debian(Path(root)) + page(json.loads(Path(package).read_text()))
    json.dump(parts, sys.stdout, indent=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
