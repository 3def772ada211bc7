"""Command `inception-v3 evaluate`: evaluates a checkpoint, and reports its errors."""

# The folder of the report in a model_dir, and its file of all numbers.
FOLDER, JSON_FILE = 'evaluation_report', 'report.json'
