"""What an audit finds: what training would fail of, and what else a user should know."""

from typing import Any, Callable, Dict, List, Sequence, Tuple

from data import record_checker, records
from data.dataset_info import FILE_NAME

# Places, and other things, that a finding names.
NAMED_AT_MOST = 3

Report = Dict[str, Any]

_BAD_BOXES = 'records whose boxes cannot be used'


def judge(report: Report) -> Tuple[List[str], List[str]]:
    """Judges the report of `data.audit.audit`, as far as it is written.

    Returns:
      The errors, of which training would fail; and the warnings.
    """
    errors = [error for split in report['splits'] for error in _errors(split, report['splits'][split])]
    warnings = [warning for split in report['splits'] for warning in _warnings(split, report['splits'][split])]
    warnings += [*_doubts_of_identity(report), *_doubts_of_classes(report), *_doubts_of_copies(report)]
    others = report['other_files']
    if others:
        warnings.append(f'other files, which are not looked at: {len(others):,}: {_listed(others)}')
    return errors, warnings


def _errors(split: str, described: Report) -> List[str]:
    bad_files = described['bad_files']
    errors = [_at(place) for place in bad_files['first']]
    if bad_files['count'] > len(errors):
        errors.append(f'{split} files that cannot be read to their end: {bad_files["count"]:,}.')
    if described['files'] and not described['records']:
        errors.append(f'there is not one record in the {split} files.')
    kinds = [
        ('bad_fields', 'records that cannot be used', 'Training stops at them'),
        (
            'undecodable',
            'images that cannot be decoded',
            'Training stops at them, or, in a damaged JPEG, at crops that reach the damage',
        ),
    ]
    if split == records.TRAIN:
        kinds.append(('bad_boxes', _BAD_BOXES, 'With --use_annotated_bbox, training stops at them'))
    for key, what, consequence in kinds:
        found = described[key]
        if found['count']:
            errors.append(
                f'{split} {what}: {found["count"]:,}. {consequence}, unless --max_bad_records allows as many. '
                + _named(found)
            )
    return errors


def _warnings(split: str, described: Report) -> List[str]:
    warnings = []
    missing, contradictions, boxes = (described[key] for key in ('missing_files', 'contradictions', 'boxes'))
    if missing:
        all_files = len(missing) + described['files']
        warnings.append(f'{split} files that are missing: {len(missing):,} of {all_files:,}: {_listed(missing)}')
    expected = described['records_expected']
    if expected not in (None, described['records']):
        warnings.append(f'{split} records: {described["records"]:,}; {FILE_NAME} says {expected:,}.')
    if contradictions['count']:
        warnings.append(
            f'{split} records that say what is not true of their image: {contradictions["count"]:,}. Training does not '
            f'mind. {_named(contradictions)}'
        )
    bad_boxes = described['bad_boxes']
    if bad_boxes['count'] and split != records.TRAIN:
        warnings.append(f'{split} {_BAD_BOXES}: {bad_boxes["count"]:,}. Evaluation does not mind. {_named(bad_boxes)}')
    # That many images have no box is as it should be.
    partial = [
        f'{field} ({count:,})'
        for field, count in described['fields'].items()
        if count < described['records'] and not field.startswith('image/object/')
    ]
    if partial:
        warnings.append(f'fields that not all of the {described["records"]:,} {split} records have: {_listed(partial)}')
    if boxes['in_pixels'] or boxes['empty']:
        warnings.append(
            f'{split} boxes in pixels, and not in fractions of the image: {boxes["in_pixels"]:,} of '
            f'{boxes["boxes"]:,}; without any area: {boxes["empty"]:,}. With --use_annotated_bbox they count for '
            'nothing, and an image that has no other is not cropped.'
        )
    if boxes['out_of_range']:
        warnings.append(
            f'{split} boxes that reach over the edge of their image, and are cut off there: '
            f'{boxes["out_of_range"]:,} of {boxes["boxes"]:,}.'
        )
    return warnings


def _doubts_of_identity(report: Report) -> List[str]:
    prints = report['fingerprint']
    if prints['agree'] is False:
        return [f'{FILE_NAME} has the fingerprint of other data: {prints["dataset_json"]}.']
    if report['name'] is None:
        flags = {'--num_train_images': records.TRAIN, '--num_eval_images': records.VALIDATION}
        counts = {flag: report['splits'][split]['records'] for flag, split in flags.items()}
        # A run takes no 0, and that there is not one record is a finding of its own.
        given = ' '.join(f'{flag}={count}' for flag, count in counts.items() if count)
        return [
            f'no {FILE_NAME} that can be read: a run takes the numbers of images and classes for those of ImageNet. '
            f'Give {given}{", and " if given else ""}--num_classes.'
        ]
    return []


def _doubts_of_classes(report: Report) -> List[str]:
    # Label 0 is the background, which images seldom show.
    classes = [c for c in report['classes'] if 1 <= c['label'] < report['num_classes']]
    kinds: Dict[str, List[str]] = {}
    for c in classes:
        trained, validated = bool(c[records.TRAIN]), bool(c[records.VALIDATION])
        what = {
            (False, True): 'classes that are never trained, and have validation images',
            (False, False): 'classes without images',
            (True, False): 'classes without validation images',
        }.get((trained, validated))
        # A split that is not there is a finding of its own.
        if what and (trained or validated or report['splits'][records.TRAIN]['records']):
            kinds.setdefault(what, []).append(f'{c["label"]}' + (f' ({c["name"]})' if c['name'] else ''))
    return [f'{what}: {len(found):,}: {_listed(found)}' for what, found in kinds.items()]


def _doubts_of_copies(report: Report) -> List[str]:
    copies = report['duplicates']
    train, validation = records.TRAIN, records.VALIDATION

    def differing(group: Sequence[Report], what: str) -> List[Report]:
        firsts: Dict[Any, Report] = {}
        for place in group:
            firsts.setdefault(place[what], place)
        return [*firsts.values()]

    def within(group: Sequence[Report], split: str) -> List[Report]:
        return [place for place in group if place['split'] == split]

    # With the places of a group that show it, if there are several.
    kinds: Tuple[Tuple[int, str, Callable[[Sequence[Report]], List[Report]]], ...] = (
        (copies['of_several_labels'], 'images under several labels', lambda group: differing(group, 'label')),
        (
            copies['between'],
            'validation images that are training images, too, and flatter the result',
            lambda group: differing(group, 'split'),
        ),
        (copies[train], f'{train} images that are copies of others', lambda group: within(group, train)),
        (copies[validation], f'{validation} images that are copies of others', lambda group: within(group, validation)),
    )
    doubts = []
    for count, what, showing in kinds:
        if count:
            examples = [shown for shown in map(showing, copies['first']) if len(shown) > 1][:NAMED_AT_MOST]
            places = [' = '.join(f'{p["path"]}, record {p["position"]}' for p in g[:NAMED_AT_MOST]) for g in examples]
            doubts.append(f'{what}: {count:,}, such as {"; ".join(places)}')
    return doubts


def _at(place: Report) -> str:
    return str(record_checker.BadRecord(**place))


def _named(found: Report) -> str:
    texts = [_at(place).rstrip('.') for place in found['first'][:NAMED_AT_MOST]]
    more = found['count'] - len(texts)
    return '; '.join(texts) + (f'; and {more:,} more' if more else '')


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - NAMED_AT_MOST
    return ', '.join(texts[:NAMED_AT_MOST]) + (f' and {more:,} more' if more > 0 else '')
