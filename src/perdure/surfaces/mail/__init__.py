"""The agent of a home by mail: it answers the people of an allow list, each thread of messages as a session."""
