"""The program `inception-v3`: every command of the other packages under one name."""

import importlib.machinery
import os
import sys

# By its path, because a user's console.py may hide it. It puts the packages of this program first.
if 'console' not in sys.modules:
    _path = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'console', '__init__.py')
    importlib.machinery.SourceFileLoader('console', _path).load_module()
