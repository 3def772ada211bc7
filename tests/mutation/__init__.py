"""Mutation of the program: finds small changes of its lines that no test notices."""
