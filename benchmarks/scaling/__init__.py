"""The growth of costs with the work: images, files, hosts, classes and pixels."""
