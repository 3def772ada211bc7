"""Sums over the replicas of two machines: two servers of this process stand in for theirs."""

import functools
import threading
from typing import Any, Dict, List

import numpy as np
import pytest

from compat import tf
from inception_v3 import distribution, replicas, seeding
from inception_v3.config import Config
from inception_v3.machines import sums
from tests.support.ports import free_addresses

GROUPS, PAIRS = [[0, 1, 2, 3]], [[0, 1], [2, 3]]
# 2 ** 24 + 1 is lost to rounding. The sum is 5 if each machine adds its own two first, 4 in the order of all replicas,
# and 6 if the small numbers are added first.
VALUES = np.float32([2**24, 1, 1, 4 - 2**24])
VECTORS = np.float64([[1, 2, 3], [10, 20, 30], [100, 200, 300], [1000, 2000, 3000]])


def computation() -> List[tf.Tensor]:
    one, other = (tf.gather(tf.constant(each), replicas.number()) for each in (VALUES, VECTORS))
    return [
        tf.convert_to_tensor(replicas.number()),
        replicas.sums(GROUPS, one)[0],
        *replicas.sums(PAIRS, other),
        replicas.mean(other),
        replicas.all_true(tf.less(one, 2**24)),
    ]


def results_of(addresses: List[str], number: int, seed: Any, found: Dict[int, Any]) -> None:
    config = Config(
        use_tpu=False, accelerator='cpu', num_gpus=2, worker_hosts=','.join(addresses), task_index=number, seed=seed
    )
    session_config = seeding.session_config(config)
    sums.set_cluster(session_config, config)
    with tf.Graph().as_default():
        strategy: Any = distribution.strategy_of(config)
        with strategy.scope():
            assert strategy.num_replicas_in_sync == 4
            outputs = [
                strategy.experimental_local_results(each)
                for each in strategy.extended.call_for_each_replica(computation)
            ]
        with tf.Session(strategy.server(session_config), config=session_config) as session:
            found[number] = session.run(outputs)


@pytest.mark.parametrize('seed', [1, None])
def test_sums__add_each_machines_own_replicas_first(seed: Any) -> None:
    addresses = free_addresses(2)
    found: Dict[int, Any] = {}
    threads = [
        threading.Thread(target=functools.partial(results_of, addresses, number, seed, found), daemon=True)
        for number in (0, 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    numbers, totals, own, firsts, means, are_true = (
        np.concatenate([found[machine][place] for machine in (0, 1)]) for place in range(6)
    )
    assert numbers.tolist() == [0, 1, 2, 3]
    assert totals.tolist() == [5] * 4
    np.testing.assert_array_equal(own, [[11, 22, 33]] * 2 + [[1100, 2200, 3300]] * 2)
    np.testing.assert_array_equal(firsts, [[11, 22, 33]] * 4)
    np.testing.assert_allclose(means, [[1111 / 4, 2222 / 4, 3333 / 4]] * 4)
    assert are_true.tolist() == [False] * 4
