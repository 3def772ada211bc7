"""Command `python -m studies.score_agreement`: compares the scores with torch-fidelity and pytorch-fid."""
