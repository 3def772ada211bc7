"""The log of every command. `console.screen` shows it."""

import logging

logger = logging.getLogger('inception_v3')
