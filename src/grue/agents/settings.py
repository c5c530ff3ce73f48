"""Every hyper-parameter, by its paper name; the defaults are the paper's (docs/agents.md)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Settings:
    # Sizes of the network
    embedding: int = 20
    encoder: int = 64
    context: int = 512
    hidden: int = 128
    activation: str = "elu"
    """Of the hidden units that score commands: with relu heads die (docs/agents.md)."""
    heads: int | None = None
    """K; by default the agent's: 1 for drqn, 5 for sc."""

    # Play
    epsilon_start: float = 1.0
    epsilon_end: float = 0.1
    epsilon_steps: int = 1_000_000
    look_every: int = 20
    """I_look; 0 is never."""
    episode_steps: int | None = None
    """T; by default the game's: 100 for level 1, else 200."""
    threshold: float = 0.001
    """c of masking."""
    softness: float = 0.1
    """ε₁: how often a learned gate allows everything."""

    # Memory
    replay_steps: int = 500_000
    positive_fraction: float = 0.25
    negative_fraction: float = 0.25
    sequence_length: int = 15
    minimum_history: int = 6
    batch_size: int = 32

    # Learning
    discount: float = 0.9
    learning_rate: float = 0.001
    gradient_clip: float = 5.0
    update_every: int = 4
    target_every: int = 1_000
    """I_target, in steps."""
    learning_starts: int = 1_000
    huber: bool = False
    adam_by_head: bool = True
    """Each head has an Adam of its own, which rests while the head has no gradient; else one Adam
    is for all."""
    consistent_with_next: bool = True
    """CQLH as in the appendix, with Q(h_{t+1}, a_t); else as in equation (4), with Q(h_t, a_t)."""
    oracle_in_targets: bool = True
    """With the oracle's gate the maximum in a target is over the admissible commands; else over
    all, of which some are never tried, so that nothing corrects their values."""

    precision: str = "auto"
    """Of the context LSTM's products: float32, bfloat16, or by the device: bfloat16 on a GPU."""

    # Tabular agents
    table_rows: int = 32_768
    """Texts with values; li-tabular meets 28,000 on level 7 and keeps 11,000 of them."""
    table_learning_rate: float = 0.1

    # AE-DQN; sizes and constants are those of its authors' program
    state_words: int = 128
    """Of look and inventory together; what is longer is cut off."""
    state_history: int = 4
    """Such texts that it sees: the last few states."""
    word_vector: int = 300
    value_filters: int = 500
    """Of Q, for each height."""
    elimination_filters: int = 30
    """Of E, for each height."""
    elimination_threshold: float = 0.6
    """ℓ"""
    elimination_confidence: float = 1.0
    """β"""
    elimination_ridge: float = 0.1
    """λ"""
    elimination_rows: int = 256
    """Steps of the memory that each update counts for the next solution."""

    # Reporting
    metrics_every: int = 1_000
    """Steps of a row of metrics."""
    average_over: int = 20_000
    """Steps of the moving average."""
