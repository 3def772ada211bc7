"""The kinds of preprocessing, one object each: draw, crop, resize, finish.

Everything that differs between the kinds is in their objects; the input pipeline and the infeed call only the methods
of `Preprocessing`. To add a kind, write its settings and its object, and add the object to `PREPROCESSINGS`.
"""

import abc
from typing import Any, Dict, Generic, NamedTuple, Optional, Type, TypeVar, Union

from console.tensorflow_versions import tf
from preprocessing import cifar_preprocessing, inception_preprocessing, vgg_preprocessing
from preprocessing.decoding import Crop
from preprocessing.finishing import CHANNEL_MEANS, WHITE, apply_flip, scaled
from preprocessing.geometry import BILINEAR, apply_resize, positions_in, sample
from preprocessing.stateless import Uniform

Distortion = TypeVar('Distortion')
Window = TypeVar('Window')


class Preprocessing(abc.ABC, Generic[Distortion, Window]):
    """A kind of preprocessing with its settings.

    A training image takes the steps `draw`, `crop`, decoding of the crop, `resize`, `finish`. An evaluation image takes
    the same steps without `draw`. With `--transfer=uint8` the host sends resized images, and in training
    the numbers from `pack`; `finishing` has what the device then does. A training image without
    `finishes_bytes` is finished by the host, which then rounds it; the device only scales it.

    A `Window` has the attribute `crop`, the box of the pixels to decode, and other values for `resize`.

    Attributes:
      Settings: the type of the settings, a named tuple; its fields are named like the flags that set them.
    """

    Settings: Type[Any]

    @property
    def fits_bytes(self) -> bool:
        """Whether resized images may be sent as bytes, and finished on the device."""
        return True

    @property
    def finishes_bytes(self) -> bool:
        """Whether training images may be rounded to bytes before they are finished, or only after."""
        return True

    @abc.abstractmethod
    def draw(self, image_shape: tf.Tensor, bbox: tf.Tensor, uniform: Uniform) -> Distortion:
        """Draws the random numbers of a training image, or of each image of a group.

        Args:
          image_shape: int32 [3], height, width and channels of the image; for a group, [images, 3].
          bbox: float32 [1, boxes, 4], each ymin, xmin, ymax, xmax as fractions of the image. For a group, boxes
            must not be used.
          uniform: draws the numbers.

        Returns:
          The numbers; for a group, each [images, …], but scalars where all images have the same.
        """

    @abc.abstractmethod
    def crop(self, image_shape: tf.Tensor, distortion: Optional[Distortion] = None) -> Window:
        """Returns the window of a distortion, or the central window of evaluation if there is no distortion."""

    @abc.abstractmethod
    def positions(self, window: Window) -> tf.Tensor:
        """Returns the positions in the image that become the result's first and last pixels if resized bilinearly.

        Returns:
          float64 [4]: top, left, bottom, right, in pixels.
        """

    @abc.abstractmethod
    def resize(self, pixels: tf.Tensor, window: Window, box: Optional[tf.Tensor] = None) -> tf.Tensor:
        """Resizes the pixels of a window.

        Args:
          pixels: uint8 [crop height, crop width, 3], the pixels in `window.crop`; with a box, any part of the image at
            any scale.
          window: as `crop` returns it.
          box: float32 [4], the positions within `pixels` that become the result's first and last pixels: top, left,
            bottom, right. Resizing is then bilinear.

        Returns:
          float32 [height, width, 3], in [0, 255].
        """

    @abc.abstractmethod
    def finish(self, image: tf.Tensor, distortion: Optional[Distortion] = None) -> tf.Tensor:
        """Applies the rest of a distortion, if there is one, to a resized image, and scales it for the network.

        Args:
          image: float32 [height, width, 3], in [0, 255]; without a distortion also a batch of images.
          distortion: as `draw` draws it for the image; None in evaluation.

        Returns:
          float32, of the image's shape.
        """

    @abc.abstractmethod
    def pack(self, distortion: Distortion) -> tf.Tensor:
        """Returns the numbers of a distortion that `finishing.finished` needs, float32 [numbers]."""

    def visible(self, images: tf.Tensor) -> tf.Tensor:
        """Converts finished images [..., 3] back to viewable pixels: uint8, rounded to the nearest integers."""
        pixels = self.unscaled(tf.cast(images, tf.float32))
        return tf.cast(tf.clip_by_value(pixels, 0.0, WHITE) + 0.5, tf.uint8)

    @abc.abstractmethod
    def unscaled(self, images: tf.Tensor) -> tf.Tensor:
        """Inverts the scaling for the network: float32 [..., 3], in [0, 255]."""


