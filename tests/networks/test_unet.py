"""A level that is computed again in the backward pass changes nothing but memory."""

import copy

import pytest
import torch

from roundtrip.networks import unet
from roundtrip.networks.batch_norm import batches_apart
from roundtrip.networks.unet import UNet


def network(dims):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        net = UNet(dims=dims, down_features=(4, 6), up_features=(4, 5)).double()
        torch.nn.init.normal_(net.last.weight)
    return net


def trained_once(net, moving, fixed, *, batches):
    """The field, the gradients of all weights and images, and what the batch norms remember."""
    images = [moving.clone().requires_grad_(), fixed.clone().requires_grad_()]
    with batches_apart(net, batches):
        field = net(*images)
    # Gradients are asked for when what held during the forward pass is over.
    field.sin().sum().backward()
    learned = [p.grad for p in net.parameters()] + [image.grad for image in images]
    return [field.detach(), *learned, *net.buffers()]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("shape", [(9, 12), (7, 6, 5)], ids=str)
def test_a_level_that_is_computed_again_is_the_same(shape, batches, training, monkeypatch):
    moving, fixed = torch.rand(2, 4, 1, *shape, dtype=torch.float64, generator=torch.manual_seed(0))
    kept = network(len(shape)).train(training)
    again = copy.deepcopy(kept)
    expected = trained_once(kept, moving, fixed, batches=batches)
    monkeypatch.setattr(unet, "LARGE", 0)
    for a, b in zip(trained_once(again, moving, fixed, batches=batches), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def test_a_large_level_is_not_kept(monkeypatch):
    def saved(large):
        monkeypatch.setattr(unet, "LARGE", large)
        storages = {}

        def remember(tensor):
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor):
            network(3).train()(*torch.rand(2, 1, 1, 16, 16, 16, dtype=torch.float64))
        return sum(storages.values())

    assert saved(0) < 0.5 * saved(2**62)


def test_without_gradients_the_result_is_the_same():
    net = network(3)
    moving, fixed = torch.rand(2, 4, 1, 7, 6, 5, dtype=torch.float64, generator=torch.manual_seed(0))
    net.train()(moving, fixed)
    net.eval()
    with torch.no_grad(), batches_apart(net, 2):
        alone = net(moving, fixed)
    torch.testing.assert_close(alone, net(moving, fixed).detach())
