"""What the benchmarks ask is what their words say."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ASK = """
from tests.bench.peers.run import graphs
from tests.bench.serve import LABEL, MATCH, digits
sizes = {graph["num_nodes"] for graph in digits()}
assert sizes == {len(graph["features"]) for graph in graphs()}
print(min(sizes), max(sizes), LABEL, MATCH)
"""


def test_small_graphs_have_at_most_75_nodes_and_models_are_named():
    done = subprocess.run(
        [sys.executable, "-c", ASK], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == [
        "51",
        "75",
        "/v1/graph-label?model=mnist-superpixels",
        "/v1/correspondence?model=bodies",
    ]
