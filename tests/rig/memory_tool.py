"""The six commands of the memory tool over a tree in memory."""

from perdure.floor import state
from perdure.surfaces.memory_tool import commands
from perdure.surfaces.memory_tool.commands import FileTree, MovePath, PutFile, RemovePath


class MemoryTree:
    """Runs commands and applies their changes, as a home does."""

    def __init__(self):
        self.texts, self.folders = {}, set()

    def call(self, command):
        """Run one command; return its message."""
        done = commands.run_command(FileTree(self.texts, self.folders), commands.check_input(command))
        match done.change:
            case PutFile(path, text):
                state.put_path(self.texts, self.folders, path, text)
            case RemovePath(path):
                state.remove_path(self.texts, self.folders, path)
            case MovePath(path, to):
                state.move_path(self.texts, self.folders, path, to)
        return done.message
