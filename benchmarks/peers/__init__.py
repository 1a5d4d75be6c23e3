"""Other memories and search engines beside Perdure: the same documents, the same questions, the same run.

Each peer lives in a virtual environment of its own and is driven as a process that reads JSON lines (`serve.py`), so
that Perdure's environment needs none of them.
"""
