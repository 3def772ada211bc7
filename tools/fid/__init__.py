"""Command `inception-v3 fid`: FID, KID and Inception Score of images, as TensorFlow 1 computed them."""
