"""Records of the commands as dataclasses, from which their JSON Schemas are derived."""
