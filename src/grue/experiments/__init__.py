"""The paper's conditions and figures: the runs they need, and records of what was measured."""
