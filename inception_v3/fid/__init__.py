"""Command `python -m inception_v3.scores`: FID, KID and Inception Score of images, as TensorFlow 1 computed them."""
