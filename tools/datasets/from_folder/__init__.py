"""Converting a folder of images to a data set."""
