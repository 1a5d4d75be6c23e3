"""Everything that talks to a model: the sockets, what stands behind them, and who may use the processor when."""
