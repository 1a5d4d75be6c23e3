"""A conversation in a terminal: input by prompt_toolkit, output by rich, the scrollback kept."""
