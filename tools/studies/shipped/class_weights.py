"""Do balanced class weights help classes with few images?

`--class_weights=balanced` multiplies the loss of an image by images / (classes · images of its class), so that a class
with a tenth of the images of another counts as much. In the data set of the small versions, half of the digits keep
a tenth of their training images. Validation has about as many images of each digit, so top-1 is close to the balanced
accuracy. Make the data set first:

    inception-v3 digits runs/digits_rare --rare=5,6,7,8,9

At full size, name a data set of your own with `-- --data_dir=DIR`; ImageNet's classes differ in size by less than two.
"""

from tools.studies.shipped import DIGITS, DIGITS_WHOLE, STEP_MS, WHOLE_SEEDS
from tools.studies.study import Small, Study, cases

_DATA = {'data_dir': 'runs/digits_rare'}

STUDY = Study(
    axes=[cases({'even': {}, 'balanced': {'class_weights': 'balanced'}})],
    step_ms=STEP_MS,
    digits=Small(flags={**DIGITS, **_DATA}),
    digits_whole=Small(flags={**DIGITS_WHOLE, **_DATA}, seeds=WHOLE_SEEDS),
)
