"""Reads the profile of training steps that a run with `--profile_steps` has written to its model_dir."""

import os

from compat.errors import CommandError
from compat.messages import shown
from console.json_content import from_json, record
from data import files
from inception_v3.run.profile import FORMAT, HOST_PHASES, JSON_FILE, Profile


def read(model_dir: str) -> Profile:
    """Reads the profile in a model_dir; raises CommandError if it is missing, damaged or of another format."""
    path = os.path.join(model_dir, JSON_FILE)
    text = files.text_of(path)
    again = 'Profile some steps of a run with --profile_steps=A,B.'
    if not text:
        raise CommandError(f'{path}: there is no profile. {again}')
    try:
        content = from_json(text, lambda values: dict(values.items()))
        if content.pop('format', None) != FORMAT:
            raise ValueError(f'it has another format than {FORMAT}')
        profile = record(Profile, content)
        times = [profile.step_ms, profile.device_ms, profile.wait_ms, profile.cpu_ms, profile.usual_ms or 0]
        if not all(0 <= time < 1e12 for time in [*times, *profile.host_ms.values()]) or profile.last < profile.first:
            raise ValueError('a time or the range of steps is impossible')
        if {*profile.host_ms} != {*HOST_PHASES} or min(profile.step_ms, profile.images, profile.hosts) <= 0:
            raise ValueError('phases, times or counts are missing')
    except (TypeError, ValueError) as error:
        raise CommandError(f'{path}: is damaged: {shown(error)}. {again}')
    return profile


def host_cpu_ms_per_image(profile: Profile) -> float:
    """The CPU time of a host to prepare an image: the time of its threads, but at most that of the process."""
    threads = sum(profile.host_ms.values())
    return (min(threads, profile.cpu_ms) if profile.cpu_ms else threads) * profile.hosts / profile.images
