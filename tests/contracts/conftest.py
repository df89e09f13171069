"""The contracts are part of the product; their assertions are to be as readable as a test's."""

import pytest

pytest.register_assert_rewrite("mnemo.testing.contracts")
