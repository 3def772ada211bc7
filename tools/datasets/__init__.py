"""Making data sets: from folders of images, ImageNet, CIFAR-10, digits, and between record files and tar shards.

Commands and the digits preset import these; modules that read data do not. Start with `from_folder`.
"""