class _InceptionWindow(NamedTuple):
    """The crop of an image, and an index into `RESIZE_METHODS`."""

    crop: Crop
    resize_method: Union[int, tf.Tensor]


class InceptionPreprocessing(Preprocessing[inception_preprocessing.Distortion, _InceptionWindow]):
    """The Inception preprocessing; finished images are in [-1, 1]."""

    Settings = inception_preprocessing.Settings

    def __init__(self, settings: inception_preprocessing.Settings):
        self._settings = settings

    @property
    def fits_bytes(self) -> bool:
        """Whether `fast_mode` is on: bytes cannot hold the values below black and above white of bicubic resizing."""
        return self._settings.fast_mode

    @property
    def finishes_bytes(self) -> bool:
        """Whether the colour is one shift.

        `tf.image.adjust_saturation` returns grey or black for some pixels next to a full turn of the hue, such as red
        ones whose green is a rounding error below their blue. If it followed the rounding to bytes, it could change a
        pixel by 206 levels.
        """
        return self._settings.use_fast_color_distort

    def draw(self, image_shape: tf.Tensor, bbox: tf.Tensor, uniform: Uniform) -> inception_preprocessing.Distortion:
        """Draws crop, resize method, flip and colour."""
        box = bbox if self._settings.use_annotated_bbox else inception_preprocessing.whole_image_box()
        return inception_preprocessing.draw_distortion(image_shape, box, self._settings, uniform)

    def crop(
        self, image_shape: tf.Tensor, distortion: Optional[inception_preprocessing.Distortion] = None
    ) -> _InceptionWindow:
        """Returns the drawn crop, or the central 87.5 % of height and width."""
        if distortion is None:
            return _InceptionWindow(inception_preprocessing.central_crop(image_shape), BILINEAR)
        return _InceptionWindow(distortion.crop, BILINEAR if self._settings.fast_mode else distortion.resize_method)

    def positions(self, window: _InceptionWindow) -> tf.Tensor:
        """Returns the positions that `tf.image.resize` reads."""
        return positions_in(window.crop, self._settings.height, self._settings.width)

    def resize(self, pixels: tf.Tensor, window: _InceptionWindow, box: Optional[tf.Tensor] = None) -> tf.Tensor:
        """Resizes by the drawn method, or bilinearly in evaluation."""
        if box is not None:
            return sample(pixels, box, self._settings.height, self._settings.width)
        return apply_resize(pixels, self._settings.height, self._settings.width, window.resize_method)

    def finish(self, image: tf.Tensor, distortion: Optional[inception_preprocessing.Distortion] = None) -> tf.Tensor:
        """Flips, distorts the colour and scales to [-1, 1]; only scales in evaluation."""
        if distortion is None:
            return scaled('inception', image)
        return inception_preprocessing.finish(image, distortion, self._settings.fast_mode, WHITE)

    def pack(self, distortion: inception_preprocessing.Distortion) -> tf.Tensor:
        """Returns the flip and the three numbers of a fast colour."""
        return tf.stack([tf.cast(distortion.flip, tf.float32), *distortion.color])

    def unscaled(self, images: tf.Tensor) -> tf.Tensor:
        """Maps [-1, 1] to [0, 255]."""
        return (images + 1.0) * (WHITE / 2)


