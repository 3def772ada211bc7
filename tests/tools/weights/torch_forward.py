"""Runs a network of torchvision or timm with each of some files of weights, for `test_frameworks.in_torch`.

Its argument is JSON. It is a program of the environment `.venv-frameworks`, which lacks the packages of this program.
"""

import functools
import json
import sys
from typing import Any, Dict

import numpy as np
import torch

spec = json.loads(sys.argv[1])
# Both libraries count the padding as zeros; TF-Slim and this program do not.
torch.nn.functional.avg_pool2d = functools.partial(torch.nn.functional.avg_pool2d, count_include_pad=False)
if spec['library'] == 'timm':
    import timm

    model = timm.create_model(f'tf_{spec["model"]}', num_classes=spec['classes'])
else:
    import torchvision

    own = {'aux_logits': spec['auxiliary_head'], 'init_weights': False} if spec['model'] == 'inception_v3' else {}
    model = getattr(torchvision.models, spec['model'])(num_classes=spec['classes'], **own)
model.eval()
outputs: Dict[str, np.ndarray] = {}


def keep(name: str, value: Any) -> None:
    outputs[name] = np.moveaxis(value.numpy(), 1, -1) if value.dim() > 1 else value.numpy()


modules = dict(model.named_modules())
for name, module in spec['modules'].items():
    modules[module].register_forward_hook(lambda _, inputs, value, name=name: keep(name, value))
modules['fc'].register_forward_pre_hook(lambda _, inputs: keep('features', inputs[0]))
images = torch.from_numpy(np.load('images.npy')).permute(0, 3, 1, 2).contiguous()
for number, path in enumerate(spec['weights']):
    if path.endswith('.safetensors'):
        import safetensors.torch

        model.load_state_dict(safetensors.torch.load_file(path))
    else:
        model.load_state_dict(torch.load(path))
    outputs.clear()
    with torch.no_grad():
        keep('logits', model(images))
    np.savez(f'outputs-{number}.npz', **outputs)
