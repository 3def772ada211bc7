"""Tests of a run's introduction, of the notes and warnings at its start, and of its summary."""

import dataclasses
import re
from typing import Any, Dict, List, Tuple

import pytest

from compat import tf
from data.dataset_info import DatasetInfo
from inception_v3.config import Config
from inception_v3.moving_average import update_averages
from inception_v3.presets import PRESETS
from inception_v3.run.summary import initial_share_of_averages, introduction_of, notes_of, summary_of, warnings_of
from inception_v3.tpu import accelerator
from tests.support.evaluations import DIGITS, EVALUATION


def test_introduction__describes_the_digits_preset() -> None:
    data_set = DatasetInfo('digits', 'scikit-learn', 1438, 359, 11, list('_0123456789'))
    assert introduction_of(Config(**PRESETS['digits']), data_set).splitlines() == [
        'network   inception_v3, 1,379,119 parameters, 75 x 75 pixels, 11 classes',
        'data set  digits: 1,438 training and 359 validation images',
        'run       train_and_eval, batches of 32 images, 750 steps (16.7 epochs)',
        'device    the CPU of this machine, float32',
        'folders   data runs/digits_data, results runs/digits, export runs/digits/export',
    ]


@pytest.mark.parametrize(
    ('changes', 'device'),
    [
        ({'tpu': 'node', 'num_shards': 32}, 'TPU node, 32 cores, 4 hosts, float32'),
        ({'tpu': 'node', 'num_shards': 16}, 'TPU node, 16 cores, 2 hosts, float32'),
        ({'tpu': 'emulated:8', 'precision': 'bfloat16'}, 'an emulated TPU with 8 cores, bfloat16'),
        ({'master': 'grpc://a'}, 'TPU grpc://a, 8 cores, 1 host, float32'),
    ],
)
def test_introduction__names_device_and_batches_of_an_evaluation(changes: Any, device: str) -> None:
    config = Config(
        model_dir='m', use_data='fake', mode='eval', eval_batch_size=64, train_steps=10, num_train_images=512, **changes
    )
    assert introduction_of(config, None).splitlines()[1:] == [
        'data set  random images: 512 training and 50,000 validation images',
        'run       eval, batches of 64 images, 10 steps (20.0 epochs)',
        f'device    {device}',
        'folders   data none, results m, export none',
    ]


def test_introduction__shows_a_digit_of_less_than_a_tenth_of_an_epoch() -> None:
    config = Config(use_tpu=False, train_batch_size=64, train_steps=10, num_train_images=12800)
    assert '10 steps (0.05 epochs)' in introduction_of(config, None)
    assert '10 steps (0.1 epochs)' in introduction_of(dataclasses.replace(config, num_train_images=6400), None)


MOMENTS = "batch normalization: local: over each core's own 128 images; the first core's moving statistics are kept"


@pytest.mark.parametrize(
    ('changes', 'device'),
    [
        ({'num_gpus': 2}, '2 virtual devices of the CPU of this machine'),
        (
            {'worker_hosts': 'a:1,b:1', 'task_index': 1},
            'the CPU of this machine; worker 1 of 2 machines',
        ),
        (
            {'worker_hosts': 'a:1,b:1,c:1', 'task_index': 0, 'train_batch_size': 12, 'eval_batch_size': 12},
            'the CPU of this machine; worker 0 of 3 machines',
        ),
    ],
)
def test_introduction__names_the_devices_and_machines(changes: Any, device: str) -> None:
    config = dataclasses.replace(Config(use_tpu=False, accelerator='cpu', use_data='fake', model_dir='m'), **changes)
    assert f'\ndevice    {device}, float32\n' in introduction_of(config, None)


NO_HEAD = 'the auxiliary head is left out: it needs images of at least 107 x 107 pixels'


@pytest.mark.parametrize(
    ('changes', 'notes'),
    [
        ({}, [MOMENTS]),
        ({'height': 106}, [MOMENTS, NO_HEAD]),
        ({'width': 107, 'height': 107}, [MOMENTS]),
        ({'network': 'resnet50', 'width': 32, 'height': 32}, [MOMENTS]),
        ({'mode': 'eval', 'height': 106}, []),
        ({'num_train_images': 1024}, [MOMENTS]),
        (
            {'num_train_images': 1000},
            [
                MOMENTS,
                'warning: --train_batch_size=1024: the data set has 1,000 training images, so that each batch has some '
                'of them several times. Give a smaller one.',
            ],
        ),
    ],
)
def test_notes_of__name_the_moments_and_an_omitted_head(changes: Any, notes: List[str]) -> None:
    assert [*notes_of(Config(**changes))] == notes


