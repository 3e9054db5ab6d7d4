"""The operator against torch-spline-conv, plain torch and the sgemm limit, all in one run.

Prints a table and writes a PNG. Times are the best of several runs, ratios are within this run.
`--clock cpu` counts processor time instead, for a machine that others use at the same time.
"""

import argparse
import json
import math
import platform
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import elu, linear

import ops
from ops import linear_top_k, reference, spline_conv, spline_plan

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1]))
from model.nets import SuperpixelNet  # noqa: E402
from model.serving import serve  # noqa: E402

PEER = "torch-spline-conv==1.2.2"
CORRESPONDENCE = [(1, 32), (32, 64), (64, 64), (64, 64), (64, 64), (64, 64)]
Case = dict[str, Any]


# ---- what is measured ----


def sphere(rings: int = 84, around: int = 82) -> tuple[Tensor, Tensor]:
    """A closed, bumpy triangle mesh of rings * around + 2 vertices (6,890: 41,328 edges)."""
    ring = torch.arange(rings).repeat_interleave(around)
    step = torch.arange(around).repeat(rings)
    theta = (ring + 1) / (rings + 1) * math.pi
    phi = (step + 0.5 * (ring % 2)) / around * 2 * math.pi
    r = 1 + 0.3 * torch.sin(3 * theta) * torch.cos(2 * phi) + 0.1 * torch.sin(7 * phi + 5 * theta)
    xyz = [r * theta.sin() * phi.cos(), r * theta.sin() * phi.sin(), 1.5 * r * theta.cos()]
    poles = torch.tensor([[0.0, 0.0, 1.5], [0.0, 0.0, -1.5]])
    vertices = torch.cat([torch.stack(xyz, 1), poles])
    faces = []
    top, bottom = rings * around, rings * around + 1
    for j in range(around):
        k = (j + 1) % around
        last = (rings - 1) * around
        faces += [(top, j, k), (bottom, last + k, last + j)]
        for i in range(rings - 1):
            a, b, c, d = i * around + j, i * around + k, (i + 1) * around + j, (i + 1) * around + k
            faces += [(a, c, d), (a, d, b)] if i % 2 else [(a, c, b), (b, c, d)]
    return vertices, torch.tensor(faces)


