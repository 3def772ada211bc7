"""Draws docs/networks/NAME.svg, a diagram of each network, from its graph: blocks, shapes and parameters.

./run python -m docs.network_diagrams
"""

import itertools
import pathlib
from typing import Dict, List, NamedTuple

from compat import tf
from inception_v3.batch_norm import BatchNorm
from inception_v3.networks import layers
from inception_v3.networks.registry import NETWORKS

FOLDER = pathlib.Path(__file__).with_name('networks')
CLASSES = 1001
_POOLS = ('MaxPool', 'AvgPool')
# The value of a variable; its shape is not that of an activation.
_READS = ('Identity', 'ReadVariableOp')
_WIDTH, _ROW, _HEAD = 720, 30, 74
_BAR = 150
STYLE = (
    'text{font:13px system-ui,sans-serif;fill:#1b1f24}.t{font-size:17px;font-weight:600}.f{fill:#5c6570}'
    '.n{text-anchor:end}rect{fill:#f6f7f9;stroke:#8a939d}.b{fill:#0072b2;stroke:none}path{stroke:#8a939d;fill:none}'
    '@media(prefers-color-scheme:dark){text{fill:#e6e9ed}.f{fill:#9aa4b0}rect{fill:#1d2127;stroke:#7b8590}'
    '.b{fill:#56b4e9}path{stroke:#7b8590}}'
)


class Block(NamedTuple):
    """A part of a network."""

    name: str  # Its variable scope below the network's, or the kind of a pooling.
    shape: List[int]  # Of its output, without the batch; that of a half in the stages of a RevNet.
    parameters: int  # The number of trainable values.


def blocks_of(name: str) -> List[Block]:
    """The blocks of a network for evaluation, in the order of its graph, with all of its trainable parameters."""
    shapes: Dict[str, List[int]] = {}
    parameters: Dict[str, int] = {}
    with tf.Graph().as_default() as graph:
        images = tf.placeholder(tf.float32, [1, NETWORKS[name].size, NETWORKS[name].size, 3])
        options = {'rebuild_activations': False} if 'rebuild_activations' in NETWORKS[name].options else {}
        NETWORKS[name].build(
            images, CLASSES, False, conv=layers.conv2d, norm=BatchNorm(is_training=False, decay=0.9), **options
        )
        for variable in tf.trainable_variables():
            block = _block(variable.op.name)
            parameters[block] = parameters.get(block, 0) + int(variable.shape.num_elements())
        for operation in graph.get_operations():
            # A pooling between the blocks; those of shortcuts are in a stage.
            is_pool = operation.type in _POOLS and operation.name.count('/') == 1
            block = operation.name.partition('/')[2] if is_pool else _block(operation.name)
            outputs = [output for output in operation.outputs[:1] if output.shape.ndims == 4 and output.shape[0] == 1]
            if outputs and (is_pool or block in parameters) and operation.type not in _READS:
                shapes[block] = outputs[0].shape.as_list()[1:]
    return [Block(block, shape, parameters.get(block, 0)) for block, shape in shapes.items()]


def _block(name: str) -> str:
    """The block that a variable or an operation belongs to: its scope below the network's, and a unit in its stage."""
    scopes = name.split('/')[1:-1]
    return '/'.join(scopes[: 2 if scopes and scopes[0].startswith('stage_') else 1])


def svg_of(name: str) -> str:
    """The diagram of a network. Equal blocks in a row are one line."""
    blocks = blocks_of(name)
    total = sum(block.parameters for block in blocks)
    groups = [[*group] for _, group in itertools.groupby(blocks, _likeness)]
    sizes = [sum(block.parameters for block in group) for group in groups]
    height = _HEAD + _ROW * len(groups) + 10
    size = NETWORKS[name].size
    lines = [
        f'<text class="t" x="10" y="24">{name}: {total:,} parameters</text>',
        f'<text class="f" x="10" y="44">images of {size} × {size} × 3, {CLASSES:,} classes</text>',
        '<text class="f" x="10" y="66">block</text><text class="f n" x="420" y="66">output</text>'
        '<text class="f n" x="540" y="66">parameters</text>',
    ]
    for row, (group, parameters) in enumerate(zip(groups, sizes)):
        top = _HEAD + row * _ROW
        first, last = group[0], group[-1]
        times = f' to {last.name.split("/")[-1]} (× {len(group)})' if len(group) > 1 else ''
        shape = ' × '.join(f'{side:,}' for side in first.shape)
        # A unit of a RevNet has two outputs, the halves of the channels.
        shape = f'2 × ({shape})' if '/unit_' in first.name else shape
        lines += [
            f'<rect x="10" y="{top}" width="690" height="24" rx="4"/>',
            f'<text x="20" y="{top + 17}">{first.name}{times}</text><text class="n" x="420" y="{top + 17}">{shape}'
            f'</text><text class="n" x="540" y="{top + 17}">{parameters:,}</text>',
        ]
        if parameters:
            width = max(1, round(_BAR * parameters / max(sizes)) - 2)
            lines.append(f'<rect class="b" x="548" y="{top + 7}" width="{width}" height="10"/>')
        if row + 1 < len(groups):
            lines.append(f'<path d="M 30 {top + 24} v 6"/>')
    return document(f'{name}: {len(blocks)} blocks, {total:,} parameters', height, STYLE, lines)


def document(label: str, height: int, style: str, lines: List[str]) -> str:
    """An SVG file that a screen reader reads as its label."""
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}">'
    return '\n'.join([head, f'<style>{style}</style>', *lines, '</svg>\n'])


def _likeness(block: Block) -> object:
    """Blocks are drawn as one if they are in the same stage, and equal in shape and parameters."""
    stage, _, unit = block.name.partition('/')
    return (stage, tuple(block.shape), block.parameters) if unit else block.name


def main() -> None:
    """Writes all diagrams."""
    FOLDER.mkdir(exist_ok=True)
    for name in NETWORKS:
        path = FOLDER / f'{name}.svg'
        path.write_text(svg_of(name), encoding='utf-8')
        print(path)


if __name__ == '__main__':
    main()
