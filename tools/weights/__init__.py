"""Command `inception-v3 weights`: converts and compares weights of other frameworks."""