def mesh_graph(vertices: Tensor, faces: Tensor) -> tuple[Tensor, Tensor]:
    """Both directions of every edge, and Cartesian pseudo-coordinates in [0, 1]."""
    sides = torch.cat([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    edge_index = torch.unique(torch.cat([sides, sides.flip(1)]), dim=0).T.contiguous()
    offset = vertices[edge_index[0]] - vertices[edge_index[1]]
    return edge_index, (offset / (2 * offset.abs().max()) + 0.5).clamp(0, 1)


def make_case(edge_index: Tensor, pseudo: Tensor, num_nodes: int, kernel_size: list[int],
              channels: list[tuple[int, int]]) -> Case:  # fmt: skip
    K = math.prod(kernel_size)
    layers = [
        {
            "weight": torch.randn(K, a, b) / a**0.5,
            "root": torch.randn(a, b) / a**0.5,
            "bias": torch.randn(b) * 0.1,
        }
        for a, b in channels
    ]
    return {
        "edge_index": edge_index, "pseudo": pseudo, "x": torch.randn(num_nodes, channels[0][0]),
        "layers": layers, "kernel_size": kernel_size, "is_open": [1] * len(kernel_size),
        "degree": 1,
    }  # fmt: skip


def random_graph(edges: int, D: int) -> tuple[Tensor, Tensor, int]:
    nodes = max(1, edges // 6)
    near = torch.randint(-50, 51, (edges,))  # neighbours lie close in memory, as in most graphs
    target = torch.randint(0, nodes, (edges,))
    return torch.stack([(target + near) % nodes, target]), torch.rand(edges, D), nodes


def plan_of(case: Case, backward: bool = False) -> ops.Plan:
    return spline_plan(case["edge_index"], case["pseudo"], case["kernel_size"], case["is_open"],
                       case["degree"], case["x"].size(0), backward=backward)  # fmt: skip


def forward(case: Case, plan: ops.Plan | None = None) -> Tensor:
    plan = plan or plan_of(case)
    x = case["x"]
    for layer in case["layers"]:
        x = spline_conv(x, layer["weight"], plan, layer["root"], layer["bias"])
        if len(case["layers"]) > 1:
            x = elu(x)
    if "head" in case:
        x = elu(linear(x, *case["hidden"]))
        return linear_top_k(x, *case["head"], 1)[1].flatten()
    return x


def forward_backward(case: Case) -> Tensor:
    leaves = [case["x"], *case["layers"][0].values()]
    for leaf in leaves:
        leaf.requires_grad_().grad = None
    forward(case, plan_of(case, backward=True)).backward(case["grad"])
    return torch.cat([leaf.grad.flatten() for leaf in leaves])


def plain(case: Case) -> Tensor:
    layer = case["layers"][0]
    return reference.spline_conv(
        case["x"], case["edge_index"], case["pseudo"], layer["weight"], case["kernel_size"],
        case["is_open"], case["degree"], case["x"].size(0), True, layer["root"], layer["bias"],
    )  # fmt: skip


# ---- how it is measured ----


class Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self.threads, self.clock = options.threads, options.clock
        torch.set_num_threads(self.threads)
        self.tick = time.process_time if self.clock == "cpu" else time.perf_counter
        self.folder = tempfile.TemporaryDirectory()
        self.peer = None
        if not options.no_peer:
            python = options.peer_python or install_peer(Path(options.out) / "peer")
            self.peer = subprocess.Popen(
                [str(python), str(HERE / "peer.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        self.rows: list[tuple[str, str]] = []

    def time(self, run: Callable[[], Any], repeat: int = 10) -> float:
        run()
        best = math.inf
        for _ in range(repeat):
            start = self.tick()
            run()
            best = min(best, self.tick() - start)
        return best

    def ask_peer(
        self, case: Case, repeat: int = 1, backward: bool = False
    ) -> tuple[float, Tensor] | None:
        if self.peer is None or self.peer.stdin is None or self.peer.stdout is None:
            return None
        path = f"{self.folder.name}/case.pt"
        torch.save(case, path)
        ask = {"case": path, "repeat": repeat, "backward": backward,
               "threads": self.threads, "clock": self.clock}  # fmt: skip
        self.peer.stdin.write(json.dumps(ask) + "\n")
        self.peer.stdin.flush()
        return float(json.loads(self.peer.stdout.readline())), torch.load(path + ".out")

    def tell(self, what: str, said: str) -> None:
        self.rows.append((what, said))
        print(f"{what:<58} {said}", flush=True)


def install_peer(folder: Path) -> Path:
    """The peer in an environment of its own, over this one's torch."""
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        print(f"installing {PEER} from source, which takes minutes …", flush=True)
        venv.create(folder, with_pip=True)
        say = "import sysconfig; print(sysconfig.get_path('purelib'))"
        site = subprocess.run([python, "-c", say], capture_output=True, text=True, check=True)
        Path(site.stdout.strip(), "torch.pth").write_text(sysconfig.get_path("purelib"))
        pip = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
        for package in ("setuptools>=77", PEER):  # what came with the environment may be too old
            subprocess.run([*pip, package], check=True)
        (folder / "ready").touch()
    return python


def close(got: Tensor, want: Tensor) -> None:
    scale = float(want.abs().max())
    torch.testing.assert_close(got, want, rtol=0, atol=2e-4 * max(1.0, scale))


# ---- the questions ----


def compare_outputs(bench: Bench) -> None:
    if bench.peer is None:
        return
    cases = 0
    for D in (1, 2, 3, 4):
        for degree in (1, 2, 3):
            for is_open in (0, 1):
                edge_index, pseudo, nodes = random_graph(200, D)
                case = make_case(edge_index, pseudo, nodes, [degree + 2] * D, [(5, 6)])
                case |= {"degree": degree, "is_open": [is_open] * D}
                answer = bench.ask_peer(case)
                assert answer is not None
                close(forward(case), answer[1])
                cases += 1
    bench.tell("equal to torch-spline-conv (every d, degree, openness)", f"{cases} cases")


def sgemm_rate(bench: Bench) -> float:
    a, b, out = torch.randn(2048, 1024), torch.randn(1024, 2048), torch.empty(2048, 2048)
    return 2 * 2048 * 2048 * 1024 / bench.time(lambda: torch.mm(a, b, out=out))


def correspondence_net(edge_index: Tensor, pseudo: Tensor, nodes: int, k: int) -> Case:
    case = make_case(edge_index, pseudo, nodes, [k] * 3, CORRESPONDENCE)
    case["hidden"] = [torch.randn(256, 64) / 8, torch.zeros(256)]
    case["head"] = [torch.randn(6890, 256) / 16, torch.zeros(6890)]
    return case


def whole_net(bench: Bench, edge_index: Tensor, pseudo: Tensor, nodes: int) -> None:
    case = correspondence_net(edge_index, pseudo, nodes, 5)
    rows = plan_of(case).row_node.size(0)
    work = sum(2 * (rows + nodes) * a * b for a, b in CORRESPONDENCE)
    work += 2 * nodes * 256 * (64 + 6890)
    rate = sgemm_rate(bench)
    ours = bench.time(lambda: forward(case), 5)
    bench.tell("sgemm rate of torch", f"{rate / 1e9:.0f} GFLOP/s")
    bench.tell("correspondence net, ours", f"{ours * 1e3:.1f} ms (plan and argmax included)")
    bench.tell("correspondence net, sgemm limit", f"{work / rate * 1e3:.1f} ms")
    bench.tell("  ours / limit (at most 1.5)", f"{ours * rate / work:.2f}")
    if answer := bench.ask_peer(case):
        agree = float((forward(case) == answer[1]).float().mean())
        bench.tell("correspondence net, torch-spline-conv", f"{answer[0]:.2f} s")
        bench.tell("  faster by (at least 100)", f"{answer[0] / ours:.0f}×")
        bench.tell("  same argmax", f"{agree:.2%} of vertices")


def one_layer(bench: Bench, edge_index: Tensor, pseudo: Tensor, nodes: int) -> None:
    case = make_case(edge_index, pseudo, nodes, [5, 5, 5], [(64, 64)])
    ours = bench.time(lambda: forward(case))
    bench.tell("SConv((5,5,5),64,64) forward, ours", f"{ours * 1e3:.2f} ms (plan included)")
    start = bench.tick()
    want = plain(case)
    slow = bench.tick() - start
    close(forward(case), want)
    bench.tell("  plain torch", f"{slow:.2f} s, {slow / ours:.0f}×")
    if answer := bench.ask_peer(case):
        close(forward(case), answer[1])
        bench.tell("  torch-spline-conv", f"{answer[0]:.2f} s, {answer[0] / ours:.0f}×")
    case["grad"] = torch.randn(nodes, 64)
    with torch.inference_mode(False), torch.enable_grad():
        ours = bench.time(lambda: forward_backward(case), 5)
        gradients = forward_backward(case)
        for leaf in [case["x"], *case["layers"][0].values()]:
            leaf.requires_grad_(False).grad = None
    bench.tell("  forward + backward, ours", f"{ours * 1e3:.1f} ms (both plans included)")
    if answer := bench.ask_peer(case, backward=True):
        close(gradients, answer[1])
        bench.tell("  forward + backward, torch-spline-conv", f"{answer[0]:.2f} s")
        bench.tell("  faster by (at least 50)", f"{answer[0] / ours:.0f}×")


def kernel_sizes(bench: Bench, edge_index: Tensor, pseudo: Tensor, nodes: int) -> list[Any]:
    found = []
    for k in (3, 5, 7, 9):
        case = make_case(edge_index, pseudo, nodes, [k] * 3, [(64, 64)])
        plan = plan_of(case)
        both = bench.time(lambda c=case: forward(c))
        layer = bench.time(lambda c=case, p=plan: forward(c, p))
        rows = plan.row_node.size(0)
        found.append((k, both, layer, rows))
        bench.tell(f"kernel size {k}³, 64→64", f"{both * 1e3:.2f} ms with plan, {layer * 1e3:.2f} "
                   f"ms without, {rows} rows")  # fmt: skip
    first, last = found[0], found[-1]
    nets = [correspondence_net(edge_index, pseudo, nodes, k) for k in (3, 9)]
    small, large = (bench.time(lambda c=net: forward(c), 5) for net in nets)
    bench.tell("  9³ / 3³ of the correspondence net (at most 1.25)", f"{large / small:.2f}")
    bench.tell("  9³ / 3³ of one layer with plan (at most 1.25)", f"{last[1] / first[1]:.2f}")
    bench.tell("  9³ / 3³ of one layer without plan", f"{last[2] / first[2]:.2f}")
    bench.tell("  9³ / 3³ of the layer's arithmetic itself", f"{last[3] / first[3]:.2f}")
    return found


def edge_counts(bench: Bench) -> list[tuple[int, float, float | None]]:
    found: list[tuple[int, float, float | None]] = []
    for edges in (1_000, 10_000, 100_000, 1_000_000):
        edge_index, pseudo, nodes = random_graph(edges, 3)
        case = make_case(edge_index, pseudo, nodes, [5] * 3, [(64, 64)])
        ours = bench.time(lambda c=case: forward(c), 8)
        answer = bench.ask_peer(case) if edges <= 10_000 else None
        found.append((edges, ours, answer[0] if answer else None))
        bench.tell(f"{edges:,} edges, 64→64", f"{ours * 1e3:.2f} ms with plan")
    for (few, a, _), (many, b, _) in zip(found, found[1:], strict=False):
        bench.tell(f"  {many:,} / {few:,} edges (at most 11)", f"{b / a:.1f}×")
    return found


MEMORY = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from op import forward, make_case, random_graph

def peak():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024

with torch.inference_mode():
    torch.set_num_threads(2)
    for edges in (1000, 1_000_000):
        edge_index, pseudo, nodes = random_graph(edges, 3)
        case = make_case(edge_index, pseudo, nodes, [5] * 3, [(64, 64)])
        open("/proc/self/clear_refs", "w").write("5")  # forget the peak so far
        before = peak()
        forward(case)
    print(peak() - before)
"""


def memory(bench: Bench) -> None:
    """In a process of its own; Linux tells the peak."""
    if not Path("/proc/self/clear_refs").exists():
        return
    command = [sys.executable, "-c", MEMORY, str(HERE)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    bench.tell("peak memory, 1,000,000 edges (below 250 MB)", f"{float(done.stdout):.0f} MB")


def superpixel_graph() -> tuple[Tensor, Tensor]:
    """75 nodes, each joined to its six nearest: the edges, by target, and where the nodes lie."""
    positions = 28 * torch.rand(75, 2)
    near = torch.cdist(positions, positions).topk(7, largest=False).indices[:, 1:].flatten()
    node = torch.arange(75).repeat_interleave(6)
    key = torch.unique(torch.cat([75 * node + near, 75 * near + node]))
    return torch.stack([key % 75, key // 75]), positions


def small_graphs(bench: Bench) -> None:
    """Superpixel graphs, both layers of the paper's net; then the whole of it, as it is served."""
    graphs = [superpixel_graph() for _ in range(64)]
    edges = [each for each, _ in graphs]
    whole = torch.cat([each + 75 * at for at, each in enumerate(edges)], 1)
    counts = [each.size(1) for each in edges]
    rate = sgemm_rate(bench)
    for channels in ((1, 32), (32, 64)):
        many = make_case(whole, torch.rand(sum(counts), 2), 64 * 75, [5, 5], [channels])
        parts = zip(edges, many["pseudo"].split(counts), many["x"].split(75), strict=True)
        alone = [many | {"edge_index": e, "pseudo": u, "x": x} for e, u, x in parts]
        close(torch.cat([forward(each) for each in alone]), forward(many))
        one_by_one = bench.time(lambda cases=alone: [forward(each) for each in cases], 20) / 64
        together = bench.time(lambda c=many: forward(c), 20) / 64
        name = f"75-node graphs, SConv((5,5),{channels[0]},{channels[1]}), ours"
        bench.tell(name, f"{one_by_one * 1e6:.0f} µs one by one (plan included)")
        if answer := bench.ask_peer(alone[0], 50):
            close(forward(alone[0]), answer[1])
            same = bench.time(lambda c=alone[0]: forward(c), 200)  # the peer has one of them only
            bench.tell("  torch-spline-conv, the same one again", f"{answer[0] * 1e6:.0f} µs")
            bench.tell("  ours, the same one again", f"{same * 1e6:.0f} µs")
            bench.tell("  faster by (at least 5)", f"{answer[0] / same:.1f}×")
        bench.tell("  batch of 64, throughput (at least 4)", f"{one_by_one / together:.1f}×")
        work = 2 * (plan_of(many).row_node.size(0) / 64 + 75) * channels[0] * channels[1]
        bench.tell("  a graph in the batch", f"{together * 1e6:.1f} µs, of which the sgemm "
                   f"limit is {work / rate * 1e6:.1f} µs")  # fmt: skip
    net = torch.jit.script(serve(SuperpixelNet()))
    grey, places, ptr = torch.rand(64, 75, 1), [each for _, each in graphs], torch.tensor([0, 75])
    alone = [(grey[at], places[at], each, ptr) for at, each in enumerate(edges)]
    batch = (grey.flatten(0, 1), torch.cat(places), whole, torch.arange(0, 64 * 75 + 1, 75))
    close(torch.cat([net(*each)[0] for each in alone]), net(*batch)[0])
    one_by_one = bench.time(lambda: [net(*each) for each in alone], 20) / 64
    together = bench.time(lambda: net(*batch), 20) / 64
    bench.tell("75-node graphs, superpixel network, pooling included", f"{one_by_one * 1e6:.0f} µs")
    bench.tell("  batch of 64, throughput (at least 4)", f"{one_by_one / together:.1f}×")


def draw(folder: Path, sizes: list[Any], counts: list[Any]) -> Path:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4))
    label = [f"{k}³" for k, *_ in sizes]
    left.plot(label, [1e3 * both for _, both, _, _ in sizes], "o-", label="with plan")
    left.plot(label, [1e3 * layer for _, _, layer, _ in sizes], "o-", label="planned before")
    left.set(xlabel="kernel size", ylabel="ms", ylim=(0, None), title="SConv 64→64, 41,328 edges")
    edges = [n for n, _, _ in counts]
    right.loglog(edges, [1e3 * t for _, t, _ in counts], "o-", label="ours")
    peers = [(n, 1e3 * t) for n, _, t in counts if t]
    if peers:
        right.loglog(*zip(*peers, strict=True), "s--", label="torch-spline-conv")
    right.set(xlabel="edges", ylabel="ms", title="SConv((5,5,5),64,64)")
    for axis in (left, right):
        axis.legend()
        axis.grid(alpha=0.3)
    figure.tight_layout()
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "op.png", dpi=120)
    return folder / "op.png"


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--mesh", help="a mesh file to use instead of the made one")
    parser.add_argument("--out", default="build/bench", help="where the PNG and the peer go")
    parser.add_argument("--peer-python", help="a Python that has torch-spline-conv")
    parser.add_argument("--no-peer", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    bench = Bench(options)
    if options.mesh:
        import trimesh

        mesh = trimesh.load(options.mesh, process=False, force="mesh")
        vertices, faces = torch.tensor(mesh.vertices).float(), torch.tensor(mesh.faces).long()
    else:
        vertices, faces = sphere()
    edge_index, pseudo = mesh_graph(vertices, faces)
    bench.tell("machine", f"{processor()}, {options.threads} threads, {options.clock} clock")
    bench.tell("operator", f"SIMD {torch.ops.splinecnn.simd_level()}, torch {torch.__version__}")
    bench.tell("graph", f"{len(vertices):,} nodes, {edge_index.size(1):,} edges")
    with torch.inference_mode():
        compare_outputs(bench)
        whole_net(bench, edge_index, pseudo, len(vertices))
        sizes = kernel_sizes(bench, edge_index, pseudo, len(vertices))
        counts = edge_counts(bench)
        small_graphs(bench)
    with torch.no_grad():
        one_layer(bench, edge_index, pseudo, len(vertices))
    memory(bench)
    print("wrote", draw(Path(options.out), sizes, counts))


if __name__ == "__main__":
    main()
