"""The diagrams of the networks are current, and their numbers agree with the networks."""

import pytest

from docs.network_diagrams import CLASSES, FOLDER, blocks_of, svg_of
from inception_v3.networks.registry import NETWORKS
from inception_v3.networks.sizes import sizes_of


@pytest.mark.program
@pytest.mark.parametrize('name', NETWORKS)
def test_diagram__is_current(name: str) -> None:
    # If this fails: ./run python -m docs.network_diagrams
    assert (FOLDER / f'{name}.svg').read_text(encoding='utf-8') == svg_of(name)


def test_blocks__of_resnet50_have_the_shapes_and_parameters_of_its_table() -> None:
    blocks = {block.name: block for block in blocks_of('resnet50')}
    assert blocks['stem'].shape == [112, 112, 64] and blocks['stem'].parameters == 7 * 7 * 3 * 64 + 2 * 64
    assert blocks['MaxPool2d'].shape == [56, 56, 64]
    second = blocks['stage_1/block_2']
    assert second.shape == [56, 56, 256]
    assert second.parameters == 256 * 64 + 9 * 64 * 64 + 64 * 256 + 2 * (64 + 64 + 256)
    assert blocks['stage_4/block_3'].shape == [7, 7, 2048]
    assert blocks['logits'].parameters == 2048 * CLASSES + CLASSES
    total = sizes_of(NETWORKS['resnet50'], 224, 224, CLASSES, {}).parameters
    assert sum(block.parameters for block in blocks.values()) == total


def test_blocks__of_inception_v3_include_the_auxiliary_head() -> None:
    blocks = {block.name: block for block in blocks_of('inception_v3')}
    assert blocks['Mixed_7c'].shape == [8, 8, 2048] and blocks['Mixed_6e'].shape == [17, 17, 768]
    auxiliary = 768 * 128 + 128 + 5 * 5 * 128 * 768 + 768 + 768 * CLASSES + CLASSES
    assert blocks['AuxLogits'].parameters == auxiliary
    total = sizes_of(NETWORKS['inception_v3'], 299, 299, CLASSES, {}).parameters
    assert sum(block.parameters for block in blocks.values()) == total
