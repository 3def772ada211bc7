"""The findings of an audit: errors, which make training fail, and warnings."""

from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from compat.messages import FEW, first_few
from data import checks
from data.dataset_info import BACKGROUND, FILE_NAME
from data.record_checker import BadRecord
from data.records import TRAIN, VALIDATION
from tools.datasets.classes import ClassImages, alike, remarks

Report = Dict[str, Any]


class Check(NamedTuple):
    """A problem of records: its key in the report, the finding, its severity, and its split if it has only one."""

    kind: str
    finding: str
    is_error: bool = False
    split: Optional[str] = None


_STOPS = 'unless --max_bad_records allows for them'
CHECKS = (
    Check('bad_fields', f'{{}} records that cannot be used: {{:,}}. Training stops at them, {_STOPS}.', True),
    Check(
        'undecodable',
        '{} images that cannot be decoded: {:,}. Training stops at them, except at crops of a JPEG that does not '
        f'notice its damage, {_STOPS}.',
        True,
    ),
    Check(
        'bad_boxes',
        '{} records whose boxes cannot be used: {:,}. With --use_annotated_bbox, training stops at them, '
        f'{_STOPS}.',
        True,
        TRAIN,
    ),
    Check('left_out', 'files in the {} shards that belong to no sample, and are left out: {:,}.'),
    Check('damaged', '{} images with damaged pixels: {:,}. Training uses them as they are.'),
    Check(
        'rotated',
        '{} images with an EXIF orientation: {:,}. Training ignores it, and sees them turned or mirrored; inception-v3 '
        'from-folder turns images upright.',
    ),
    Check('bad_boxes', '{} records whose boxes cannot be used: {:,}. Evaluation ignores boxes.', split=VALIDATION),
)
# All kinds of problems, for the report. The first is for files that cannot be read to their end.
KINDS = ('bad_files', *dict.fromkeys(check.kind for check in CHECKS))


def judge(report: Report) -> Tuple[List[str], List[str]]:
    """The errors, which make training fail, and the warnings about the content in a report of `report.audit`."""
    of_splits = [finding for split, described in report['splits'].items() for finding in _of_split(split, described)]
    errors, warnings = ([text for is_error, text in of_splits if is_error == wanted] for wanted in (True, False))
    warnings += [*_about_identity(report), *_about_classes(report), *_about_duplicates(report['duplicates'])]
    # Names of classes exist only with a description.
    names = {c['label']: c['name'] for c in report['classes']}
    if _of_background(report) and any(names.values()) and names[0] in ('', BACKGROUND):
        errors.append(
            f'images with label 0, the {BACKGROUND} in {FILE_NAME}, which has no images: {_of_background(report):,}. '
            'If labels begin at 0, every class has the name of another: give --label_offset='
            f'{report["label_offset"] + 1}, which is added to the labels of both splits; if only one split begins '
            'at 0, write it again.'
        )
    others = report['other_files']
    if others:
        warnings.append(f'other files, which are not read: {len(others):,}: {first_few(others)}')
    return errors, warnings


def _of_split(split: str, described: Report) -> Iterator[Tuple[bool, str]]:
    """Yields the findings of a split, each with whether it is an error."""
    unread, first = described['bad_files'].values()
    yield from ((True, str(BadRecord(**place))) for place in first)
    if unread > len(first):
        yield True, f'{split} files that cannot be read to their end: {unread:,}.'
    missing, expected, boxes, count = (
        described[key] for key in ('missing_files', 'records_expected', 'boxes', 'records')
    )
    if described['files'] and not count:
        yield True, f'the {split} files have no records.'
    if missing:
        yield False, checks.incomplete(split, missing, described['files'])
    if expected not in (None, count):
        yield False, checks.other_count(split, count, expected)
    for check in CHECKS:
        found = described[check.kind]
        if found['count'] and check.split in (None, split):
            places = [str(BadRecord(**place)).rstrip('.') for place in found['first'][:FEW]]
            more = found['count'] - len(places)
            text = '; '.join([*places, *[f'and {more:,} more'] * bool(more)])
            yield check.is_error, f'{check.finding.format(split, found["count"])} {text}'
    # Images without boxes are normal.
    fields = {name: number for name, number in described['fields'].items() if not name.startswith('image/object/')}
    partial = [f'{name} ({number:,})' for name, number in fields.items() if number < count]
    if partial:
        yield False, f'fields that some of the {count:,} {split} records lack: {first_few(partial)}'
    if boxes['outside']:
        yield (
            False,
            f'{split} boxes that extend beyond their image, or have no area in it: {boxes["outside"]:,} of '
            f'{boxes["boxes"]:,}. Training clips them, and ignores those without area.',
        )


