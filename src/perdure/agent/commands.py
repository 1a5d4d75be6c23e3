"""How hard it is to undo what a shell line does: each simple command gets a risk, and the worst one counts. Pure.

The tables name what is known. Everything else is UNKNOWN, and a person is asked. This is a fence and no wall: a program
that is allowed can do anything that its user can. The sandbox (`sandbox.py`) limits that.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from enum import IntEnum
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from perdure.agent.folders import ProjectFolders
from perdure.agent.git_programs import find_git_programs
from perdure.agent.shell_line import Redirection, ShellWord, SimpleCommand, UnclearLine, split_line
from perdure.errors import ToolError

MAX_BASES = 16  # folders in which the commands of one line may run
MAX_MATCHES = 1000  # files that one pattern stands for
MAX_NESTED = 5  # lines in lines: bash -c "bash -c …"
MAX_PROGRAMS = 200  # that one line may start; each takes 0.3 ms, and two frames of the stack behind `env env …`
MAX_LOOKUPS = 10_000  # names that are looked up on the disk for one line; about a second


class Risk(IntEnum):
    """What it takes to undo a call; a higher one is worse."""

    READS = 0  # it changes nothing
    UNDOABLE = 1  # it is undone by one command, and nothing is lost
    EDITS = 2  # it changes files of the project
    UNKNOWN = 3
    HARD = 4  # it is hard to undo, or it reaches beyond the project
    REFUSED = 5  # never, in any mode


class CallRisk(NamedTuple):
    """The risk of one part of a call, and why."""

    risk: Risk
    reason: str
    command: str = ""  # the simple command, as rules match it


_HARMLESS_VARIABLES = re.compile(r"LANG|LC_[A-Z]+|TZ|TERM|COLUMNS|LINES|NO_COLOR|FORCE_COLOR|CI|PYTHON(?:DONTWRITEBYTECODE|UNBUFFERED|HASHSEED)|RUST_BACKTRACE|RUST_LOG|NODE_ENV|DEBUG\Z")  # fmt: skip  # noqa: E501
_PARENT_PATTERN = re.compile(r"(?:^|/)\.[^/]*[*?[]")  # may match `..`
_MAX_OPTION_CHARS = 200
_DEVICES = {"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty"}
_PROGRAM_FOLDERS = ("/bin/", "/usr/bin/", "/usr/local/bin/")
_HOME_NAMES = re.compile(r"\.perdure\b|PERDURE_HOME")

_READERS = set(
    "[ : basename cat cd cmp column comm cut date diff dirname df du echo egrep expr false fgrep file fold grep head "
    "id join jq ls md5sum nl nproc od paste popd printf pushd pwd readlink realpath rev seq sha1sum sha256sum "
    "sha512sum sleep sort stat strings sum tac tail test tr tree true tsort type uname uniq wc which whoami free "
    "uptime arch sync cksum b2sum expand unexpand fmt factor hexdump zcat xxd rg find fd git perdure".split()
)
_WRITING_OPTIONS = {  # of programs that otherwise read: with one of these they write a file, or run a program
    "sort": r"-\w*o.*|--o.*|--c(?!heck).*|-T.*|--t.*",  # GNU takes the beginning of a long option, too
    "tree": r"-\w*[oR].*|--output.*",
    "file": r"-\w*C.*|--c.*",
    "date": r"-\w*s.*|--s.*",
    "rg": r"--pre.*|--hostname-bin.*|-\w*z.*|--search-zip",
    "fd": r"-\w*[xX].*|--exec.*",
    "printf": r"-v.*",
    "test": r"-v",
    "[": r"-v",
    "hexdump": r"-f.*",
    "xxd": r"-\w*r.*|-revert",
}
_MAX_POSITIONAL = {"uniq": 1, "xxd": 1, "tsort": 1}  # a further one is a file that is written
_SPEAKERS = {"echo", "true", "false", ":", "sleep", "pwd", "nproc"}  # their words name no files
_SEARCHERS = {  # their first word is no file, unless an option gives it, or there is none
    "grep": r"-\w*[ef].*|--[rf].*", "egrep": r"-\w*[ef].*|--[rf].*", "fgrep": r"-\w*[ef].*|--[rf].*",
    "rg": r"-\w*[ef].*|--(?:reg|file|type-list).*", "jq": r"-\w*f.*|--from.*",
}  # fmt: skip
_UNDOABLE = {"mkdir": "makes a folder", "touch": "makes an empty file", "rmdir": "removes an empty folder"}
_EDITORS = {
    "cp": "copies files", "mv": "moves files", "ln": "makes a link", "tee": "writes a file", "install": "copies files",
    "chmod": "changes modes", "patch": "changes files",
}  # fmt: skip
_TARGET_OPTION = re.compile(r"-\w*t|--t")  # cp -tFOLDER
_HARD = {
    "rm": "deletes files", "shred": "deletes files", "unlink": "deletes a file", "truncate": "empties a file",
    "dd": "writes to files or disks", "mkfs": "formats a disk", "fdisk": "changes a disk", "parted": "changes a disk",
    "wipefs": "clears a disk", "mount": "changes mounts", "umount": "changes mounts", "chown": "changes owners",
    "chgrp": "changes owners", "kill": "ends processes", "pkill": "ends processes", "killall": "ends processes",
    "shutdown": "stops the machine", "reboot": "stops the machine", "halt": "stops the machine",
    "poweroff": "stops the machine", "systemctl": "changes services", "service": "changes services",
    "crontab": "changes jobs", "at": "starts a job later", "batch": "starts a job later", "curl": "reaches the network",
    "wget": "reaches the network", "nc": "reaches the network", "ncat": "reaches the network",
    "netcat": "reaches the network", "socat": "reaches the network", "telnet": "reaches the network",
    "ssh": "acts on another machine", "scp": "copies to or from another machine",
    "sftp": "copies to or from another machine", "rsync": "copies over whole folders", "ftp": "reaches the network",
    "docker": "acts on containers", "podman": "acts on containers", "kubectl": "acts on a cluster",
    "helm": "acts on a cluster", "terraform": "acts on infrastructure", "aws": "acts on a cloud",
    "gcloud": "acts on a cloud", "az": "acts on a cloud", "gh": "acts on a forge", "glab": "acts on a forge",
    "psql": "acts on a database", "mysql": "acts on a database", "mongosh": "acts on a database",
    "redis-cli": "acts on a database", "sqlite3": "acts on a database", "dropdb": "deletes a database",
    "twine": "publishes a package", "iptables": "changes the firewall", "useradd": "changes users",
    "userdel": "changes users", "passwd": "changes a password", "su": "becomes another user",
    "apt": "changes the system", "apt-get": "changes the system", "dnf": "changes the system",
    "yum": "changes the system", "brew": "changes the system", "mail": "sends mail", "sendmail": "sends mail",
}  # fmt: skip
_HARD_FORMS = (  # of programs that are otherwise unknown: the beginning of the command
    (re.compile(r"(?:npm|pnpm|yarn|cargo|poetry|uv|gem) (?:\S+ )*?(?:publish|yank|unpublish|push)\b"), "publishes"),
    (re.compile(r"(?:make|just) (?:\S+ )*?(?:deploy|publish|release)\b"), "publishes"),
)  # fmt: skip
_ROOT_PROGRAMS = {"sudo", "doas", "pkexec", "run0"}
_SHELLS = {"bash", "sh", "zsh", "dash", "ksh", "fish", "ash"}
_WRAPPERS = {  # program -> its options that take the next word
    "env": set[str](), "nohup": set[str](), "nice": {"-n"}, "ionice": {"-c", "-n"},
    "timeout": {"-s", "-k", "--signal", "--kill-after"}, "command": set[str](), "builtin": set[str](),
    "exec": {"-a"}, "stdbuf": {"-i", "-o", "-e"}, "time": {"-f", "-o"},
    "xargs": {"-I", "-n", "-P", "-L", "-d", "-E", "-s", "-a", "--max-args", "--max-procs", "--delimiter"},
    "sudo": {"-u", "-g", "-C", "-D", "-h", "-p", "-r", "-t", "-T", "-U"}, "doas": {"-u", "-C"},
    "pkexec": {"--user"}, "run0": {"-u"}, "busybox": set[str](),
}  # fmt: skip
_WRAPPER_OPTION = re.compile(
    r"--|-[a-zA-Z0-9]|-[a-zA-Z]\d+|-I\S+|-[oei][L0]|--[a-z-]+=.*|--(?:foreground|null|no-run-if-empty|preserve-status)"
)
_FIND_RUNS = {"-exec", "-execdir", "-ok", "-okdir"}
_FIND_WRITES = {"-fprint", "-fprint0", "-fprintf", "-fls"}

_GIT_READS = set(
    "status log diff show blame ls-files ls-tree rev-parse describe shortlog cat-file rev-list merge-base name-rev "
    "for-each-ref count-objects grep check-ignore whatchanged show-ref diff-tree diff-index version".split()
)
_GIT_UNDOABLE = {"add": "stages files"}
_GIT_EDITS = {
    "commit": "makes a commit", "switch": "changes branch", "mv": "moves files", "stash": "sets changes aside",
    "merge": "merges", "cherry-pick": "applies a commit", "revert": "reverts a commit", "tag": "makes a tag",
    "branch": "changes branches", "init": "makes a repository", "restore": "changes files", "checkout": "changes files",
    "apply": "changes files",
}  # fmt: skip
_GIT_WRITES_FILES = {"checkout", "switch", "merge", "cherry-pick", "revert", "stash", "apply"}
_GIT_HARD = {
    "push": "sends commits to a remote", "clean": "deletes files that git does not know", "gc": "drops old commits",
    "filter-branch": "rewrites history", "filter-repo": "rewrites history", "reflog": "may drop old commits",
    "prune": "drops old commits", "update-ref": "moves branches", "rm": "deletes files", "rebase": "rewrites commits",
    "pull": "merges what a remote has", "reset": "may drop changes", "worktree": "may drop changes",
    "submodule": "runs other repositories' code", "send-email": "sends mail",
}  # fmt: skip
_GIT_RISKY = (  # a subcommand with an option that makes it worse: pattern over its arguments
    ("checkout", r"(?:.* )?(?:--|-f|--force|\.|\S+\.\w+)(?: .*)?", Risk.HARD, "drops changes of files"),
    ("restore", r".*", Risk.HARD, "drops changes of files"),
    ("switch", r"(?:.* )?(?:-f|--force|--discard-changes|-C)(?: .*)?", Risk.HARD, "drops changes"),
    ("branch", r"(?:.* )?(?:-\w*[dDMCf]\w*|--delete|--force)(?: .*)?", Risk.HARD, "drops a branch"),
    ("tag", r"(?:.* )?(?:-d|-f|--delete|--force)(?: .*)?", Risk.HARD, "drops a tag"),
    ("stash", r"(?:drop|clear)(?: .*)?", Risk.HARD, "drops changes that were set aside"),
    ("branch", r"(?:-a|-r|-v|-vv|--list|--all|--show-current|--contains \S+| )*", Risk.READS, "lists branches"),
    ("tag", r"(?:-l|--list|-n\d*| )*", Risk.READS, "lists tags"),
    ("stash", r"(?:list|show)(?: [^-]\S*)*", Risk.READS, "lists what was set aside"),
    ("worktree", r"list", Risk.READS, "lists worktrees"),
    ("reflog", r"(?:show(?: [^-]\S*)*)?", Risk.READS, "lists old commits"),
    ("remote", r"(?:-v|--verbose)?", Risk.READS, "lists remotes"),
    ("remote", r"get-url [^-]\S*", Risk.READS, "shows a remote"),
    ("init", r"(?!(?:-q|--quiet)?$).*", Risk.UNKNOWN, "git init may write elsewhere, and copy what git runs"),
    ("apply", r"(?:.* )?--(?:u|dir).*", Risk.HARD, "it may write outside the project"),
    ("config", r"(?:--get|--get-all|--list|-l)(?: [\w.-]+)?", Risk.READS, "reads settings"),
)
_GIT_WRITING_OPTION = re.compile(
    r"--ou[a-z]*(?:=.*)?|--ext.*|--textc[a-z]*|--filters|-\w*O.*|--op.*|--upl.*|--exec.*"  # git completes long options
)
_REVISION = re.compile(r"(?!.*/\.\.)[\w@^][\w@^~/.{}-]*(?::|\.\.)[^:]*")  # main..topic, HEAD:src/a.py
_PERDURE_READS = {"search", "recall", "show", "tree", "status", "why", "doctor", "--version", "--help"}
_PERDURE_GROUP_READS = {  # subcommands that only show; none of them takes a file to write
    "floor": {"show", "history", "diff", "proposals"}, "skills": {"list", "show"}, "sessions": {"list", "tree", "show"},
    "memories": {"list", "show", "search", "history", "sources"},
}  # fmt: skip


def judge_line(line: str, folders: ProjectFolders) -> list[CallRisk]:
    """Return the risk of each simple command of a shell line; a line that cannot be split has one, UNKNOWN.

    >>> from pathlib import Path
    >>> folders = ProjectFolders(Path("/srv/app"), Path("/srv/home"), Path("/srv/app"))
    >>> [risk.risk.name for risk in judge_line("ls && rm -rf build", folders)]
    ['READS', 'HARD']
    """
    judge = _LineJudge(folders)
    while True:
        n_bases, judge.n_programs = len(judge.bases), 0
        try:
            risks = judge.judge(line)
        except _CostlyLine as error:
            return [CallRisk(Risk.REFUSED, f"it {error}; split it into several calls", line)]
        if len(judge.bases) == n_bases:
            return [judge.weigh_together(risk) for risk in risks]
        if len(judge.bases) > MAX_BASES:
            return [*risks, CallRisk(Risk.UNKNOWN, "it changes its folder too often", line)]


class _CostlyLine(Exception):
    """A line takes too long to judge; the message says what there is too much of."""


class _LineJudge:
    """Judges the commands of one line; it knows the folders to which the line may have changed."""

    def __init__(self, folders: ProjectFolders) -> None:
        self.folders = folders
        self.bases = [folders.start]
        self.depth = self.n_programs = self.n_lookups = 0
        self.link_makers: set[str] = set()  # commands after which a path may lead elsewhere
        self.is_git_elsewhere = False  # a git command runs in another folder than the first one

    def judge(self, line: str) -> list[CallRisk]:
        """Return the risk of each command."""
        self.depth += 1
        try:
            if self.depth > MAX_NESTED:
                return [CallRisk(Risk.UNKNOWN, "its lines stand too deep in one another", line)]
            commands = split_line(line)
            risks = [risk for command in commands for risk in self._judge_command(command)]
        except UnclearLine as error:
            risks = [CallRisk(Risk.UNKNOWN, f"it cannot be judged: {error}", line)]
        finally:
            self.depth -= 1
        return risks + (self._find_home_name(line) if any(risk.risk > Risk.READS for risk in risks) else [])

    def _count_lookups(self, n_names: int) -> None:
        """Count names that are looked up on the disk. Raises _CostlyLine."""
        self.n_lookups += n_names
        if self.n_lookups > MAX_LOOKUPS:
            raise _CostlyLine("names too many files")

    def _find_home_name(self, line: str) -> list[CallRisk]:
        """Refuse a line that names the home and may do more than read."""
        if _HOME_NAMES.search(line) or str(self.folders.home) in line:
            return [CallRisk(Risk.REFUSED, "it names the home of Perdure, which no tool writes; use remember", line)]
        return []

    def _judge_command(self, command: SimpleCommand) -> list[CallRisk]:
        risks = [self._judge_redirection(redirection) for redirection in command.redirections]
        risks += [
            CallRisk(Risk.UNKNOWN, f"it sets {name}", f"{name}=") for name, _ in command.assignments
            if not _HARMLESS_VARIABLES.fullmatch(name)
        ]  # fmt: skip
        try:
            return [*risks, *(self._judge_words(command.words) if command.words else [])]
        except OSError as error:  # a name too long, a folder that cannot be read: the disk cannot say what it means
            words = " ".join(word.text for word in command.words)
            return [*risks, CallRisk(Risk.UNKNOWN, f"it cannot be judged: {error.strerror}", words)]

    def weigh_together(self, risk: CallRisk) -> CallRisk:
        """Return the risk of a command beside the others of its line; its paths were judged as they are before."""
        if risk.risk != Risk.EDITS or risk.command.startswith("git "):
            return risk
        if self.link_makers - {risk.command}:
            return risk._replace(
                risk=Risk.UNKNOWN, reason="another command of the line may change where its path leads"
            )
        if self.is_git_elsewhere:
            return risk._replace(risk=Risk.UNKNOWN, reason="the line may make a repository, and run git in it")
        return risk

    def _judge_redirection(self, redirection: Redirection) -> CallRisk:
        target = redirection.target
        name = f"{redirection.operator} {target.text}"
        if redirection.operator == "<<<" or (
            redirection.operator in (">&", "<&") and re.fullmatch(r"\d+-?|-", target.text)
        ):
            return CallRisk(Risk.READS, "", name)
        if target.text in _DEVICES:
            return CallRisk(Risk.READS, "", name)
        if target.is_expanded or target.is_pattern:
            return CallRisk(Risk.UNKNOWN, "the name of a file is not certain", name)
        return self._judge_written(target.text, name) if redirection.is_output else self._judge_read(target, name)

    def _judge_written(self, path: str, name: str, risk: Risk = Risk.EDITS, what: str = "") -> CallRisk:
        """Return the risk of writing to a path."""
        zone = self._find_zone(path)
        if zone == "home":
            return CallRisk(Risk.REFUSED, "it would write into the home of Perdure", name)
        if zone == "project":
            return CallRisk(risk, what or f"writes {path}", name)
        place = "what git runs" if zone == "private" else "outside the project"
        return CallRisk(Risk.HARD, f"it would write {place}: {path}", name)

    def _judge_read(self, word: ShellWord, name: str) -> CallRisk:
        """Return the risk of reading what a word may name."""
        text = word.text
        if text.startswith("-"):
            if any(self._leads_out(text[n:]) for n in range(2, min(len(text), _MAX_OPTION_CHARS))):  # -ufFILE
                return CallRisk(Risk.UNKNOWN, f"it may read outside the project: {word.text}", name)
            text = text.partition("=")[2]
        text = text.removeprefix("@")  # strings @FILE
        if text in _DEVICES or not text or text.startswith("-"):
            return CallRisk(Risk.READS, "", name)
        if word.is_pattern and (word.is_quoted or _PARENT_PATTERN.search(text)):
            return CallRisk(Risk.UNKNOWN, f"{text} may stand for files outside the project", name)
        paths = [text, *(self._list_matches(text) if word.is_pattern else [])]
        if len(paths) > MAX_MATCHES:
            return CallRisk(Risk.UNKNOWN, f"{text} stands for more than {MAX_MATCHES:,} files", name)
        if all(self._find_zone(path) in ("project", "private", "read-only") for path in paths):
            return CallRisk(Risk.READS, "", name)
        return CallRisk(Risk.UNKNOWN, f"it may read outside the project: {word.text}", name)

    def _leads_out(self, path: str) -> bool:
        """Return True if a part of an option names something that is there, and outside the project."""
        self._count_lookups(len(self.bases))
        is_there = any(os.path.lexists(base / Path(path)) for base in self.bases)
        return is_there and self._find_zone(path) in ("home", "outside")

    def _find_zone(self, path: str) -> str:
        """Return the worst zone of a path, over the folders in which its command may run."""
        if path.startswith("~") and not path.startswith("~/") and path != "~":
            return "outside"
        self._count_lookups(len(self.bases))
        try:
            zones = {
                self.folders.find_zone(self.folders.resolve(str(base / Path(path).expanduser()))) for base in self.bases
            }
        except (ToolError, RuntimeError, ValueError, OSError):
            return "outside"  # a name that is no path may be anything
        return next(zone for zone in ("home", "outside", "private", "read-only", "project") if zone in zones)

    def _list_matches(self, pattern: str) -> list[str]:
        """Return the paths that a pattern may stand for, at most MAX_MATCHES + 1."""
        pattern = re.sub(r"\[[^/]*", "*", pattern)  # the shell's brackets mean more than Python's
        paths = (str(base / path) for base in self.bases for path in glob.iglob(pattern, root_dir=base))  # noqa: PTH207 - as a shell reads it
        return list(islice(paths, MAX_MATCHES + 1))

    def _judge_words(self, words: Sequence[ShellWord]) -> list[CallRisk]:
        """Return the risks of a program with its arguments, and of those that it would run."""
        self.n_programs += 1
        if self.n_programs > MAX_PROGRAMS:
            raise _CostlyLine(f"has more than {MAX_PROGRAMS} commands")
        text = " ".join(word.text for word in words)
        first = words[0]
        if first.is_expanded or first.is_pattern:
            return [CallRisk(Risk.UNKNOWN, "the program is not certain", text)]
        program = first.text
        for folder in _PROGRAM_FOLDERS:
            if program.startswith(folder) and "/" not in program[len(folder) :]:
                program = program[len(folder) :]
        if self.folders.has_program(program):
            return [CallRisk(Risk.UNKNOWN, f"PATH finds {program} in the project", text)]
        if program in _WRAPPERS:
            return self._judge_wrapper(program, words[1:])
        if program in _SHELLS or program == "eval":
            return self._judge_shell(program, words[1:], text)
        if program == "find" and any(word.text in _FIND_RUNS for word in words):
            return self._judge_find(words, text)
        return [self._judge_program(program, words[1:], text)]

    def _judge_wrapper(self, program: str, words: Sequence[ShellWord]) -> list[CallRisk]:
        """Return the risks of the command behind a program that runs another one."""
        risks = [CallRisk(Risk.HARD, "it acts as another user", program)] if program in _ROOT_PROGRAMS else []
        values, n_skipped = _WRAPPERS[program], 0
        while n_skipped < len(words):
            text = words[n_skipped].text
            if match := re.match(r"([A-Za-z_]\w*)=", text):
                if program not in ("env", *_ROOT_PROGRAMS):
                    break
                if not _HARMLESS_VARIABLES.fullmatch(match[1]):
                    risks.append(CallRisk(Risk.UNKNOWN, f"it sets {match[1]}", text))
            elif not text.startswith("-"):
                break
            elif program == "env":  # it splits a text into a command, goes to another folder, drops variables
                risks.append(CallRisk(Risk.UNKNOWN, f"env {text} changes how a command runs", f"env {text}"))
                if not re.fullmatch(r"-[0i]*|-u\w*", text):
                    return risks
                n_skipped += text == "-u"
            elif text not in values and not _WRAPPER_OPTION.fullmatch(text):  # its last letter may take the next word
                return [*risks, CallRisk(Risk.UNKNOWN, f"it is not certain what {program} {text} runs", program)]
            n_skipped += 2 if text in values else 1
        n_skipped += program == "timeout"  # its time
        inner = list(words[n_skipped:])
        if not inner:
            return [*risks, CallRisk(Risk.UNKNOWN, f"{program} without a command", program)]  # env lists variables
        if program == "xargs":
            inner.append(ShellWord("$…", is_expanded=True, is_quoted=True))  # what comes from standard input
        return [*risks, *self._judge_words(inner)]

    def _judge_shell(self, program: str, words: Sequence[ShellWord], text: str) -> list[CallRisk]:
        """Return the risks of the line that a shell or `eval` gets."""
        if any(word.is_expanded or (word.is_pattern and not word.is_quoted) for word in words):
            return [CallRisk(Risk.UNKNOWN, "the line that it runs is not certain", text)]
        if program == "eval":
            return self.judge(" ".join(word.text for word in words))
        if len(words) >= 2 and re.fullmatch(r"-[lexu]*c", words[0].text):
            return self.judge(words[1].text)
        return [CallRisk(Risk.UNKNOWN, f"{program} runs a script", text)]

    def _judge_find(self, words: Sequence[ShellWord], text: str) -> list[CallRisk]:
        """Return the risks of find, and of the commands that it runs."""
        inner: list[ShellWord] = []
        outer: list[ShellWord] = []
        risks: list[CallRisk] = []
        is_inside, last = False, ""
        for word in words:
            if is_inside and (word.text == ";" or (word.text == "+" and last == "{}")):
                risks += self._judge_words([*inner]) if inner else []
                inner, is_inside = [], False
            elif is_inside:
                inner.append(ShellWord("$…", is_expanded=True, is_quoted=True) if "{}" in word.text else word)
            elif word.text in _FIND_RUNS:
                is_inside = True
            else:
                outer.append(word)
            last = word.text
        if is_inside:
            return [CallRisk(Risk.UNKNOWN, "a command of find does not end", text)]
        return [*risks, self._judge_program("find", outer[1:], text)]

    def _judge_program(self, program: str, words: Sequence[ShellWord], text: str) -> CallRisk:
        """Return the risk of a program that runs no other one."""
        if program in _HARD or program.split(".", maxsplit=1)[0] == "mkfs":
            return self._judge_hard(program, words, text)
        if program in _UNDOABLE or program in _EDITORS:
            return self._judge_editor(program, words, text)
        if program == "sed" and (risk := self._judge_sed(words, text)):
            return risk
        if program not in _READERS:
            for form, reason in _HARD_FORMS:
                if form.match(text):
                    return CallRisk(Risk.HARD, reason, text)
            return CallRisk(Risk.UNKNOWN, f"it is not known what {program} does", text)
        if program == "git":
            return self._judge_git(words, text)
        if program == "perdure":
            return self._judge_perdure(words, text)
        return self._judge_reader(program, words, text)

    def _judge_hard(self, program: str, words: Sequence[ShellWord], text: str) -> CallRisk:
        for word in words:
            if not word.text.startswith("-") and self._find_zone(word.text.partition("=")[2] or word.text) == "home":
                return CallRisk(Risk.REFUSED, "it would change the home of Perdure", text)
        return CallRisk(Risk.HARD, _HARD.get(program, "formats a disk"), text)

    def _judge_editor(self, program: str, words: Sequence[ShellWord], text: str) -> CallRisk:
        """Return the risk of a program that writes the files that it names."""
        risk, what = (Risk.UNDOABLE, _UNDOABLE[program]) if program in _UNDOABLE else (Risk.EDITS, _EDITORS[program])
        worst = CallRisk(risk, what, text)
        if program in ("ln", "patch") or (program in _EDITORS and any(map(self._may_be_link, words[:-1]))):
            self.link_makers.add(text)
        for word in words:
            name = word.text.partition("=")[2] or word.text
            if word.is_expanded or word.is_pattern:
                worst = max(worst, CallRisk(Risk.UNKNOWN, f"which files {program} changes is not certain", text))
            elif word.text.startswith("-"):
                if "/" in word.text or program == "patch" or (program in _EDITORS and _TARGET_OPTION.match(word.text)):
                    worst = max(worst, CallRisk(Risk.UNKNOWN, f"{program} {word.text}", text))
            else:
                worst = max(worst, self._judge_written(name, text, risk, what))
        return worst

    def _may_be_link(self, word: ShellWord) -> bool:
        """Return True for a link, and for a folder, which may hold one."""
        self._count_lookups(len(self.bases))
        path = Path(word.text.rstrip("/"))
        return not word.text.startswith("-") and any(
            (base / path).is_symlink() or (base / path).is_dir() for base in self.bases
        )

    def _judge_sed(self, words: Sequence[ShellWord], text: str) -> CallRisk | None:
        """Return the risk of `sed -n 1,5p FILE`; None for any other form, which may write and run anything."""
        if len(words) < 2 or words[0].text != "-n" or not re.fullmatch(r"(?:\d+|\$)(?:,(?:\d+|\$))?p", words[1].text):
            return None
        if any(word.text.startswith("-") for word in words[2:]):
            return None  # -i writes, and -e brings another script
        return self._judge_reader("sed", words[2:], text)

    def _judge_reader(self, program: str, words: Sequence[ShellWord], text: str) -> CallRisk:
        """Return the risk of a program that only reads, unless its options say otherwise."""
        option = _WRITING_OPTIONS.get(program)
        if program in _SPEAKERS:
            return CallRisk(Risk.READS, "", text)
        if program in ("cd", "pushd", "popd") and (len(words) != 1 or words[0].text == "-" or words[0].is_pattern):
            return CallRisk(Risk.UNKNOWN, "it is not certain to which folder it goes", text)
        names = list(words)
        if (pattern_option := _SEARCHERS.get(program)) and not any(re.fullmatch(pattern_option, w.text) for w in words):
            search = next((word for word in words if not word.text.startswith("-") and not word.is_expanded), None)
            names = [word for word in words if word is not search]
        for word in words:
            if option and re.fullmatch(option, word.text):
                return CallRisk(Risk.UNKNOWN, f"{program} {word.text} may write a file or run a program", text)
            if program == "find" and (word.text == "-delete" or word.text in _FIND_WRITES):
                return CallRisk(Risk.HARD, "find deletes or writes files", text)
        if program in ("cd", "pushd"):
            self._add_base(words[0].text)
        for word in names:
            is_option_like = word.is_pattern and word.text[:1] in "*?[-" and (option or program == "find")
            if word.is_expanded or is_option_like:
                return CallRisk(Risk.UNKNOWN, f"{word.text} is not certain", text)
            if (risk := self._judge_read(word, text)).risk > Risk.READS:
                return risk
        n_positional = sum(word.text == "-" or not word.text.startswith("-") for word in words)
        if n_positional > _MAX_POSITIONAL.get(program, n_positional):
            return CallRisk(Risk.UNKNOWN, f"the second name for {program} is a file that it writes", text)
        return CallRisk(Risk.READS, "", text)

    def _add_base(self, path: str) -> None:
        """Let the commands of this line also be judged in another folder."""
        with suppress(ToolError, RuntimeError):
            targets = [self.folders.resolve(str(base / Path(path).expanduser())) for base in self.bases]
            folders = [target for target in dict.fromkeys(targets) if target not in self.bases and target.is_dir()]
            self.bases += folders

    def _judge_git(self, words: Sequence[ShellWord], text: str) -> CallRisk:
        """Return the risk of a git command."""
        words, places = list(words), self.bases
        while words and words[0].text in ("--no-pager", "-C", "-P"):
            if words.pop(0).text == "-C":
                if not words or self._judge_read(words[0], text).risk > Risk.READS:
                    return CallRisk(Risk.UNKNOWN, "it acts on another repository", text)
                places = [base / words[0].text for base in places]
                words.pop(0)
        if not words or words[0].is_expanded or words[0].text.startswith("-"):
            return CallRisk(Risk.UNKNOWN, "options of git can run programs", text)
        risk = self._judge_subcommand(words, text)
        if risk.risk <= Risk.EDITS:
            self._count_lookups(len(places))
            self.is_git_elsewhere |= places != [self.folders.start]
            for place in places:
                if cause := find_git_programs(place, with_hooks=risk.risk == Risk.EDITS):
                    return CallRisk(Risk.UNKNOWN, f"git would run a program: {cause}", text)
        return risk

    def _judge_subcommand(self, words: Sequence[ShellWord], text: str) -> CallRisk:
        """Return the risk of a git command, its programs apart. words: from the subcommand on."""
        subcommand, arguments = words[0].text, " ".join(word.text for word in words[1:])
        if subcommand in _GIT_WRITES_FILES:
            self.link_makers.add(text)
        for word in words[1:]:
            if word.is_expanded or _GIT_WRITING_OPTION.fullmatch(word.text):
                return CallRisk(
                    Risk.HARD if subcommand in _GIT_HARD else Risk.UNKNOWN, f"git {subcommand} {word.text}", text
                )
        if subcommand == "checkout":
            self._count_lookups(len(words) * len(self.bases))
            if any((base / word.text).exists() for word in words[1:] for base in self.bases):
                return CallRisk(Risk.HARD, "drops changes of files", text)
        for name, pattern, risk, reason in _GIT_RISKY:
            if name == subcommand and re.fullmatch(pattern, arguments):
                return CallRisk(risk, reason, text)
        for table, risk in ((_GIT_UNDOABLE, Risk.UNDOABLE), (_GIT_EDITS, Risk.EDITS), (_GIT_HARD, Risk.HARD)):
            if subcommand in table:
                return CallRisk(risk, table[subcommand], text)
        if subcommand not in _GIT_READS:
            return CallRisk(Risk.UNKNOWN, f"it is not known what git {subcommand} does", text)
        reads = [self._judge_read(word, text) for word in words[1:] if not _REVISION.fullmatch(word.text)]
        return max([CallRisk(Risk.READS, "", text), *reads], key=lambda risk: risk.risk)

    def _judge_perdure(self, words: Sequence[ShellWord], text: str) -> CallRisk:
        """Return the risk of this program: a command that writes goes around the tools that are made for it."""
        names = [word.text for word in words[:2] if not word.is_expanded and not word.is_pattern]
        if names and (names[0] in _PERDURE_READS or set(names[1:]) & _PERDURE_GROUP_READS.get(names[0], set())):
            return CallRisk(Risk.READS, "", text)
        return CallRisk(
            Risk.REFUSED, "the shell may only search and recall in the home; use remember to keep something", text
        )
