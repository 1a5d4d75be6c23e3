"""The agent of this home as a model: for any program that talks with OpenAI's or Anthropic's API."""
