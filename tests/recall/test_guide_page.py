"""The page of the guide on recall: what it says an example prints is what it prints."""

import re
from pathlib import Path

import pytest

import mnemo

PAGE = Path(mnemo.__file__).parent / "guide" / "recall.md"


@pytest.mark.slow
def test_the_printed_output_is_what_the_program_prints(tmp_path, monkeypatch, capsys):
    """Each example that is followed by its output."""
    monkeypatch.chdir(tmp_path)
    pattern = r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$"
    told = re.findall(pattern, PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert told
    for code, printed in told:
        exec(compile(code, PAGE.name, "exec"), {"__name__": "__main__"})
        assert capsys.readouterr().out == printed
