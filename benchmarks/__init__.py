"""Benchmarks of the input pipeline and of training steps, by the program's own commands.

Begin with the commands `input`, `training` and `balance`; `peers` compares with other libraries. Only `studies` imports
this package.
"""

import importlib.machinery
import os
import sys

# Before any module of the package loads TensorFlow; and by its path, because a user's console.py may hide it.
if 'console' not in sys.modules:
    _path = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'console', '__init__.py')
    importlib.machinery.SourceFileLoader('console', _path).load_module()
