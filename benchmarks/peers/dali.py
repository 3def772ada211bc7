"""NVIDIA DALI on the CPU, with its usual or its fast decoding: see `meter`."""

from typing import Any, Iterator

from benchmarks.peers import meter

_HALF = [127.5, 127.5, 127.5]


def pipeline(spec: meter.Spec) -> meter.Pipeline:
    """The pipeline `dali` or `dali_fast`."""
    import numpy as np
    import nvidia.dali
    from nvidia.dali import fn, types

    @nvidia.dali.pipeline_def(batch_size=spec['batch_size'], num_threads=spec['workers'], device_id=None)
    def graph() -> Any:
        encoded, labels = fn.readers.file(file_root=spec['files'], random_shuffle=True)
        images = fn.decoders.image_random_crop(
            encoded,
            random_area=spec['area'],
            random_aspect_ratio=spec['aspect'],
            use_fast_idct=spec['library'] == 'dali_fast',
        )
        height, width = spec['size']
        images = fn.resize(images, resize_x=width, resize_y=height, interp_type=types.INTERP_LINEAR, antialias=False)
        mirror = fn.random.coin_flip()
        if not spec['colour']:
            return fn.flip(images, horizontal=mirror), labels
        brightness, saturation = (
            fn.random.uniform(range=[1 - spec[name], 1 + spec[name]]) for name in ('brightness', 'saturation')
        )
        images = fn.color_twist(images, brightness=brightness, saturation=saturation)
        return (
            fn.crop_mirror_normalize(
                images, mirror=mirror, mean=_HALF, std=_HALF, dtype=types.FLOAT, output_layout='HWC'
            ),
            labels,
        )

    def batches() -> Iterator[Any]:
        built = graph()
        built.build()
        while True:
            images, _ = built.run()
            yield np.asarray(images.as_tensor())

    return batches(), f'DALI {nvidia.dali.__version__}'


if __name__ == '__main__':
    meter.answer(pipeline)