class VggPreprocessing(Preprocessing[vgg_preprocessing.Distortion, vgg_preprocessing.Window]):
    """The VGG preprocessing; finished images are pixels in [0, 255] minus the channel means."""

    Settings = vgg_preprocessing.Settings

    def __init__(self, settings: vgg_preprocessing.Settings):
        self._settings = settings
        self._resize_range = vgg_preprocessing.resize_range(settings.height, settings.width)

    def draw(self, image_shape: tf.Tensor, bbox: tf.Tensor, uniform: Uniform) -> vgg_preprocessing.Distortion:
        """Draws the smaller side after resizing, the position of the crop and the flip."""
        return vgg_preprocessing.draw_distortion(*self._resize_range, self._settings.random_flip, uniform)

    def crop(
        self, image_shape: tf.Tensor, distortion: Optional[vgg_preprocessing.Distortion] = None
    ) -> vgg_preprocessing.Window:
        """Returns the window of the drawn crop, or that of the central crop at the range's smallest side."""
        size = (self._settings.height, self._settings.width)
        if distortion is None:
            return vgg_preprocessing.central_window(image_shape, self._resize_range[0], *size)
        return vgg_preprocessing.draw_window(image_shape, distortion, *size)

    def positions(self, window: vgg_preprocessing.Window) -> tf.Tensor:
        """Returns the positions of the window's box."""
        begin = tf.stack([window.crop.top, window.crop.left])
        return tf.cast(window.box, tf.float64) + tf.cast(tf.tile(begin, [2]), tf.float64)

    def resize(self, pixels: tf.Tensor, window: vgg_preprocessing.Window, box: Optional[tf.Tensor] = None) -> tf.Tensor:
        """Resizes bilinearly, to the result of resizing the whole image and then cropping."""
        if box is not None:
            return sample(pixels, box, self._settings.height, self._settings.width)
        return vgg_preprocessing.resize_window(pixels, window, self._settings.height, self._settings.width)

    def finish(self, image: tf.Tensor, distortion: Optional[vgg_preprocessing.Distortion] = None) -> tf.Tensor:
        """Flips and subtracts the channel means; only subtracts in evaluation."""
        if distortion is not None:
            image = apply_flip(image, distortion.flip)
        return scaled('vgg', image)

    def pack(self, distortion: vgg_preprocessing.Distortion) -> tf.Tensor:
        """Returns the flip."""
        return tf.stack([tf.cast(distortion.flip, tf.float32)])

    def unscaled(self, images: tf.Tensor) -> tf.Tensor:
        """Adds the channel means."""
        return images + CHANNEL_MEANS


class _CifarWindow(NamedTuple):
    """The whole image, and the position of the crop in the padded image."""

    crop: Crop
    top: tf.Tensor
    left: tf.Tensor


class CifarPreprocessing(Preprocessing[cifar_preprocessing.Distortion, _CifarWindow]):
    """The CIFAR preprocessing; finished images are in [-1, 1]."""

    Settings = cifar_preprocessing.Settings

    def __init__(self, settings: cifar_preprocessing.Settings):
        self._settings = settings

    def draw(self, image_shape: tf.Tensor, bbox: tf.Tensor, uniform: Uniform) -> cifar_preprocessing.Distortion:
        """Draws the position of the crop and the flip."""
        return cifar_preprocessing.draw_distortion(self._settings.crop_padding, self._settings.random_flip, uniform)

    def crop(self, image_shape: tf.Tensor, distortion: Optional[cifar_preprocessing.Distortion] = None) -> _CifarWindow:
        """Returns the whole image, with the drawn shift, or with none."""
        whole = Crop(tf.constant(0), tf.constant(0), image_shape[0], image_shape[1])
        if distortion is None:
            unshifted = tf.constant(self._settings.crop_padding)
            return _CifarWindow(whole, unshifted, unshifted)
        return _CifarWindow(whole, distortion.top, distortion.left)

    def positions(self, window: _CifarWindow) -> tf.Tensor:
        """Returns the positions that `tf.image.resize` reads."""
        return positions_in(window.crop, self._settings.height, self._settings.width)

    def resize(self, pixels: tf.Tensor, window: _CifarWindow, box: Optional[tf.Tensor] = None) -> tf.Tensor:
        """Resizes the image bilinearly, and shifts it."""
        size = self._settings.height, self._settings.width
        resized = apply_resize(pixels, *size, BILINEAR) if box is None else sample(pixels, box, *size)
        return cifar_preprocessing.shift(resized, window.top, window.left, self._settings.crop_padding)

    def finish(self, image: tf.Tensor, distortion: Optional[cifar_preprocessing.Distortion] = None) -> tf.Tensor:
        """Flips and scales to [-1, 1]; only scales in evaluation."""
        if distortion is not None:
            image = apply_flip(image, distortion.flip)
        return scaled('cifar', image)

    def pack(self, distortion: cifar_preprocessing.Distortion) -> tf.Tensor:
        """Returns the flip."""
        return tf.stack([tf.cast(distortion.flip, tf.float32)])

    def unscaled(self, images: tf.Tensor) -> tf.Tensor:
        """Maps [-1, 1] to [0, 255]."""
        return (images + 1.0) * (WHITE / 2)


# The objects, by the value of --preprocessing.
PREPROCESSINGS: Dict[str, Type[Any]] = {
    'inception': InceptionPreprocessing,
    'vgg': VggPreprocessing,
    'cifar': CifarPreprocessing,
}


def preprocessing_for(flags: Any) -> Preprocessing:
    """Returns the preprocessing that flags name, with its settings.

    Args:
      flags: has the flags as attributes, such as the program's configuration.
    """
    kind = PREPROCESSINGS[flags.preprocessing]
    return kind(kind.Settings(**{name: getattr(flags, name) for name in kind.Settings._fields}))
