"""Command `inception-v3 evaluate`: evaluates a checkpoint, and reports its errors."""

# The report's folder in a model_dir, and its file with all numbers.
FOLDER, JSON_FILE = 'evaluation_report', 'report.json'
