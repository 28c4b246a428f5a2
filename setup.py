"""Refuse an old setuptools, which ignores pyproject.toml and installs a package UNKNOWN 0.0.0."""

import setuptools

if int(setuptools.__version__.partition(".")[0]) < 77:
    raise SystemExit(
        f"Edgefold's build needs setuptools 77 or newer and got {setuptools.__version__}: pip "
        "before version 23 gives a virtual environment the system's. Run `pip install --upgrade "
        "pip` in it, then install again; or install a wheel of Edgefold, which builds nothing."
    )
setuptools.setup()
