"""The findings of an audit: errors, which make training fail, and warnings."""

from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

from data.dataset_info import FILE_NAME
from data.record_checker import BadRecord
from data.records import TRAIN, VALIDATION

# The number of places or names that a finding lists.
NAMED_AT_MOST = 3
_STOPS = ', unless --max_bad_records allows for them'

Report = Dict[str, Any]


class Check(NamedTuple):
    """A kind of problem of records.

    Attributes:
      kind: its key in the report.
      finding: the finding's beginning, with a placeholder for the split.
      consequence: a sentence about the consequence; empty if the finding says it.
      errors_in: the splits in which it makes training fail.
      warnings_in: the splits in which it does not.
    """

    kind: str
    finding: str
    consequence: str
    errors_in: Sequence[str] = ()
    warnings_in: Sequence[str] = ()


_BOTH = (TRAIN, VALIDATION)
_BAD_BOXES = '{} records whose boxes cannot be used'
CHECKS = (
    Check('bad_fields', '{} records that cannot be used', f'Training stops at them{_STOPS}.', errors_in=_BOTH),
    Check(
        'undecodable',
        '{} images that cannot be decoded',
        f'Training stops at them, except at crops of a JPEG that does not notice its damage{_STOPS}.',
        errors_in=_BOTH,
    ),
    Check('bad_boxes', _BAD_BOXES, f'With --use_annotated_bbox, training stops at them{_STOPS}.', errors_in=(TRAIN,)),
    Check(
        'contradictions',
        '{} records whose fields contradict their image',
        'Training ignores these fields.',
        warnings_in=_BOTH,
    ),
    Check('left_out', 'files in the {} shards that belong to no sample, and are left out', '', warnings_in=_BOTH),
    Check('damaged', '{} images with damaged pixels', 'Training uses them as they are.', warnings_in=_BOTH),
    Check(
        'rotated',
        '{} images with an EXIF orientation',
        'Training ignores it, and sees them turned or mirrored; inception-v3 from-folder turns images upright.',
        warnings_in=_BOTH,
    ),
    Check('bad_boxes', _BAD_BOXES, 'Evaluation ignores boxes.', warnings_in=(VALIDATION,)),
)
# All kinds of problems, in the order of the report. The first one is of files that cannot be read to their end.
KINDS = ('bad_files', 'bad_fields', 'bad_boxes', 'undecodable', 'damaged', 'rotated', 'contradictions', 'left_out')


def judge(report: Report) -> Tuple[List[str], List[str]]:
    """Derives the findings from the content part of a report of `data.audit.report.audit`.

    Returns:
      The errors, which make training fail, and the warnings.
    """
    errors, warnings = [], []
    for split, described in report['splits'].items():
        errors += [*_errors_of_files(split, described), *_checked(split, described, 'errors_in')]
        warnings += _warnings(split, described)
    warnings += [*_about_identity(report), *_about_classes(report), *_about_duplicates(report)]
    others = report['other_files']
    if others:
        warnings.append(f'other files, which are not read: {len(others):,}: {_listed(others)}')
    return errors, warnings


def _checked(split: str, described: Report, severity: str) -> List[str]:
    findings = []
    for check in CHECKS:
        found = described[check.kind]
        if found['count'] and split in getattr(check, severity):
            consequence = check.consequence and f' {check.consequence}'
            findings.append(f'{check.finding.format(split)}: {found["count"]:,}.{consequence} {_named(found)}')
    return findings


def _errors_of_files(split: str, described: Report) -> List[str]:
    bad_files = described['bad_files']
    errors = [str(BadRecord(**place)) for place in bad_files['first']]
    if bad_files['count'] > len(errors):
        errors.append(f'{split} files that cannot be read to their end: {bad_files["count"]:,}.')
    if described['files'] and not described['records']:
        errors.append(f'the {split} files have no records.')
    return errors


def _warnings(split: str, described: Report) -> List[str]:
    warnings = []
    missing, expected, boxes = (described[key] for key in ('missing_files', 'records_expected', 'boxes'))
    count = described['records']
    if missing:
        all_files = len(missing) + described['files']
        warnings.append(f'missing {split} files: {len(missing):,} of {all_files:,}: {_listed(missing)}')
    if expected not in (None, count):
        warnings.append(f'{split} records: {count:,}; {FILE_NAME} says {expected:,}.')
    warnings += _checked(split, described, 'warnings_in')
    # Images without boxes are normal.
    partial = [
        f'{field} ({present:,})'
        for field, present in described['fields'].items()
        if present < count and not field.startswith('image/object/')
    ]
    if partial:
        warnings.append(f'fields that some of the {count:,} {split} records lack: {_listed(partial)}')
    if boxes['in_pixels'] or boxes['empty']:
        warnings.append(
            f'{split} boxes in pixels instead of fractions of the image: {boxes["in_pixels"]:,} of '
            f'{boxes["boxes"]:,}; without area: {boxes["empty"]:,}. --use_annotated_bbox ignores them, and does '
            'not crop an image without other boxes.'
        )
    if boxes['out_of_range']:
        warnings.append(
            f'{split} boxes that extend beyond their image, and are clipped: '
            f'{boxes["out_of_range"]:,} of {boxes["boxes"]:,}.'
        )
    return warnings


