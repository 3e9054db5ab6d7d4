"""Triton's own load generator, unchanged, against our Open Inference Protocol routes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from service_toys import picture

ANALYZER = shutil.which(os.environ.get("PERF_ANALYZER", "perf_analyzer"))


@pytest.mark.slow
@pytest.mark.skipif(
    ANALYZER is None,
    reason="perf_analyzer is not installed (in the wheel tritonclient==2.51.0; needs libb64-0d and "
    "libcudart.so.12); PERF_ANALYZER may name it",
)
def test_perf_analyzer_measures_the_service_and_reads_its_statistics(
    toy_bundles: Path, tmp_path: Path
) -> None:
    graph = picture()
    edges = np.array(graph["edges"]).T
    tensors = {"features": graph["features"], "positions": graph["positions"], "edge_index": edges}
    step = {
        name: {"content": np.ravel(value).tolist(), "shape": list(np.shape(value))}
        for name, value in tensors.items()
    }
    (tmp_path / "input.json").write_text(json.dumps({"data": [step]}))
    fields = {"models": str(toy_bundles), "port": 0, "threads": 1}
    code = (
        "import sys; from service.server import run; from service.settings import Settings; "
        f"sys.exit(run(Settings(**{fields!r})))"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as service:
        assert service.stderr is not None
        found = None
        while found is None:
            line = service.stderr.readline()
            assert line, "the service did not start"
            found = re.search(r"serving on http://(\S+:\d+)", line)
        done = subprocess.run(
            [
                str(ANALYZER), "-m", "mnist-superpixels", "-u", found[1], "-i", "http",
                "--input-data", str(tmp_path / "input.json"),
                "--concurrency-range", "4:4", "--request-count", "200",
            ],
            capture_output=True, text=True, timeout=200,
        )  # fmt: skip
        service.kill()
        service.communicate()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Successful request count: 200" in done.stdout  # by our statistics
    assert re.search(r"Execution count: \d+", done.stdout)
    assert "compute infer" in done.stdout
