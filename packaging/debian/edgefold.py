#!/usr/bin/python3
"""The command edgefold."""

import sys

from edgefold.cli.main import main

sys.exit(main())
