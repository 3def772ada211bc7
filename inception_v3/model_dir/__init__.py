"""The files of a model_dir: checkpoints, evaluations, starts of training, and the trainer's lock."""
