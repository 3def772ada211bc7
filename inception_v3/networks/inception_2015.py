"""The Inception graph of December 2015, on whose features FID, KID and Inception Score are defined.

Its last block has max pooling, and there is no auxiliary head. `inception-v3 fid` reads its weights.
"""

import functools

from inception_v3.networks.inception_v3 import MIXED_8, MaxPool, expanded, inception_v3

MIXED_8_OF_2015 = (*MIXED_8[:-1], expanded('Mixed_7c', place_3x1='0c', pool=MaxPool(stride=1, padding='SAME')))

inception_2015 = functools.partial(inception_v3, auxiliary_head=False, mixed_8=MIXED_8_OF_2015)
