"""Tests of the table of the graph of December 2015; `tests/tools/features/` compares its results."""

from inception_v3.networks.inception_2015 import MIXED_8_OF_2015, inception_2015
from inception_v3.networks.inception_v3 import MIXED_8, AveragePool, MaxPool


def test_last_block__alone_differs_from_inception_v3() -> None:
    assert MIXED_8_OF_2015[:2] == MIXED_8[:2] and len(MIXED_8_OF_2015) == 3
    last, own = MIXED_8_OF_2015[2], MIXED_8[2]
    assert (last.scope, last.branches[0], last.branches[2]) == (own.scope, own.branches[0], own.branches[2])
    assert [pooled.branches[3][0] for pooled in (last, own)] == [MaxPool(stride=1, padding='SAME'), AveragePool()]
    assert last.branches[3][1] == own.branches[3][1]
    assert inception_2015.keywords == {'auxiliary_head': False, 'mixed_8': MIXED_8_OF_2015}
