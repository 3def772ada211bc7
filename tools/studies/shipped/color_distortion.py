"""Does the fast colour distortion change top-1, compared with larger ones, none, and VGG's preprocessing?

The fast distortion shifts brightness and chroma in YCbCr. The guide's middle option changes brightness and saturation.
The full one changes brightness, saturation, hue and contrast in one of four orders, and resizes with one of four
methods. VGG's preprocessing leaves colour unchanged and crops differently. Published: 78.1 to 78.5 % with the
inception preprocessing, and more than 78.1 % with the fast distortion at global batches of 1,024 to 16,384. The fast
distortion is the default because training is at the edge of being input-bound.
"""

from tools.studies.shipped import COLORS, DIGITS, DIGITS_WHOLE, STEP_MS, WHOLE_SEEDS
from tools.studies.study import Small, Study, cases, without

STUDY = Study(
    axes=[
        cases(
            {
                'fast': COLORS,
                'brightness+saturation': {'use_fast_color_distort': False},
                'full': {'use_fast_color_distort': False, 'fast_mode': False},
                'none': {'brightness_distortion_range': 0.0, 'cb_distortion_range': 0.0, 'cr_distortion_range': 0.0},
                'vgg': {'preprocessing': 'vgg'},
            }
        )
    ],
    step_ms=STEP_MS,
    digits=Small(flags=without([*COLORS], DIGITS)),
    digits_whole=Small(flags=without([*COLORS], DIGITS_WHOLE), seeds=WHOLE_SEEDS),
)
