"""Mutation of the program: which small changes of its lines no test notices."""