def _about_identity(report: Report) -> Iterator[str]:
    if report['fingerprint']['agree'] is False:
        yield f'{FILE_NAME} has the fingerprint of other data: {report["fingerprint"]["dataset_json"]}.'
    elif report['counts_agree'] is False:
        yield (
            f'{FILE_NAME} has other numbers of training images of the classes, train_images_per_class, by which '
            '--class_weights=balanced weighs them. Correct them, or remove them: then a run counts.'
        )
    if report['name'] is not None:
        return
    largest = max((c['label'] for c in report['classes'] if c[TRAIN] or c[VALIDATION]), default=0)
    flags = {'--num_train_images': TRAIN, '--num_eval_images': VALIDATION}
    counts = {} if report['is_counted'] else {flag: report['splits'][split]['records'] for flag, split in flags.items()}
    # The flags do not allow 0; a split without records is a finding of its own.
    given = [f'{flag}={count}' for flag, count in counts.items() if count]
    assumed = "ImageNet's 1,001 classes" if report['is_counted'] else 'the sizes of ImageNet'
    yield (
        f'no readable {FILE_NAME}: a run assumes {assumed}. The largest label is {largest}. Pass '
        f'{" ".join([*given, f"--num_classes={max(largest, 1) + 1}"])}.'
    )


def _of_background(report: Report) -> int:
    """The number of images with label 0."""
    return sum(c[split] for c in report['classes'] if c['label'] == 0 for split in report['splits'])


def _about_classes(report: Report) -> Iterator[str]:
    background = _of_background(report)
    if report['name'] is None and not report['label_offset'] and background:
        yield (
            f'images with label 0, which is the background: {background:,}. If it is a class, and the network '
            'should have a background, too, give --label_offset=1.'
        )
    # Without the background, of which most data sets have no images.
    of_labels = [c for c in report['classes'] if 1 <= c['label'] < report['num_classes']]
    names = [f'{c["label"]}' + (f' ({c["name"]})' if c['name'] else '') for c in of_labels]
    yield from remarks([ClassImages(name, c[TRAIN], c[VALIDATION]) for name, c in zip(names, of_labels)])
    yield from alike([c['name'] for c in of_labels if c['name']])


def _about_duplicates(copies: Report) -> Iterator[str]:
    for key, what, by in (
        ('of_several_labels', 'images under several labels', 'label'),
        ('between', 'validation images that are also training images, which overstates the accuracy', 'split'),
        (TRAIN, f'{TRAIN} images that are copies of others', ''),
        (VALIDATION, f'{VALIDATION} images that are copies of others', ''),
    ):
        if not copies[key]:
            continue
        places: List[Report] = []
        for group in copies['first']:
            # The first of each label, or of each split.
            firsts = {place[by]: place for place in reversed(group)} if by else {}
            places = [p for p in group if (firsts[p[by]] is p if by else p['split'] == key)]
            if len(places) > 1:
                break
        example = ' = '.join(f'{place["path"]}, record {place["position"]}' for place in places[:FEW])
        # The report lists only the first groups.
        yield f'{what}: {copies[key]:,}' + (f', such as {example}' if len(places) > 1 else '')
