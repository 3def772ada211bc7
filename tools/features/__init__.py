"""Command `inception-v3 features`: the pooled features of images at any layer of a network."""

# The layer that most measures use: the pooled map that enters the classifier.
POOL = 'pool'
FILES_OF_2015 = 'classify_image_graph_def.pb of 2015, pt_inception-2015-12-05-6726825d.pth of pytorch-fid'
