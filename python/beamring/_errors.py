"""The exceptions of the package."""

import re


class Error(Exception):
    """The base of all errors of this package."""


class Mistake:
    """One mistake of a pipeline file: file, line, column (None where it has no place), text."""

    def __init__(self, text):
        found = re.match(r"(.+?):(\d+):(\d+): (.*)", text, re.S)
        self.file, line, column, self.text = found.groups() if found else (None, None, None, text)
        self.line, self.column = (int(line), int(column)) if found else (None, None)

    def __repr__(self):
        return f"{self.file}:{self.line}:{self.column}: {self.text}" if self.file else self.text


class ConfigError(Error):
    """A pipeline that cannot be run.  `mistakes` has all of them, each with file, line and column."""

    def __init__(self, text):
        self.mistakes = [Mistake(line) for line in text.strip().split("\n") if line] or [
            Mistake("it gave no reason")
        ]
        super().__init__("\n".join(map(repr, self.mistakes)))


class RunError(Error):
    """A run that failed.  `messages` has its log; `stats` the counters; `__cause__` the exception of a
    stage in
    Python, if there was one."""

    def __init__(self, text, messages=(), stats=None):
        super().__init__(text)
        self.messages, self.stats = list(messages), stats


class NodeError(Error):
    """A node that refuses a request or does not answer.  `code` is the HTTP status, None without an
    answer."""

    def __init__(self, text, code=None):
        super().__init__(text)
        self.code = code


class FormatError(Error):
    """A file that is not what it should be."""


class DeadFrame(Error):
    """A frame was used after `process` had returned."""
