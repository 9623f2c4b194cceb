"""The paper's own method: its plans, and what carrying them out makes of them."""
