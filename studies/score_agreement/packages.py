"""Computes every stage of the scores with torch-fidelity and pytorch-fid; runs in an environment that has them.

python studies/score_agreement/packages.py FOLDER reads what `studies.score_agreement` wrote there, and writes
`packages.npz` and `packages.json`.
"""

import importlib
import json
import os
import sys
from typing import Any, Dict

import numpy as np

PACKAGES = ('torch', 'torchvision', 'torch_fidelity', 'pytorch_fid', 'numpy', 'scipy')
# Layers by this program's names; torch-fidelity and pytorch-fid name them by their numbers of features.
LAYERS = {'MaxPool2d': 64, 'MaxPool2d_1': 192, 'Mixed_6e': 768, 'pool': 2048}
SETS = ('one', 'other')
KID = {'subsets': 10, 'subset_size': 50}


def torch_fidelity(folder: str, found: Dict[str, Any]) -> None:
    """Adds the stages of torch-fidelity."""
    import PIL.Image
    import torch
    from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3
    from torch_fidelity.interpolate_compat_tensorflow import interpolate_bilinear_2d_like_tensorflow1x
    from torch_fidelity.metric_fid import fid_features_to_statistics, fid_statistics_to_metric
    from torch_fidelity.metric_isc import isc_features_to_metric
    from torch_fidelity.metric_kid import kid_features_to_metric

    outputs = [*map(str, LAYERS.values()), 'logits_unbiased']
    network = FeatureExtractorInceptionV3(
        'x', outputs, feature_extractor_weights_path=os.path.join(folder, 'weights.pth')
    )
    features: Dict[str, Dict[str, Any]] = {}
    for each in SETS:
        images = os.path.join(folder, each)
        rows, resized = [], []
        for name in sorted(os.listdir(images)):
            pixels = np.array(PIL.Image.open(os.path.join(images, name)).convert('RGB'))
            tensor = torch.from_numpy(pixels).permute(2, 0, 1)[None]
            rows.append(network(tensor))
            interpolated = interpolate_bilinear_2d_like_tensorflow1x(
                tensor.float(), size=(299, 299), align_corners=False
            )
            resized.append(((interpolated - 128) / 128)[0].permute(1, 2, 0).numpy())
        found[f'resized {each}'] = np.stack(resized[:8])
        features[each] = {key: torch.cat([row[i] for row in rows]) for i, key in enumerate(outputs)}
        for layer, size in LAYERS.items():
            found[f'{layer} {each}'] = features[each][str(size)].numpy()
        found[f'logits {each}'] = features[each]['logits_unbiased'].numpy()
        found[f'is {each}'] = [*isc_features_to_metric(features[each]['logits_unbiased']).values()]
    for layer, size in LAYERS.items():
        statistics = [fid_features_to_statistics(features[each][str(size)].double()) for each in SETS]
        found[f'fid {layer}'] = fid_statistics_to_metric(*statistics, False)['frechet_inception_distance']
    found['mean one'], found['covariance one'] = statistics[0]['mu'], statistics[0]['sigma']
    kernel = {
        'kid_kernel': 'poly',
        'kid_kernel_poly_degree': 3,
        'kid_kernel_poly_gamma': None,
        'kid_kernel_poly_coef0': 1,
    }
    sizes = {'kid_subsets': KID['subsets'], 'kid_subset_size': KID['subset_size'], 'rng_seed': 2020, 'verbose': False}
    both = [features[each]['2048'].double() for each in SETS]
    found['kid'] = [*kid_features_to_metric(*both, **kernel, **sizes).values()]


def pytorch_fid(folder: str, found: Dict[str, Any]) -> None:
    """Adds the stages of pytorch-fid: its network on images that are resized already, and its distance."""
    import torch
    from pytorch_fid import fid_score, inception

    weights = torch.load(os.path.join(folder, 'weights.pth'))
    # It would fetch the published weights.
    inception.load_state_dict_from_url = lambda *_, **__: weights
    network = inception.InceptionV3([0, 1, 2, 3], resize_input=False, normalize_input=False).eval()
    with torch.no_grad():
        outputs = network(torch.from_numpy(found['resized one']).permute(0, 3, 1, 2))
    for layer, output in zip(LAYERS, outputs):
        found[f'pytorch-fid {layer}'] = output.mean(dim=(2, 3)).numpy()
    one, other = (found[f'MaxPool2d {each}'].astype(np.float64) for each in SETS)
    moments = [moment for each in (one, other) for moment in (each.mean(axis=0), np.cov(each, rowvar=False))]
    found['pytorch-fid fid MaxPool2d'] = float(fid_score.calculate_frechet_distance(*moments))


def main(folder: str) -> None:
    """Writes the results of both packages."""
    import torch

    arrays = np.load(os.path.join(folder, 'state_dict.npz'))
    tensors = {name: torch.from_numpy(np.array(value)) for name, value in arrays.items()}
    torch.save(tensors, os.path.join(folder, 'weights.pth'))
    found: Dict[str, Any] = {}
    torch_fidelity(folder, found)
    pytorch_fid(folder, found)
    np.savez(os.path.join(folder, 'packages.npz'), **found)
    with open(os.path.join(folder, 'packages.json'), 'w', encoding='utf-8') as file:
        json.dump({name: importlib.import_module(name).__version__ for name in PACKAGES}, file)


if __name__ == '__main__':
    main(sys.argv[1])
