"""Tests of the combinations of values that are refused, each with its neighbour that is allowed."""

from typing import Any, Dict, Tuple

import pytest

from inception_v3.config import Config, ConfigError

WARM_UP = {'use_learning_rate_warmup': True}
TAR_BOXES = {'data_format': 'tar', 'use_annotated_bbox': True}
SAME_FOLDER = {'model_dir': 'runs/../x', 'data_dir': 'x/'}

# Refused values, the message, and a change that makes them allowed.
CASES: Tuple[Tuple[Dict[str, Any], str, Dict[str, Any]], ...] = (
    (
        {'train_batch_size': 1020},
        '--train_batch_size=1020: must be a multiple of the number of TPU cores, --num_shards=8; the nearest is 1024.',
        {'train_batch_size': 1024},
    ),
    (
        {'eval_batch_size': 100},
        '--eval_batch_size=100: must be a multiple of the number of TPU cores, --num_shards=8; the nearest is 96.',
        {'use_tpu': False},
    ),
    (
        {'master': 'http://a'},
        '--master=http://a: must be an address that begins with grpc://.',
        {'master': 'grpc://a'},
    ),
    ({'master': 'grpc:a'}, '--master=grpc:a: must be an address that begins with grpc://.', {'master': ''}),
    (
        {'master': 'grpc://a', 'tpu': 'node'},
        '--master=grpc://a: replaces --tpu; leave out --tpu=node.',
        {'tpu': None},
    ),
    (
        {'master': 'grpc://a', 'tpu': 'emulated:8'},
        '--master=grpc://a: an emulated TPU, --tpu=emulated:8, has no address.',
        {'master': ''},
    ),
    (
        {'tpu': 'local', 'num_shards': 32},
        '--num_shards=32: --tpu=local is the TPU of one machine, which has 8 cores. Name a slice with --tpu=NAME.',
        {'num_shards': 8},
    ),
    (
        {'accelerator': 'gpu', 'tpu': 'node'},
        '--accelerator=gpu: is the device of a run without a TPU; here --use_tpu=True and --tpu=node. Give '
        '--use_tpu=False, or leave out --accelerator.',
        {'accelerator': 'auto'},
    ),
    (
        {'accelerator': 'cpu'},
        '--accelerator=cpu: is the device of a run without a TPU; here --use_tpu=True. Give --use_tpu=False, or leave '
        'out --accelerator.',
        {'use_tpu': False},
    ),
    (
        {'precision': 'float16'},
        '--precision=float16: is for GPUs; a TPU computes in bfloat16. Give --precision=bfloat16.',
        {'use_tpu': False},
    ),
    (
        {'layout': 'NCHW'},
        '--layout=NCHW: is for GPUs; a TPU computes in NHWC. Leave out --layout.',
        {'use_tpu': False},
    ),
    (
        {'layout': 'NCHW', 'use_tpu': False, 'accelerator': 'cpu'},
        '--layout=NCHW: is for GPUs; a CPU computes in NHWC. Leave out --layout.',
        {'accelerator': 'gpu'},
    ),
    (
        {'layout': 'NCHW', 'use_tpu': False, 'batch_norm': 'synchronized'},
        '--layout=NCHW: needs --batch_norm=local; a run on a GPU has one core, whose own moments are used.',
        {'layout': 'NHWC'},
    ),
    ({'tpu': 'emulated:4'}, '--num_shards=8: --tpu=emulated:4 has 4 cores.', {'use_tpu': False}),
    (
        {'batch_norm_group_size': 3, 'batch_norm': 'synchronized'},
        '--batch_norm_group_size=3: must divide the number of cores, 8 (--num_shards).',
        {'batch_norm_group_size': 4},
    ),
    (
        {'batch_norm_group_size': 2, 'batch_norm': 'averaged'},
        '--batch_norm_group_size=2: needs --batch_norm=synchronized; here it is averaged.',
        {'mode': 'eval'},
    ),
    (
        {**WARM_UP, 'warmup_epochs': 0, 'learning_rate_decay_epochs': 1},
        '--warmup_epochs=0: must be at least 1 with --use_learning_rate_warmup and --learning_rate_decay_epochs=1.',
        {'warmup_epochs': 1},
    ),
    (
        {**WARM_UP, 'warmup_epochs': 0, 'learning_rate_decay_epochs': 1},
        '--warmup_epochs=0: must be at least 1 with --use_learning_rate_warmup and --learning_rate_decay_epochs=1.',
        {'learning_rate_decay_epochs': 2},
    ),
    (
        {**WARM_UP, 'warmup_epochs': 0, 'schedule': 'step'},
        '--warmup_epochs=0: must be at least 1 with --use_learning_rate_warmup and --schedule=step.',
        {'warmup_epochs': 1, 'learning_rate_decay_epochs': 1},
    ),
    (
        {**WARM_UP, 'warmup_epochs': 0, 'schedule': 'cosine'},
        '--warmup_epochs=0: must be at least 1 with --use_learning_rate_warmup and --schedule=cosine.',
        {'use_learning_rate_warmup': False},
    ),
    (
        {'step_epochs': '5,1000000'},
        '--step_epochs=5,1000000: must be increasing epochs from 1, such as 30,60,80.',
        {'step_epochs': '1,999999'},
    ),
    ({'width': 74}, '--width=74: must be at least 75 with --network=inception_v3.', {'width': 75}),
    (
        {'width': 31, 'height': 32, 'network': 'resnet50'},
        '--width=31: must be at least 32 with --network=resnet50.',
        {'width': 32},
    ),
    (
        {'network': 'revnet56', 'zero_init_last_scale': True},
        '--zero_init_last_scale=True: --network=revnet56 has no batch-norm scale at the end of a residual block. Leave '
        'the flag out; it is allowed with resnet50.',
        {'network': 'resnet50'},
    ),
    ({'model_dir': 'run*'}, '--model_dir=run*: must not contain any of the characters * ? [.', {'model_dir': 'run]'}),
    ({'model_dir': 'r?n'}, '--model_dir=r?n: must not contain any of the characters * ? [.', {'model_dir': 'run'}),
    ({'model_dir': '[run'}, '--model_dir=[run: must not contain any of the characters * ? [.', {'model_dir': None}),
    (
        SAME_FOLDER,
        '--model_dir=runs/../x: must not be --data_dir; keep checkpoints apart from the records.',
        {'model_dir': 'x/model'},
    ),
    (TAR_BOXES, '--use_annotated_bbox=True: --data_format=tar has no bounding boxes.', {'data_format': 'tfrecord'}),
    (TAR_BOXES, '--use_annotated_bbox=True: --data_format=tar has no bounding boxes.', {'use_annotated_bbox': False}),
    *(
        ({'profile_steps': steps}, f'--profile_steps={steps}: {message}', {'profile_steps': mended})
        for steps, message, mended in (
            ('5', 'must be the first and the last step, counted from 1, such as 101,110.', '5,5'),
            ('0,5', 'must be the first and the last step, counted from 1, such as 101,110.', '1,5'),
            ('1, 5', 'must be the first and the last step, counted from 1, such as 101,110.', '1,5'),
            ('5,4', 'the first step must not come after the last.', '4,5'),
            ('1,101', 'must be at most 100 steps; a trace holds every operation of each.', '2,101'),
            ('212991,213001', 'must end by --train_steps=213000.', '212991,213000'),
            (
                '2000,2001',
                'must not contain an evaluation; there is one after every --train_steps_per_eval=2000 steps.',
                '2001,2002',
            ),
        )
    ),
    (
        {'profile_steps': '1,5', 'mode': 'eval'},
        '--profile_steps=1,5: needs training; here --mode=eval.',
        {'mode': 'train'},
    ),
    (
        {'image_summaries': 2, 'use_data': 'fake'},
        '--image_summaries=2: needs --use_data=real; fake images are noise.',
        {'use_data': 'real'},
    ),
    (
        {'max_bad_records': 2},
        '--max_bad_records=2: needs --model_dir, where skipped records are listed.',
        {'model_dir': 'run'},
    ),
)


@pytest.mark.parametrize(('values', 'message', 'mended'), CASES)
def test_contradictions__are_named_alone_and_can_be_mended(values: Any, message: str, mended: Any) -> None:
    with pytest.raises(ConfigError) as error:
        Config(**values)
    assert str(error.value) == message
    Config(**{**values, **mended})


def test_contradictions__are_all_named() -> None:
    with pytest.raises(ConfigError) as error:
        Config(height=74, width=74, train_batch_size=4, max_bad_records=1)
    assert [line.partition('=')[0] for line in str(error.value).splitlines()] == [
        '--train_batch_size',
        '--height',
        '--width',
        '--max_bad_records',
    ]
