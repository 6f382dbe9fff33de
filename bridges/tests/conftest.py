"""Fixtures of the tests of the study: its text, and a refused command."""

import pytest

from study import __main__ as program
from study import text


@pytest.fixture(scope="session")
def corpus():
    return text.embedded()


@pytest.fixture
def refusal(capsys):
    """The error that the study prints for arguments that it refuses: one line, with status 2."""

    def printed(words):
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            program.main([*words])
        assert left.value.code == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        return said

    return printed
