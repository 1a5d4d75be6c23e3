"""Life-like changes of fact among distractors: templates in two halves, and the worlds made of them. Frozen."""
