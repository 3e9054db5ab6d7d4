import torch

from model.augment import random_maps, stretch_images, stretch_positions


def test_maps_stay_near_the_identity():
    maps = random_maps(1000)
    assert (maps - torch.eye(2)).abs().max() < 0.35
    assert maps.std(0).min() > 0.01


def test_every_graph_of_a_batch_moves_by_its_own_map():
    points = torch.tensor([[1.0, 0.0], [2.0, 0.0]])
    moved = stretch_positions(points.repeat(2, 1), torch.tensor([0, 2, 4]))
    torch.testing.assert_close(moved[1], 2 * moved[0])
    torch.testing.assert_close(moved[3], 2 * moved[2])
    assert not torch.equal(moved[0], moved[2])


def test_images_keep_their_size_and_most_of_their_ink():
    images = torch.zeros(5, 1, 28, 28)
    images[:, :, 8:20, 12:16] = 1
    moved = stretch_images(images)
    assert moved.shape == images.shape and not torch.equal(moved, images)
    assert ((moved.sum((1, 2, 3)) / 48) - 1).abs().max() < 0.4
