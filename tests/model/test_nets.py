import numpy as np
import pytest
import torch
from torch import nn

import ops
from model.errors import UnsupportedTask
from model.export import arguments
from model.graph import Graph, pack
from model.layers import Linear, SplineConv
from model.nets import CorrespondenceNet, GridNet, NodeNet, SuperpixelNet
from model.serving import serve
from model.tasks import image_graph, mesh_graph, node_graph
from ops import reference

rng = np.random.default_rng(0)


def meshes() -> list[Graph]:
    def mesh(V: int, F: int) -> Graph:
        corners = np.stack([rng.choice(V, 3, replace=False) for _ in range(F)])
        return mesh_graph(rng.normal(size=(V, 3)), corners)

    return [mesh(30, 60), mesh(7, 5), mesh(300, 600)]


def node_graphs() -> list[Graph]:
    return [
        node_graph(
            n, rng.integers(0, n, (2 * n, 2)), rng.random((n, 20)) * (rng.random((n, 20)) < 0.3)
        )
        for n in (25, 3, 400)
    ]


def images(how: str) -> list[Graph]:
    return [image_graph(rng.integers(0, 256, (28, 28)).astype(np.uint8), how) for _ in range(3)]


CASES = {
    "correspondence": (lambda: CorrespondenceNet(50, (8, 16, 16), 32, 3), meshes),
    "node": (lambda: NodeNet(20, 5), node_graphs),
    "superpixels": (lambda: SuperpixelNet(), lambda: images("superpixels")),
    "polar": (lambda: SuperpixelNet(pseudo="polar", degree=2), lambda: images("superpixels")),
    "grid": (lambda: GridNet(), lambda: images("grid")),
}


@pytest.mark.parametrize("name", CASES)
def test_answers_alone_and_in_a_batch_are_the_same(name):
    net, graphs = CASES[name][0](), CASES[name][1]()
    served = serve(net)
    with torch.inference_mode():
        together = served(*arguments(graphs, 3).values())
        alone = [served(*arguments([graph], 3).values()) for graph in graphs]
    for output, parts in zip(together, zip(*alone, strict=True), strict=True):
        if ops.NATIVE:  # plain torch calls BLAS, whose last bits change with the number of rows
            assert torch.equal(output, torch.cat(parts))
        else:
            assert torch.allclose(output.float(), torch.cat(parts).float(), atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_every_parameter_gets_a_gradient(name):
    net, graphs = CASES[name][0](), CASES[name][1]()
    net.train()(*pack(graphs).values()).square().sum().backward()
    for parameter_name, parameter in net.named_parameters():
        assert parameter.grad is not None and parameter.grad.any(), parameter_name


@pytest.mark.parametrize("name", CASES)
def test_training_and_evaluation_differ_by_dropout_only(name):
    net, graphs = CASES[name][0](), CASES[name][1]()
    net.dropout = net.input_dropout = 0.0
    inputs = pack(graphs).values()
    trained = net.train()(*inputs)
    assert torch.allclose(net.eval()(*inputs), trained, atol=1e-4)


def test_a_kept_plan_gives_what_raw_tensors_give():
    net, packed = NodeNet(20, 5).eval(), pack(node_graphs())
    plan = net.plan(packed["edge_index"], packed["ptr"], int(packed["ptr"][-1]), backward=True)
    features = [packed[f"feature_{what}"] for what in ("ptr", "index", "value")]
    assert torch.equal(net.scores(*features, plan), net(*packed.values()))
    image_net, packed = SuperpixelNet().eval(), pack(images("superpixels"))
    levels = image_net.levels(packed["positions"], packed["edge_index"], packed["ptr"])
    assert torch.equal(image_net.scores(packed["features"], levels), image_net(*packed.values()))


def test_a_grid_network_is_a_convolution_on_pixels():
    """With one exact weight per offset, SConv is a 5 x 5 convolution but for root and mean."""
    net, packed = GridNet().eval(), pack(images("grid")[:1])
    levels = net.levels(packed["positions"], packed["edge_index"], packed["ptr"])
    found = net.conv1(packed["features"], levels.plan1)[14 * 28 + 14]
    image = packed["features"].view(28, 28)
    expected = image[14, 14] * net.conv1.root[0] + net.conv1.bias
    for dy in range(-2, 3):
        for dx in range(-2, 3):
            if dx or dy:
                weight = net.conv1.weight[(dy + 2) * 5 + dx + 2, 0]
                expected = expected + image[14 + dy, 14 + dx] * weight / 24
    assert torch.allclose(found, expected, atol=1e-5)


def test_a_grid_network_reads_graphs_that_are_no_whole_grid():
    net = GridNet().eval()
    positions = torch.tensor([[0.0, 0], [27, 27], [13, 5]])
    out = net(torch.rand(3, 1), positions, torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 3]))
    assert out.shape == (1, 10) and torch.isfinite(out).all()
    with pytest.raises(ValueError, match="side must be a multiple of 4, got 30"):
        GridNet(side=30)


def test_spline_conv_agrees_with_the_reference():
    conv = SplineConv(3, 4, [5, 3], [1, 0], 2)
    x, edges, pseudo = torch.randn(6, 3), torch.randint(0, 6, (2, 20)), torch.rand(20, 2)
    expected = reference.spline_conv(
        x, edges, pseudo, conv.weight, [5, 3], [1, 0], 2, 6, root=conv.root, bias=conv.bias
    )
    assert torch.allclose(conv(x, conv.plan(edges, pseudo, 6)), expected, atol=1e-6)
    assert conv.weight.abs().max() <= 1 / (15 * 3) ** 0.5


def test_the_linear_layer_is_linear_and_its_rows_do_not_depend_on_their_number():
    layer = Linear(70, 33).eval()
    x = torch.randn(600, 70)
    with torch.inference_mode():
        whole = layer(x)
        assert torch.allclose(whole, nn.functional.linear(x, layer.weight, layer.bias), atol=1e-5)
        if ops.NATIVE:
            assert all(torch.equal(layer(x[:n]), whole[:n]) for n in (1, 2, 7, 256, 257, 599))


def test_only_known_networks_are_served():
    with pytest.raises(UnsupportedTask, match="Identity has no serving form"):
        serve(nn.Identity())


def test_loops_make_every_node_its_own_neighbour():
    torch.manual_seed(0)
    plain, looped = NodeNet(4, 3).eval(), NodeNet(4, 3, loops=True).eval()
    looped.load_state_dict(plain.state_dict())
    features = np.array([[1, 0, 1, 0]] * 2)  # twins: beside each other, or each beside itself
    together = pack([node_graph(2, [[0, 1]], features)])
    torch.testing.assert_close(looped(*together.values()), plain(*together.values()))
    alone = pack([node_graph(1, [], features[:1])])
    assert not torch.allclose(looped(*alone.values()), plain(*alone.values()))


def test_loops_need_degrees():
    with pytest.raises(ValueError, match="no cartesian pseudo-coordinates"):
        NodeNet(4, 3, pseudo="cartesian", dimensions=2, loops=True)