@pytest.mark.parametrize(('mode', 'others'), [('eval', []), ('train', [MOMENTS])])
def test_notes_of__begin_with_the_emulation_in_lines_of_their_own(mode: str, others: List[str]) -> None:
    notes = [*notes_of(Config(tpu='emulated:8', mode=mode))]
    assert notes[0].startswith('THE TPU IS EMULATED: 8 cores on 1 host') and notes[4:] == others
    virtual = [*notes_of(Config(use_tpu=False, accelerator='cpu', num_gpus=2, mode=mode))]
    assert virtual[0].startswith('THE GPUS ARE VIRTUAL: 2 replicas')
    # The log shows a newline inside a message as an escape sequence.
    assert virtual[1].startswith('  as on GPUs: ') and not any('\n' in note for note in [*notes, *virtual])


@pytest.mark.parametrize(
    ('values', 'is_warned'),
    [
        ({}, True),
        # A chosen decay, even a larger one; and a run that is too short for the documented decay.
        ({'batch_norm_decay': 0.999}, False),
        ({'batch_norm_decay': 0.99}, False),
        ({'train_steps': 5000}, False),
        ({'use_tpu': True}, False),
        ({'mode': 'eval'}, False),
    ],
)
def test_notes_of__warn_of_the_default_decay_for_other_cores(values: Dict[str, Any], is_warned: bool) -> None:
    notes = [*notes_of(Config(**{'use_tpu': False, 'accelerator': 'cpu', **values}))]
    assert any(note.startswith('warning: --batch_norm_decay=0.9976 is not alpha ** 1') for note in notes) == is_warned


def test_summary__has_a_line_for_each_known_value() -> None:
    config = Config(model_dir='runs/m', data_dir='my/data', num_eval_images=8)
    assert summary_of(config, DIGITS, EVALUATION, 123.456, 'runs/e/1', EVALUATION).splitlines() == [
        'top-1       75.00%',
        'top-5       100.00%',
        'evaluated   8 images, average weights of step 7',
        'best        75.00% top-1 at step 7, in runs/m/best',
        'training    123.5 images/s',
        'data set    digits, 0123456789ab',
        'results     runs/m',
        'SavedModel  runs/e/1',
    ]
    # Files are missing.
    more = dataclasses.replace(config, num_eval_images=9)
    assert 'evaluated  8 of 9 images' in summary_of(more, None, EVALUATION, None, None, None)
    fewer = dataclasses.replace(config, num_eval_images=7)
    assert 'evaluated  8 of 7 images' in summary_of(fewer, None, EVALUATION, None, None, None)
    assert summary_of(config, None, None, None, None, None).splitlines() == ['data set  my/data', 'results   runs/m']


def test_summary__shows_optional_values_only_if_they_are_known() -> None:
    config = Config(model_dir='m', data_dir='d')
    for num_classes, is_shown in ((6, False), (7, True)):
        few = dataclasses.replace(config, num_classes=num_classes)
        assert ('top-5' in summary_of(few, DIGITS, EVALUATION, None, None, None)) == is_shown
    summary = summary_of(config, DIGITS, None, 123.456, None, None, 239.9, EVALUATION)
    assert summary.splitlines()[:3] == [
        'Total Train Time  0:03:59',
        'Max Accuracy      75.00% at step 7',
        'Avg. Global Rate  123.5 images/s',
    ]
    evaluated = dataclasses.replace(config, mode='eval')
    assert 'Train' not in summary_of(evaluated, DIGITS, EVALUATION, None, None, None, 239.9, EVALUATION)
    for changed, data_set, name in (
        (config, dataclasses.replace(DIGITS, fingerprint=''), 'digits'),
        (dataclasses.replace(config, use_data='fake'), None, 'random images'),
    ):
        assert summary_of(changed, data_set, None, None, None, None).startswith(f'data set  {name}\n')


CPU = Config(use_tpu=False, train_steps=5000)


@pytest.mark.parametrize('decay', [0.15, 0.995])
def test_initial_share_of_averages__is_that_of_the_running_average(decay: float) -> None:
    weight = tf.get_variable('weight', [], initializer=tf.ones_initializer(), use_resource=True)
    step = tf.placeholder(tf.int64, [])
    update = update_averages(decay, step)
    average = next(v for v in tf.global_variables() if 'Average' in v.name)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        weight.load(0.0, session)
        for number in range(1, 5):
            session.run(update, {step: number})
            assert session.run(average) == pytest.approx(initial_share_of_averages(decay, number), rel=1e-5)


