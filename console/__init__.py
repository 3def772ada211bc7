"""The screen, messages and errors of every command, and the settings that TensorFlow reads when it is loaded."""
