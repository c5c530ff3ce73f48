"""The paper's conditions and figures: what to train for them, and what was measured."""
