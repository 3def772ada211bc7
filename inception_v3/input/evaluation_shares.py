"""The validation images that each host of a TPU evaluates."""

from typing import List

from console.log import logger
from data import dataset_info, records
from data.sources import source_of
from inception_v3.config import Config
from inception_v3.tpu import slices


def images_of_hosts(config: Config, hosts: int) -> List[int]:
    """The validation images that each host of a TPU evaluates.

    `dataset.json` tells how many records each file has. Without it, or if it does not describe these files, the records
    are counted. Raises DataError or RemoteError if that fails.
    """
    if config.use_data == 'fake':
        return slices.images_of_hosts([1] * config.eval_images, hosts)
    source = source_of(config)
    paths = source.find(records.VALIDATION)
    info = None if config.eval_files else dataset_info.read(config.data_dir)
    counts = info.validation_records_per_file if info else []
    if len(counts) != len(paths):
        logger.info('%s: counting the records of %d validation files', source.flag(records.VALIDATION), len(paths))
        counts = [each.records for each in source.contents(paths)]
    return slices.images_of_hosts(counts, hosts, config.eval_total_size)
