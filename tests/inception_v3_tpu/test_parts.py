"""The parts of the program that `from inception_v3_tpu import …` gives, and their types."""

import ast
import subprocess
import sys
from typing import Dict

import inception_v3_tpu
from inception_v3.model_fn import inception_model_fn
from inception_v3.networks import resnet
from tests.support.project import ROOT
from tools.datasets import digits


def typed() -> Dict[str, str]:
    """The owner of each name that a type checker sees."""
    tree = ast.parse((ROOT / 'inception_v3_tpu' / '__init__.py').read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name))
    found = {}
    for statement in block.body:
        assert isinstance(statement, ast.ImportFrom)
        for alias in statement.names:
            # A type checker takes a name for a part of this module only in the form `NAME as NAME`.
            assert alias.asname == alias.name
            found[alias.name] = str(statement.module)
    return found


def test_parts__are_those_that_a_type_checker_sees() -> None:
    assert typed() == inception_v3_tpu._OWNERS


def test_parts__are_the_objects_of_their_modules() -> None:
    for name in inception_v3_tpu._OWNERS:
        assert getattr(inception_v3_tpu, name) is not None
    assert inception_v3_tpu.inception_model_fn is inception_model_fn
    assert inception_v3_tpu.digits is digits
    assert inception_v3_tpu.networks.resnet is resnet
    assert {'InputPipeline', 'networks'} <= {*dir(inception_v3_tpu)}
    assert not hasattr(inception_v3_tpu, 'no_part') and not hasattr(inception_v3_tpu.networks, 'no_network')


def test_import__loads_no_part() -> None:
    code = 'import inception_v3_tpu, sys; print("numpy" in sys.modules, "inception_v3" in sys.modules)'
    done = subprocess.run([sys.executable, '-c', code], cwd=str(ROOT), stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == 'False False\n'
