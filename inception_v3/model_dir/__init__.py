"""The files of a model_dir: checkpoints, evaluations, starts of training, the trainer's lock."""
