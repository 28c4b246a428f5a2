"""Start new sensors warm: forecast their first rows by the states of sibling sensors, too."""
