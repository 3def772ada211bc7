"""Runs a network of torchvision or timm in PyTorch: the program of the environment `.venv-frameworks`.

It knows nothing of the rest of this program, whose packages that environment lacks. Its argument is a JSON file:

    library: `torchvision` or `timm`; model, classes, auxiliary_head: of the network.
    weights: a state dict: .safetensors, or a file of `torch.save` that is trusted.
    images: an .npy file, float32 [images, height, width, 3].
    modules: the modules whose outputs to write, by the names to write them under.
    count_padding: whether average pools count the padding as zeros, as both libraries have it, or ignore it.
    outputs: the .npz file to write: the modules' outputs, `features`, the inputs of the classifier, and `logits`.
"""

import functools
import json
import sys
from typing import Any, Dict

import numpy as np


def run(spec: Dict[str, Any]) -> Dict[str, np.ndarray]:
    """The outputs of a network in evaluation."""
    import torch

    pool = torch.nn.functional.avg_pool2d
    torch.nn.functional.avg_pool2d = functools.partial(pool, count_include_pad=spec['count_padding'])
    if spec['library'] == 'timm':
        import timm

        options = {'aux_logits': True} if spec['auxiliary_head'] else {}
        model = timm.create_model(spec['model'], num_classes=spec['classes'], **options)
    else:
        import torchvision

        own = {'aux_logits': spec['auxiliary_head'], 'init_weights': False}
        options = own if spec['model'] == 'inception_v3' else {}
        model = getattr(torchvision.models, spec['model'])(num_classes=spec['classes'], **options)
    if spec['weights'].endswith('.safetensors'):
        import safetensors.torch

        model.load_state_dict(safetensors.torch.load_file(spec['weights']))
    else:
        model.load_state_dict(torch.load(spec['weights']))
    model.eval()
    outputs: Dict[str, np.ndarray] = {}

    def keep(name: str, value: Any) -> None:
        outputs[name] = np.moveaxis(value.numpy(), 1, -1) if value.dim() > 1 else value.numpy()

    modules = dict(model.named_modules())
    for name, module in spec['modules'].items():
        modules[module].register_forward_hook(lambda _, inputs, value, name=name: keep(name, value))
    modules['fc'].register_forward_pre_hook(lambda _, inputs: keep('features', inputs[0]))
    with torch.no_grad():
        images = torch.from_numpy(np.load(spec['images'])).permute(0, 3, 1, 2).contiguous()
        keep('logits', model(images))
    return outputs


if __name__ == '__main__':
    with open(sys.argv[1], encoding='utf-8') as file:
        given = json.load(file)
    np.savez(given['outputs'], **run(given))