@pytest.mark.parametrize(
    ('values', 'words'),
    [
        # 0.9976 ** 400 = 0.38, and 0.9976 ** 958 = 0.1001.
        ({'train_steps': 400}, '--batch_norm_decay=0.9976: at the end, after 400 steps, .* hold 38% of'),
        ({'train_steps': 958}, 'at the end, after 958 steps'),
        ({'train_steps': 400, 'train_steps_per_eval': 200}, 'at the end, after 400 steps'),
        ({'train_steps_per_eval': 500}, 'at the first evaluation, after 500 steps, .* hold 30% of'),
        (
            {'train_steps': 1, 'batch_norm_decay': 0.01},
            '--moving_average_decay=0.995: at the end, after 1 steps?, .*18%',
        ),
    ],
)
def test_warnings__name_the_flag_and_the_share(values: Dict[str, Any], words: str) -> None:
    (warning,) = warnings_of(dataclasses.replace(CPU, **values))
    assert re.search(words, warning), warning
    # The statistics of a trained network need no steps to settle.
    begun = dataclasses.replace(CPU, **values, init_from='run')
    assert [*warnings_of(begun)] == ([] if '--batch_norm_decay' in warning else [warning])


def test_warnings__are_not_given_for_presets_and_forgotten_values() -> None:
    values: Tuple[Dict[str, Any], ...] = ({}, {'train_steps': 960}, {'train_steps_per_eval': 500, 'mode': 'train'})
    configs = [dataclasses.replace(CPU, **each) for each in values]
    configs += [Config(**preset) for preset in PRESETS.values()]
    configs.append(dataclasses.replace(CPU, train_steps=1, batch_norm_decay=0.01, moving_average=False))
    assert not [text for config in configs for text in warnings_of(config)]


@pytest.mark.parametrize('steps', [1, 7, 800])
def test_warnings__suggest_a_decay_that_forgets(steps: int) -> None:
    config = dataclasses.replace(CPU, train_steps=steps, moving_average=False)
    (warning,) = warnings_of(config)
    suggested = float(re.findall(r'Use --batch_norm_decay=([\d.]+) ', warning)[0])
    assert 0.001 < suggested**steps < 0.0101
    assert not [*warnings_of(dataclasses.replace(config, batch_norm_decay=suggested))]


def test_notes_of__warn_of_virtual_gpus_and_of_seeds_on_real_ones(monkeypatch: Any) -> None:
    virtual = Config(use_tpu=False, accelerator='cpu', num_gpus=2, mode='eval')
    # The notice has several lines, and each is logged as one.
    first, *others = notes_of(virtual)
    assert first == 'THE GPUS ARE VIRTUAL: 2 replicas on devices of this CPU.'
    assert others and not any('\n' in line for line in others)
    assert [*notes_of(dataclasses.replace(virtual, num_gpus=1))] == []
    monkeypatch.setattr(accelerator, 'visible_gpus', lambda: 2)
    on_gpus = Config(use_tpu=False, num_gpus=2, mode='train')
    last_bits = 'on a GPU, --seed repeats data and initial weights, but not the last bits of every sum'
    for seed, is_said in ((None, False), (0, True), (1, True)):
        notes = [*notes_of(dataclasses.replace(on_gpus, seed=seed))]
        assert (last_bits in notes) == is_said and not any('VIRTUAL' in note for note in notes)
    assert last_bits not in notes_of(Config(use_tpu=False, accelerator='cpu', seed=1, mode='train'))


def test_class_weights__are_shown_with_the_classes_at_both_ends() -> None:
    config = Config(model_dir='m', data_dir='d', num_classes=4, class_weights='w.csv=9,0.51234,2,1.5')
    named = DatasetInfo('pets', '', 1, 1, 4, ['background', 'cat', 'dog', ''], '')

    def shown(config: Config, data_set: Any) -> List[str]:
        lines = summary_of(config, data_set, None, None, None, None).splitlines()
        return [line.partition('  ')[2] for line in lines if line.startswith('class weights')]

    assert shown(config, named) == ['w.csv, 0.5123 (cat) to 2 (dog)']
    # No image has the weight of the background; without names, class 0 is the background.
    others = dataclasses.replace(named, class_names=['x', 'cat', 'dog', ''])
    assert shown(config, others) == ['w.csv, 0.5123 (cat) to 9 (x)']
    assert shown(config, None) == ['w.csv, 0.5123 (class 1) to 2 (class 2)']
    unnamed = dataclasses.replace(config, class_weights='w.csv=1,1,1,0.5')
    assert shown(unnamed, named) == ['w.csv, 0.5 (class 3) to 1 (cat)']
    for other in (dataclasses.replace(config, mode='eval'), dataclasses.replace(config, class_weights='')):
        assert shown(other, named) == []
