"""Training steps of torchvision's Inception v3, with its auxiliary classifier: see `meter`."""

from benchmarks.peers import meter

# As RMSProp's in the documented program. The learning rate does not change the work of a step; this one is low enough
# for random images.
_LEARNING_RATE, _DECAY, _MOMENTUM, _EPSILON = 1e-3, 0.9, 0.9, 1.0
# The weight of the auxiliary classifier's loss.
_AUXILIARY = 0.4


def training(spec: meter.Spec) -> meter.Training:
    """The program `torchvision`."""
    import torch
    import torchvision

    model = torchvision.models.inception_v3(num_classes=spec['classes'], aux_logits=True, init_weights=False)
    model.train()
    loss_of = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.RMSprop(model.parameters(), _LEARNING_RATE, alpha=_DECAY, momentum=_MOMENTUM, eps=_EPSILON)
    images = torch.rand([spec['batch_size'], 3, *spec['size']]) * 2 - 1
    labels = torch.randint(spec['classes'], [spec['batch_size']])

    def step() -> float:
        optimizer.zero_grad()
        found = model(images)
        loss = loss_of(found.logits, labels) + _AUXILIARY * loss_of(found.aux_logits, labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    parameters = sum(each.numel() for each in model.parameters())
    return step, parameters, f'torchvision {torchvision.__version__}, PyTorch {torch.__version__}'


if __name__ == '__main__':
    meter.answer_steps(training)
