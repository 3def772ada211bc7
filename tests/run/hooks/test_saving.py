"""Tests of the settings of the hook that saves checkpoints."""

from inception_v3.run.hooks.saving import CheckpointHook


def test_checkpoint_hook__saves_at_the_given_interval() -> None:
    hook = CheckpointHook('m', 77, steps_per_run=5)
    assert (hook._timer._every_secs, hook._timer._every_steps) == (77, None)
    assert hook._steps_per_run == 5
    assert hook._save_path == 'm/model.ckpt'
