"""Perdure's agent in Telegram: each chat of an allowed person is a session of the agent."""
