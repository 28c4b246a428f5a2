"""The one error of export."""


class ExportError(Exception):
    """The bundle cannot be written, or its graphs do not compute what the model does."""
