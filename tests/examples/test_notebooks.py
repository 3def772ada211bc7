"""The notebooks: commands and flags of this program, and no results of an old run. `.ci/release` runs them."""

import json
import re
from typing import List

import pytest

from inception_v3 import flags
from inception_v3_tpu.__main__ import COMMANDS
from tests.support.project import ROOT

NOTEBOOKS = sorted(path.name for path in (ROOT / 'examples').glob('*.ipynb'))


def cells(notebook: str) -> List[str]:
    """The code of a notebook's cells."""
    content = json.loads((ROOT / 'examples' / notebook).read_text())
    assert all(not cell.get('outputs') for cell in content['cells'])
    return [''.join(cell['source']) for cell in content['cells'] if cell['cell_type'] == 'code']


@pytest.mark.parametrize('notebook', NOTEBOOKS)
def test_notebook__runs_commands_of_the_program_with_its_flags(notebook: str) -> None:
    code = '\n'.join(cells(notebook))
    lines = re.findall(r'^inception-v3 (.*)$', code, re.MULTILINE)
    assert len(lines) >= 4
    for line in lines:
        name, *words = line.partition(' 2>')[0].split()
        assert name in COMMANDS
        if name == 'train':
            flags.parse(['train', *(word for word in words if word != '$FLAGS')], tf_config='')
    # A failing command fails its cell, where `!command` would not.
    assert '\n!' not in code and code.count('%%bash') == len(
        [cell for cell in cells(notebook) if 'inception-v3 ' in cell]
    )