def _about_identity(report: Report) -> List[str]:
    prints = report['fingerprint']
    if prints['agree'] is False:
        return [f'{FILE_NAME} has the fingerprint of other data: {prints["dataset_json"]}.']
    if report['name'] is not None:
        return []
    if report['is_counted']:
        largest = max((c['label'] for c in report['classes'] if c[TRAIN] or c[VALIDATION]), default=0)
        return [
            f"no readable {FILE_NAME}: a run counts the images, and assumes ImageNet's 1,001 classes. "
            f'The largest label is {largest}: pass --num_classes={max(largest, 1) + 1}.'
        ]
    flags = {'--num_train_images': TRAIN, '--num_eval_images': VALIDATION}
    counts = {flag: report['splits'][split]['records'] for flag, split in flags.items()}
    # The flags do not allow 0; a split without records is a finding of its own.
    given = ' '.join(f'{flag}={count}' for flag, count in counts.items() if count)
    return [
        f'no readable {FILE_NAME}: a run assumes the numbers of images and classes of ImageNet. '
        f'Pass {given}{" and " if given else ""}--num_classes.'
    ]


def _about_classes(report: Report) -> List[str]:
    findings = []
    background = sum(c[split] for c in report['classes'] if c['label'] == 0 for split in report['splits'])
    if report['name'] is None and not report['label_offset'] and background:
        findings.append(
            f'images with label 0, which is the background: {background:,}. If it is a class, and the network '
            'should have a background, too, give --label_offset=1.'
        )
    kinds: Dict[str, List[str]] = {}
    for c in report['classes']:
        trained, validated = bool(c[TRAIN]), bool(c[VALIDATION])
        # Most data sets have no images of the background. A missing split is a finding of its own.
        is_counted = trained or validated or report['splits'][TRAIN]['records']
        if (trained and validated) or not is_counted or not 1 <= c['label'] < report['num_classes']:
            continue
        what = 'validation images' if trained else 'images'
        what = f'classes with validation images and without training {what}' if validated else f'classes without {what}'
        kinds.setdefault(what, []).append(f'{c["label"]}' + (f' ({c["name"]})' if c['name'] else ''))
    return [*findings, *(f'{what}: {len(found):,}: {_listed(found)}' for what, found in kinds.items())]


def _about_duplicates(report: Report) -> List[str]:
    copies = report['duplicates']

    def one_of_each(key: str) -> Callable[[Sequence[Report]], List[Report]]:
        def select(group: Sequence[Report]) -> List[Report]:
            firsts: Dict[Any, Report] = {}
            for place in group:
                firsts.setdefault(place[key], place)
            return [*firsts.values()]

        return select

    def within(split: str) -> Callable[[Sequence[Report]], List[Report]]:
        return lambda group: [place for place in group if place['split'] == split]

    # Each kind with a function that selects the places of a group that show it.
    kinds: Tuple[Tuple[str, str, Callable[[Sequence[Report]], List[Report]]], ...] = (
        ('of_several_labels', 'images under several labels', one_of_each('label')),
        (
            'between',
            'validation images that are also training images, which overstates the accuracy',
            one_of_each('split'),
        ),
        (TRAIN, f'{TRAIN} images that are copies of others', within(TRAIN)),
        (VALIDATION, f'{VALIDATION} images that are copies of others', within(VALIDATION)),
    )
    findings = []
    for key, what, select in kinds:
        if copies[key]:
            examples = [places for places in map(select, copies['first']) if len(places) > 1][:NAMED_AT_MOST]
            texts = [' = '.join(f'{p["path"]}, record {p["position"]}' for p in e[:NAMED_AT_MOST]) for e in examples]
            findings.append(f'{what}: {copies[key]:,}, such as {"; ".join(texts)}')
    return findings


def _named(found: Report) -> str:
    texts = [str(BadRecord(**place)).rstrip('.') for place in found['first'][:NAMED_AT_MOST]]
    more = found['count'] - len(texts)
    return '; '.join(texts) + (f'; and {more:,} more' if more else '')


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - NAMED_AT_MOST
    return ', '.join(texts[:NAMED_AT_MOST]) + (f' and {more:,} more' if more > 0 else '')
