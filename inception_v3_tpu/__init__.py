"""The program `inception-v3`: every command under one name.

Installed, this folder holds all other packages, so that site-packages has none named `data` or `console`. A program
that imports them imports this package first.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
# In a checkout, the packages are beside this one. They come first, whatever files the working directory has.
sys.path.insert(0, _HERE if os.path.isdir(os.path.join(_HERE, 'console')) else os.path.dirname(_HERE))
